"""Runs that decide: equal budgets, a gate that ends where it should, and ratios of steps read at
equal loss.
"""

import dataclasses
import math
from dataclasses import replace

import pytest
import torch
from made_up import record_of

from entp_lab.budgets import training_operations
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import run
from entp_lib.tasks import Counting, build_task, generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp import count3_steps, deciding, pilot_runs


def test_a_run_ends_at_its_loss(small_run, store):
    whole = run(small_run(), 1, store=store).curves
    bound = (whole["loss"][0] + min(whole["loss"])) / 2
    cut = run(small_run(stop_loss=bound), 1, store=store)
    last = next(i for i, loss in enumerate(whole["loss"]) if loss <= bound)
    assert cut.status == "complete" and cut.curves["loss"] == whole["loss"][: last + 1]
    with pytest.raises(ConfigError, match="stop_loss"):
        small_run(stop_loss=-1.0)


@pytest.fixture
def made(small_run, store):
    """Return a maker of runs of an arm whose loss falls from 3 by 1 in ``factor`` * 3000 steps, to
    ``points`` evaluations.
    """
    record = run(small_run(), 1, store=store)

    def make(arm, factor, points=59):
        steps = [factor * 100 * k for k in range(1, points + 1)]
        accuracy = [s / (factor * 10_000) for s in steps]
        curves = {
            "step": steps,
            "loss": [3 - s / (factor * 3000) for s in steps],
            "token_accuracy": accuracy,
        }
        return dataclasses.replace(record, curves=curves, labels={"arm": arm})

    return make


def test_ratios_of_steps_are_read_at_equal_loss(made):
    ratios = count3_steps.step_ratios(
        [made("decoder", 2), made("entp", 1)], 3.0, 2.0, (0.3, 0.6, 5.0)
    )
    assert (
        ratios[0.3] == pytest.approx(2) and ratios[0.6] == pytest.approx(2) and ratios.isna()[5.0]
    )


@pytest.mark.parametrize(
    ("decoder", "entp", "ratio", "parts"),
    [
        ((2, 59), (1, 59), "2.00", "yes"),
        ((1, 59), (1, 59), "1.00", "no"),
        (
            (2, 59),
            (1, 10),
            "at most 4.53",
            "open",
        ),  # 3200, 4700 and 6200 (means of three) over its 1000
        ((1, 59), (1, 20), "at most 1.22", "no"),  # 1600 of both, then 2350 and 3100 over its 2000
        ((2, 20), (1, 59), "2.00", "yes, to 50% alone"),  # a decoder that comes half way alone
        ((2, 10), (1, 59), "–", "open"),  # one that does not
    ],
)
def test_a_setting_parts_by_the_mean_ratio_or_what_it_can_be_at_most(
    made, decoder, entp, ratio, parts
):
    row = count3_steps.gate_row([made("decoder", *decoder), made("entp", *entp)], 3.0, 2.0)
    assert (row["mean ratio"], row["parts"]) == (ratio, parts)


@pytest.fixture
def pairs(made):
    """Make pairs of one task, of two seeds, of which the decoder learns half as fast."""
    task = dict(length=16, seed_length=8, symbols=24)
    records = []
    for arm, factor in (("decoder", 2), ("entp", 1)):
        record = made(arm, factor)
        model = replace(record.config.model, architecture=arm, vocab_size=24, max_length=16)
        config = replace(record.config, task_params=task, model=model)
        for seed in (0, 1):
            records.append(replace(record, config=config, labels=dict(arm=arm, seed=seed)))
    return records


def operations_of_a_step(pairs):
    return [training_operations(r.config) / r.config.train.steps for r in (pairs[0], pairs[-1])]


def test_steps_to_the_bound_and_beyond_it_are_compared_by_seed_and_with_the_log(pairs):
    found = {m.claim: m.values for m in count3_steps.measure_end(pairs)}
    decoder, entp = operations_of_a_step(pairs)
    twice = math.log(2)
    assert found["F2-end-speed"] == found["F2-end-beyond"] == pytest.approx([twice, twice])
    assert found["F2-end-cost"] == pytest.approx([twice + math.log(decoder / entp)] * 2)
    half, bound, beyond = count3_steps.authors_ratios((0.5, 1.0, 2.0))
    assert 1.5 < half < bound < beyond < 3  # their log's ratio grows


def test_scores_at_equal_steps_and_at_equal_compute_are_read_off_one_curve(pairs):
    leads = count3_steps.leads_at_equal_budgets(pairs, "token_accuracy").loc[0]
    end = pairs[-1].curves["step"][-1]  # ENTP's last step
    known = [step for step in pairs[0].curves["step"] if step <= end][-3:]
    assert leads["equal steps"] == pytest.approx((end - 100) / 10_000 - sum(known) / 3 / 20_000)
    decoder, entp = operations_of_a_step(pairs)
    assert decoder < entp and leads["equal multiply-adds"] < leads["equal steps"]


