"""The page ``docs/findings.md``: answers in sentences, then every claim and question, from the ledger.

``results/reference/answers.csv`` has the questions and the sentences; ``rests_on`` names the verdicts that their words
suppose, and a test asks for other words when one of them changes.
"""

import math
import re

import pandas as pd

from entp_lib import paths
from entp_lib.config import TIERS
from entp_lib.experiments import claims
from entp_lib.experiments.convergence import FLAT
from entp_lib.files import read_table
from entp_lib.records.store import Store
from entp_lib.reports import comparisons
from entp_lib.reports.ledger import papers_claims, questions

PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
TIER_WORDS = {
    "smoke": "seconds; tests the code and claims nothing",
    "quick": "a reduced task, minutes on two CPU cores",
    "overnight": "a reduced task trained for longer, a few nights on two CPU cores in all",
    "gpu": "the paper's task within half an hour on one data-centre GPU",
    "paper": "the paper's task, model and schedule",
}
VERDICT_WORDS = {
    "reproduced": "at the paper's settings our 95 % interval shows its direction and contains its value",
    "same direction": "the interval excludes zero with the paper's sign, by more than the margin",
    "not reproduced": "it excludes zero with the other sign, or lies within the margin where the paper differs",
    "inconclusive": "anything else, and always below five pairs of runs",
    "uninformative": "nothing could have been seen: too little learned, or too near the best score",
    "verified": "the statement held in everything that was tried",
    "verified with correction": "it fails as printed and holds as corrected in brackets",
    "refuted": "it fails",
    "unproved": "what was tried cannot decide it",
    "not attempted": "no record measures it yet",
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
        return in_words(rows.loc[rows["answer"] == answer, "drawn_as"].tolist())

    large = int(table.loc[table["our_value"].notna(), "tier"].isin(PAPER_SCALE).sum())
    scale = f"{large} comparisons ran at the paper's size." if large else "Nothing ran at the paper's scale yet."
    return (
        f"At equal training steps ENTP is ahead on {names(steps, comparisons.AHEAD)}, and the decoder on "
        f"{names(steps, comparisons.BEHIND)}; the other comparisons show no difference or cannot.\n"
        f"With as many multiply-adds as ENTP takes, ENTP is ahead on {names(compute, comparisons.AHEAD)}, and the "
        f"decoder on {names(compute, comparisons.BEHIND)}.\n"
        "All models are small, trained on two CPU cores with five paired random seeds and one learning rate a task. "
        f"{scale}"
    )


def in_words(names: list[str]) -> str:
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


COLUMNS = ["source", "statement", "paper", "ours", "95 % interval", "margin", "tier", "seeds"]
TITLES = {
    "entp": "ENTP: Encoder-only Next Token Prediction",
    "looped": "Looped Transformers as Programmable Computers",
    "compact": "On Memorization and Generalization in Compact Transformers",
    "scratchpad": "Overcoming Locality in Auto-Regressive Transformers (inductive scratchpads)",
    "encoder_decoder": "Encoder-Only and Decoder-Only Models",
}


def page(table: pd.DataFrame, store: Store) -> str:
    """The page as Markdown, for a ledger; ``store`` is not read again."""
    parts = [
        "# Findings\n",
        "<!-- The whole page is written by python -m entp_lib readme; no line of it is typed. -->\n",
        markdown(answered(table, "../")) + "\n",
        "## Annex: every claim and question\n",
        "Recomputed from the records below `results/records`. The site has the same rows to filter and search "
        "(`./run_all.sh --site`).\n",
        f"{tally(table)}\n{scale(table)}\nAll tables: {claims.multiplicity(table)}.\n",
        legend(),
    ]
    judged = papers_claims(table)
    for paper, ids in papers().items():
        rows = judged[judged["id"].isin(ids)]
        parts.append(f"## {title_of(paper)}\n")
        parts.append(with_links(rows[rows["verdict"] != "not attempted"], COLUMNS) + "\n")
        parts.append(not_attempted(rows))
    asked = questions(table)
    attempted = asked[asked["verdict"] != "not attempted"]
    parts += [
        "## Questions of our own\n",
        "What no paper claims in these words, and its claims hang on: equal multiply-adds, fair checkpoints, one "
        "difference at a time. *Equal within the margin*: the whole interval lies within it. *Open*: it neither does "
        "nor excludes zero, or fewer than five pairs exist. *Uninformative*: the difference does not count, for the "
        "reason in brackets. The row that asks whether a decoder fails is answered where all seeds say the same. Any "
        "other word says on which side of zero the interval lies.\n",
    ]
    parts += [with_links(attempted, [c for c in COLUMNS if c != "paper"]) + "\n", not_attempted(asked)]
    parts += ["## Which settings are not the paper's\n", "Ours, and the paper's in brackets.\n"]
    differing = table.loc[table["differs"] != "", ["id", "tier", "differs"]]
    parts.append(markdown(differing) + "\n")
    return "\n".join(part for part in parts if part)


def papers() -> dict[str, list[str]]:
    """The ids of all claims by the folder of their paper, this project's own paper first."""
    reference = claims.reference_claims()
    order = sorted(reference["paper"].unique(), key=lambda name: (name != "entp", name))
    return {name: reference.loc[reference["paper"] == name, "id"].tolist() for name in order}


def title_of(paper: str) -> str:
    """A paper's title by its folder, the folder's name where none is known."""
    return TITLES.get(paper, paper.replace("_", " "))


def legend() -> str:
    """Legend of columns, tiers and verdicts."""
    tiers = markdown(pd.DataFrame({"tier": [f"`{t}`" for t in TIERS], "what it runs": [TIER_WORDS[t] for t in TIERS]}))
    words = pd.DataFrame(VERDICT_WORDS.items(), columns=["verdict", "what it says"])
    return (
        "## How to read the tables\n\n"
        "*Ours* is the mean of the difference that the claim is about, with its 95 % interval, over seeds (of shapes, "
        "widths or lengths in CT-length, CT-economy, CT-heads and CT-feed-forward). "
        "Where the whole interval lies within the *margin*, stated before the runs, no difference counts. "
        "Rows of theory have neither value nor seeds: a statement is tried, not averaged, and its verdict stands "
        "alone. An empirical row without an interval is judged by a rule of its own; its seeds are the runs of each "
        "setting. A verdict follows from the interval by rule and is "
        "never typed. *Where* is the number of the notebook and leads to its section. In brackets behind a verdict: "
        "why it is open, and what to bear in mind. *Different sources*: twins were computed by different versions of "
        "this code; a run *continued with other sources* was stopped and went on with a later one. *Still "
        "improving*: in the mean over seeds an arm had at least "
        f"{FLAT} more of the tokens right over the last fifth of its evaluations than over the fifth before (in "
        "context: its training error fell by more than that), so that the row compares scores on the way.\n\n"
        f"{markdown(words)}\n\n{tiers}\n"
    )


def with_links(rows: pd.DataFrame, columns: list[str]) -> str:
    """Rows of the ledger as a Markdown table that says where each is looked at, seen from ``docs/``."""
    if rows.empty:
        return "None has been measured yet."
    shown = claims.readable(rows, columns).reset_index()
    theory = (rows["kind"] == "theory").to_numpy()
    shown["seeds"] = ["theory" if t else str(n) for t, n in zip(theory, shown["seeds"], strict=True)]
    shown["where"] = [claims.link(claim).replace("](<", "](<../") for claim in shown["id"]]
    return markdown(shown)


def not_attempted(rows: pd.DataFrame) -> str:
    """The rows that nothing measures yet, named, and the notebooks that wait for them."""
    left = rows[rows["verdict"] == "not attempted"]
    if left.empty:
        return ""
    lines = [f"- {r.id} ({r.source}): {r.statement} ({paths.number_of(str(r.notebook))})" for r in left.itertuples()]
    return "Not attempted yet, with the number of the notebook that would judge them:\n\n" + "\n".join(lines) + "\n"


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; bars and line ends inside a cell are escaped, a missing value is empty."""

    def cell_text(cell: object) -> str:
        missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
        return "" if missing else " ".join(str(cell).replace("|", "\\|").splitlines())

    cells = frame.astype(object).map(cell_text)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
