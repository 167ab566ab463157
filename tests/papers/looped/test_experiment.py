"""Tables and verdicts of notebook 11, from the committed records, and from records in which something went wrong."""

import copy

import pandas as pd
import pytest

from entp_lib.experiments import claims
from entp_lib.records.store import Store
from entp_papers.looped import experiment
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


def test_tables(records):
    programs, sizes, errata = (
        experiment.program_table(records),
        experiment.size_table(records),
        experiment.errata_table(records),
    )
    assert programs["wrong"].eq(0).all() and programs["deviation"].eq(0).all()
    assert programs.query("precision == 'fp32' and program.str.startswith('random')")["programs"].sum() >= 2000
    assert list(sizes.loc["SUBLEQ (Lemma 4)", ["layers", "heads"]]) == [9, 2]
    assert (sizes["layers"] <= sizes["layers, paper"]).all()
    assert list(errata.index) == [f"E{i}" for i in range(1, 13)]
    assert pd.to_numeric(errata.loc[["E1", "E2", "E4", "E9"], "corrected"]).eq(0).all()


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


@pytest.mark.parametrize(
    ("name", "claim", "verdict"),
    [("inverse", "LT-12", "unproved"), ("calculator", "LT-T4", "refuted"), ("SGD", "LT-15", "unproved")],
)
def test_a_machine_of_too_many_heads_is_none(records, name, claim, verdict):
    def more_heads(metrics, _):
        built = metrics["machines"][experiment.MACHINES[name]]
        built["heads"] = sum(built["blocks"].values()) + 1

    found = {c.claim: c for c in LOOPED.measure(broken(records, "sizes", more_heads))}[claim]
    assert found.verdict == verdict and (verdict == "refuted" or "does not" in found.remark)
