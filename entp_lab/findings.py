"""The table of claims, and the pages generated from the ledger: README's part, findings, the ledger in two parts.

``results/reference/answers.csv`` is the one file of what the papers say and what was seen here: README, notebook 00,
``docs/findings.md`` and the end of ``./run_all.sh`` show its sentences. ``rests_on`` names the verdicts that a sentence
supposes; that of the first is shown in plain words. A sentence whose verdict has moved is refused, or marked.

``results/reference/<paper>/comparisons.csv`` says which row answers for which task at which budget. A difference in
accuracy or error, divided by the distance from what guessing gets to a perfect score, is a share of one way, and
positive means that ENTP is ahead. Text stays in nats.
"""

import argparse
import html
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from entp_lab import claims, costs, deviations, paths
from entp_lab.claims import EQUAL, OPEN, UNINFORMATIVE
from entp_lab.ledger import ledger
from entp_lab.notebooks import LEFT, Html, notebook_paths
from entp_lab.statistics import exceeds, holm, p_value
from entp_lab.store import Store
from entp_lab.tables import read_table
from entp_lib.files import read_text, write_atomically
from entp_lib.validation import require

BUDGETS = {"equal_steps": "equal steps", "equal_multiply_adds": "equal multiply-adds"}
AHEAD, BEHIND = "ENTP ahead", "decoder ahead"
UNDECIDED = {"not attempted": "not run yet", "inconclusive": OPEN, OPEN: OPEN, UNINFORMATIVE: UNINFORMATIVE}
PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
# Verdicts as README says them; those of questions are plain already.
PLAIN = {
    "reproduced": "holds",
    "verified": "holds",
    "verified with correction": "holds, corrected",
    "same direction": "points the same way",
    "not reproduced": "not seen at our size",
    "inconclusive": "undecided",
    OPEN: "undecided",
    UNINFORMATIVE: "could not tell",
    "refuted": "false",
    "unproved": "unproved",
    "not attempted": "not run yet",
    EQUAL: "no difference",
}
SINGULAR = {"hold": "holds", "point": "points", "are": "is", "have": "has"}
TALLIED = ("holds", "holds, corrected", "points the same way", "not seen at our size", "false", "unproved")
TALLIED += ("undecided", "could not tell", "not run yet")
PAPERS = {
    "entp": "ENTP",
    "looped": "looped Transformers",
    "compact": "compact Transformers",
    "scratchpad": "inductive scratchpads",
    "encoder_decoder": "encoder and decoder",
}
WRITTEN = "<!-- The whole page is written by python -m entp_lab readme; no line of it is typed. -->"
VERDICTS = Path(__file__).parent / "verdicts.md"  # what each of them means
ANSWERS = "results/reference/answers.csv"


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each task and budget: value, low, high and margin in ``unit``, answer, tier, seeds, claim and records.

    ``table``: a ledger. ``unit`` is "share" of the way from guessing to a perfect score, or "nats" of text. The answer
    follows the rule of our own questions, whether a paper claims the row or not, and is open where its verdict is.
    KeyError for a claim that the ledger does not have.
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
            unit, scale = ("nats", 1.0) if row.get("unit") == "nats" else ("share", row["scale"])
            measured = {"value": row["our_value"], "low": row["low"], "high": row["high"], "margin": margin}
            found.append(
                {"task": task["task"], "drawn_as": task["drawn_as"], "budget": budget, "unit": unit}
                | {name: number / scale for name, number in measured.items()}
                | {"answer": decided, **row[["tier", "seeds", "records"]], "claim": claim}
            )
    return pd.DataFrame(found)


def leads(ledger_table: pd.DataFrame) -> str:
    """Say which leads of ``comparisons`` stand after Holm's correction over all intervals that test a difference."""
    measured = claims.tested(ledger_table)
    p_values = [p_value(row.our_value, row.low, row.high, int(row.seeds)) for row in measured.itertuples()]
    alone = exceeds(measured["low"], 0) | exceeds(0, measured["high"])
    standing = set(measured.loc[holm(p_values), "id"])
    compared = comparisons(ledger_table)
    kept = compared[compared["claim"].isin(standing)]
    sentences = []
    for budget, words in (("equal steps", "after equally many steps"), ("equal multiply-adds", "at equal compute")):
        sides = []
        for who, ahead in (("ENTP", kept["value"] > 0), ("the decoder", kept["value"] < 0)):
            tasks = kept.loc[ahead & (kept["budget"] == budget), "task"].tolist()
            if tasks:
                sides.append(f"{who} is ahead on {listed(tasks)}")
        if sides:
            sentences.append(f"{words} {', and '.join(sides)}")
    return (
        "Comparisons rest on five random seeds, both models from the same weights on the same batches. Of "
        f"{len(measured)} intervals of 95 % {alone.sum()} exclude zero. Corrected for their number (Holm), these leads "
        f"stand: {'; '.join(sentences) or 'none'}."
    )


