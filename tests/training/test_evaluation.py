"""Scores against brute force, baselines with known answers, intervals against scipy."""

import math
import statistics

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.statistics import (
    first_at,
    holm,
    mcnemar,
    mean_interval,
    p_value,
    proportion_interval,
    ratio_interval,
    value_at,
    welch_interval,
)
from entp_lib.strict import ConfigError
from entp_lib.tasks import Batch, Counting, Task, Triplets
from entp_lib.tasks.counting import count3
from entp_lib.training.evaluation import batches, constant_baseline, evaluate, mode_baseline


class Weighted(Task):
    """Targets drawn with known frequencies at position 1, always 2 at position 2, not scored at position 3."""

    vocab_size, length = 3, 3
    frequencies = (0.7, 0.2, 0.1)

    def batch(self, generator, size, evaluating=False):
        targets = torch.full((size, 3), 2)
        targets[:, 0] = torch.multinomial(torch.tensor(self.frequencies), size, True, generator=generator)
        wanted = torch.tensor([True, True, False]).expand(size, -1)
        return Batch(torch.zeros_like(targets), targets, wanted, torch.ones(size, dtype=torch.long))


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
    assert scores["loss_by_position"] == pytest.approx(losses.mean(0).tolist(), rel=1e-5)
    assert scores["margin_by_position"] == pytest.approx(margins.mean(0).tolist(), rel=1e-5)
    for name, level in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        assert scores["margin"][name] == pytest.approx(margins.quantile(level).item(), rel=1e-4)
    brief = evaluate(model, task, 300, "seed")
    assert brief == {name: scores[name] for name in ("loss", "token_accuracy", "sequence_accuracy")}
    assert evaluate(model, task, 300, "other seed")["loss"] != brief["loss"]


class Oracle(torch.nn.Module):
    """Knows Count3, but answers wrongly after prefixes of ``wrong`` elements in rows whose first symbol is 0."""

    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def forward(self, inputs, wanted, prompt_lengths):
        logits = []
        for b, t in wanted.nonzero().tolist():
            x = inputs[b, : t + 1].tolist()
            answer = count3(x) + (t + 1 in self.wrong and x[0] == 0)
            logits.append(F.one_hot(torch.tensor(answer % 8), 8) * 50.0)
        return torch.stack(logits)


@pytest.mark.parametrize("wrong", [(), (5,), (5, 8)])
def test_a_sequence_is_right_if_every_scored_position_is(wrong):
    task = Counting(length=8, seed_length=3, symbols=4)
    zero = torch.cat([b.inputs_BT[:, 0] == 0 for b in batches(task, 100, "cpu", "evaluate", 0)]).double().mean().item()
    scores = evaluate(Oracle(wrong), task, 100, 0, detailed=True)
    assert 0.1 < zero < 0.5
    assert scores["sequence_accuracy"] == pytest.approx(1 - zero if wrong else 1)
    assert scores["token_accuracy"] == pytest.approx(1 - len(wrong) * zero / 5)
    expected = [1 - zero if n in wrong else 1 for n in range(4, 9)]
    assert scores["token_accuracy_by_position"] == pytest.approx(expected)


def test_evaluation_is_without_dropout(small_model):
    task, changes = Counting(length=8, seed_length=3, symbols=8), dict(vocab_size=8, dtype=torch.float32)
    scores = evaluate(small_model(dropout=0.5, **changes).train(), task, 64, 0)
    assert scores == evaluate(small_model(**changes), task, 64, 0)


def test_evaluation_leaves_the_model_as_it_was(small_model):
    model = small_model(vocab_size=8, dtype=torch.float32).train()
    evaluate(model, Counting(length=8, seed_length=3, symbols=8), 16, 0)
    assert model.training and all(p.grad is None for p in model.parameters())


def test_mode_baseline_of_known_frequencies():
    """It gets the most frequent of 0.7, 0.2, 0.1 and the constant right; its loss is the entropy."""
    found = mode_baseline(Weighted(), 4000, 1)
    assert found["position"] == [1, 2] and not [key for key in found if key.startswith("margin")]
    assert found["token_accuracy_by_position"] == pytest.approx([0.7, 1.0], abs=0.03)
    assert found["token_accuracy"] == pytest.approx(0.85, abs=0.015)
    assert found["sequence_accuracy"] == pytest.approx(0.7, abs=0.03)
    assert found["loss_by_position"] == pytest.approx([stats.entropy(Weighted.frequencies), 0.0], abs=0.05)