def test_the_area_between_curves_is_read_by_steps_and_by_compute():
    steps = list(range(500, 10_001, 500))
    longer = list(range(1155, 23_100, 1155))
    curves = {
        "entp": (steps, [min(1.0, step / 5000) for step in steps]),
        "decoder": (steps, [min(1.0, step / 5000) - 0.1 for step in steps]),
        "operations": (longer, [min(1.0, step / 5000) for step in longer]),
    }
    records = []
    for planned in EXPERIMENTS["match3_end"].plan("overnight", 1):
        step, right = curves[planned.labels["arm"]]
        records.append(record_of(planned, curves=dict(step=step, sequence_accuracy=right)))
    assert deciding.area_leads(records, "decoder").tolist() == pytest.approx([0.1])
    (lead,) = deciding.area_leads(records, "operations")
    assert -0.5 < lead < -0.1  # as fast by steps, so that it is ahead for as much compute


def test_a_decoder_is_compared_at_the_rate_of_its_trial():
    """Of rates within half a point in the trial the lowest; its seed is in no comparison."""
    trial = {1e-4: 0.2, 3e-4: 0.6, 1e-3: 0.601, 3e-3: 0.4}
    pairs = {3e-4: 0.7, 1e-3: 0.9}
    records = []
    for planned in EXPERIMENTS["match3_own_rates"].plan("overnight"):
        scores = trial if planned.labels["seed"] == pilot_runs.SEED else pairs
        if planned.labels["arm"] == "entp":
            scores = {planned.labels["rate"]: 0.8}
        right = scores[planned.labels["rate"]]
        baseline = dict(token_accuracy=0.6, sequence_accuracy=0.1)
        records.append(
            record_of(planned, token_accuracy=0.97, sequence_accuracy=right, baseline=baseline)
        )
    assert deciding.chosen_rates(records) == {"decoder": 3e-4, "operations": 3e-4}
    found = {m.claim: m.values for m in deciding.measure_own_rates(records)}
    assert set(found) == {"T2-sequences", "T2-operations-sequences"}
    assert found["T2-sequences"] == pytest.approx([0.1] * 10)


def test_windows_are_the_authors_and_entp_draws_from_the_same_ones():
    runs = {r.labels["arm"]: r.config for r in deciding.plan_windows("overnight", 1)}
    whole, few = (
        build_task("addition", runs[arm].task_params).batch(generator_for("cpu", "t"), 64)
        for arm in ("decoder", "entp")
    )
    assert whole.scored_BT.all() and (few.scored_BT.sum(1) == 8).all()
    assert (whole.inputs_BT == few.inputs_BT).all() and (few.scored_BT.sum(0) > 0).all()
    twin = runs[deciding.SAME_PREFIXES]
    assert replace(twin, model=replace(twin.model, architecture="entp")) == runs["entp"]


def test_leads_on_windows_by_checkpoint_rule_and_by_the_characters_scored(made):
    right = {"decoder": (0.5, 0.9), deciding.SAME_PREFIXES: (0.3, 0.4), "entp": (0.4, 0.6)}
    records = []
    for arm, shares in right.items():
        rules = zip(("lowest_text_loss", deciding.BEST_ANSWERS), shares, strict=True)
        test = {r: dict(sequence_accuracy=s, token_accuracy=s, step=1) for r, s in rules}
        metrics = {"test": test, "seen": dict(sequence_accuracy=1.0)}
        labels = dict(arm=arm, seed=0)
        records.append(replace(made(arm, 1), metrics=metrics, labels=labels))
    found = {m.claim: m.values for m in deciding.measure_windows(records)}
    assert found["F5-windows"] == pytest.approx([-0.1])
    assert found["F5-windows-drawn"] == pytest.approx([0.1])


# The gates: what they plan is apart from every comparison, and they open where the rule says so.


def test_a_gate_has_a_seed_that_no_comparison_has():
    pilots = (
        "count3_long",
        "addition_four_digits",
        "match3_rates",
        "count3_gate",
        "in_context_rates",
    )
    for name in pilots:
        assert {run.labels["seed"] for run in EXPERIMENTS[name].plan("overnight", 0)} == {
            pilot_runs.SEED
        }
    with_pilot = EXPERIMENTS["match3_own_rates"].plan("overnight", 0)
    assert {run.labels["seed"] for run in with_pilot} == {*range(10), pilot_runs.SEED}
    others = [
        e
        for name, e in EXPERIMENTS.items()
        if name not in pilots and not name.endswith("own_rates")
    ]
    assert all(
        run.labels["seed"] < pilot_runs.SEED for e in others for run in e.plan("overnight", 0)
    )


def test_drawn_prefixes_are_a_few_of_the_scored_ones_and_leave_the_sequences_alone():
    whole = Counting(length=24, seed_length=8, symbols=24)
    few = replace(whole, drawn=4)
    one, other = (task.batch(generator_for("cpu", 7), 500) for task in (whole, few))
    assert torch.equal(one.inputs_BT, other.inputs_BT)
    assert other.scored_BT.sum(1).eq(4).all() and not (other.scored_BT & ~one.scored_BT).any()
    assert other.scored_BT[:, 8:].any(0).all()
    tested = few.batch(generator_for("cpu", 7), 5, evaluating=True)
    assert torch.equal(tested.scored_BT, one.scored_BT[:5])  # evaluation scores all of them
