"""What the notebook's experiments plan, and how their records are judged."""

from dataclasses import replace

import pytest

from entp_lib.collection import claims
from entp_lib.config import from_dict
from entp_lib.papers.scratchpad.experiment import (
    ARMS,
    SCRATCHPAD,
    SCRATCHPAD_TRAINING,
    TRAINED,
    beyond,
    by_size,
    cost_table,
    measure,
    measure_training,
    of_study,
    plan,
    plan_training,
)
from entp_lib.papers.scratchpad.training import Setting
from entp_lib.runs.records import Record
from entp_lib.runs.studies import study_named


@pytest.fixture(scope="module")
def studied():
    """The exact studies' records at smoke, made in memory."""
    found = []
    for run in plan("smoke"):
        metrics, curves = study_named(run.config.study)(**run.config.params)
        found.append(Record(run.config.experiment, 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


LOST = ("ordinary decoder", 3)


def trained(seeds, answers, known=1.0):
    """Records of training as if made: ``answers`` has the score beyond the trained sizes, by arm, ``known`` at them."""
    records = []
    for run in plan_training("overnight", seeds):
        setting = run.config.params["setting"]
        sizes, longest = setting["test_sizes"], max(setting["train_sizes"])
        score = answers[run.labels["arm"]] + 0.001 * run.labels["seed"]
        right = [score if size > longest else known for size in sizes]
        curves = {"size": sizes, "answers_right": right, "texts_right": right, "state_error": [1 - x for x in right]}
        records.append(Record("scratchpad_training", 1, run.config, {}, curves, {}, labels=run.labels))
    return records


def test_every_claim_of_the_studies_is_verified(studied):
    checks = measure(studied)
    assert len(checks) == 9 and {c.verdict for c in checks} == {"verified"}


def test_a_difference_refutes(studied):
    broken = []
    for record in studied:
        curves = dict(record.curves)
        if record.config.study == "scratchpad_equivalence":
            curves["loss"] = [1e-6] * len(curves["loss"])
        broken.append(replace(record, curves=curves))
    verdicts = {c.claim: c.verdict for c in measure(broken)}
    refuted = [name for name, verdict in verdicts.items() if verdict == "refuted"]
    assert refuted == ["IS-training", "IS-schemes", "IS-ingredients"]  # without a part the loss must be another
    assert measure(studied[:2]) == []


def test_one_ingredient_that_changes_nothing_refutes(studied):
    broken = []
    for record in studied:
        curves = dict(record.curves)
        if record.config.study == "scratchpad_equivalence":
            kinds = zip(curves["architecture"], curves["without"], curves["scheme"], strict=True)
            chosen = next(i for i, kind in enumerate(kinds) if kind == ("decoder", "positions", "learned"))
            curves["loss"] = [0.0 if i == chosen else loss for i, loss in enumerate(curves["loss"])]
        broken.append(replace(record, curves=curves))
    verdicts = {c.claim: c.verdict for c in measure(broken)}
    assert [name for name, verdict in verdicts.items() if verdict == "refuted"] == ["IS-ingredients"]


def test_keys_kept_as_they_were_that_do_no_harm_refute(studied):
    broken = []
    for record in studied:
        metrics = dict(record.metrics)
        if record.config.study == "scratchpad_reuse":
            name = next(way for way in metrics["ways"] if way.endswith(", naive"))
            metrics["ways"] = {**metrics["ways"], name: {**metrics["ways"][name], "largest_error": 0.0}}
        broken.append(replace(record, metrics=metrics))
    verdicts = {c.claim: c.verdict for c in measure(broken)}
    assert [name for name, verdict in verdicts.items() if verdict == "refuted"] == ["IS-naive"]


def test_a_text_that_differs_refutes_its_way_of_writing(studied):
    broken = []
    for record in studied:
        curves = dict(record.curves)
        if record.config.study == "scratchpad_writing":
            curves["differing_texts"] = [int(way == "doubled") for way in curves["way"]]
        broken.append(replace(record, curves=curves))
    verdicts = {c.claim: c.verdict for c in measure(broken)}
    assert [name for name, verdict in verdicts.items() if verdict == "refuted"] == ["IS-caches"]


def test_costs_are_one_row_for_each_kind_and_way(studied):
    table = cost_table(studied).set_index(["kind", "way"])["tokens_read"]
    assert len(table) == 9
    assert table["decoder", "cached"] < table["inductive decoder", "recomputed"] < table["ENTP", "whole"]
    with pytest.raises(KeyError, match="training"):
        of_study(studied, "training")


def test_plans_are_paired_and_their_settings_can_be_built():
    runs = plan_training("quick")
    assert len(runs) == 5 * 3 and len(plan_training("overnight")) == 5 * (4 + 3)
    assert plan_training("gpu") == [] == plan("gpu")
    for run in runs:
        setting = from_dict(Setting, run.config.params["setting"])
        assert ARMS[run.labels["arm"]] == (setting.scratchpad, setting.architecture)
        assert max(setting.test_sizes) == 2 * max(setting.train_sizes)
        setting.build_problem()
    assert {run.labels["task"] for run in runs} == set(TRAINED["quick"])


def test_gaps_are_taken_beyond_the_trained_sizes():
    answers = {"inductive decoder": 0.9, "ordinary decoder": 0.4, "decoder without": 0.5, "inductive ENTP": 0.7}
    records = trained(5, answers)
    found = {m.claim: m for m in measure_training(records)}
    assert list(found) == ["IS-parity", "IS-shift", "IS-soft", "IS-entp"]
    assert found["IS-parity"].values == pytest.approx([0.5] * 5) and found["IS-entp"].values == pytest.approx(
        [-0.2] * 5
    )
    assert found["IS-soft"].values == pytest.approx([0.5] * 5) and len(found["IS-shift"].records) == 10
    table = by_size(records)
    assert set(table[table["beyond"] & (table["task"] == "parity")]["size"]) == {10, 12, 14, 16}
    assert beyond(table, "parity").groupby("arm")["texts_right"].mean()["ordinary decoder"] == pytest.approx(0.402)
    assert measure_training([]) == []


def test_two_arms_at_the_ceiling_tell_nothing():
    answers = dict.fromkeys(ARMS, 0.99)
    found = {m.claim: m for m in measure_training(trained(5, answers))}
    assert not found["IS-parity"].informative


def test_an_arm_that_has_not_learned_the_trained_sizes_bars_its_comparisons():
    """Where the ordinary scratchpad knows nothing of a random seed, the inductive one leads by no merit of its own."""
    records = trained(5, {arm: 0.5 for arm in ARMS})
    for record in records:
        if (record.labels["task"], record.labels["arm"], record.labels["seed"]) == ("shift_addition", *LOST):
            record.curves["texts_right"] = [0.0] * len(record.curves["size"])
    found = {m.claim: m for m in measure_training(records)}
    assert found["IS-shift"].idle == "trained sizes not learned: ordinary decoder on random seed 3"
    assert found["IS-parity"].informative and found["IS-entp"].informative
    assert not any(m.informative for m in measure_training(trained(5, {arm: 0.5 for arm in ARMS}, known=0.4)))


def test_every_measured_claim_is_listed(studied):
    stated = claims.reference_claims()
    stated = stated[stated["paper"] == "scratchpad"]
    ours = set(stated["id"])
    answers = {arm: 0.5 for arm in ARMS}
    assert ours == {m.claim for m in [*measure(studied), *measure_training(trained(1, answers))]}
    assert {SCRATCHPAD.notebook, SCRATCHPAD_TRAINING.notebook} == set(
        stated[stated["paper"] == "scratchpad"]["notebook"]
    )
