"""Claims of the primer can be refuted by what they rest on; verdicts follow the paired scores."""

from dataclasses import replace

import pandas as pd
import pytest

from entp_lab import claims
from entp_lab.registry import STUDIES
from entp_lab.store import Record
from entp_papers.encoder_decoder.experiment import (
    ARMS,
    ENCODER_DECODER,
    measure_objectives,
    plan_objectives,
)


@pytest.fixture(scope="module")
def studied():
    """Return the exact studies' records at smoke, made in memory."""
    found = {}
    for run in ENCODER_DECODER.plan("smoke", 0):
        metrics, curves = STUDIES.named(run.config.study)(**run.config.params)
        record = Record("encoder_decoder", 1, run.config, metrics, curves, {}, labels=run.labels)
        found[run.config.study.removeprefix("encoder_decoder_")] = record
    return found


def checked(records):
    return {check.claim: check.verdict for check in ENCODER_DECODER.measure(list(records.values()))}


TRIANGLE = [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("study", "metrics", "curves", "claim"),
    [
        ("parity", dict(largest_difference=1e-3), {}, "ED-layers"),
        ("masking", dict(special_selected=1), {}, "ED-mlm"),
        ("losses", dict(largest=1e-3), {}, "ED-causal-loss"),
        (
            "bugs",
            dict(influence=dict(printed=TRIANGLE, corrected=TRIANGLE, causal=TRIANGLE)),
            {},
            "ED-triangle",
        ),
        ("sampling", {}, dict(right=lambda rows: rows["check"] != rows["check"][0]), "ED-sampling"),
        ("caches", {}, dict(apart=lambda rows: 0.0), "ED-cache-decoder"),
        (
            "bugs",
            {},
            dict(told_apart=lambda rows: rows.index != (rows["bug"] == "B6").idxmax()),
            "ED-cache",
        ),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(studied, study, metrics, curves, claim):
    record = studied[study]
    rows = pd.DataFrame(record.curves).assign(**curves).to_dict("list")
    changed = replace(record, metrics={**record.metrics, **metrics}, curves=rows)
    before = checked(studied)
    after = checked({**studied, study: changed})
    assert before.pop(claim) != after.pop(claim) == "refuted"
    assert before == after


def test_every_check_fails_on_the_printed_and_passes_on_the_corrected(studied):
    assert all(studied["bugs"].curves["told_apart"])


SCORES = dict(next_token_loss=2.5, middle_loss=2.5, middle_loss_few=2.4, accuracy=0.2, unigram=3.4)


def trained(seeds, changes):
    """Return records of training as if made, with other scores by arm."""
    records = []
    for run in plan_objectives("quick", seeds):
        seed = run.labels["seed"]
        arm = run.labels["arm"]
        noise = 0.001 * seed * (1 + (arm == "masked"))
        scores = {**SCORES, **changes.get(arm, {})}
        metrics = {name: value + noise for name, value in scores.items()}
        metrics["candidate_loss"] = 1.0 if arm == "decoder" else None
        records.append(Record("objectives", 1, run.config, metrics, {}, {}, labels=run.labels))
    return records


def verdicts(seeds, changes):
    measured = measure_objectives(trained(seeds, changes))
    return claims.judge(measured, only_measured=True).set_index("id")["verdict"]


BETTER = dict(next_token_loss=3.0, middle_loss=2.0, accuracy=0.3, middle_loss_few=1.5)
WORSE = dict(next_token_loss=2.0, accuracy=0.1)
NOTHING = dict(next_token_loss=3.39, accuracy=0.03)


@pytest.mark.parametrize(
    ("seeds", "changes", "expected"),
    [
        (5, {"masked": BETTER}, "same direction"),
        (5, {"masked": WORSE}, "not reproduced"),
        (4, {"masked": BETTER}, "inconclusive"),
        (5, dict.fromkeys(ARMS, NOTHING), "uninformative"),
    ],
)
def test_verdicts_follow_the_paired_scores(seeds, changes, expected):
    judged = verdicts(seeds, changes)
    assert judged["ED-next-token"] == judged["ED-classification"] == expected


def test_questions_are_answered_by_the_paired_scores():
    judged = verdicts(5, {"masked": BETTER})
    assert judged["ED-bayes"] == "decoder ahead"
    assert judged["ED-entp-next"] == "equal within the margin"
