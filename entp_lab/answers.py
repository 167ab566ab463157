"""What the papers say and what was seen here: the table of claims, the tally, and how sure that is.

``results/reference/answers.csv`` is the only file of both: README, notebook 00 and ``docs/findings.md`` show its
sentences. ``rests_on`` names the verdicts that a sentence assumes; the first is shown in plain words. A sentence whose
verdict has changed is refused, or marked.
"""

import re
from collections.abc import Sequence

import pandas as pd

from entp_lab import claims, ledger, paths
from entp_lab.claims import EQUAL, PLAIN
from entp_lab.registry import paper_titles
from entp_lab.tables import markdown_table, read_table
from entp_lib.validation import require

PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
# The tally's words for a verdict on one statement, and on several.
COUNTED = {
    "holds": ("holds", "hold"),
    "points the same way": ("points the paper's way", "point the paper's way"),
    "not seen at our size": ("is not seen at our size", "are not seen at our size"),
    "undecided": ("is undecided", "are undecided"),
    "could not tell": ("is one where we could not tell", "are ones where we could not tell"),
    "not run yet": ("has not been run", "have not been run"),
}
KINDS = {"theory": "what it proves or defines", "empirical": "what trained models do"}
ANSWERS = "results/reference/answers.csv"


def answers() -> pd.DataFrame:
    """Return what the papers say, the sentences that answer it, and the verdicts that these assume.

    Columns: says, here, numbers, sure, rests_on, and front, which is set in the rows that README shows.
    """
    columns = ["says", "here", "numbers", "sure", "rests_on", "front"]
    return read_table(
        paths.reference() / "answers.csv", columns, needed=("says", "here", "rests_on")
    ).fillna("")


def supposed(rests_on: str) -> dict[str, str]:
    """Return the verdicts that an answer assumes, by claim, from text as in "4.1: verified; 4.2: verified"."""
    pairs = (part.partition(": ")[::2] for part in rests_on.split("; ") if part)
    return {claim.strip(): verdict for claim, verdict in pairs}


def table_of_claims(table: pd.DataFrame, strict: bool = True) -> pd.DataFrame:
    """Return the table of claims by a ledger: says, here (as Markdown, the verdict first), numbers, sure, claim, front.

    A name in braces stands for a row's value: ``{T3-all:.2f}`` for its size in a sentence, ``{T3-all}`` for value and
    interval among the numbers. Raises ConfigError if a sentence rests on a row that the ledger lacks and, if
    ``strict``, on a verdict that has changed; without ``strict`` the sentence itself then says so.
    """
    rows = table.set_index("id")
    shown = claims.readable(table, ["ours", "95 % interval"])

    def size(match: re.Match) -> str:
        return format(abs(rows.loc[match[1], "our_value"]), match[2])

    def number(match: re.Match) -> str:
        row = shown.loc[match[1]]
        return f"{row['ours']} ({row['95 % interval']})" if row["ours"] else "not run yet"

    found = []
    for row in answers().itertuples():
        verdicts = supposed(row.rests_on)
        for claim in [*verdicts, *re.findall(r"\{([^}:]+)", row.here + row.numbers)]:
            require(
                claim in rows.index,
                f"{ANSWERS}: {row.says!r} rests on {claim!r}, a row that the ledger lacks",
            )
        now = rows.loc[[*verdicts], "verdict"]
        changes = "; ".join(
            f"{claim} is {now[claim]!r} and was {was!r}"
            for claim, was in verdicts.items()
            if now[claim] != was
        )
        require(
            not (changes and strict), f"{ANSWERS}: {row.says!r} wants other words, since {changes}"
        )
        first = next(iter(verdicts))
        verdict = PLAIN.get(now[first], now[first])
        alike = rows.loc[now.index[now == now[first]], "statement"].tolist()
        if verdict.endswith(" ahead") and "equal steps" in alike[0]:
            verdict += "" if "equal multiply-adds" in " ".join(alike) else " by steps"
        filled = re.sub(r"\{([^}:]+):([^}]+)\}", size, row.here)
        here = f"(to be written anew: {changes})" if changes else filled
        found.append(
            {
                "says": row.says,
                "here": f"**{verdict[:1].upper()}{verdict[1:]}.** {here}",
                "numbers": re.sub(r"\{([^}]+)\}", number, row.numbers),
                "sure": row.sure,
                "claim": first,
                "front": bool(row.front),
            }
        )
    return pd.DataFrame(found)


