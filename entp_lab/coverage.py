"""The page ``docs/coverage.md``: every item of the papers, where it is looked at, how large, and how it stands.

Items with a verdict come from the ledger. ``results/reference/<paper>/coverage.csv`` has the others: what is shown
without a verdict, tried too small to tell, written and never run, missing, or out of reach of a CPU.
"""

import re
from typing import Any

import pandas as pd

from entp_lab import claims, paths
from entp_lab.tables import read_table
from entp_lib.validation import one_of

PAPERS = {
    "entp": "ENTP",
    "encoder_decoder": "Encoder-only and decoder-only models",
    "looped": "Looped Transformers",
    "compact": "Compact Transformers",
    "scratchpad": "The inductive scratchpad",
}
COLUMNS = ("item", "says", "notebook", "section", "size", "state")
STATES = ("shown", "tried small", "not run", "missing", "out of reach")
IN_WORDS = {
    "inconclusive": "undecided",
    "open": "undecided",
    "uninformative": "could not tell",
    "not attempted": "not run",
}
HEAD = """# Coverage

Every item of the five papers: what the paper says, where this collection looks at it, at what size (the paper's in
brackets), and how it stands. Written by `python -m entp_lab readme` from the ledger and
`results/reference/<paper>/coverage.csv`. Questions of our own are in [findings](findings.md). *Shown*: a reader sees
it, no rule decides it. *Tried small*: too small to tell. *Not run*: written and never run. *Out of reach*: a CPU
cannot.
"""


def other_items(paper: str) -> pd.DataFrame:
    """Return the items of a paper that have no verdict. ConfigError for a state that is none of ``STATES``."""
    table = read_table(paths.reference() / paper / "coverage.csv", COLUMNS, needed=("item", "says", "state"))
    for row in table.itertuples():
        one_of(f"coverage of {row.item!r}: state", row.state, STATES)
    return table.fillna("")


def items(ledger: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Return a row per item of a paper, in the order of its sections, lemmas, figures and tables."""
    known = claims.reference_claims().set_index("id")
    of_paper = ledger["id"].map(known["paper"]) == paper
    is_question = ledger["id"].map(known["kind"]) == "question"
    judged = ledger[of_paper & ~is_question]
    with_verdict = pd.DataFrame(
        {
            "item": judged["source"],
            "says": judged["id"].map(known["statement"]),
            "notebook": judged["notebook"],
            "section": judged["id"].map(known["section"]).fillna(""),
            "size": judged["differs"],
            "state": judged["verdict"].replace(IN_WORDS),
        }
    )
    found = pd.concat([with_verdict, other_items(paper)], ignore_index=True)
    return found.sort_values("item", key=lambda names: names.map(natural_order), kind="stable")


def natural_order(name: str) -> list[tuple[int, Any]]:
    """Return a sort key by which Lemma 9 comes before Lemma 10, whatever the case of its letters."""
    parts = re.findall(r"\d+|[^\d]+", name.lower())
    return [(0, int(part)) if part.isdecimal() else (1, part.strip()) for part in parts]


def link(row: Any) -> str:
    """Return where an item is looked at, as a link from a page of docs/; empty for what is nowhere."""
    if not row.notebook:
        return ""
    section = row.section.replace(" ", "-")
    return f"[{paths.number_of(row.notebook)}](<../notebooks/{row.notebook}.ipynb#{section}>)"


def page(ledger: pd.DataFrame) -> str:
    """Return the page as Markdown, for a ledger."""
    lines = [HEAD]
    for paper, title in PAPERS.items():
        found = items(ledger, paper)
        counts = [f"{count} {state}" for state, count in found["state"].value_counts().items()]
        lines += [f"## {title}", "", f"{len(found)} items: {', '.join(counts)}.", ""]
        lines.append("| item | the paper says | where | size (the paper's) | state |")
        lines.append("| --- | --- | --- | --- | --- |")
        for row in found.itertuples():
            cells = [row.item, row.says, link(row), row.size, row.state]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|").strip() for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
