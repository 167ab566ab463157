"""Verdicts on inductive scratchpads: rules that can fail, and gaps beyond the trained sizes."""

from dataclasses import replace

import pytest

from entp_lab import claims
from entp_lab.store import Record, Store
from entp_lab.studies import of_study
from entp_papers.scratchpad.experiment import (
    ARMS,
    SCRATCHPAD,
    SCRATCHPAD_TRAINING,
    plan_training,
    scores_beyond,
    scores_by_size,
)


@pytest.fixture(scope="module")
def studied():
    found = SCRATCHPAD.stored(Store(), "quick")
    assert found, "records of the scratchpad are missing at quick"
    return found


def scored(seeds, answers):
    """Make up records of training: ``answers`` has the score beyond the trained sizes by arm."""
    records = []
    for run in plan_training("overnight", seeds):
        setting = run.config.params["setting"]
        score = answers[run.labels["arm"]] + 0.001 * run.labels["seed"]
        longest = max(setting["train_sizes"])
        right = [score if size > longest else 1.0 for size in setting["test_sizes"]]
        curves = {
            "size": setting["test_sizes"],
            "answers_right": right,
            "texts_right": right,
            "state_error": [1 - share for share in right],
        }
        labels = run.labels
        records.append(Record("scratchpad_training", 1, run.config, {}, curves, {}, labels=labels))
    return records


def test_every_claim_has_a_rule(studied):
    trained = scored(1, dict.fromkeys(ARMS, 0.5))
    measured = [*SCRATCHPAD.measure(studied), *SCRATCHPAD_TRAINING.measure(trained)]
    listed = claims.reference_claims().query("paper == 'scratchpad'")
    assert {m.claim for m in measured} == set(listed["id"])
    assert SCRATCHPAD.measure([]) == SCRATCHPAD_TRAINING.measure([]) == []


def naive_does_no_harm(metrics, curves):
    metrics["ways"] = dict(metrics["ways"])
    metrics["ways"]["inductive decoder, naive"] = {"largest_error": 0.0}


@pytest.mark.parametrize(
    ("study", "change", "refuted"),
    [
        (
            "equivalence",
            lambda m, c: c.update(loss=[1e-6] * len(c["loss"])),
            {"IS-training", "IS-schemes", "IS-ingredients"},
        ),
        ("reuse", naive_does_no_harm, {"IS-naive"}),
        (
            "writing",
            lambda m, c: c.update(differing_texts=[int(way == "doubled") for way in c["way"]]),
            {"IS-caches", "IS-relative"},
        ),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(studied, study, change, refuted):
    record = of_study(studied, study)
    metrics = dict(record.metrics)
    curves = dict(record.curves)
    change(metrics, curves)
    broken = replace(record, curves=curves, metrics=metrics)
    checks = SCRATCHPAD.measure([broken if r is record else r for r in studied])
    assert {check.claim for check in checks if check.verdict == "refuted"} == refuted


def test_gaps_are_taken_beyond_the_trained_sizes():
    answers = {
        "inductive decoder": 0.9,
        "ordinary decoder": 0.4,
        "decoder without": 0.5,
        "inductive ENTP": 0.7,
    }
    records = scored(5, answers)
    found = {m.claim: m for m in SCRATCHPAD_TRAINING.measure(records)}
    gaps = {"IS-parity": 0.5, "IS-shift": 0.5, "IS-soft": 0.5, "IS-entp": -0.2}
    assert found.keys() == gaps.keys()
    for claim, gap in gaps.items():
        assert found[claim].values == pytest.approx([gap] * 5)
    assert len(found["IS-shift"].records) == 10
    parity = scores_by_size(records).query("beyond and task == 'parity'")
    assert set(parity["size"]) == {10, 12, 14, 16}
    means = scores_beyond(records).groupby(["task", "arm"])["texts_right"].mean()
    assert means["parity", "ordinary decoder"] == pytest.approx(0.402)
