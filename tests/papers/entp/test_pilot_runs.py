"""The gates: what they plan is apart from every comparison, and they open where the rule says so."""

from dataclasses import replace

import torch

from entp_lib.registry import EXPERIMENTS
from entp_lib.tasks import Counting, generator_for
from entp_lib.tasks.base import Task
from entp_papers.entp import pilot_runs


def test_a_gate_has_a_seed_that_no_comparison_has():
    pilots = ("count3_long", "addition_four_digits", "match3_rates", "count3_gate")
    for name in pilots:
        assert {run.labels["seed"] for run in EXPERIMENTS[name].plan("overnight", 0)} == {pilot_runs.SEED}
    others = [e for name, e in EXPERIMENTS.items() if name not in pilots]
    assert all(run.labels["seed"] < pilot_runs.SEED for e in others for run in e.plan("overnight", 0))


def test_drawn_prefixes_are_a_few_of_the_scored_ones_and_leave_the_sequences_alone():
    whole = Counting(length=24, seed_length=8, symbols=24)
    few: Task = replace(whole, drawn=4)
    one, other = (task.batch(generator_for("cpu", 7), 500) for task in (whole, few))
    assert torch.equal(one.inputs_BT, other.inputs_BT) and torch.equal(one.targets_BT, other.targets_BT)
    assert other.wanted_BT.sum(1).eq(4).all() and not (other.wanted_BT & ~one.wanted_BT).any()
    assert other.wanted_BT[:, 8:].any(0).all() and len({tuple(row) for row in other.wanted_BT.tolist()}) > 100
    assert torch.equal(
        few.batch(generator_for("cpu", 7), 5, evaluating=True).wanted_BT, one.wanted_BT[:5]
    )  # evaluation scores all of them
    assert few.reported_apart()["first_generated"].drawn == 0
