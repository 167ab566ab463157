"""Verdicts by rule."""

import math

import pytest

from entp_lib import claims
from entp_lib.claims import Measurement, judge, verdict
from entp_lib.records import Store


@pytest.mark.parametrize(
    ("low", "high", "changes", "expected"),
    [
        (0.1, 0.3, {}, "same direction"),
        (0.1, 0.3, {"paper_settings": True}, "reproduced"),
        (0.3, 0.4, {"paper_settings": True}, "same direction"),
        (-0.3, -0.1, {}, "not reproduced"),
        (-0.3, -0.1, {"sign": -1, "paper_value": -0.2}, "same direction"),
        (-0.1, 0.3, {}, "inconclusive"),
        (-0.01, 0.01, {"margin": 0.02}, "not reproduced"),
        (-0.01, 0.01, {"margin": math.nan}, "inconclusive"),
        (0.1, 0.3, {"pairs": 4}, "inconclusive"),
        (0.1, 0.3, {"pairs": 4, "paper_settings": True}, "inconclusive"),
        (-0.01, 0.01, {"sign": 0, "margin": 0.02}, "same direction"),
        (-0.01, 0.05, {"sign": 0, "margin": 0.02}, "inconclusive"),
        (0.03, 0.05, {"sign": 0, "margin": 0.02}, "not reproduced"),
        (-0.1, 0.3, {"paper_value": math.nan, "paper_settings": True}, "inconclusive"),
    ],
)
def test_rule(low, high, changes, expected):
    rule = dict(pairs=5, sign=1, paper_value=0.2, margin=math.nan, paper_settings=False)
    assert verdict((low + high) / 2, low, high, **{**rule, **changes}) == expected


def test_a_measurement_becomes_a_row():
    table = judge([Measurement("F2-tokens", [0.1, 0.12, 0.11, 0.13, 0.12], "quick", ("count3/x",))], only_measured=True)
    row = table.iloc[0]
    assert list(table.columns) == list(claims.COLUMNS) and len(table) == 1
    assert row["verdict"] == "same direction" and row["seeds"] == 5 and row["records"] == "count3/x"
    assert row["our_value"] == pytest.approx(0.116) and row["low"] < 0.116 < row["high"]
    assert row["paper_value"] == pytest.approx(0.2935) and row["notebook"] == "03_count3"


def test_an_unlisted_claim_is_an_error():
    with pytest.raises(ValueError, match="does not list: F9"):
        judge([Measurement("F9", [1.0], "quick")])


def test_without_records_nothing_was_attempted(tmp_path):
    table = claims.ledger(Store(tmp_path, read_only=True))
    assert set(table["verdict"]) == {"not attempted"} and len(table) == len(claims.reference_claims())


def test_the_papers_claims_are_well_formed():
    table = claims.reference_claims()
    assert table["id"].is_unique and set(table["kind"]) == {"empirical", "theory"}
    signed = table[(table["kind"] == "empirical") & table["paper_value"].notna() & (table["sign"] != 0)]
    assert (signed["paper_value"] * signed["sign"] > 0).all()
