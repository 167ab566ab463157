"""Who is ahead at which budget, and the answers that README, the generated pages and notebook 00 give, by the ledger.

``results/reference/<paper>/comparisons.csv`` says which claim or question answers for which task at which budget. A
difference, divided by the distance from what guessing gets to a perfect score (the ``scale`` of a ledger's row; on text
a loss of 0, which nobody can have), is a share of one way, and positive means that ENTP is ahead.

``results/reference/answers.csv`` has a reader's questions and the sentences; ``rests_on`` names the verdicts that their
words suppose, and a test asks for other words when one of them changes.
"""

import argparse
import re
from pathlib import Path

import pandas as pd

from entp_lib import paths
from entp_lib.config import TIERS
from entp_lib.experiments import claims
from entp_lib.experiments.claims import OPEN, UNINFORMATIVE
from entp_lib.experiments.measurements import MIN_PAIRS
from entp_lib.files import read_table, read_text, write_atomically
from entp_lib.records.store import Store
from entp_lib.reports import costs
from entp_lib.reports.ledger import ledger
from entp_lib.reports.notebooks import notebook_paths
from entp_lib.statistics import exceeds, holm, p_value
from entp_lib.validation import require

BUDGETS = {"equal_steps": "equal steps", "equal_multiply_adds": "equal multiply-adds"}
AHEAD, BEHIND = "ENTP ahead", "decoder ahead"
UNDECIDED = {"not attempted": "not run yet", "inconclusive": OPEN, OPEN: OPEN, UNINFORMATIVE: UNINFORMATIVE}
PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
TIER_WORDS = {
    "smoke": "seconds; tests the code and claims nothing",
    "quick": "a reduced task, minutes on two CPU cores",
    "overnight": "a reduced task trained for longer, a few nights on two CPU cores in all",
    "gpu": "the paper's task within half an hour on one data-centre GPU",
    "paper": "the paper's task, model and schedule",
}
PAGE_COLUMNS = ("what was asked", "answer", "numbers (+: ENTP, or writing, is better)", "how sure", "where")
VERDICTS = Path(__file__).parent / "verdicts.md"  # what each of them means
FIGURE = (
    "![ENTP's lead over a decoder, task by task, at equal steps and at equal multiply-adds]"
    "(figures/00_full_attention.png)"
)


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each task and budget: value, low, high and margin in shares, answer, tier, seeds, claim and records.

    ``table``: a ledger. The answer follows the rule of our own questions, whether a paper claims the row or not, and is
    open where its verdict is. KeyError for a claim that the ledger does not have.
    """
    files = sorted(paths.reference().glob("*/comparisons.csv"), key=lambda p: (p.parent.name != "entp", p))
    tasks = [read_table(path, ["task", *BUDGETS, "drawn_as"], needed=("task", "equal_steps")) for path in files]
    rows, margins = table.set_index("id"), claims.reference_claims().set_index("id")["margin"]
    found = []
    for task in pd.concat(tasks, ignore_index=True).fillna("").to_dict("records"):
        for column, budget in BUDGETS.items():
            claim = task[column]
            if not claim:
                continue
            row, margin = rows.loc[claim], margins[claim]
            sides = dict(pairs=int(row["seeds"]), margin=margin, positive=AHEAD, negative=BEHIND)
            decided = UNDECIDED.get(row["verdict"]) or claims.answer(row["low"], row["high"], **sides)
            shares = {"value": row["our_value"], "low": row["low"], "high": row["high"], "margin": margin}
            found.append(
                {"task": task["task"], "drawn_as": task["drawn_as"], "budget": budget}
                | {name: number / row["scale"] for name, number in shares.items()}
                | {"answer": decided, **row[["tier", "seeds", "records"]], "claim": claim}
            )
    return pd.DataFrame(found)


def together(compared: pd.DataFrame) -> str:
    """``comparisons`` that are informative, corrected for their number by Holm's method; the result as a sentence."""
    enough = compared["low"].notna() & (compared["seeds"] >= MIN_PAIRS)
    measured = compared[enough & (compared["answer"] != UNINFORMATIVE)]
    p_values = [p_value(row.value, row.low, row.high, int(row.seeds)) for row in measured.itertuples()]
    alone = exceeds(measured["low"], 0) | exceeds(0, measured["high"])
    kept = measured[holm(p_values)]
    sides = kept.groupby(["task", kept["value"].gt(0).map({True: "ENTP", False: "decoder"})], sort=False)
    names = [f"{task} ({who} at {' and '.join(part['budget'])})" for (task, who), part in sides]
    return (
        f"{len(measured)} intervals ({(measured['drawn_as'] == '').sum()} of tasks not drawn), {alone.sum()} of which "
        f"exclude zero; by Holm's correction for all of them "
        f"{len(kept)} remain: {'; '.join(names) or 'none'}"
    )


