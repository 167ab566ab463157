"""Verdicts by rule."""

import math
import shutil

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entp_lab import claims, paths
from entp_lab.claims import judge, verdict
from entp_lab.measurements import Level, Measurement, Observation, evidence_rank, strongest
from entp_lab.statistics import exceeds

RULE = dict(pairs=5, sign=1, paper_value=0.2, margin=0.02, paper_settings=False)


@pytest.mark.parametrize(
    ("low", "high", "changes", "expected"),
    [
        (0.1, 0.3, {}, "same direction"),
        (0.1, 0.3, {"paper_settings": True}, "reproduced"),
        (0.3, 0.4, {"paper_settings": True}, "same direction"),
        (0.005, 0.015, {"paper_value": 0.01, "paper_settings": True}, "reproduced"),
        (-0.1, 0.3, {}, "inconclusive"),
        (0.0, 0.3, {"paper_settings": True}, "inconclusive"),
        (0.1, 0.3, {"pairs": 4}, "inconclusive"),
        (math.nan, math.nan, {}, "inconclusive"),
        (0.005, 0.015, {}, "not reproduced"),
        (-0.01, 0.01, {"margin": math.nan}, "inconclusive"),
        (-0.01, 0.01, {"sign": 0}, "same direction"),
        (-0.01, 0.01, {"sign": 0, "paper_value": 0.0, "paper_settings": True}, "reproduced"),
        (-0.01, 0.01, {"sign": 0, "margin": math.nan}, "inconclusive"),
        (0.03, 0.05, {"sign": 0}, "not reproduced"),
        (-0.01, 0.3, {"no_worse": True}, "same direction"),
        (-0.05, -0.03, {"no_worse": True}, "not reproduced"),
        (
            -0.05,
            0.01,
            {"no_worse": True, "paper_value": 0.0, "paper_settings": True},
            "inconclusive",
        ),
        (-0.01, 0.3, {"no_worse": True, "margin": math.nan}, "inconclusive"),
    ],
)
def test_rule(low, high, changes, expected):
    assert verdict(low, high, **(RULE | changes)) == expected


@pytest.mark.parametrize("sign", [math.nan, 2, 0.5])
def test_a_claim_without_a_direction_has_no_verdict(sign):
    with pytest.raises(ValueError, match="sign = .*: must be 1, -1 or 0"):
        verdict(0.1, 0.3, **(RULE | {"sign": sign}))


bounds = st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(sorted)


@given(
    interval=bounds,
    pairs=st.integers(1, 9),
    sign=st.sampled_from([-1, 0, 1]),
    paper_value=st.floats(-1, 1) | st.just(math.nan),
    margin=st.floats(0, 1) | st.just(math.nan),
    paper_settings=st.booleans(),
    no_worse=st.booleans(),
)
def test_the_rule_has_no_favourite_side(
    interval, pairs, sign, paper_value, margin, paper_settings, no_worse
):
    """Counting differences the other way round changes no verdict, and few pairs or NaN never
    conclude.
    """
    low, high = interval
    rest = dict(pairs=pairs, margin=margin, paper_settings=paper_settings, no_worse=no_worse)
    found = verdict(low, high, sign=sign, paper_value=paper_value, **rest)
    assert found == verdict(-high, -low, sign=-sign, paper_value=-paper_value, **rest)
    assert pairs >= 5 or found == "inconclusive"
    assert paper_settings or found != "reproduced"


on_a_bar = st.sampled_from([-0.2, -0.02, -0.01, 0.0, 0.01, 0.02, 0.2])
last_digits = st.floats(-1e-11, 1e-11)


@given(
    interval=st.tuples(on_a_bar, on_a_bar).map(sorted),
    off=st.tuples(last_digits, last_digits),
    sign=st.sampled_from([-1, 0, 1]),
    no_worse=st.booleans(),
)
def test_last_digits_change_no_verdict(interval, off, sign, no_worse):
    """An end that lies on zero, on the margin or on the paper's value lies there on every
    processor.
    """
    moved = [end + digits for end, digits in zip(interval, off, strict=True)]
    rule = RULE | dict(sign=sign, paper_settings=True, no_worse=no_worse)
    words = dict(pairs=5, margin=0.02, positive="ENTP ahead", negative="decoder ahead")
    said = []
    for low, high in (interval, moved):
        rows = pd.DataFrame([dict(low=low, high=high, paper_value=0.2)])
        levels = [Level(score, 0.0, 0.22, 0.02) for score in (low, high)]
        said.append(
            [
                verdict(low, high, **rule),
                claims.answer(low, high, **words),
                claims.answer_of_every([low, high, 0.1, 0.2, 0.3], "learns", "stays below"),
                claims.excludes_paper(rows).tolist(),
                [level.at_floor for level in levels],
                [exceeds(0.02, level.room) for level in levels],
            ]
        )
    assert said[0] == said[1]


def row_of(finding):
    """The row of the ledger that a finding gives."""
    (row,) = judge([finding], only_measured=True).to_dict("records")
    return row


@pytest.mark.parametrize(
    ("claim", "values", "settings", "expected"),
    [
        ("F2-tokens", [0.28, 0.29, 0.3, 0.3, 0.29], True, "reproduced"),
        ("F2-tokens", [0.28, 0.29, 0.3, 0.3, 0.29], False, "same direction"),
        (
            "CT-walks-level",
            [-0.001, 0.001, 0.0, 0.0005, -0.0005],
            False,
            "same direction",
        ),  # claims no difference
    ],
)
def test_a_row_is_judged_by_its_own_claim_and_settings(claim, values, settings, expected):
    assert (
        row_of(Measurement(claim, values, "quick", paper_settings=settings))["verdict"] == expected
    )


