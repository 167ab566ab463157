"""Scores against brute force, baselines with known answers, intervals against scipy."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from entp_lib.evaluation import (
    batches,
    bootstrap_interval,
    evaluate,
    first_at,
    mean_interval,
    mode_baseline,
    proportion_interval,
    value_at,
)
from entp_lib.tasks import Counting, Triplets


@pytest.mark.parametrize("architecture", ["decoder", "entp", "prefix_decoder"])
def test_scores_equal_a_count_by_hand(small_model, architecture):
    task = Counting(length=8, seed_length=3, symbols=11)
    model = small_model(architecture, vocab_size=11, dtype=torch.float32)
    scores = evaluate(model, task, 300, "seed", detailed=True)  # two batches of unequal size
    losses, right, whole, margins = [], [], [], []
    for batch in batches(task, 300, "cpu", "evaluate", "seed"):
        logits = model(batch.inputs_BT, batch.wanted_BT, batch.prompt_lengths_B).view(-1, 5, 11)
        targets = batch.targets_BT[:, 3:]
        losses.append(F.cross_entropy(logits.transpose(1, 2), targets, reduction="none"))
        right.append(logits.argmax(-1) == targets)
        whole.append(right[-1].all(1))
        top = logits.sort(-1, descending=True).values
        margins.append(top[..., 0] - top[..., 1])
    right, losses, margins = torch.cat(right).double(), torch.cat(losses), torch.cat(margins)
    assert scores["sequences"] == 300 and scores["position"] == [4, 5, 6, 7, 8]
    assert scores["loss"] == pytest.approx(losses.mean().item(), rel=1e-5)
    assert scores["token_accuracy"] == pytest.approx(right.mean().item())
    assert scores["sequence_accuracy"] == pytest.approx(torch.cat(whole).double().mean().item())
    assert scores["token_accuracy_by_position"] == pytest.approx(right.mean(0).tolist())
    assert scores["margin"]["mean"] == pytest.approx(margins.mean().item(), rel=1e-5)
    assert scores["margin"]["q50"] == pytest.approx(margins.quantile(0.5).item(), rel=1e-4)


def test_evaluation_leaves_the_model_as_it_was(small_model):
    model = small_model(vocab_size=8, dtype=torch.float32).train()
    evaluate(model, Counting(length=8, seed_length=3, symbols=8), 16, 0)
    assert model.training and all(p.grad is None for p in model.parameters())


def test_mode_baseline_of_a_label_that_is_always_one():
    """Modulus 1 would be trivial; with two symbols and modulus 2 a pair exists as soon as x_1 is even or repeats."""
    task = Triplets(length=6, symbols=2, modulus=2)
    labels = next(batches(task, 4000, "cpu", "other")).targets_BT - 2
    ones = labels.double().mean(0)
    expected = torch.maximum(ones, 1 - ones).mean().item()
    found = mode_baseline(task, 4000, "x")
    assert found["token_accuracy"] == pytest.approx(expected, abs=0.04)
    assert found["loss"] < math.log(2) and len(found["token_accuracy_by_position"]) == 6


def test_mean_interval_is_students():
    values = [0.1, 0.4, 0.2, 0.3, 0.35]
    mean, low, high = mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((sum(values) / 5, expected.low, expected.high))
    assert all(math.isnan(x) for x in mean_interval([0.3])[1:]) and math.isnan(mean_interval([])[0])


def test_proportion_interval_holds_its_share_and_stays_within_0_and_1():
    low, high = proportion_interval(38, 100)
    assert 0.28 < low < 0.38 < high < 0.49
    assert proportion_interval(0, 10)[0] == 0 and proportion_interval(10, 10)[1] == 1


def test_bootstrap_interval_is_repeatable_and_near_the_t_interval():
    values = list(stats.norm.rvs(size=60, random_state=1))
    low, high = bootstrap_interval(values)
    assert (low, high) == bootstrap_interval(values)
    assert (low, high) == pytest.approx(mean_interval(values)[1:], abs=0.08)


def test_curves_are_read_at_a_threshold_and_at_a_budget():
    curves = {"step": [10, 20, 30], "seconds": [1.0, 2.5, 4.0], "token_accuracy": [0.2, None, 0.9]}
    assert first_at(curves, "token_accuracy", 0.9) == 30
    assert first_at(curves, "token_accuracy", 0.15, "seconds") == 1.0
    assert first_at(curves, "token_accuracy", 0.95) is None
    assert value_at(curves, "token_accuracy", 4.0, "seconds") == 0.9
    assert value_at(curves, "token_accuracy", 1.9, "seconds") == 0.2
    assert value_at(curves, "token_accuracy", 0.9, "seconds") is None
