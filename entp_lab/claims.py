"""Claims and questions: what a paper says, what we measured, and a verdict by rule. This module measures nothing.

What each paper says is in ``results/reference/<paper>/claims.csv``. What we found are the measurements that experiments
take from their records. No verdict is typed by hand: that of a comparison follows from its paired interval, and an
experiment decides the others by its own rules.

A row's ``kind`` says how it is judged. ``theory``: a statement that was checked. ``empirical``: a comparison that the
paper claims. ``question``: a comparison of our own (equal multiply-adds, fair checkpoints, one difference), in a
separate table.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from entp_lab import paths
from entp_lab.measurements import MIN_PAIRS, Check, Finding, Measurement, Observation
from entp_lab.statistics import exceeds, mean_interval, reaches
from entp_lab.store import Records, Store
from entp_lab.tables import read_table
from entp_lib.validation import Json, one_of, require

COLUMNS = "id kind source statement paper_value our_value low high unit tier seeds verdict why notebook records".split()
# Answers to questions, besides the two words that each row has for its sides.
EQUAL = "equal within the margin"
OPEN = "open"
UNINFORMATIVE = "uninformative"
# Verdicts as README says them, in the order of the tally; answers to questions are plain already.
PLAIN = {
    "reproduced": "holds",
    "verified": "holds",
    "verified with correction": "holds, corrected",
    "same direction": "points the same way",
    "not reproduced": "not seen at our size",
    "refuted": "false",
    "unproved": "unproved",
    "inconclusive": "undecided",
    OPEN: "undecided",
    UNINFORMATIVE: "could not tell",
    "not attempted": "not run yet",
    EQUAL: "no difference",
}
UNSURE = ("inconclusive", OPEN, UNINFORMATIVE)  # said in plain words beside a row's numbers, too
# rules of rows that are not judged by the sides of their interval
NO_WORSE, EVERY_SEED = RULES = ("no worse", "every seed")
CHANCE = 0.05  # share of 95 % intervals that exclude a true zero


def verdict(
    low: float,
    high: float,
    *,
    pairs: int,
    sign: float,
    paper_value: float,
    margin: float,
    paper_settings: bool,
    no_worse: bool = False,
) -> str:
    """Return the verdict on an empirical claim, from the 95 % interval of its paired differences.

    ``sign``: the direction the paper claims, +1 or -1, or 0 where it claims that nothing differs. ``margin``:
    differences below it count as equivalence, even if the interval excludes zero; NaN if none is stated. ``no_worse``:
    the paper claims only that nothing is lost in that direction, so that only a loss above the margin contradicts it.
    An interval whose end equals a threshold does not exclude it. Raises ConfigError for another sign.
    """
    require(sign in (-1, 0, 1), f"sign = {sign}: must be 1, -1 or 0")
    if pairs < MIN_PAIRS or not math.isfinite(low):
        return "inconclusive"
    if no_worse:
        allowed = sign * margin if margin > 0 else 0.0
        seen = side(low + allowed, high + allowed, math.nan)
    else:
        seen = side(low, high, margin)
    found = {sign: "same direction", None: "inconclusive"}.get(seen, "not reproduced")
    shown = found == "same direction" or exceeds(min(sign * low, sign * high), 0)
    inside = reaches(paper_value, low) and reaches(high, paper_value)
    return "reproduced" if shown and paper_settings and inside else found


def side(low: float, high: float, margin: float) -> int | None:
    """Return 0 if an interval lies strictly within ±``margin``, 1 (-1) if it lies above (below) zero, else None."""
    if margin > 0 and exceeds(low, -margin) and exceeds(margin, high):
        return 0
    return 1 if exceeds(low, 0) else -1 if exceeds(0, high) else None


def answer_of_every(values: Sequence[float], positive: str, negative: str) -> str:
    """Return the answer if all seeds are on one side of zero (zero itself counts as above), else ``OPEN``."""
    if len(values) < MIN_PAIRS:
        return OPEN
    if all(reaches(v, 0) for v in values):
        return positive
    return negative if all(exceeds(0, v) for v in values) else OPEN


def answer(
    low: float, high: float, *, pairs: int, margin: float, positive: str, negative: str
) -> str:
    """Return a question's answer: a word for each sign of the interval, ``EQUAL`` or ``OPEN``."""
    if pairs < MIN_PAIRS or not math.isfinite(low):
        return OPEN
    return {0: EQUAL, 1: positive, -1: negative, None: OPEN}[side(low, high, margin)]


