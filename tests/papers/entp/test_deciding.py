"""Runs that decide: ratios of steps read at equal loss, leads at equal steps and equal compute."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import record_of

from entp_lab.budgets import training_operations
from entp_lab.experiment import planned
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import run
from entp_lib.tasks import Counting, generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp import count3_steps, deciding, pilot_runs


def test_a_run_ends_at_its_loss(small_run, store):
    losses = run(small_run(), 1, store=store).curves["loss"]
    bound = (losses[0] + min(losses)) / 2
    cut = run(small_run(stop_loss=bound), 1, store=store)
    last = next(i for i, loss in enumerate(losses) if loss <= bound)
    assert cut.status == "complete"
    assert cut.curves["loss"] == losses[: last + 1]
    with pytest.raises(ConfigError, match="stop_loss"):
        small_run(stop_loss=-1.0)


@pytest.fixture
def course(small_run):
    """Return a function that makes a run whose loss falls from 3 by 1 in ``factor`` * 3000 steps,
    to ``points`` evaluations.
    """

    def make(arm, factor, points=59, seed=0):
        task = dict(length=16, seed_length=8, symbols=24)
        config = small_run(arm, seed, dict(vocab_size=24, max_length=16), task)
        share = np.arange(1, points + 1) / 100
        curves = dict(step=share * 10_000 * factor, loss=3 - share / 0.3, token_accuracy=share)
        curves = {name: values.tolist() for name, values in curves.items()}
        return record_of(planned(config), curves)

    return make


def test_ratios_of_steps_are_read_at_equal_loss(course):
    runs = [course("decoder", 2), course("entp", 1)]
    ratios = count3_steps.step_ratios(runs, 3.0, 2.0, (0.3, 0.6, 5.0))
    assert ratios.tolist() == pytest.approx([2, 2, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("decoder", "entp", "ratio", "parts"),
    [
        ((2, 59), (1, 59), "2.00", "yes"),
        ((1, 59), (1, 59), "1.00", "no"),
        # 3200, 4700 and 6200 (means of three) over its 1000
        ((2, 59), (1, 10), "at most 4.53", "open"),
        ((1, 59), (1, 20), "at most 1.22", "no"),  # 1600 of both, then 2350 and 3100 over its 2000
        ((2, 20), (1, 59), "2.00", "yes, to 50% alone"),  # a decoder that comes half way alone
        ((2, 10), (1, 59), "–", "open"),  # one that does not
    ],
)
def test_a_setting_parts_by_the_mean_ratio_or_what_it_can_be_at_most(
    course, decoder, entp, ratio, parts
):
    row = count3_steps.gate_row([course("decoder", *decoder), course("entp", *entp)], 3.0, 2.0)
    assert row["mean ratio"] == ratio
    assert row["parts"] == parts


@pytest.fixture
def pairs(course):
    """Make pairs of two seeds, of which the decoder learns half as fast."""
    arms = (("decoder", 2), ("entp", 1))
    return [course(*arm, seed=seed) for arm, seed in itertools.product(arms, (0, 1))]


def operations_of_a_step(record):
    return training_operations(record.config) / record.config.train.steps


def test_steps_to_the_bound_and_beyond_it_are_compared_by_seed(pairs):
    found = {m.claim: m.values for m in count3_steps.measure_end(pairs)}
    dearer = operations_of_a_step(pairs[-1]) / operations_of_a_step(pairs[0])
    twice = math.log(2)
    assert found["F2-end-speed"] == pytest.approx([twice, twice])
    assert found["F2-end-beyond"] == pytest.approx([twice, twice])
    assert found["F2-end-cost"] == pytest.approx([twice - math.log(dearer)] * 2)


def test_the_ratio_of_the_authors_log_grows():
    half, bound, beyond = count3_steps.authors_ratios((0.5, 1.0, 2.0))
    assert 1.5 < half < bound < beyond < 3


def test_scores_at_equal_steps_and_at_equal_compute_are_read_off_one_curve(pairs):
    leads = count3_steps.leads_at_equal_budgets(pairs, "token_accuracy").loc[0]
    entp = np.mean([0.57, 0.58, 0.59])
    decoder = np.mean([0.27, 0.28, 0.29])  # at 5800 steps, where ENTP ends at 5900
    assert leads["equal steps"] == pytest.approx(entp - decoder)
    assert leads["equal multiply-adds"] < leads["equal steps"]


def test_the_area_between_curves_is_read_by_steps_and_by_compute():
    steps = np.arange(500, 10_001, 500)
    longer = np.arange(1155, 23_100, 1155)
    curves = {
        "entp": (steps, np.minimum(1, steps / 5000)),
        "decoder": (steps, np.minimum(1, steps / 5000) - 0.1),
        "operations": (longer, np.minimum(1, longer / 5000)),
    }
    records = []
    for planned_run in EXPERIMENTS["match3_end"].plan("overnight", 1):
        step, right = curves[planned_run.labels["arm"]]
        course = dict(step=step.tolist(), sequence_accuracy=right.tolist())
        records.append(record_of(planned_run, course))
    assert deciding.area_leads(records, "decoder").tolist() == pytest.approx([0.1])
    (lead,) = deciding.area_leads(records, "operations")
    assert -0.5 < lead < -0.1  # as fast by steps, so that it is ahead for as much compute


def test_a_decoder_is_compared_at_the_rate_of_its_trial():
    """Of rates within half a point in the trial the lowest; its seed is in no comparison."""
    trial = {1e-4: 0.2, 3e-4: 0.6, 1e-3: 0.601, 3e-3: 0.4}
    pairs = {3e-4: 0.7, 1e-3: 0.9}
    baseline = dict(token_accuracy=0.6, sequence_accuracy=0.1)
    records = []
    for planned_run in EXPERIMENTS["match3_own_rates"].plan("overnight"):
        labels = planned_run.labels
        scores = trial if labels["seed"] == pilot_runs.SEED else pairs
        right = 0.8 if labels["arm"] == "entp" else scores[labels["rate"]]
        scores = dict(token_accuracy=0.97, sequence_accuracy=right, baseline=baseline)
        records.append(record_of(planned_run, **scores))
    assert deciding.chosen_rates(records) == {"decoder": 3e-4, "operations": 3e-4}
    found = {m.claim: m.values for m in deciding.measure_own_rates(records)}
    assert set(found) == {"T2-sequences", "T2-operations-sequences"}
    assert found["T2-sequences"] == pytest.approx([0.1] * 10)


def test_leads_on_windows_by_checkpoint_rule_and_by_the_characters_scored():
    right = {"decoder": (0.5, 0.9), deciding.SAME_PREFIXES: (0.3, 0.4), "entp": (0.4, 0.6)}
    records = []
    for planned_run in deciding.plan_windows("overnight", 1):
        if shares := right.get(planned_run.labels["arm"]):
            rules = zip(("lowest_text_loss", deciding.BEST_ANSWERS), shares, strict=True)
            test = {rule: dict(sequence_accuracy=s, token_accuracy=s, step=1) for rule, s in rules}
            records.append(record_of(planned_run, test=test, seen=dict(sequence_accuracy=1.0)))
    found = {m.claim: m.values for m in deciding.measure_windows(records)}
    assert found["F5-windows"] == pytest.approx([-0.1])
    assert found["F5-windows-drawn"] == pytest.approx([0.1])


def test_drawn_prefixes_are_a_few_of_the_scored_ones_and_leave_the_sequences_alone():
    whole = Counting(length=24, seed_length=8, symbols=24)
    few = replace(whole, drawn=4)
    every = whole.batch(generator_for("cpu", 7), 500)
    some = few.batch(generator_for("cpu", 7), 500)
    assert torch.equal(every.inputs_BT, some.inputs_BT)
    assert some.scored_BT.sum(1).eq(4).all()
    assert not (some.scored_BT & ~every.scored_BT).any()
    assert some.scored_BT[:, 8:].any(0).all()
    tested = few.batch(generator_for("cpu", 7), 5, evaluating=True)
    assert torch.equal(tested.scored_BT, every.scored_BT[:5])  # evaluation scores all of them
