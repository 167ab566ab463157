"""What full attention buys: every comparison is a claim's, on one scale, with an answer by rule."""

import math
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from entp_lib.experiments import ledger_figures, png_files
from entp_lib.experiments.claims import reference_claims
from entp_lib.reports import comparisons
from entp_lib.reports.ledger import ledger
from entp_lib.reports.parameters import notebook_paths


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


def test_every_task_names_claims_that_there_are():
    tasks, known = comparisons.tasks(), set(reference_claims()["id"])
    assert tasks["task"].is_unique and len(tasks) >= 10
    named = set(tasks[list(comparisons.BUDGETS)].stack().dropna())
    assert named <= known, named - known


def test_the_order_of_a_folder_changes_nothing(monkeypatch):
    """File systems list files in orders of their own; tmpfs the newest first."""
    listed, found = Path.glob, []
    for reverse in (False, True):
        monkeypatch.setattr(Path, "glob", lambda p, *a, r=reverse, **k: iter(sorted(listed(p, *a, **k), reverse=r)))
        tables = (comparisons.tasks(), reference_claims())
        found.append([t.to_csv() for t in tables] + [[p.name for p in notebook_paths()], png_files.gallery()])
    assert found[0] == found[1]


def test_differences_are_shares_of_the_way_from_guessing_to_the_best():
    row = first()
    assert (row["value"], row["low"], row["high"]) == pytest.approx((0.2, 0.1, 0.3))
    assert row["answer"] == "ENTP ahead"


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


def test_the_picture_has_a_row_for_each_task_and_a_panel_for_each_budget():
    table = comparisons.comparisons(rows())
    table = table[table["drawn_as"].isin(["Match3′", "addition"])].assign(value=0.1, low=0.0, high=0.2, answer="open")
    fig = ledger_figures.bought(table)
    steps, compute = fig.axes
    assert [label.get_text() for label in steps.get_yticklabels()] == ["Match3′", "Addition"]
    marks = [[line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "o"] for ax in (steps, compute)]
    assert [len(m) for m in marks] == [2, 2] and "white" in marks[1] and "white" not in marks[0]
    plt.close(fig)