def headline(table: pd.DataFrame) -> str:
    """The answer in three sentences: who is ahead at equal steps, at equal multiply-adds, and at which scale."""
    drawn = comparisons(table).query("drawn_as != ''")

    def names(budget: str, answer: str) -> str:
        found = drawn.loc[(drawn["budget"] == BUDGETS[budget]) & (drawn["answer"] == answer), "drawn_as"].tolist()
        return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found) or "nothing"

    large = int(table.loc[table["our_value"].notna(), "tier"].isin(PAPER_SCALE).sum())
    scale = f"{large} comparisons ran at the paper's size." if large else "No comparison has the paper's scale yet."
    return (
        f"At equal training steps ENTP leads on {names('equal_steps', AHEAD)}. The decoder leads on "
        f"{names('equal_steps', BEHIND)}. On the others we see no difference, or could not have seen one.\n"
        f"With ENTP's multiply-adds the decoder leads on {names('equal_multiply_adds', BEHIND)}, and ENTP on "
        f"{names('equal_multiply_adds', AHEAD)}.\n"
        "All models are small, trained on two CPU cores with five paired random seeds, nearly all at one learning rate "
        f"a task. {scale}"
    )


def answers() -> pd.DataFrame:
    """The questions a reader asks, their answers, and the verdicts that the words suppose."""
    columns = ["asked", "answer", "numbers", "sure", "rests_on"]
    return read_table(paths.reference() / "answers.csv", columns, needed=("asked", "answer")).fillna("")


def supposed(rests_on: str) -> dict[str, str]:
    """Claims and the verdicts on them that an answer supposes: of "4.1: verified; 4.2: verified"."""
    pairs = (part.split(": ", 1) for part in rests_on.split("; ") if part)
    return {claim.strip(): verdict for claim, verdict in pairs}


def page(table: pd.DataFrame) -> str:
    """The page ``docs/findings.md`` as Markdown, for a ledger: a row a question, then the scale of what ran."""
    shown = claims.readable(table, ["ours", "95 % interval"])

    def number(match: re.Match) -> str:
        row = shown.loc[match[1]]
        return f"{row['ours']} ({row['95 % interval']})" if row["ours"] else "not run yet"

    rows = []
    for row in answers().itertuples():
        where = [claims.link(claim).replace("](<", "](<../") for claim in supposed(row.rests_on)]
        numbers = re.sub(r"\{([^}]+)\}", number, row.numbers)
        rows.append([row.asked, row.answer, numbers, row.sure, ", ".join(dict.fromkeys(where))])
    measured = table.loc[table["our_value"].notna(), "tier"]
    counts, large = measured.value_counts(), int(measured.isin(PAPER_SCALE).sum())
    by_tier = ", ".join(f"{counts[tier]} at `{tier}` ({TIER_WORDS[tier]})" for tier in TIERS if tier in counts)
    scale = f"**No comparison has the paper's scale yet.** Comparisons measured: {by_tier or 'none'}."
    if large:
        scale = f"{large} of {len(measured)} measured comparisons ran at the paper's size; by tier: {by_tier}."
    return (
        "# Findings\n\n<!-- The whole page is written by python -m entp_lib readme; no line of it is typed. -->\n\n"
        f"{costs.markdown_table(pd.DataFrame(rows, columns=PAGE_COLUMNS))}\n\n{scale}\n\n"
        "Every claim and question, with its interval, margin and caveats, is in `results/claims.csv` and "
        "`results/questions.csv`; the site (`./run_all.sh --site`) has them as a table to filter and search.\n\n"
        f"## Verdicts\n\n{read_text(VERDICTS)}"
    )


def generated() -> dict[Path, str]:
    """README.md and the generated pages of ``docs/`` as the ledger and the records have them now."""
    store, readme = Store(read_only=True), read_text(paths.root() / "README.md")
    table = ledger(store)
    links = [f"[{p.stem.replace('_', ' ')}](notebooks/{p.name})" for p in sorted(notebook_paths())]
    parts = {"findings": f"{headline(table)}\n\n{FIGURE}", "notebooks": " · ".join(links) + ".\n"}
    for name, part in parts.items():
        pattern = rf"(?s)(<!-- {name}:begin[^>]*-->\n).*?(\n<!-- {name}:end -->)"
        readme, found = re.subn(pattern, lambda m, part=part: m[1] + part + m[2], readme)
        require(found > 0, f"README.md lacks the markers <!-- {name}:begin --> and <!-- {name}:end -->")
    pages = {"README.md": readme, "docs/findings.md": page(table), "docs/costs.md": costs.page(store)}
    return {paths.root() / name: text for name, text in pages.items()}


def outdated() -> list[str]:
    """Generated files that differ from what the records say now, README first; missing ones are among them."""
    found = generated().items()
    return [paths.relative(path) for path, text in found if not path.exists() or read_text(path) != text]


def write() -> None:
    """Bring README.md and the generated pages up to date."""
    for path, text in generated().items():
        write_atomically(path, text.encode())


def readme_command(options: argparse.Namespace) -> int:
    """``readme``: rewrite what is generated, or with ``--check`` name what is out of date (1 where something is)."""
    if not options.check:
        write()
        return 0
    found = outdated()
    print("README.md and the generated pages are up to date" if not found else f"out of date: {', '.join(found)}")
    return 1 if found else 0