def test_mode_baseline_is_scored_on_other_sequences_than_it_is_fitted_on():
    """The mode of ten draws from 64 is one of them, so it would be right 1 time in 10 instead of 1 in 64."""

    class Uniform(Weighted):
        vocab_size, frequencies = 64, (1 / 64,) * 64

    found = [mode_baseline(Uniform(), 10, seed)["token_accuracy_by_position"][0] for seed in range(20)]
    assert sum(found) / 20 < 0.07


def test_mode_baseline_of_triplets():
    """Some positions have mode 0 and some have mode 1."""
    task = Triplets(length=6, symbols=2, modulus=2)
    labels = next(batches(task, 4000, "cpu", "other")).targets_BT - 2
    ones = labels.double().mean(0)
    expected = torch.maximum(ones, 1 - ones).mean().item()
    found = mode_baseline(task, 4000, "x")
    assert found["token_accuracy"] == pytest.approx(expected, abs=0.04)
    assert found["loss"] < math.log(2) and len(found["token_accuracy_by_position"]) == 6


def test_p_values_are_those_of_the_paired_t_test_behind_an_interval():
    for values in ([0.3, 0.1, 0.25, -0.02, 0.2], [-1.0, -1.2, -0.9], [0.01, -0.02, 0.015, 0.0]):
        interval = mean_interval(values)
        assert p_value(*interval, len(values)) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert p_value(*mean_interval([2.0, 2.0]), 2) == 0.0 and p_value(0.0, 0.0, 0.0, 5) == 1.0
    assert math.isnan(p_value(0.3, math.nan, math.nan, 1)) and math.isnan(p_value(math.nan, math.nan, math.nan, 5))


def test_holm_steps_down_and_stops_at_the_first_that_fails():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == [True, False, False, True]  # 0.03 > 0.05 / 2
    assert holm([0.02, 0.02, 0.04]).tolist() == [False, False, False]  # 0.02 > 0.05 / 3 stops all
    assert holm([0.01, math.nan, 0.04]).tolist() == [True, False, True]  # two tested
    assert holm([0.06], level=0.1).tolist() == [True] and holm([]).tolist() == []


def test_welch_interval_is_scipys():
    first, second = [0.3, 0.5, 0.1, 0.4], [0.9, 0.2, 0.7]
    about = [(statistics.mean(x), statistics.stdev(x), len(x)) for x in (first, second)]
    for confidence in (0.95, 0.5):
        known = stats.ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
        mean, low, high = welch_interval(*about, confidence)
        assert (low, high) == pytest.approx((known.low, known.high)) and mean == pytest.approx(0.325 - 0.6)
    assert welch_interval((0.5, 0.0, 3), (0.2, 0.0, 3)) == (0.3, 0.3, 0.3)
    alone = welch_interval((0.5, math.nan, 1), (0.2, 0.1, 3))
    assert alone[0] == 0.3 and all(math.isnan(x) for x in alone[1:])


def test_mean_interval_is_students():
    values = [0.1, 0.4, 0.2, 0.3, 0.35]
    mean, low, high = mean_interval(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((sum(values) / 5, expected.low, expected.high))
    narrow = mean_interval(values, 0.5)
    assert low < narrow[1] < mean < narrow[2] < high
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0, 2.0) and mean_interval([0.3])[0] == 0.3
    assert all(math.isnan(x) for x in mean_interval([0.3])[1:]) and math.isnan(mean_interval([])[0])


def test_at_the_ends_of_a_ratio_the_interval_of_the_difference_touches_zero():
    """Fieller's interval has every r for which the t interval of above − r · below includes zero."""
    above, below = [0.1, 0.14, 0.09, 0.12, 0.13], [0.2, 0.25, 0.22, 0.18, 0.3]
    ratio, low, high = ratio_interval(above, below)
    assert ratio == pytest.approx(sum(above) / sum(below)) and low < ratio < high
    for end, side in ((low, 1), (high, 2)):
        rest = [a - end * b for a, b in zip(above, below, strict=True)]
        assert mean_interval(rest)[side] == pytest.approx(0.0, abs=1e-12)
    assert ratio_interval(below, below) == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)


def test_a_ratio_without_bounds_has_none():
    """Over a mean whose interval includes zero, of one pair, and of none."""
    for above, below in (([0.1, 0.2, 0.3], [-0.1, 0.2, 0.1]), ([0.1], [0.2])):
        ratio, *ends = ratio_interval(above, below)
        assert ratio == pytest.approx(sum(above) / sum(below)) and all(map(math.isnan, ends))
    assert all(map(math.isnan, [*ratio_interval([], []), *ratio_interval([1.0, 2.0], [0.0, 0.0])]))
    with pytest.raises(ValueError, match="2 values over 1"):
        ratio_interval([0.1, 0.2], [0.2])


