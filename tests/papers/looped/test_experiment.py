"""Tables and verdicts of notebook 11, from the committed records."""

from dataclasses import replace

import pandas as pd
import pytest

from entp_lib.experiments import claims
from entp_lib.records.store import Store
from entp_papers.looped import tables, verdicts
from entp_papers.looped.experiment import LOOPED


@pytest.fixture(scope="module")
def records():
    found = LOOPED.stored(Store(), "quick")
    assert found, "records of the looped computer are missing at quick"
    return found


def test_every_statement_of_the_paper_has_a_verdict(records):
    judged = claims.judge(LOOPED.measure(records), only_measured=True).set_index("id")
    listed = claims.reference_claims().query("paper == 'looped'")
    assert set(judged.index) == set(listed["id"])
    assert set(judged["verdict"]) == {"verified", "verified with correction", "unproved"}
    assert judged.loc["LT-4", "verdict"] == "verified"
    assert judged.loc["LT-12-start", "verdict"] == "verified with correction"


def test_no_verdict_without_all_studies(records):
    assert LOOPED.measure(records[:-1]) == []


def test_every_program_was_right_after_every_pass(records):
    table = tables.program_table(records)
    assert table["wrong"].eq(0).all() and table["deviation"].eq(0).all()
    assert table.query("precision == 'fp32' and program.str.startswith('random')")["programs"].sum() >= 2000


def test_sizes_stand_beside_the_paper(records):
    table = tables.size_table(records)
    assert list(table.loc["SUBLEQ (Lemma 4)", ["layers", "heads"]]) == [9, 2]
    assert (table["layers"] <= table["layers, paper"]).all()


def test_errata_come_in_order(records):
    table = tables.errata_table(records)
    assert list(table.index) == [f"E{i}" for i in range(1, 13)]
    assert pd.to_numeric(table.loc[["E1", "E2", "E4", "E9"], "corrected"]).eq(0).all()


def test_a_built_machine_is_within_what_is_stated():
    assert verdicts.sized({"layers": 13, "heads": 4}, 13, 4)
    assert not verdicts.sized({"layers": 13, "heads": 4}, 13, 1)
    assert not verdicts.sized({"layers": 14, "heads": 1}, 13, 1)


def test_heads_are_held_against_the_sum_of_the_blocks():
    built = {"layers": 11, "heads": 206, "blocks": {"add": 1, "mul": 2, "inv": 101, "sqrt": 102}}
    assert verdicts.summing(built, 12) and verdicts.summing(built, 12, inv=101)
    assert not verdicts.summing(built, 12, sqrt=101)
    assert not verdicts.summing(built, 10)
    assert not verdicts.summing(dict(built, heads=207), 12)


@pytest.mark.parametrize(
    ("name", "claim", "verdict"),
    [("inverse", "LT-12", "unproved"), ("calculator", "LT-T4", "refuted"), ("SGD", "LT-15", "unproved")],
)
def test_a_machine_of_too_many_heads_is_none(records, name, claim, verdict):
    broken = []
    for r in records:
        if r.config.study == "looped_sizes":
            machines, name = dict(r.metrics["machines"]), tables.MACHINES[name]
            machines[name] = dict(machines[name], heads=sum(machines[name]["blocks"].values()) + 1)
            r = replace(r, metrics={"machines": machines})
        broken.append(r)
    found = {c.claim: c for c in LOOPED.measure(broken)}[claim]
    assert found.verdict == verdict and (verdict == "refuted" or found.remark == "the machine that was built does not")


@pytest.mark.parametrize(("claim", "heads"), [("LT-12", 4), ("LT-13", 106), ("LT-15", 9)])
def test_more_than_one_head_neither_shows_nor_refutes_that_one_suffices(records, claim, heads):
    found = {c.claim: c for c in LOOPED.measure(records)}[claim]
    assert found.verdict == "unproved" and f"with {heads} heads" in found.remark


def test_one_wide_layer_needs_no_depth(records):
    assert {c.claim: c.verdict for c in LOOPED.measure(records)}["LT-6.3"] == "verified with correction"


@pytest.mark.parametrize(("name", "claim"), [("E9", "LT-1"), ("E2", "LT-3"), ("E1", "LT-4.3"), ("E4", "LT-4.3")])
def test_a_correction_that_fails_saves_no_statement(records, name, claim):
    assert {c.claim: c.verdict for c in LOOPED.measure(records)}[claim] == "verified with correction"
    broken = []
    for r in records:
        if r.config.study == "looped_errata":
            r = replace(r, metrics=dict(r.metrics, **{name: dict(r.metrics[name], corrected=5)}))
        broken.append(r)
    assert {c.claim: c.verdict for c in LOOPED.measure(broken)}[claim] == "refuted"


def test_a_calculator_whose_roots_do_not_improve_is_none(records):
    """The six operations together may err little all the same: roots alone are asked, too."""
    broken = []
    for r in records:
        if r.config.study == "looped_calculator":
            rows = zip(r.curves["operation"], r.curves["error"], strict=True)
            r = replace(r, curves=dict(r.curves, error=[0.5 if name == "sqrt" else error for name, error in rows]))
        broken.append(r)
    before, after = ({c.claim: c.verdict for c in LOOPED.measure(rows)} for rows in (records, broken))
    assert before.pop("LT-T4") == "verified" and after.pop("LT-T4") == "refuted" and before == after


def test_depth_of_a_relu_network_is_looked_at(records):
    broken = []
    for r in records:
        if r.config.study == "looped_depth":
            r = replace(r, metrics=dict(r.metrics, factor_of_a_level=2.0))
        broken.append(r)
    assert {c.claim: c.verdict for c in LOOPED.measure(broken)}["LT-6.3"] == "refuted"


@pytest.mark.parametrize(("curve", "value"), [("width", 10_000), ("previous", 1.0), ("padding", 1.0), ("heads", 2)])
def test_a_block_that_breaks_its_contract_is_none(records, curve, value):
    broken = []
    for r in records:
        if r.config.study == "looped_contract":
            r = replace(r, curves=dict(r.curves, **{curve: [value] * len(r.curves[curve])}))
        broken.append(r)
    found = {c.claim: c.verdict for c in LOOPED.measure(broken)}
    assert {found[claim] for claim in ("LT-6", "LT-7", "LT-8", "LT-9", "LT-C2", "LT-C3")} == {"refuted"}