def listed(names: Sequence[str]) -> str:
    """Names in a row, the last after "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def answers() -> pd.DataFrame:
    """Return what the papers say, the sentences that answer it, and the verdicts that these suppose.

    Columns: says, here, numbers, sure, rests_on, and front, which is set in the rows that README shows.
    """
    columns = ["says", "here", "numbers", "sure", "rests_on", "front"]
    return read_table(paths.reference() / "answers.csv", columns, needed=("says", "here", "rests_on")).fillna("")


def supposed(rests_on: str) -> dict[str, str]:
    """Claims and the verdicts on them that an answer supposes: of "4.1: verified; 4.2: verified"."""
    pairs = (part.split(": ", 1) for part in rests_on.split("; ") if part)
    return {claim.strip(): verdict for claim, verdict in pairs}


def table_of_claims(ledger_table: pd.DataFrame, strict: bool = True) -> pd.DataFrame:
    """Return the table of claims: says, verdict (in plain words), here, numbers, sure, claim, front.

    A name in braces stands for a row's value: ``{T3-all:.2f}`` for its size in a sentence, ``{T3-all}`` for value and
    interval among the numbers. ``strict``: ConfigError where a sentence supposes a verdict that is another now, or a
    row that is not there; else the sentence says so itself.
    """
    rows, shown = ledger_table.set_index("id"), claims.readable(ledger_table, ["ours", "95 % interval"])

    def size(match: re.Match) -> str:
        return format(abs(rows.loc[match[1], "our_value"]), match[2])

    def number(match: re.Match) -> str:
        row = shown.loc[match[1]]
        return f"{row['ours']} ({row['95 % interval']})" if row["ours"] else "not run yet"

    found = []
    for row in answers().itertuples():
        scored = supposed(row.rests_on)
        for claim in scored:
            require(claim in rows.index, f"{ANSWERS}: {row.says!r} rests on {claim!r}, a row that the ledger lacks")
        moved = {c: verdict for c, verdict in scored.items() if rows.loc[c, "verdict"] != verdict}
        changes = "; ".join(f"{c} is {rows.loc[c, 'verdict']!r} and was {verdict!r}" for c, verdict in moved.items())
        require(not (moved and strict), f"{ANSWERS}: {row.says!r} wants other words, since {changes}")
        claim = next(iter(scored))
        verdict = rows.loc[claim, "verdict"]
        sentence = f"(to be written anew: {changes})" if moved else re.sub(r"\{([^}:]+):([^}]+)\}", size, row.here)
        found.append(
            {
                "says": row.says,
                "verdict": PLAIN.get(verdict, verdict),
                "here": sentence,
                "numbers": re.sub(r"\{([^}]+)\}", number, row.numbers),
                "sure": row.sure,
                "claim": claim,
                "front": bool(row.front),
            }
        )
    return pd.DataFrame(found)


def tally(ledger_table: pd.DataFrame) -> pd.DataFrame:
    """Count the statements of each paper, of theory and of trained models, by verdict in plain words."""
    stated = ledger_table[ledger_table["kind"] != "question"]
    paper = claims.reference_claims().set_index("id")["paper"]
    kinds = {"theory": "what it proves or defines", "empirical": "what trained models do"}
    rows = pd.DataFrame(
        {
            "paper": stated["id"].map(paper),
            "statements on": stated["kind"].map(kinds),
            "verdict": stated["verdict"].map(lambda verdict: PLAIN.get(verdict, verdict)),
        }
    )
    counts = rows.groupby(["paper", "statements on", "verdict"]).size().unstack("verdict", fill_value=0)
    counts = counts.reindex(columns=[word for word in TALLIED if word in counts])
    order = [(name, kind) for name in PAPERS for kind in kinds.values() if (name, kind) in counts.index]
    counts = counts.loc[order]
    index = pd.DataFrame([(PAPERS[name], kind) for name, kind in order], columns=["paper", "statements on"])
    return pd.concat([index, counts.reset_index(drop=True)], axis=1)


def tally_sentence(ledger_table: pd.DataFrame) -> str:
    """Say in two sentences how the ENTP paper's statements on trained models came out, and what ran at its size."""
    stated = ledger_table[ledger_table["kind"] == "empirical"]
    paper = claims.reference_claims().set_index("id")["paper"]
    verdicts = stated.loc[stated["id"].map(paper) == "entp", "verdict"].map(PLAIN)
    counts = verdicts.value_counts()
    said = {
        "holds": "{} hold",
        "points the same way": "{} point the paper's way",
        "not seen at our size": "{} are not seen at our size",
        "undecided": "{} are undecided",
        "could not tell": "about {} we could not tell",
        "not run yet": "{} have not been run",
    }
    parts = [words.format(counts[verdict]) for verdict, words in said.items() if verdict in counts]
    parts = [re.sub(r"^1 (\w+)", lambda m: f"1 {SINGULAR[m[1]]}", part) for part in parts]
    large = stated.loc[stated["our_value"].notna(), "tier"].isin(PAPER_SCALE).sum()
    size = f"{large} comparisons ran at the paper's size." if large else "Nothing has run at the paper's size yet."
    return f"Of {len(verdicts)} statements of the ENTP paper on trained models {listed(parts)}. {size}"