def reference_claims() -> pd.DataFrame:
    """Return the claims of all papers, by id.

    Columns: paper, id, kind, source, statement, paper_value, unit, sign, margin, notebook, section. ``section``: the
    heading in the notebook under which the claim is examined, empty if there is none yet. ``positive``, ``negative``: a
    question's answers for a difference above or below zero. ``rule``: ``no worse`` if the paper claims no more than
    that, ``every seed`` for a question that all seeds must answer alike. Raises ConfigError for another rule, and if
    two rows of any papers share an id.
    """
    files = sorted(paths.reference().glob("*/claims.csv"))
    return read_claims(*((path, path.stat().st_mtime_ns) for path in files)).copy()


@lru_cache(maxsize=4)
def read_claims(*files: tuple[Path, int]) -> pd.DataFrame:
    """Return the claims in ``files``; each file has its modification time, so that the cache notices changes."""
    columns = (
        "id kind source statement paper_value unit sign margin notebook section "
        "positive negative rule"
    ).split()
    # a line that is cut short lacks the last of these
    needed = ("id", "kind", "source", "statement", "notebook")
    kinds = dict.fromkeys(("sign", "paper_value", "margin"), float) | {"id": str, "notebook": str}
    tables = [
        read_table(path, columns, needed=needed, dtype=kinds).assign(paper=path.parent.name)
        for path, _ in files
    ]
    claims = pd.concat(tables, ignore_index=True)
    claims = claims.fillna({"section": "", "rule": ""})
    for rule in claims["rule"].unique():
        one_of("results/reference: the rule of a claim", rule, ("", *RULES))
    for kind in claims["kind"].unique():
        one_of("results/reference: the kind of a claim", kind, ("theory", "empirical", "question"))
    unsigned = (claims["kind"] == "empirical") & ~claims["sign"].isin((-1, 0, 1))
    unsaid = (claims["kind"] == "question") & claims[["positive", "negative"]].isna().any(axis=1)
    wrong = claims["id"][unsigned | unsaid]
    require(wrong.empty, f"results/reference: {wrong.min()!r} lacks its sign or its answers")
    twice = claims["id"][claims["id"].duplicated()]
    require(
        twice.empty,
        f"results/reference: the id {twice.min()!r} stands in more than one row of claims",
    )
    return claims.set_index("id", drop=False).rename_axis(None)


def judge(measurements: Sequence[Finding], only_measured: bool = False) -> pd.DataFrame:
    """Return a row of the ledger for each claim and question, or only for those that were measured."""
    measured = {m.claim: m for m in measurements}
    claims = reference_claims()
    unknown = sorted(set(measured) - set(claims["id"]))
    require(
        not unknown, f"measured claims that results/reference does not list: {', '.join(unknown)}"
    )
    if only_measured:
        claims = claims[claims["id"].isin(measured)]
    rows = [row_of(claim, measured.get(claim["id"])) for claim in claims.to_dict("records")]
    return pd.DataFrame(rows, columns=COLUMNS)


def row_of(claim: dict, found: Finding | None) -> dict:
    """Return a claim with its columns of the ledger; a correction or a remark follows the statement in brackets."""
    row: Json = claim | dict.fromkeys(("our_value", "low", "high"), math.nan)
    row |= {"tier": "", "seeds": 0, "verdict": "not attempted", "why": "", "records": ""}
    if found is None or (isinstance(found, Measurement) and not len(found.values)):
        return row
    row |= {"tier": found.tier, "records": " ".join(found.records)}
    if isinstance(found, Check):
        corrected = found.verdict == "verified with correction"
        remark = f"corrected: {found.correction}" if corrected else found.remark
        row["verdict"] = found.verdict
    elif isinstance(found, Observation):
        remark = found.seen
        row |= {"seeds": found.runs, "verdict": found.found, "why": found.why}
    else:
        found, remark = replace(found, margin=claim["margin"]), found.remark
        if found.paper_value is not None:
            row["paper_value"] = found.paper_value
        mean, low, high = mean_interval(found.values)
        row |= {"our_value": mean, "low": low, "high": high, "seeds": len(found.values)}
        row |= {"verdict": judged_by_rule(row, found), "why": found.undecided}
    return row | {"statement": f"{claim['statement']} [{remark}]" if remark else claim["statement"]}


