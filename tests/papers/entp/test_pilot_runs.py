"""The gates: what they plan is apart from every comparison, and they open where the rule says so."""

from dataclasses import replace

import pytest
import torch
from made_up import record_of

from entp_lib.experiments import claims
from entp_lib.experiments.budgets import compute_ratio, training_operations
from entp_lib.registry import EXPERIMENTS
from entp_lib.tasks import Counting, build_task, generator_for
from entp_lib.tasks.base import Task
from entp_papers.entp import pilot_runs
from entp_papers.entp.pilot_runs import COUNT3_LONG_ALL


def counted(arm_and_course, mode=0.102):
    """Records of the night's two runs with given courses of token accuracy."""
    runs = EXPERIMENTS["count3_long"].plan("overnight", 0)
    baseline = {"token_accuracy": mode}
    return [record_of(r, {"token_accuracy": arm_and_course[r.labels["arm"]]}, baseline=baseline) for r in runs]


def test_a_gate_has_a_seed_that_no_comparison_has():
    pilots = ("count3_long", "addition_four_digits", "match3_rates", "count3_gate")
    for name in pilots:
        assert {run.labels["seed"] for run in EXPERIMENTS[name].plan("overnight", 0)} == {pilot_runs.SEED}
    others = [e for name, e in EXPERIMENTS.items() if name not in pilots]
    assert all(run.labels["seed"] < pilot_runs.SEED for e in others for run in e.plan("overnight", 0))


def test_the_counting_gate_opens_by_either_arm_at_the_end():
    shut = pilot_runs.counting_gate(counted({"decoder": [0.9] + [0.12] * 5, "entp": [0.15] * 6}))
    assert not shut["opens"].any() and shut.loc["entp", "above it"] == pytest.approx(0.048)
    by_one = pilot_runs.counting_gate(counted({"decoder": [0.1] * 6, "entp": [0.1] + [0.153] * 5}))
    assert by_one["opens"].to_dict() == {"decoder": False, "entp": True}


@pytest.mark.parametrize(("error", "opens"), [(0.94, True), (0.96, False)])
def test_the_gate_of_addition_looks_one_digit_beyond(error, opens):
    (run,) = EXPERIMENTS["addition_four_digits"].plan("overnight", 0)
    right = {"4 digits": 99, "5 digits": round(100 * (1 - error)), "6 digits": 50}
    groups = {name: {"right": x, "sequences": 100} for name, x in right.items()}
    rules = {
        rule: {"step": 10, "sequence_accuracy": 0.5, "token_accuracy": 0.5, "groups": groups}
        for rule in ("last", "highest_accuracy")
    }
    found = pilot_runs.four_digits_gate([record_of(run, test=rules, seen={"sequence_accuracy": 0.9})])
    assert found[found["digits"] == 5]["opens"].tolist() == [opens, opens]
    assert not found[found["digits"] != 5]["opens"].any()


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


def test_the_decoder_with_more_steps_is_that_of_the_pairs_and_has_half_of_entps_operations():
    pairs = {r.config.model_seed: r.config for r in EXPERIMENTS["count3_long_pairs"].plan("overnight", 0)[::3]}
    runs = COUNT3_LONG_ALL.plan("overnight", 0)
    assert len(runs) == 15 and runs[0].config.experiment == COUNT3_LONG_ALL.name
    for decoder, entp, more in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
        assert entp.config == replace(decoder.config, model=entp.config.model)
        assert entp.config.model == replace(decoder.config.model, architecture="entp")
        assert more.config == pairs[more.labels["seed"]] and more.labels["arm"] == "more steps"
        shorter = replace(more.config.train, steps=12_000, eval_every=200)
        assert decoder.config == replace(more.config, experiment=COUNT3_LONG_ALL.name, train=shorter)
        assert training_operations(entp.config) / training_operations(decoder.config) == pytest.approx(6.6, abs=0.05)
        assert compute_ratio(build_task("counting", entp.config.task_params)) == 11
        assert training_operations(more.config) / training_operations(entp.config) == pytest.approx(0.50, abs=0.005)
    assert COUNT3_LONG_ALL.plan("quick", 0) == []


def test_each_row_has_the_decoder_that_it_names(ended):
    measured = COUNT3_LONG_ALL.measure(
        ended(COUNT3_LONG_ALL, {"decoder": 0.20, "entp": 0.26, "more steps": 0.44}, 0.102)
    )
    rows = claims.judge(measured, only_measured=True).set_index("id")
    assert rows["verdict"].to_dict() == {"F2-long-all": "ENTP ahead", "F2-long-all-more": "decoder ahead"}
    assert rows["our_value"].to_dict() == pytest.approx({"F2-long-all": 0.06, "F2-long-all-more": -0.18})
    assert "count3_long_pairs/" in rows.loc["F2-long-all-more", "records"]
    assert "count3_long_pairs/" not in rows.loc["F2-long-all", "records"]
