"""Plans of notebook 13's experiments, verdicts on their records, tables and pictures of them."""

from dataclasses import replace

import pytest

from entp_lab import claims
from entp_lab.registry import STUDIES
from entp_lab.store import Record
from entp_papers.scratchpad import experiment
from entp_papers.scratchpad.experiment import (
    ARMS,
    SCRATCHPAD,
    SCRATCHPAD_TRAINING,
    beyond,
    by_size,
    measure,
    plan_training,
)


def made(runs):
    """Compute records of runs in memory."""
    found = []
    for run in runs:
        metrics, curves = STUDIES.named(run.config.study)(**run.config.params)
        found.append(
            Record(run.config.experiment, 1, run.config, metrics, curves, {}, labels=run.labels)
        )
    return found


@pytest.fixture(scope="module")
def studied():
    return made(SCRATCHPAD.plan("smoke", 0))


def scored(seeds, answers, known=1.0):
    """Make up records of training: ``answers`` has the score beyond the trained sizes, by arm,
    ``known`` at them.
    """
    records = []
    for run in plan_training("overnight", seeds):
        setting = run.config.params["setting"]
        sizes = setting["test_sizes"]
        longest = max(setting["train_sizes"])
        score = answers[run.labels["arm"]] + 0.001 * run.labels["seed"]
        right = [score if size > longest else known for size in sizes]
        curves = {
            "size": sizes,
            "answers_right": right,
            "texts_right": right,
            "state_error": [1 - x for x in right],
        }
        records.append(
            Record("scratchpad_training", 1, run.config, {}, curves, {}, labels=run.labels)
        )
    return records


def test_every_claim_is_listed_and_every_statement_of_the_studies_verified(studied):
    checks = measure(studied)
    assert len(checks) == 9 and {c.verdict for c in checks} == {"verified"}
    stated = claims.reference_claims()
    stated = stated[stated["paper"] == "scratchpad"]
    assert set(stated["id"]) == {
        m.claim
        for m in [*checks, *SCRATCHPAD_TRAINING.measure(scored(1, dict.fromkeys(ARMS, 0.5)))]
    }
    assert set(stated["notebook"]) == {experiment.NOTEBOOK}
    assert measure(studied[:2]) == [] == SCRATCHPAD_TRAINING.measure([])


def naive_does_no_harm(curves, metrics):
    name = next(way for way in metrics["ways"] if way.endswith(", naive"))
    metrics["ways"] = {**metrics["ways"], name: {**metrics["ways"][name], "largest_error": 0.0}}


@pytest.mark.parametrize(
    ("study", "change", "refuted"),
    [
        (
            "equivalence",  # without a part it must differ
            lambda curves, _: curves.update(loss=[1e-6] * len(curves["loss"])),
            ["IS-training", "IS-schemes", "IS-ingredients"],
        ),
        ("reuse", naive_does_no_harm, ["IS-naive"]),
        (
            "writing",
            lambda curves, _: curves.update(
                differing_texts=[int(way == "doubled") for way in curves["way"]]
            ),
            ["IS-caches"],
        ),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(studied, study, change, refuted):
    record = experiment.of_study(studied, study)
    curves = dict(record.curves)
    metrics = dict(record.metrics)
    change(curves, metrics)
    broken = [replace(r, curves=curves, metrics=metrics) if r is record else r for r in studied]
    assert [c.claim for c in measure(broken) if c.verdict == "refuted"] == refuted


def test_gaps_are_taken_beyond_the_trained_sizes():
    answers = {
        "inductive decoder": 0.9,
        "ordinary decoder": 0.4,
        "decoder without": 0.5,
        "inductive ENTP": 0.7,
    }
    records = scored(5, answers)
    found = {m.claim: m for m in SCRATCHPAD_TRAINING.measure(records)}
    values = {claim: m.values for claim, m in found.items()}
    gaps = {"IS-parity": 0.5, "IS-shift": 0.5, "IS-soft": 0.5, "IS-entp": -0.2}
    assert values == {claim: pytest.approx([gap] * 5) for claim, gap in gaps.items()}
    assert len(found["IS-shift"].records) == 10
    table = by_size(records)
    assert set(table[table["beyond"] & (table["task"] == "parity")]["size"]) == {10, 12, 14, 16}
    means = beyond(table).groupby(["task", "arm"])["texts_right"].mean()
    assert means["parity", "ordinary decoder"] == pytest.approx(0.402)