def front(ledger_table: pd.DataFrame) -> str:
    """README's part as Markdown: the table of claims, the tally, and the leads that stand after correction."""
    table = table_of_claims(ledger_table).query("front")
    rows = [
        {
            "the paper says": row.says,
            "here": f"**{sentence_case(row.verdict)}.** {row.here}",
            "how sure": row.sure,
            "": claims.link(row.claim),
        }
        for row in table.itertuples()
    ]
    return (
        f"{costs.markdown_table(pd.DataFrame(rows))}\n\n**The tally.** {tally_sentence(ledger_table)}\n\n"
        f"**How sure.** {leads(ledger_table)}"
    )


def claims_html(ledger_table: pd.DataFrame) -> Html:
    """README's table of claims as HTML for notebook 00, with links relative to ``notebooks/``."""
    names = ("the paper says", "here", "how sure", "")
    rows = ["<table>", "<tr>" + "".join(f"<th {LEFT}>{name}</th>" for name in names) + "</tr>"]
    for row in table_of_claims(ledger_table, strict=False).query("front").itertuples():
        link = re.sub(r"\[(.+?)\]\(<notebooks/(.+?)>\)", r'<a href="\2">\1</a>', claims.link(row.claim))
        answer = f"<b>{sentence_case(row.verdict)}.</b> {html.escape(row.here)}"
        cells = (html.escape(row.says), answer, html.escape(row.sure), link)
        rows.append("<tr>" + "".join(f"<td {LEFT}>{cell}</td>" for cell in cells) + "</tr>")
    return Html("\n".join([*rows, "</table>"]))


def sentence_case(text: str) -> str:
    """The text with a capital at its beginning, if that is a word of small letters."""
    return text[:1].upper() + text[1:]


def plain_table(ledger_table: pd.DataFrame, width: int = 100) -> str:
    """The table of claims as plain text for a terminal, with the tally."""
    lines = []
    for row in table_of_claims(ledger_table, strict=False).query("front").itertuples():
        lines.append(f"- {row.says}")
        answer = f"{sentence_case(row.verdict)}. {row.here}"
        lines.append(textwrap.fill(answer, width, initial_indent="    ", subsequent_indent="    "))
    return "\n".join([*lines, "", textwrap.fill(tally_sentence(ledger_table), width)])


