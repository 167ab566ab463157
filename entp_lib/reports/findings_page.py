"""The page ``docs/findings.md``: every claim of every paper and every question of ours, from the ledger."""

import pandas as pd

from entp_lib.config import TIERS
from entp_lib.experiments import claims
from entp_lib.experiments.ends import FLAT
from entp_lib.records.store import Store
from entp_lib.reports import findings
from entp_lib.reports.findings import TIER_WORDS, VERDICT_WORDS, scale, tally
from entp_lib.reports.ledger import papers_claims, questions
from entp_lib.reports.tables import markdown

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
        markdown(findings.answered(table, "../")) + "\n",
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
    answered = asked[asked["verdict"] != "not attempted"]
    parts += [
        "## Questions of our own\n",
        "What no paper claims in these words, and its claims hang on: equal multiply-adds, fair checkpoints, one "
        "difference at a time. *Equal within the margin*: the whole interval lies within it. *Open*: it neither does "
        "nor excludes zero, or fewer than five pairs exist. *Uninformative*: the difference does not count, for the "
        "reason in brackets. The row that asks whether a decoder fails is answered where all seeds say the same. Any "
        "other word says on which side of zero the interval lies.\n",
    ]
    parts += [with_links(answered, [c for c in COLUMNS if c != "paper"]) + "\n", not_attempted(asked)]
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
    """What the columns, tiers and verdicts mean."""
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
    lines = [f"- {r.id} ({r.source}): {r.statement} ({str(r.notebook)[:2]})" for r in left.itertuples()]
    return "Not attempted yet, with the number of the notebook that would judge them:\n\n" + "\n".join(lines) + "\n"
