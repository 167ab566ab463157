"""The ledger: what the paper says, what we get, and a verdict by rule.

What the paper says is the table ``results/reference/claims.csv``. What we get comes from the experiments, each of
which measures the claims it can from its best records. Nothing here is typed by hand: the verdict follows from the
paired interval alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from entp_lib import paths
from entp_lib.files import read_table
from entp_lib.runs.records import Record, Store
from entp_lib.statistics import mean_interval
from entp_lib.strict import ConfigError

COLUMNS = "id source statement paper_value our_value low high unit tier seeds verdict notebook records".split()
EMPIRICAL_VERDICTS = ("reproduced", "same direction", "not reproduced", "inconclusive")
THEORY_VERDICTS = ("verified", "verified with correction", "refuted", "unproved")
VERDICTS = (*EMPIRICAL_VERDICTS, *THEORY_VERDICTS, "not attempted")
MIN_PAIRS = 5


@dataclass(frozen=True)
class Measurement:
    """Our side of one claim: a value per seed, paired differences where the claim compares two models.

    ``paper_settings``: whether task, model and training are the paper's own, without which nothing counts as
    reproduced.
    """

    claim: str
    values: Sequence[float]
    tier: str
    records: Sequence[str] = field(default_factory=tuple)
    paper_settings: bool = False


@dataclass(frozen=True)
class Check:
    """Our side of one theoretical claim: whether the statement holds in everything that was tried.

    ``printed``: as the paper states it; None where that could not be decided, as for a conjecture. ``corrected``: as
    ``correction`` words it, None where there is no corrected statement.
    """

    claim: str
    printed: bool | None
    tier: str
    corrected: bool | None = None
    correction: str = ""
    records: Sequence[str] = field(default_factory=tuple)

    @property
    def verdict(self) -> str:
        """By rule: a statement that fails is refuted, unless its correction holds."""
        if self.printed is None:
            return "unproved"
        if self.printed:
            return "verified"
        return "verified with correction" if self.corrected else "refuted"


def verdict(
    mean: float,
    low: float,
    high: float,
    *,
    pairs: int,
    sign: float,
    paper_value: float,
    margin: float,
    paper_settings: bool,
) -> str:
    """The verdict on an empirical claim, from the 95 % interval of its paired differences.

    ``sign``: the direction the paper claims, +1 or -1, or 0 where it claims that nothing differs. ``margin``:
    differences below it count as equivalence; NaN where none is stated.
    """
    if pairs < MIN_PAIRS or not math.isfinite(low):
        return "inconclusive"
    if paper_settings and low <= paper_value <= high:
        return "reproduced"
    equivalent = margin > 0 and -margin < low and high < margin
    if sign == 0:
        if equivalent:
            return "same direction"
        return "not reproduced" if low > 0 or high < 0 else "inconclusive"
    if sign * low > 0 and sign * high > 0:
        return "same direction"
    if (sign * low < 0 and sign * high < 0) or equivalent:
        return "not reproduced"
    return "inconclusive"


def reference_claims() -> pd.DataFrame:
    """The paper's claims: id, kind, source, statement, paper_value, unit, sign, margin, notebook, section.

    ``section`` is the heading in the notebook under which the claim is looked at; empty while there is none.
    """
    columns = "id kind source statement paper_value unit sign margin notebook section".split()
    path = paths.reference() / "claims.csv"
    needed = ("id", "kind", "source", "statement", "notebook")  # the last of these are missing where a line is cut
    return read_table(path, columns, unique="id", needed=needed, dtype={"id": str, "notebook": str})


def judge(measurements: Sequence[Measurement | Check], only_measured: bool = False) -> pd.DataFrame:
    """Verdicts on measurements: all of the paper's claims, or only those that were measured."""
    measured = {m.claim: m for m in measurements}
    claims = reference_claims()
    unknown = sorted(set(measured) - set(claims["id"]))
    if unknown:
        raise ConfigError(f"measured claims that results/reference/claims.csv does not list: {', '.join(unknown)}")
    if only_measured:
        claims = claims[claims["id"].isin(measured)]
    rows = [row_of(claim, measured.get(claim["id"])) for claim in claims.to_dict("records")]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def row_of(claim: dict, measurement: Measurement | Check | None) -> dict:
    """One line of the ledger; a correction goes with the statement that it corrects."""
    row = {name: claim.get(name) for name in COLUMNS} | dict.fromkeys(("our_value", "low", "high"), math.nan)
    if isinstance(measurement, Check):
        if measurement.verdict == "verified with correction":
            row["statement"] = f"{claim['statement']} [corrected: {measurement.correction}]"
        records = " ".join(measurement.records)
        return row | {"tier": measurement.tier, "seeds": 0, "records": records, "verdict": measurement.verdict}
    if measurement is None or not len(measurement.values):
        return row | {"verdict": "not attempted", "tier": "", "records": "", "seeds": 0}
    mean, low, high = mean_interval(measurement.values)
    return row | {
        "our_value": mean,
        "low": low,
        "high": high,
        "tier": measurement.tier,
        "seeds": len(measurement.values),
        "records": " ".join(measurement.records),
        "verdict": verdict(
            mean,
            low,
            high,
            pairs=len(measurement.values),
            sign=claim["sign"],
            paper_value=claim["paper_value"],
            margin=claim["margin"],
            paper_settings=measurement.paper_settings,
        ),
    }