def test_proportion_interval_holds_its_share_and_stays_within_0_and_1():
    low, high = proportion_interval(38, 100)
    assert 0.28 < low < 0.38 < high < 0.49
    z = stats.norm.ppf(0.975)  # Wilson: where a proportion p lies exactly z standard errors from 0.38
    for p in (low, high):
        assert abs(0.38 - p) / math.sqrt(p * (1 - p) / 100) == pytest.approx(z)
    narrow = proportion_interval(38, 100, 0.5)
    assert low < narrow[0] < narrow[1] < high
    assert proportion_interval(0, 10)[0] == 0 and proportion_interval(10, 10)[1] == 1


def test_curves_are_read_at_a_threshold_and_at_a_budget():
    curves = {"step": [10, 20, 30], "seconds": [1.0, 2.5, 4.0], "token_accuracy": [0.2, None, 0.9]}
    assert first_at(curves, "token_accuracy", 0.9) == 30
    assert first_at(curves, "token_accuracy", 0.15, "seconds") == 1.0
    assert first_at(curves, "token_accuracy", 0.95) is None
    assert first_at({"step": [1, 2, 3], "loss": [0.1, 0.7, 0.5]}, "loss", 0.5) == 2  # the first time counts
    assert first_at({"step": [], "loss": []}, "loss", 0.5) is value_at({"step": [], "loss": []}, "loss", 5, "step")
    assert value_at(curves, "token_accuracy", 99.0, "seconds") == 0.9
    assert value_at(curves, "token_accuracy", 20, "step") is None  # the point itself counts, and it is empty
    assert value_at(curves, "token_accuracy", 4.0, "seconds") == 0.9
    assert value_at(curves, "token_accuracy", 1.9, "seconds") == 0.2
    assert value_at(curves, "token_accuracy", 0.9, "seconds") is None


class Line(Task):
    """y = 2x of two numbers a row, the second alone scored."""

    continuous, input_dim, length = True, 1, 2

    def batch(self, generator, size, evaluating=False):
        x = torch.randn(size, 2, 1, generator=generator)
        wanted = torch.tensor([False, True]).expand(size, -1)
        return Batch(x, 2 * x[..., 0], wanted, torch.ones(size, dtype=torch.long))


def test_real_targets_are_scored_by_squared_error():
    class Half(torch.nn.Module):
        def forward(self, inputs, wanted, prompt_lengths):
            return inputs[wanted] * 0.5

    scores = evaluate(Half(), Line(), 300, "seed", detailed=True)
    x = torch.cat([b.inputs_BT[:, 1, 0] for b in batches(Line(), 300, "cpu", "evaluate", "seed")]).double()
    errors = (1.5 * x).square()
    assert scores.keys() == {"loss", "sequences", "position", "loss_by_position", "error_by_position"}
    assert scores["position"] == [2] and scores["sequences"] == 300
    assert scores["loss"] == pytest.approx(errors.mean().item(), rel=1e-5)
    assert scores["error_by_position"] == [pytest.approx(errors.std(correction=0).item() / 300**0.5, rel=1e-5)]
    baseline = constant_baseline(Line(), 300, "seed")
    assert baseline["loss"] == pytest.approx(4, rel=0.3)  # of the guess zero: E[(2x)²]


def test_what_cannot_be_evaluated_is_named_and_leaves_the_model_as_it_was():
    task = Counting(length=6, seed_length=2, symbols=4)
    model = build_model(ModelConfig("decoder", 1, 1, 4, task.vocab_size, task.length)).train()
    with pytest.raises(ConfigError, match="sequences = 0"):
        evaluate(model, task, 0)
    with pytest.raises(ConfigError, match="precision = 'bfloat16'.*did you mean 'bf16'"):
        evaluate(model, task, 1, precision="bfloat16")
    assert model.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([1, 2, 3], 95), "confidence = 95"),
        (lambda: mean_interval([1, 2, 3], -0.5), "confidence = -0.5"),
        (lambda: mean_interval([[1, 2], [3, 4]]), r"shape \(2, 2\)"),
        (lambda: ratio_interval([1, 2], [1, 2], 1), "confidence = 1"),
        (lambda: mcnemar(-3, 3), "must not be negative"),
    ],
)
def test_nonsense_has_no_interval(call, message):
    with pytest.raises(ValueError, match=message):
        call()
