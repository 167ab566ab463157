"""What full attention buys: every comparison is a claim's, on one scale, with an answer by rule."""

import math

import pandas as pd
import pytest

from entp_lib.experiments.claims import reference_claims
from entp_lib.reports import comparisons
from entp_lib.reports.ledger import ledger


def rows(**changes):
    """A ledger of all claims, none measured but F2-tokens: 0.1 (0.05 to 0.15) of a range of 0.5."""
    claims = reference_claims()
    table = pd.DataFrame({"id": claims["id"], "verdict": "not attempted", "tier": "", "seeds": 0, "records": ""})
    table = table.assign(our_value=math.nan, low=math.nan, high=math.nan, scale=0.5)
    given = dict(our_value=0.1, low=0.05, high=0.15, verdict="same direction", seeds=5, tier="quick") | changes
    table.loc[table["id"] == "F2-tokens", list(given)] = list(given.values())
    return table


def first(**changes):
    table = comparisons.comparisons(rows(**changes))
    return table[table["claim"] == "F2-tokens"].iloc[0]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        (dict(low=-0.15, high=-0.05), "decoder ahead"),
        (dict(low=-0.05, high=0.15, verdict="inconclusive"), "open"),
        (dict(low=-0.005, high=0.005, verdict="not reproduced"), "equal within the margin"),
        (dict(seeds=4, verdict="inconclusive"), "open"),
        (dict(verdict="uninformative"), "uninformative"),
        (dict(low=-0.2, high=-0.1, verdict="inconclusive"), "open"),  # no worse, or worse, than a margin allows
        (dict(verdict="not attempted"), "not run yet"),
    ],
)
def test_answers_follow_one_rule(changes, answer):
    assert first(**changes)["answer"] == answer


def test_one_datum_has_one_verdict_in_the_picture_and_in_the_ledger():
    verdicts = (table := ledger()).set_index("id")["verdict"]
    alike = {
        "ENTP ahead": {"ENTP ahead", "same direction", "reproduced"},
        "decoder ahead": {"decoder ahead", "not reproduced"},
        "equal within the margin": {"equal within the margin", "not reproduced"},
        "open": {"open", "inconclusive"},
        "uninformative": {"uninformative"},
    }
    apart = {r.claim: r.answer for r in comparisons.comparisons(table).itertuples() if r.answer in alike}
    apart = {claim: answer for claim, answer in apart.items() if verdicts[claim] not in alike[answer]}
    assert apart == {}


def test_what_remains_of_all_intervals_together():
    """Three intervals of five pairs: one far from zero, one that excludes it only alone, one open."""
    table = rows()
    given = {"F2-sequences": (0.001, 0.2), "T2-tokens": (-0.1, 0.1), "F2-tokens": (0.099, 0.101)}
    for claim, (low, high) in given.items():
        table.loc[table["id"] == claim, ["our_value", "low", "high", "seeds"]] = [(low + high) / 2, low, high, 5]
    said = comparisons.together(comparisons.comparisons(table))
    assert said == (
        "3 intervals, 2 of which exclude zero; by Holm's correction for all of them 1 remain: "
        "Count3, single tokens (equal steps)"
    )
    table.loc[table["id"] == "F2-tokens", "seeds"] = 4  # too few to conclude
    assert comparisons.together(comparisons.comparisons(table)).startswith("2 intervals, 1 of which")