def page(ledger_table: pd.DataFrame) -> str:
    """The page ``docs/findings.md`` as Markdown: papers' claims, questions of ours, the tally, what could not tell."""
    table = table_of_claims(ledger_table)
    where = [claims.link(claim).replace("](<", "](<../") for claim in table["claim"]]
    shown = pd.DataFrame(
        {
            "statement": table["says"],
            "here": [f"**{sentence_case(row.verdict)}.** {row.here}" for row in table.itertuples()],
            "numbers (+: ENTP, or writing, is better)": table["numbers"],
            "how sure": table["sure"],
            "where": where,
        }
    )
    untold = ledger_table[ledger_table["part"] == "could not tell"]
    of_untold = claims.readable(untold, ["statement"])
    reasons = pd.DataFrame(
        {
            "statement": of_untold["statement"],
            "why it could not tell": untold.set_index("id")["why"],
            "where": [claims.link(claim).replace("](<", "](<../") for claim in untold["id"]],
        }
    )
    return (
        f"# Findings\n\n{WRITTEN}\n\n## What the papers say\n\n{costs.markdown_table(shown[table['front']])}\n\n"
        f"{tally_sentence(ledger_table)}\n\n## What we asked beside\n\n"
        f"{costs.markdown_table(shown[~table['front']].rename(columns={'statement': 'question'}))}\n\n"
        f"{leads(ledger_table)}\n\n"
        f"## The tally, paper by paper\n\n{costs.markdown_table(tally(ledger_table))}\n\n"
        f"## Tried, could not tell\n\nToo little was learned, or the task was too easy, for a difference to show.\n\n"
        f"{costs.markdown_table(reasons)}\n\n"
        "Every row with its interval, margin and caveats stands in [the ledger](ledger.md), in `results/claims.csv` "
        "and in `results/questions.csv`. [Deviations](deviations.md) says what was done otherwise than in the papers "
        "and in our own designs.\n\n"
        f"## Verdicts\n\n{read_text(VERDICTS)}"
    )


def ledger_page(ledger_table: pd.DataFrame) -> str:
    """The page ``docs/ledger.md`` as Markdown: the rows that matter, then the annex."""
    columns = ["statement", "ours", "95 % interval", "margin", "tier", "seeds"]

    def part(name: str) -> str:
        rows = ledger_table[ledger_table["part"] == name]
        shown = claims.readable(rows, columns).rename(columns={"tier": "scale"})
        shown["where"] = [claims.link(claim).replace("](<", "](<../") for claim in rows["id"]]
        return costs.markdown_table(shown)

    return (
        f"# The ledger\n\n{WRITTEN}\n\nWhat each row says, our value with its 95 % interval over pairs of runs, and "
        "the verdict that follows by rule ([findings](findings.md) says what each means, and lists the rows that could "
        f"not tell).\n\n## The rows that matter\n\n{part('main')}\n\n## Annex\n\n{part('annex')}\n"
    )


def generated(table: pd.DataFrame | None = None) -> dict[Path, str]:
    """Write README.md and the generated pages of ``docs/`` by the records; ``table``: their ledger, if it is known."""
    store, readme = Store(read_only=True), read_text(paths.root() / "README.md")
    table = ledger(store) if table is None else table
    links = [f"[{p.stem.replace('_', ' ')}](notebooks/{p.name})" for p in sorted(notebook_paths())]
    parts = {"findings": front(table), "notebooks": " · ".join(links) + ".\n"}
    for name, part in parts.items():
        pattern = rf"(?s)(<!-- {name}:begin[^>]*-->\n).*?(\n<!-- {name}:end -->)"
        readme, found = re.subn(pattern, lambda m, part=part: m[1] + part + m[2], readme)
        require(found > 0, f"README.md lacks the markers <!-- {name}:begin --> and <!-- {name}:end -->")
    pages = {"README.md": readme, "docs/findings.md": page(table), "docs/costs.md": costs.page(store)}
    pages["docs/ledger.md"] = ledger_page(table)
    pages["docs/deviations.md"] = deviations.page(table)
    return {paths.root() / name: text for name, text in pages.items()}


def outdated() -> list[str]:
    """Generated files that differ from what the records say now, README first; missing ones are among them."""
    found = generated().items()
    return [paths.relative(path) for path, text in found if not path.exists() or read_text(path) != text]


def write(table: pd.DataFrame | None = None) -> None:
    """Bring README.md and the generated pages up to date with the records, or with their ledger ``table``."""
    for path, text in generated(table).items():
        write_atomically(path, text.encode())


def readme_command(options: argparse.Namespace) -> int:
    """``readme``: rewrite what is generated, or with ``--check`` name what is out of date (1 where something is)."""
    if not options.check:
        write()
        return 0
    found = outdated()
    print("README.md and the generated pages are up to date" if not found else f"out of date: {', '.join(found)}")
    return 1 if found else 0