def tally(table: pd.DataFrame) -> pd.DataFrame:
    """Count the statements of each paper, of theory and of trained models, by verdict in plain words."""
    titles = paper_titles()
    stated = table[table["kind"] != "question"]
    papers = stated["id"].map(paper_of_claims()).map(titles)
    counts = pd.crosstab([papers, stated["kind"].map(KINDS)], stated["verdict"].replace(PLAIN))
    counts = counts[[word for word in dict.fromkeys(PLAIN.values()) if word in counts]]
    order = [(paper, kind) for paper in titles.values() for kind in KINDS.values()]
    return (
        counts.loc[[row for row in order if row in counts.index]]
        .rename_axis(columns=None)
        .reset_index(names=["paper", "statements on"])
    )


def paper_of_claims() -> pd.Series:
    """Return the paper of each claim, by id."""
    return claims.reference_claims()["paper"]


def tally_sentence(table: pd.DataFrame) -> str:
    """Say in two sentences how the ENTP paper's statements on trained models came out, and what ran at its size."""
    stated = table[table["kind"] == "empirical"]
    verdicts = stated.loc[stated["id"].map(paper_of_claims()) == "entp", "verdict"].map(PLAIN)
    counts = verdicts.value_counts()
    parts = [
        f"{counts[verdict]} {one if counts[verdict] == 1 else several}"
        for verdict, (one, several) in COUNTED.items()
        if verdict in counts
    ]
    large = stated.loc[stated["our_value"].notna(), "tier"].isin(PAPER_SCALE).sum()
    size = (
        f"{large} comparisons ran at the paper's size."
        if large
        else "Nothing has run at the paper's settings yet."
    )
    return (
        f"Of {len(verdicts)} statements of the ENTP paper on trained models (some share a row of the table) "
        f"{listed(parts)}. {size}"
    )


def claims_in_front(table: pd.DataFrame, strict: bool = True, notebooks: str = "notebooks/") -> str:
    """Return README's table of claims as Markdown, with links to notebooks in this folder."""
    rows = table_of_claims(table, strict).query("front")
    links = [claims.link_to(claim, notebooks) for claim in rows["claim"]]
    shown = {"the paper says": rows["says"], "here": rows["here"], "": links}
    return markdown_table(pd.DataFrame(shown))


def how_sure(table: pd.DataFrame) -> str:
    """Say what comparisons rest on, and how many of their intervals exclude zero."""
    intervals, excluding = claims.excluding_zero(table)
    return (
        "Comparisons rest on five random seeds or more, both sides on the same batches, and from the same first "
        "weights where both have one shape and these are not what is compared. Of "
        f"{intervals} intervals of 95 % {excluding} exclude zero."
    )


def leads(table: pd.DataFrame) -> str:
    """Say which leads of ``comparisons`` stand after Holm's correction over all intervals that test a difference."""
    stands, _ = ledger.standing(table)
    kept = ledger.comparisons(table)
    kept = kept[kept["claim"].isin(stands)]
    names = kept["task"].where(kept["answer"] != EQUAL, kept["task"] + " (by less than we count)")
    sentences = []
    for budget, words in (
        ("equal steps", "after equally many steps"),
        ("equal multiply-adds", "at equal compute"),
    ):
        at_budget = kept["budget"] == budget
        sides = []
        for who, is_ahead in (("ENTP", kept["value"] > 0), ("the decoder", kept["value"] < 0)):
            if (at_budget & is_ahead).any():
                sides.append(f"{who} is ahead on {listed(names[at_budget & is_ahead].tolist())}")
        if sides:
            sentences.append(f"{words} {', and '.join(sides)}")
    stand = "".join(f" {text[0].upper()}{text[1:]}." for text in sentences) or " None."
    return f"Corrected for their number (Holm), these leads stand.{stand}"


def listed(names: Sequence[str]) -> str:
    """Join names, the last after "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
