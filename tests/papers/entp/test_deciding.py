"""Runs that decide: equal budgets, a gate that ends where it should, and ratios of steps read at equal loss."""

import dataclasses
import math

import pytest

from entp_lib.records.execution import run
from entp_lib.tasks import build_task, generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp import deciding


def by_arm(runs):
    return {r.labels["arm"]: r.config for r in runs}


def test_a_run_that_never_has_the_sequences_counts_with_its_end(store):
    runs = deciding.plan_match3_end("smoke", 1)
    made = [dataclasses.replace(run(r.config, 1, store=store), labels=r.labels) for r in runs]
    curve = made[0].curves["sequence_accuracy"]
    low, high = (
        dataclasses.replace(made[0], curves=made[0].curves | {"sequence_accuracy": c})
        for c in ([0.0] * len(curve), [1.0] * len(curve))
    )
    times = deciding.times_to([low, high])
    assert times["reached"].tolist() == [False, True]
    assert times["log_steps"].tolist() == [math.log(made[0].curves["step"][i]) for i in (-1, 0)]
    whole = deciding.training_operations(made[0].config)
    assert math.exp(times["log_operations"][0]) == pytest.approx(whole)
    assert {m.claim for m in deciding.measure_match3(made)} == {
        "T2-end",
        "T2-end-operations",
        "T2-end-speed",
        "T2-end-cost",
    }


def test_a_run_ends_at_its_loss(small_run, store):
    whole = run(small_run(), 1, store=store)
    losses, steps = whole.curves["loss"], whole.curves["step"]
    bound = (losses[0] + min(losses)) / 2
    short = dataclasses.replace(small_run(), train=dataclasses.replace(small_run().train, stop_loss=bound))
    cut = run(short, 1, store=store)
    assert cut.status == "complete" and cut.curves["loss"][-1] <= bound
    assert cut.curves["step"][-1] == next(s for s, loss in zip(steps, losses, strict=True) if loss <= bound)
    assert cut.curves["loss"] == losses[: len(cut.curves["loss"])]
    with pytest.raises(ConfigError, match="stop_loss"):
        dataclasses.replace(short.train, stop_loss=-1.0)


def test_ratios_of_steps_are_read_at_equal_loss(small_run, store):
    record = run(small_run(), 1, store=store)

    def made(arm, factor):
        steps = [factor * 100 * k for k in range(1, 60)]
        curves = {"step": steps, "loss": [3 - s / (factor * 3000) for s in steps]}
        return dataclasses.replace(record, curves=curves, labels={"arm": arm})

    ratios = deciding.step_ratios([made("decoder", 2), made("entp", 1)], 3.0, 2.0, (0.3, 0.6, 5.0))
    assert ratios[0.3] == pytest.approx(2) and ratios[0.6] == pytest.approx(2) and ratios.isna()[5.0]


def test_windows_are_the_authors_and_entp_draws_from_the_same_ones():
    runs = by_arm(deciding.plan_windows("overnight", 1))
    tasks = {arm: build_task("addition", runs[arm].task_params) for arm in ("decoder", "entp")}
    assert runs["decoder"].train == runs["entp"].train and runs["decoder"].train.decay_steps == 5000
    whole, few = (tasks[arm].batch(generator_for("cpu", "t"), 64) for arm in ("decoder", "entp"))
    assert whole.wanted_BT.all() and (few.wanted_BT.sum(1) == 8).all()
    assert (whole.inputs_BT == few.inputs_BT).all() and (few.wanted_BT.sum(0) > 0).all()
    with pytest.raises(ConfigError, match="drawn"):
        build_task("addition", {"drawn": 8})
