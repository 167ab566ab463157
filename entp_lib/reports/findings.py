"""Answers in sentences, for the page ``docs/findings.md``, the README and notebook 00, from the ledger.

``results/reference/answers.csv`` has the questions and the sentences; ``rests_on`` names the verdicts that their words
suppose, and a test asks for other words when one of them changes.
"""

import math
import re

import pandas as pd

from entp_lib import paths
from entp_lib.config import TIERS
from entp_lib.experiments import claims
from entp_lib.files import read_table
from entp_lib.records.store import Store
from entp_lib.reports import comparisons
from entp_lib.reports.ledger import papers_claims

PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
TIER_WORDS = {
    "smoke": "seconds; tests the code and claims nothing",
    "quick": "a reduced task, minutes on two CPU cores",
    "overnight": "a reduced task trained for longer, a few nights on two CPU cores in all",
    "gpu": "the paper's task within half an hour on one data-centre GPU",
    "paper": "the paper's task, model and schedule",
}
ASKED = ["asked", "answer", "numbers", "sure", "rests_on"]


def answers() -> pd.DataFrame:
    """The questions a reader asks, their answers, and the verdicts that the words suppose."""
    return read_table(paths.reference() / "answers.csv", ASKED, needed=("asked", "answer")).fillna("")


def supposed(rests_on: str) -> dict[str, str]:
    """Claims and the verdicts on them that an answer supposes: of "4.1: verified; 4.2: verified"."""
    pairs = (part.split(": ", 1) for part in rests_on.split("; ") if part)
    return {claim.strip(): verdict for claim, verdict in pairs}


def answered(table: pd.DataFrame, prefix: str = "") -> pd.DataFrame:
    """A row a question: what was asked, answer, numbers, how sure, where; ``table`` is a ledger.

    ``prefix`` leads from the page to the project's root.
    """
    shown = claims.readable(table, ["ours", "95 % interval"])

    def number(match: re.Match) -> str:
        row = shown.loc[match[1]]
        return f"{row['ours']} ({row['95 % interval']})" if row["ours"] else "not run yet"

    rows = []
    for row in answers().itertuples():
        where = [claims.link(claim).replace("](<", f"](<{prefix}") for claim in supposed(row.rests_on)]
        rows.append(
            {
                "what was asked": row.asked,
                "answer": row.answer,
                "numbers": re.sub(r"\{([^}]+)\}", number, row.numbers),
                "how sure": row.sure,
                "where": ", ".join(dict.fromkeys(where)),
            }
        )
    return pd.DataFrame(rows)


def headline(table: pd.DataFrame) -> str:
    """The answer in three sentences: who is ahead at equal steps, at equal multiply-adds, and at which scale."""
    drawn = comparisons.comparisons(table).query("drawn_as != ''")
    steps, compute = (drawn[drawn["budget"] == budget] for budget in ("equal steps", "equal multiply-adds"))

    def names(rows: pd.DataFrame, answer: str) -> str:
        return listed(rows.loc[rows["answer"] == answer, "drawn_as"].tolist())

    large = int(table.loc[table["our_value"].notna(), "tier"].isin(PAPER_SCALE).sum())
    scale = f"{large} comparisons ran at the paper's size." if large else "Nothing ran at the paper's scale yet."
    return (
        f"At equal training steps ENTP is ahead on {names(steps, comparisons.AHEAD)}, and the decoder on "
        f"{names(steps, comparisons.BEHIND)}; on the others we see no difference, or could not have seen one.\n"
        "Where the decoder may spend as many multiply-adds as ENTP, ENTP is ahead on "
        f"{names(compute, comparisons.AHEAD)}, and the decoder on {names(compute, comparisons.BEHIND)}.\n"
        "All models are small, trained on two CPU cores with five paired random seeds, nearly all at one learning rate "
        "a task. "
        f"{scale}"
    )


def listed(names: list[str]) -> str:
    """Names as a sentence lists them."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "nothing"


def scale(table: pd.DataFrame) -> str:
    """At which scale the measured rows of a ledger were run, in a sentence or two."""
    measured = table[table["our_value"].notna()]
    counts = measured["tier"].value_counts()
    by_tier = ", ".join(f"{counts[tier]} at `{tier}` ({TIER_WORDS[tier]})" for tier in TIERS if tier in counts)
    large = int(measured["tier"].isin(PAPER_SCALE).sum())
    if not large:
        return f"**Nothing ran at the paper's scale yet.** Comparisons measured: {by_tier or 'none'}."
    return f"{large} of {len(measured)} measured comparisons ran at the paper's size; by tier: {by_tier}."


def tally(table: pd.DataFrame) -> str:
    """Number of claims with each verdict, in a sentence."""
    judged = papers_claims(table)
    counts = judged["verdict"].value_counts()
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS if verdict in counts)
    return f"{len(judged)} rows on the claims of all papers: {parts}."


def page(table: pd.DataFrame, store: Store) -> str:
    """The page as Markdown, for a ledger; ``store`` is not read again."""
    return (
        "# Findings\n\n<!-- The whole page is written by python -m entp_lib readme; no line of it is typed. -->\n\n"
        f"{markdown(answered(table, '../'))}\n\n{scale(table)}\n\n"
        "Every claim and question, with its interval, margin and caveats, is in `results/claims.csv` and "
        "`results/questions.csv`; the site (`./run_all.sh --site`) has them as a table to filter and search.\n"
    )


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; bars and line ends inside a cell are escaped, a missing value is empty."""

    def cell_text(cell: object) -> str:
        missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
        return "" if missing else " ".join(str(cell).replace("|", "\\|").splitlines())

    cells = frame.astype(object).map(cell_text)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
