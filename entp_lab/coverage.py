"""The page ``docs/coverage.md``: every item of the papers, where it is examined, at what size, and its state.

Items with a verdict come from the ledger. ``results/reference/<paper>/coverage.csv`` has the others: shown without a
verdict, tried too small to tell, written but never run, missing, or out of reach of a CPU.
"""

import pandas as pd

from entp_lab import claims, paths
from entp_lab.registry import paper_titles
from entp_lab.tables import markdown_table, read_table
from entp_lib.validation import one_of

COLUMNS = ("item", "says", "notebook", "section", "size", "state")
STATES = ("shown", "tried small", "not run", "missing", "out of reach")
HEAD = """# Coverage

Every item of the five papers: what the paper says, where this collection looks at it, at what size (the paper's in
brackets), and how it stands. Written by `python -m entp_lab readme` from the ledger and
`results/reference/<paper>/coverage.csv`. Questions of our own are in [findings](findings.md). *Shown*: a reader sees
it, no rule decides it. *Tried small*: too small to tell. *Not run*: written and never run. *Missing*: nobody has
looked. *Out of reach*: a CPU cannot. [Findings](findings.md#Verdicts) says what the other states mean.
"""


def other_items(paper: str) -> pd.DataFrame:
    """Return the items of a paper that have no verdict. ConfigError for a state that is none of ``STATES``."""
    table = read_table(
        paths.reference() / paper / "coverage.csv", COLUMNS, needed=("item", "says", "state")
    )
    for row in table.itertuples():
        one_of(f"coverage of {row.item!r}: state", row.state, STATES)
    return table.fillna("")


def items(ledger: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Return a row per item of a paper, in the order of its sections, lemmas, figures and tables."""
    known = claims.reference_claims()
    stated = known[(known["paper"] == paper) & (known["kind"] != "question")]
    judged = ledger.set_index("id").loc[stated.index]
    with_verdict = stated.assign(
        item=stated["source"],
        says=stated["statement"],
        size=judged["differs"],
        state=judged["verdict"].replace(claims.PLAIN),
    )
    found = pd.concat([with_verdict[[*COLUMNS]], other_items(paper)], ignore_index=True)
    return found.sort_values("item", key=in_natural_order, kind="stable")


def in_natural_order(names: pd.Series) -> pd.Series:
    """Return sort keys that put Lemma 9 before Lemma 10, and ignore case and spaces."""
    plain = names.str.lower().str.replace(" ", "")
    return plain.str.replace(r"\d+", lambda digits: digits[0].zfill(4), regex=True)


def page(ledger: pd.DataFrame) -> str:
    """Return the page as Markdown, for a ledger."""
    parts = [HEAD]
    for paper, title in paper_titles().items():
        found = items(ledger, paper)
        counts = [f"{count} {state}" for state, count in found["state"].value_counts().items()]
        shown = pd.DataFrame(
            {
                "item": found["item"],
                "the paper says": found["says"],
                "where": [claims.link(row) for row in found.itertuples()],
                "size (the paper's)": found["size"],
                "state": found["state"],
            }
        )
        parts.append(
            f"## {title}\n\n{len(found)} items: {'; '.join(counts)}.\n\n{markdown_table(shown)}\n"
        )
    return "\n".join(parts)
