"""Tables and verdicts of notebook 11, from the committed records, and from records in which something went wrong."""

import copy

import pytest

from entp_lib.experiments import claims
from entp_lib.records.store import Store
from entp_papers.looped.experiment import LOOPED


@pytest.fixture(scope="module")
def records():
    found = LOOPED.stored(Store(), "quick")
    assert found, "records of the looped computer are missing at quick"
    return found


def verdicts(records):
    return {c.claim: c.verdict for c in LOOPED.measure(records)}


def broken(records, study, change):
    """The records after ``change`` (of metrics and curves) of one study."""
    found = copy.deepcopy(records)
    for r in found:
        if r.config.study == f"looped_{study}":
            change(r.metrics, r.curves)
    return found


def test_every_statement_of_the_paper_has_a_verdict(records):
    judged = claims.judge(LOOPED.measure(records), only_measured=True).set_index("id")
    assert set(judged.index) == set(claims.reference_claims().query("paper == 'looped'")["id"])
    assert set(judged["verdict"]) == {"verified", "verified with correction", "unproved"}
    for claim, verdict in (("LT-4", "verified"), ("LT-12-start", "verified with correction"), ("LT-12", "unproved")):
        assert judged.loc[claim, "verdict"] == verdict
    assert LOOPED.measure(records[:-1]) == []  # no verdict without all studies


def same_error(curves):
    """Roots alone are asked, too: the six operations together may err little all the same."""
    rows = zip(curves["operation"], curves["error"], strict=True)
    curves["error"] = [0.5 if name == "sqrt" else error for name, error in rows]


@pytest.mark.parametrize(
    ("study", "change", "refuted"),
    [
        ("errata", lambda m, c: m["E9"].update(corrected=5), "LT-1"),
        ("errata", lambda m, c: m["E2"].update(corrected=5), "LT-3"),
        ("errata", lambda m, c: m["E1"].update(corrected=5), "LT-4.3"),
        ("depth", lambda m, c: m.update(factor_of_a_level=2.0), "LT-6.3"),  # one wide layer needs no depth
        ("calculator", lambda m, c: same_error(c), "LT-T4"),
        ("contract", lambda m, c: c.update(width=[10_000] * len(c["width"])), "LT-6 LT-7 LT-8 LT-9 LT-C2 LT-C3"),
        ("contract", lambda m, c: c.update(padding=[1.0] * len(c["width"])), "LT-6 LT-7 LT-8 LT-9 LT-C2 LT-C3"),
    ],
)
def test_a_result_against_a_statement_refutes_it_alone(records, study, change, refuted):
    before, after = verdicts(records), verdicts(broken(records, study, change))
    assert {claim for claim in before if before[claim] != after[claim]} == set(refuted.split())
    assert {after[claim] for claim in refuted.split()} == {"refuted"}
