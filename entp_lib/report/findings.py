"""What was found, in a line for each of the paper's findings, and how far each line may be trusted.

Which claims make a finding is written here; every value, verdict and word of trust is read from the ledger.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from entp_lib.collection import claims
from entp_lib.collection.ends import STILL
from entp_lib.config import TIERS
from entp_lib.report.ledger import papers_claims
from entp_lib.tasks.counting import IN_OTHER_ORDERS

PAPER_SCALE = ("gpu", "paper")  # tiers that run the paper's task at its size
SIZES = {"largest": "operands to", "dims": "dimensions"}  # settings whose names say too little
TIER_WORDS = {
    "smoke": "seconds; tests the code and claims nothing",
    "quick": "a reduced task, minutes on two CPU cores",
    "overnight": "a reduced task trained for longer, a few nights on two CPU cores in all",
    "gpu": "the paper's task within half an hour on one data-centre GPU",
    "paper": "the paper's task, model and schedule",
}
VERDICT_WORDS = {
    "reproduced": "at the paper's settings: its value is inside our 95 % interval, which shows the paper's direction",
    "same direction": "the 95 % interval excludes zero with the paper's sign and is not within the margin; where the "
    "paper says equal, it is within the margin; where it says competitive, no part of it is a loss above the margin",
    "not reproduced": "it excludes zero with the other sign, or is within the margin; where the paper says equal, it "
    "excludes zero and is not within the margin; where it says competitive, all of it is a loss above the margin",
    "inconclusive": "anything else, and always below five pairs of runs",
    "uninformative": "no model has left what a guess gets (Count3, Match3′: what looks at no pair), one is nearer to "
    "its ceiling than the margin and the other not further behind, or a bar named beside the row was missed",
    "verified": "the statement held in everything that was tried",
    "verified with correction": "it fails as printed and holds as corrected in brackets",
    "refuted": "it fails",
    "unproved": "what was tried cannot decide it",
    "not attempted": "no record measures it yet",
}


@dataclass(frozen=True)
class Finding:
    """One finding of the paper. ``leads``: the claims whose values are shown; ``others``: those judged beside, named.

    ``sizes``: settings told beside the paper's own.
    """

    name: str
    says: str
    leads: tuple[str, ...]
    others: tuple[tuple[str, str], ...] = ()  # (claim, what it is about)
    sizes: tuple[str, ...] = ()


FINDINGS = (
    Finding(
        "1 · what can be computed",
        "encoders and decoders compute different sets of functions",
        ("4.1", "4.2"),
        (("F1-approximation", "exact simulation"), ("F1-logarithmic", "approximate simulation")),
    ),
    Finding(
        "2 · Count3",
        "ENTP learns it, decoders do not (share of right tokens, ENTP − decoder)",
        ("F2-tokens",),
        (
            ("F3-log-steps", "fewer steps in the authors' log"),
            ("F3-log-compute", "more multiply-adds there"),
            ("F2-speed", "steps to 0.95 of the tokens"),
            ("F2-unseen-sets", "sets never trained on"),
            ("F2-long-all", "new sequences of length 24"),
            ("L-4-0", "four layers"),
            ("L-4-0-operations", "four layers at equal multiply-adds"),
        ),
        ("length", "symbols"),
    ),
    Finding(
        "§6.4 · Match3′",
        "both reach high accuracy (share of right tokens, ENTP − decoder)",
        ("T2-tokens",),
        (
            ("T2-operations", "at equal multiply-adds"),
            ("T2-sequences", "whole sequences"),
            ("T2-operations-sequences", "these at equal multiply-adds"),
        ),
        ("length", "modulus"),
    ),
    Finding(
        "3 · addition",
        "ENTP needs fewer examples and goes on to longer numbers (test error, decoder − ENTP)",
        ("F5-addition",),
        (
            ("F5-best", "weights of best validation accuracy"),
            ("F5-fair", "these at equal token-forwards"),
            ("F6-length", "longer numbers"),
            ("F11-addition", "plain order"),
        ),
        ("largest",),
    ),
    Finding(
        "4 · learning in context",
        "ENTP is ahead on linear and sparse functions, competitive on others (linear, squared error, decoder − ENTP)",
        ("F7-linear",),
        (
            ("F7-linear-operations", "at equal multiply-adds"),
            ("F7-sparse", "sparse regression"),
            ("F7-sparse-slower", "sparse again, at a third of the rate for twice the steps"),
            ("F10-network", "networks"),
            ("F10-tree", "decision trees"),
        ),
        ("dims", "points"),
    ),
    Finding(
        "5 · language",
        "ENTP has the lower loss (nats a token, ours a byte, decoder − ENTP)",
        ("T3-loss",),
        (
            ("T3-last", "rates as Table 8 prints them"),
            ("T3-operations", "these at equal multiply-adds"),
            ("T4-winogrande", "pronouns"),
            ("T4-clutrr", "kinship"),
        ),
        ("tokenizer", "context"),
    ),
)


def findings(table: pd.DataFrame) -> pd.DataFrame:
    """A row a finding: finding, the paper, ours, how far to trust it; ``table`` is a ledger."""
    return pd.DataFrame([row_of(finding, table.set_index("id", drop=False)) for finding in FINDINGS])


def row_of(finding: Finding, ledger: pd.DataFrame) -> dict[str, str]:
    """One line of the table, as Markdown."""
    leads = [ledger.loc[claim] for claim in finding.leads]
    shown = claims.readable(ledger.loc[list(finding.leads)], ["paper", "ours", "95 % interval"])
    first = shown.iloc[0]
    if leads[0]["kind"] == "theory":
        paper = "proved"
        ours = counted([*leads, *(ledger.loc[claim] for claim, _ in finding.others)])
    else:
        logged = re.search(r"(^|; )authors' logs?\b", leads[0]["source"])  # the paper itself prints no such number
        paper = first["paper"] + (" (authors' log)" if logged else "") if first["paper"] else "a curve, no number"
        measured = f"{first['ours']} ({first['95 % interval']})" if first["ours"] else ""
        others = "; ".join(beside(ledger.loc[claim], name, leads[0]["tier"]) for claim, name in finding.others)
        ours = f"{measured} **{leads[0]['verdict']}**; {others}".strip()
    where = claims.link(finding.leads[0])
    return {
        "the paper's finding": f"**{finding.name}** ({where}): {finding.says}",
        "paper": paper,
        "ours (95 % interval)": ours,
        "how far to trust it": trust(leads[0], finding.sizes),
    }


def beside(row: pd.Series, name: str, tier: str) -> str:
    """What a claim beside the lead says: its verdict, and its value too where it ran at a larger tier than ``tier``."""
    if row["tier"] in TIERS and tier in TIERS and TIERS.index(row["tier"]) > TIERS.index(tier):
        shown = claims.readable(pd.DataFrame([row]), ["ours", "95 % interval"]).iloc[0]
        return f"{name}, at `{row['tier']}`: {shown['ours']} ({shown['95 % interval']}) **{row['verdict']}**"
    return f"{name}: {row['verdict']}"


def counted(rows: Sequence[pd.Series]) -> str:
    """How many rows have each verdict: "3 verified, 1 verified with correction"."""
    verdicts = pd.Series([row["verdict"] for row in rows]).value_counts(sort=False)
    return ", ".join(f"{count} **{verdict}**" for verdict, count in verdicts.items())


def trust(row: pd.Series, sizes: Sequence[str] = ()) -> str:
    """What a row of the ledger rests on, in words: its tier, pairs and settings, and whether models were at rest.

    ``sizes``: which of the settings that are not the paper's are told, with its own in brackets.
    """
    if row["verdict"] == "not attempted":
        return "no record measures it yet"
    if row["kind"] == "theory":
        return "as programs that try it, not as a formal proof"
    differing = re.split(r"(?<=\)), ", row["differs"]) if row["differs"] else []
    told = [text for name in sizes for text in differing if text.startswith(f"{name} ")]
    left = len(differing) - len(told)
    more = f"{left} {'more ' * bool(told)}{'setting is' if left == 1 else 'settings are'}"
    told = [re.sub(r" [(](.+)[)]$", r" (the paper: \1)", text) for text in told]
    told = [re.sub(r"^\w+", lambda name: SIZES.get(name[0], name[0]), text) for text in told]
    reduced = "".join(f", {text}" for text in told)
    reduced += f", {more} not the paper's" if left else ""
    moving = ", models still improving" if STILL in row["caveats"] else ""
    orders = f", {IN_OTHER_ORDERS}" if IN_OTHER_ORDERS in row["caveats"] else ""
    return f"{row['seeds']} pairs at `{row['tier']}`{reduced}{orders}{moving}"


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
    """How many claims have each verdict, in a sentence."""
    judged = papers_claims(table)
    counts = judged["verdict"].value_counts()
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in claims.VERDICTS if verdict in counts)
    return f"{len(judged)} rows on the claims of all papers: {parts}."