def judged_by_rule(claim: dict, found: Measurement) -> str:
    """Return the verdict on a paper's comparison, or the answer to a question, from its interval of differences."""
    words = {"positive": claim["positive"], "negative": claim["negative"]}
    if claim["rule"] == EVERY_SEED:
        return answer_of_every(found.values, **words)
    if found.uninformative_because:
        return UNINFORMATIVE
    interval = {name: claim[name] for name in ("low", "high", "margin")}
    interval["pairs"] = len(found.values)
    if claim["kind"] == "question":
        given = answer(**interval, **words)
        return OPEN if found.cut and given == EQUAL else given
    return verdict(
        **interval,
        sign=claim["sign"],
        paper_value=claim["paper_value"],
        paper_settings=found.paper_settings,
        no_worse=claim["rule"] == NO_WORSE,
    )


def excludes_paper(rows: pd.DataFrame) -> pd.Series:
    """Say of each 95 % interval if it excludes the paper's value: "yes", "no", or "" without a value or interval.

    An interval whose end equals the value does not exclude it.
    """
    value = rows["paper_value"]
    outside = exceeds(rows["low"], value) | exceeds(value, rows["high"])
    known = value.notna() & rows["low"].notna()
    return outside.map({True: "yes", False: "no"}).where(known, "")


def tested(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a ledger whose intervals test for a difference; Holm's correction counts these.

    Left out are rows with a reason not to be compared, and rows of a ``rule`` for which zero is no null hypothesis.
    Whether one model is no worse than the other is tested.
    """
    measured = judged[
        judged["our_value"].notna() & (judged["seeds"] >= MIN_PAIRS) & (judged["why"] == "")
    ]
    rules = measured["id"].map(reference_claims()["rule"])
    of_models = (rules == NO_WORSE) & measured["paper_value"].isna()
    return measured[(rules == "") | of_models]


def excluding_zero(judged: pd.DataFrame) -> tuple[int, int]:
    """Count the intervals of a ledger, and those that exclude zero."""
    measured = tested(judged)
    return len(measured), (exceeds(measured["low"], 0) | exceeds(0, measured["high"])).sum()


def multiplicity(judged: pd.DataFrame) -> str:
    """Say how many intervals a table has, how many of them exclude zero, and how many would by chance."""
    intervals, excluding = excluding_zero(judged)
    return (
        f"{intervals} intervals of 95 % over {MIN_PAIRS} pairs or more; {excluding} exclude zero, where about "
        f"{CHANCE * intervals:.1f} would by chance if nothing differed"
    )


def link(row: Any, folder: str = "../notebooks/") -> str:
    """Return a Markdown link to a row's section of its notebook, by default from a page of docs/; empty without one."""
    place = f"{folder}{row.notebook}.ipynb#{row.section.replace(' ', '-')}"
    return f"[{paths.number_of(row.notebook)}](<{place}>)" if row.notebook else ""


def link_to(claim: str, folder: str = "../notebooks/") -> str:
    """Return the ``link`` to the section that examines a claim."""
    return link(reference_claims().loc[claim], folder)


def records_behind(table: pd.DataFrame) -> Records:
    """Return the records that the rows of a ledger rest on, each once."""
    names = dict.fromkeys(" ".join(table["records"]).split())
    return list(filter(None, map(Store().load, names)))


def readable(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return ``columns`` of the ledger for readers, and the verdict: values and intervals as short text.

    The reason why a row is open and its caveats follow the verdict in brackets. ``margin``: the difference, in the unit
    of the claim, below which it counts as none; empty if a claim states none. ``paper excluded``: whether our interval
    excludes the paper's value.
    """

    def number(value: float) -> str:
        if pd.isna(value):
            return ""
        return f"{value:+.4f}" if 0 < abs(value) < 0.0005 else f"{value:+.3f}"

    def notes(row: dict) -> str:
        found = "; ".join(filter(None, (row["why"], row.get("caveats"))))
        word = PLAIN[row["verdict"]] if row["verdict"] in UNSURE else row["verdict"]
        return f"{word} ({found})" if found else word

    known = reference_claims().reindex(table["id"])
    rows = table.to_dict("records")
    out = table.assign(
        paper=table["paper_value"].map(number),
        ours=table["our_value"].map(number),
        verdict=[notes(row) for row in rows],
        margin=["" if pd.isna(margin) else f"±{margin:g}" for margin in known["margin"]],
    )
    ends = [(number(row["low"]), number(row["high"])) for row in rows]
    out["95 % interval"] = [f"{low} to {high}" if low else "" for low, high in ends]
    out["paper excluded"] = excludes_paper(table)
    out["where"] = [
        f"{paths.number_of(row.notebook)} · {row.section}" for row in known.itertuples()
    ]
    return out[["id", *columns, "verdict"]].set_index("id")