def together(judged: pd.DataFrame, claims: Sequence[str]) -> str:
    """What rows of a ledger say of one finding: the verdict that all of them share, else each row's own.

    ``reproduced`` counts as ``same direction``; rows that are missing as ``not attempted``.
    """
    found = judged.set_index("id")["verdict"].replace("reproduced", "same direction").to_dict()
    verdicts = {claim: found.get(claim, "not attempted") for claim in claims}
    if len(set(verdicts.values())) == 1:
        return f"{verdicts[claims[0]]} in all of {', '.join(claims)}"
    return "mixed: " + ", ".join(f"{claim} {verdict}" for claim, verdict in verdicts.items())


def link(claim: str) -> str:
    """Where a claim is looked at, as a Markdown link from the project's root."""
    row = reference_claims().set_index("id").loc[claim]
    anchor = "" if pd.isna(row["section"]) else "#" + row["section"].replace(" ", "-")
    return f"[{row['notebook'][:2]}](<notebooks/{row['notebook']}.ipynb{anchor}>)"


def records_behind(table: pd.DataFrame, store: Store | None = None) -> list[Record]:
    """The records that the rows of a ledger rest on, each once."""
    store = store or Store()
    names = dict.fromkeys(name for row in table["records"] for name in str(row).split())
    found = (store.load(*name.split("/")) for name in names)
    return [record for record in found if record is not None]


def shown(table: pd.DataFrame, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The ledger as people read it: values and intervals as short text, the record ids left out."""

    def number(value: float) -> str:
        if pd.isna(value):
            return ""
        return f"{value:+.4f}" if 0 < abs(value) < 0.0005 else f"{value:+.3f}"

    out = table.copy()
    out["paper"] = [number(v) for v in table["paper_value"]]
    out["ours"] = [number(v) for v in table["our_value"]]
    out["95 % interval"] = [
        "" if pd.isna(a) else f"{number(a)} to {number(b)}" for a, b in zip(table["low"], table["high"], strict=True)
    ]
    out["tier"] = table["tier"].fillna("")
    sections = reference_claims().set_index("id")["section"].fillna("")
    out["where"] = [f"{c.notebook[:2]} · {sections[c.id]}" for c in table.itertuples()]
    wanted = columns or ["source", "statement", "paper", "ours", "95 % interval", "unit", "tier", "seeds"]
    return out[["id", *wanted, "verdict"]].set_index("id")
