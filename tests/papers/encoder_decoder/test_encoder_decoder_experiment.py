"""Plans of notebook 14's experiments, verdicts on their records, and pictures of them."""

from dataclasses import replace

import pytest

from entp_lab import claims
from entp_lab.registry import STUDIES as NAMED
from entp_lab.store import Record
from entp_papers.encoder_decoder.experiment import (
    ARMS,
    ENCODER_DECODER,
    frame,
    measure,
    measure_objectives,
    of_study,
    plan_objectives,
)


@pytest.fixture(scope="module")
def studied():
    """The exact studies' records at smoke, made in memory."""
    found = []
    for run in ENCODER_DECODER.plan("smoke", 0):
        metrics, curves = NAMED.named(run.config.study)(**run.config.params)
        found.append(Record("encoder_decoder", 1, run.config, metrics, curves, {}, labels=run.labels))
    return found


SCORES = dict(next_token_loss=2.5, middle_loss=2.5, middle_loss_few=2.4, accuracy=0.2, fresh_accuracy=0.04, unigram=3.4)


def trained(seeds, changes):
    """Records of training as if made, with other scores by arm."""
    records = []
    for run in plan_objectives("quick", seeds):
        seed, arm = run.labels["seed"], run.labels["arm"]
        noise = 0.001 * seed * (1 + (arm == "masked"))
        metrics = {name: value + noise for name, value in {**SCORES, **changes.get(arm, {})}.items()}
        metrics["candidate_loss"] = 1.0 if arm == "decoder" else None
        curves = {"step": [10, 20], "next_token_loss": [3.0 + seed, 2.0 + seed]}
        records.append(Record("objectives", 1, run.config, metrics, curves, {}, labels=run.labels))
    return records


def verdicts(measured):
    return claims.judge(measured, only_measured=True).set_index("id")["verdict"]


def test_every_claim_of_the_studies_holds_or_is_corrected(studied):
    found = {check.claim: check.verdict for check in measure(studied)}
    corrected = {claim for claim, verdict in found.items() if verdict == "verified with correction"}
    assert corrected == {"ED-all-tokens", "ED-past", "ED-cache", "ED-encoder-time", "ED-decoder-time"}
    assert set(found.values()) == {"verified", "verified with correction"} and len(found) == 12
    assert frame(studied, "bugs")["told_apart"].all()  # every check fails on the printed and passes on the corrected
    assert measure(studied[:3]) == []
    with pytest.raises(KeyError, match="bags"):
        frame(studied, "bags")


TRIANGLE = [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("study", "metrics", "curves", "claim"),
    [
        ("parity", dict(largest_difference=1e-3), {}, "ED-layers"),
        ("masking", dict(special_selected=1), {}, "ED-mlm"),
        ("losses", dict(largest=1e-3), {}, "ED-causal-loss"),
        ("bugs", dict(influence=dict(corrected=TRIANGLE, causal=TRIANGLE)), {}, "ED-triangle"),
        ("sampling", {}, dict(right=lambda rows: rows["check"] != rows["check"][0]), "ED-sampling"),
        ("caches", {}, dict(apart=lambda rows: 0.0), "ED-cache-decoder"),
        ("bugs", {}, dict(told_apart=lambda rows: rows.index != (rows["bug"] == "B6").idxmax()), "ED-cache"),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(studied, study, metrics, curves, claim):
    record = of_study(studied, study)
    rows = frame(studied, study).assign(**curves).to_dict("list")
    changed = replace(record, metrics={**record.metrics, **metrics}, curves=rows)
    before, after = (
        {c.claim: c.verdict for c in measure(found)}
        for found in (studied, [changed if r is record else r for r in studied])
    )
    assert before.pop(claim) != after.pop(claim) == "refuted" and before == after


def test_verdicts_follow_the_paired_scores():
    better = {"masked": dict(next_token_loss=3.0, middle_loss=2.0, accuracy=0.3, middle_loss_few=1.5)}
    judged = verdicts(measure_objectives(trained(5, better)))
    assert judged["ED-next-token"] == judged["ED-both-sides"] == judged["ED-classification"] == "same direction"
    assert judged["ED-bayes"] == "decoder ahead"
    assert judged["ED-entp-next"] == "equal within the margin"
    judged = verdicts(measure_objectives(trained(5, {"masked": dict(next_token_loss=2.0, accuracy=0.1)})))
    assert judged["ED-next-token"] == judged["ED-classification"] == "not reproduced"
    assert verdicts(measure_objectives(trained(4, better)))["ED-next-token"] == "inconclusive"
    nothing = {arm: dict(next_token_loss=3.39, accuracy=0.03) for arm in ARMS}
    judged = verdicts(measure_objectives(trained(5, nothing)))
    assert judged["ED-next-token"] == judged["ED-classification"] == "uninformative"