LOW, HALF, HIGH = (Level(score, 0.0, 1.0, 0.1) for score in (0.05, 0.5, 0.99))


@pytest.mark.parametrize(
    ("values", "levels", "why"),
    [
        ([0.1] * 4, (), "4 of 5 pairs"),
        ([0.1] * 4, (LOW, LOW), "no side is above guessing"),
        ([0.1] * 5, (HIGH, HIGH), "a side is nearer to its ceiling than the margin"),
        ([0.1, 0.11, 0.12, 0.11, 0.1], (LOW, HALF), ""),
        ([0.1, -0.1, 0.1, -0.1, 0.1], (), ""),
    ],
)
def test_an_open_row_says_why(values, levels, why):
    """Guessing outweighs the number of pairs; an interval that decides, or includes zero, needs no
    word.
    """
    assert row_of(Measurement("F2-tokens", values, "quick", levels=levels))["why"] == why


def test_the_papers_claims_are_well_formed():
    table = claims.reference_claims()
    assert table["id"].is_unique
    assert set(table["kind"]) == {"empirical", "theory", "question"}
    signed = table[
        (table["kind"] == "empirical") & table["paper_value"].notna() & (table["sign"] != 0)
    ]
    mild = signed["rule"] == "no worse"  # less the paper's own value, where that is 0
    assert (signed["paper_value"] * signed["sign"] > 0)[~mild].all()
    assert (signed["paper_value"] == 0)[mild].all()
    asked = table[table["kind"] == "question"]
    assert asked[["positive", "negative"]].notna().all(axis=None)
    assert asked["paper_value"].isna().all()  # what the paper has a value for is its claim
    assert set(table["paper"]) >= {"entp"}


def test_the_strongest_evidence_counts_and_the_first_of_equals():
    seen = Observation("a", "inconclusive", "quick", "one run each")
    few, many, more = (
        Measurement("a", [0.1] * count, tier)
        for count, tier in ((1, "gpu"), (5, "quick"), (5, "gpu"))
    )
    assert evidence_rank(few) < evidence_rank(seen) < evidence_rank(many)
    assert strongest((found, found.tier) for found in (few, many, more)) == {"a": (many, "quick")}


SHARES = (0.2, 1.0)  # floor and ceiling
ERRORS = (1.0, 0.0)


@pytest.mark.parametrize(
    ("scores", "ends", "informative"),
    [
        ((0.21, 0.2), SHARES, False),  # neither has left what guessing gets
        ((0.1, 0.2), SHARES, False),  # worse than guessing is no better
        ((0.21, 0.3), SHARES, True),
        (
            (0.99, 0.975),
            SHARES,
            False,
        ),  # one leaves the other no room to lead by the margin of 0.02
        ((0.975, 0.97), SHARES, True),
        ((0.98, 0.97), SHARES, True),  # on the margin is not nearer
        ((0.99, 0.9), SHARES, True),  # which is behind by more than that all the same
        ((0.01, 0.02), ERRORS, False),  # errors: the floor is above
        ((1.0, 0.99), ERRORS, False),
        ((1.0, 0.5), ERRORS, True),
        ((), SHARES, True),
    ],
)
def test_what_neither_left_the_floor_nor_the_ceiling_says_nothing(scores, ends, informative):
    """It outranks every verdict and every answer, whatever the interval."""
    levels = [Level(score, *ends, 0.02) for score in scores]
    values = [0.1, 0.11, 0.12, 0.13, 0.12]
    answers = {"F2-tokens": "same direction", "F5-best": "ENTP ahead"}
    for claim, answer in answers.items():
        found = Measurement(claim, values, "paper", (), True, levels)
        assert bool(found.uninformative_because) is not informative
        assert row_of(found)["verdict"] == (answer if informative else "uninformative")


@pytest.mark.parametrize(
    ("low", "high", "pairs", "expected"),
    [
        (0.05, 0.1, 5, "ENTP ahead"),
        (-0.1, -0.05, 5, "decoder ahead"),
        (-0.005, 0.005, 5, claims.EQUAL),
        (0.001, 0.005, 5, claims.EQUAL),
        (-0.05, 0.1, 5, claims.OPEN),
        (0.05, 0.1, 4, claims.OPEN),
        (math.nan, math.nan, 1, claims.OPEN),
    ],
)
def test_questions_have_answers_of_their_own(low, high, pairs, expected):
    words = dict(positive="ENTP ahead", negative="decoder ahead")
    assert claims.answer(low, high, pairs=pairs, margin=0.01, **words) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.1, 0.1, 0.2, 0.3], "learns"),
        ([-0.1, -0.2, -0.1, -0.2, -0.3], "stays below"),
        ([-0.1, 0.1, 0.1, 0.2, 0.3], claims.OPEN),
        ([0.0, -0.1, -0.1, -0.2, -0.3], claims.OPEN),
        ([0.1, 0.1, 0.2, 0.3], claims.OPEN),
    ],
)
def test_where_every_seed_must_meet_a_bar_one_that_does_not_leaves_it_open(values, expected):
    assert claims.answer_of_every(values, "learns", "stays below") == expected


def test_an_id_stands_in_one_row_of_all_papers(tmp_path, monkeypatch):
    for paper in ("one", "two"):
        (tmp_path / paper).mkdir()
        shutil.copy(paths.reference() / "entp/claims.csv", tmp_path / paper)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    with pytest.raises(ValueError, match="the id '.*' stands in more than one row"):
        claims.reference_claims()
