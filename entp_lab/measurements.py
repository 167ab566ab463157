"""Measurements, checks and observations: an experiment's side of a claim, which ``claims`` judges.

``Comparisons`` is the ``measure`` of an experiment as a table: paired differences between two arms, one claim per row.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.configs import Json
from entp_lab.frames import paired, select, summary
from entp_lab.statistics import exceeds, reaches
from entp_lab.store import RecordError, Records

MIN_PAIRS = 5
FLAT = 0.01  # rise of token accuracy from the fourth to the last fifth of a run's evaluations; below, a run is flat


@dataclass(frozen=True)
class Level:
    """One side's mean score in a comparison, with that of guessing (``floor``) and the best possible (``ceiling``).

    ``floor`` may lie above ``ceiling``, as for errors. A score closer than ``distance`` to the floor counts as at the
    floor.
    """

    score: float
    floor: float
    ceiling: float
    distance: float

    @property
    def up(self) -> int:
        """The sign of a change to a better score."""
        return 1 if self.ceiling > self.floor else -1

    @property
    def at_floor(self) -> bool:
        return exceeds(self.distance, self.up * (self.score - self.floor))

    @property
    def room(self) -> float:
        """The distance to the ceiling: by how much another model could be ahead."""
        return self.up * (self.ceiling - self.score)


def levels(
    table: pd.DataFrame, metric: str, arms: Sequence[str], **scale: float
) -> tuple[Level, ...]:
    """Return the ``Level`` of each arm from its mean over seeds; ``scale``: floor, ceiling and distance."""
    means = table[table["arm"].isin(arms)].groupby("arm")[metric].mean()
    return tuple(Level(float(score), **scale) for score in means)


@dataclass(frozen=True)
class Measurement:
    """Our side of one claim: a value per seed, paired differences if the claim compares two models.

    ``paper_settings``: whether task, model and training are the paper's own; otherwise nothing counts as reproduced.
    ``levels``: mean score of each arm with its floor (guessing) and ceiling. ``excluded_because``: why a rule of the
    experiment's own forbids the comparison; empty if it does not. ``paper_value``: the paper's value over the measured
    settings, if the claim's own is a mean over more. ``margin``: differences below it count as none. ``cut``: some
    values are only bounds, since a run ended before, so that no difference cannot be shown.
    """

    claim: str
    values: Sequence[float]
    tier: str
    records: Sequence[str] = ()
    paper_settings: bool = False
    levels: Sequence[Level] = ()
    excluded_because: str = ""
    paper_value: float | None = None
    remark: str = ""
    margin: float = math.nan
    cut: bool = False

    @property
    def unlearned(self) -> bool:
        """Whether all sides are at the floor."""
        return bool(self.levels) and all(level.at_floor for level in self.levels)

    @property
    def uninformative_because(self) -> str:
        """Why nothing can be compared: a rule, all sides at the floor, or a side at its ceiling; empty if it can.

        A side near its ceiling leaves the other no room to lead by the margin (or by its ``distance`` if no margin is
        stated). That is uninformative unless the sides differ by more than that anyway.
        """
        if self.excluded_because:
            return self.excluded_because
        if self.unlearned:
            return "no side is above guessing"
        if not self.levels:
            return ""
        rooms = [level.room for level in self.levels]
        near = self.margin if self.margin > 0 else max(level.distance for level in self.levels)
        decided = exceeds(near, min(rooms)) and reaches(near, max(rooms) - min(rooms))
        return "a side is nearer to its ceiling than the margin" if decided else ""

    @property
    def undecided(self) -> str:
        """Reason for withholding a verdict: uninformative, or too few pairs; "" if the interval decides."""
        if self.uninformative_because:
            return self.uninformative_because
        pairs = len(self.values)
        if pairs < MIN_PAIRS:
            return f"{pairs} of {MIN_PAIRS} pairs"
        scoreless = sum(map(math.isnan, self.values))
        return f"{scoreless} of {pairs} pairs without a score" if scoreless else ""


@dataclass(frozen=True)
class Check:
    """Our side of one theoretical claim: whether the statement holds in everything that was tried.

    ``printed``: whether it holds as the paper states it; None if that could not be decided, as for a conjecture.
    ``corrected``: whether it holds as ``correction`` states it; None if there is no corrected statement. ``remark``:
    what a reader should know about a statement that holds.
    """

    claim: str
    printed: bool | None
    tier: str
    corrected: bool | None = None
    correction: str = ""
    records: Sequence[str] = ()
    remark: str = ""

    @property
    def verdict(self) -> str:
        """By rule: a statement that fails is refuted, unless its correction holds."""
        if self.printed is None:
            return "unproved"
        if self.printed:
            return "verified"
        return "verified with correction" if self.corrected else "refuted"


@dataclass(frozen=True)
class Observation:
    """Our side of an empirical claim that has no interval over seeds: one run per setting, or a whole sample.

    ``found``: the verdict, one of those of empirical claims. ``why``: what keeps it open, empty if it is decided.
    ``seen``: what was found, which is added to the statement. ``runs``: the number of runs of each side.
    """

    claim: str
    found: str
    tier: str
    why: str = ""
    seen: str = ""
    runs: int = 1
    records: Sequence[str] = ()


Finding = Measurement | Check | Observation
Findings = Iterable[Finding]  # what an experiment's ``measure`` yields
Measure = Callable[[Records], Findings]


def evidence_rank(finding: Finding) -> tuple[bool, bool]:
    """Return a sort key for a claim's measurements at several tiers: conclusive first, then enough pairs."""
    if isinstance(finding, Check):
        return True, True
    if isinstance(finding, Observation):
        return finding.found != "uninformative", not finding.why
    enough = len(finding.values) >= MIN_PAIRS
    begun = not (finding.excluded_because or finding.unlearned)
    return enough and begun, enough  # if too little was learned, a smaller tier may say more


def strongest(measured: Iterable[tuple[Finding, Any]]) -> dict[str, tuple]:
    """Keep the best-ranked finding of each claim with its companion; ties keep the first."""
    best: dict[str, tuple] = {}
    for finding, about in measured:
        known = best.get(finding.claim)
        if known is None or evidence_rank(finding) > evidence_rank(known[0]):
            best[finding.claim] = finding, about
    return best


def measured(
    claim: str, values: Iterable[float], records: Records, paper: bool = False, **judged: Any
) -> Measurement:
    """Return a ``Measurement`` that rests on ``records``: at least one, and all of one tier.

    ``paper``: whether the runs of the paper's tier are at the paper's settings. ``judged``: its further fields.
    """
    tier = records[0].config.tier
    names = [record.name for record in records]
    at_paper = paper and tier == "paper"
    return Measurement(
        claim, [float(v) for v in values], tier, names, paper_settings=at_paper, **judged
    )


def checked(claim: str, printed: bool | None, records: Records, **judged: Any) -> Check:
    """Return a ``Check`` that rests on ``records``, which are of one tier. ``judged``: its further fields."""
    names = [record.name for record in records]
    return Check(claim, printed, records[0].config.tier, records=names, **judged)


def observed(
    claim: str, found: str, records: Records, why: str = "", seen: str = "", runs: int = 1
) -> Observation:
    """Return an ``Observation`` that rests on ``records``, which are of one tier."""
    names = [record.name for record in records]
    return Observation(claim, found, records[0].config.tier, why, seen, runs, names)


@dataclass(frozen=True)
class Paired:
    """A claim on the differences first − second of a metric, paired by random seed, of runs with labels ``where``."""

    claim: str
    metric: str
    first: str
    second: str
    where: Json = field(default_factory=dict)

    @property
    def arms(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True)
class Comparisons:
    """``measure`` as a table of claims, called with the records of a tier; claims without a single pair are omitted.

    ``frame``: a function from records to a frame with a row per run. Scores lie between ``floor`` (None for the
    baseline's) and ``ceiling``, each a number, or a column of the frame whose mean is used; a score within ``near`` of
    the floor is treated as not learned. ``excluded``: a function from the records with a claim's labels, and its arms,
    to the reason why they say nothing, or "". ``paper``: whether the paper's tier has the paper's settings.
    ``others``: further functions from records to measurements, for what a table cannot express.
    """

    claims: Sequence[Paired]
    ceiling: float | str = 1.0
    floor: float | str | None = None
    near: float = 0.02
    frame: Callable[[Records], pd.DataFrame] = summary
    excluded: Callable[[Records, Sequence[str]], str] = lambda records, arms: ""
    paper: bool = False
    others: Sequence[Measure] = ()

    def __call__(self, records: Records) -> Findings:
        for claim in self.claims:
            yield from self.measure(claim, records)
        for other in self.others:
            yield from other(records)

    def measure(self, claim: Paired, records: Records) -> Findings:
        """Yield the measurement of one row of the table, unless it has no pair."""
        part = select(records, **claim.where)
        used = select(part, arm=claim.arms)
        if not used:
            return
        table = self.frame(part)
        if claim.metric not in table:
            raise RecordError(
                f"record {used[0].name} has no {claim.metric!r}, of which {claim.claim} is measured"
            )
        values = paired(table, claim.metric, *claim.arms)
        if not len(values):
            return
        floor = f"baseline_{claim.metric}" if self.floor is None else self.floor
        scale = {
            name: table[end].mean() if isinstance(end, str) else end
            for name, end in (("floor", floor), ("ceiling", self.ceiling))
        }
        sides = levels(table, claim.metric, claim.arms, **scale, distance=self.near)
        why = self.excluded(part, claim.arms)
        yield measured(claim.claim, values, used, self.paper, levels=sides, excluded_because=why)


def rise(values: Sequence[float]) -> float:
    """Return the mean of the last fifth of a curve minus that of the fifth before; NaN for fewer than five points."""
    if len(values) < 5:
        return math.nan
    *_, before, last = np.array_split(np.asarray(values, dtype=float), 5)
    return float(last.mean() - before.mean())


def still_improving(records: Records) -> str:
    """Say after how many steps an arm's token accuracy was still rising by ``FLAT`` or more; empty if none was.

    The rise is a mean over runs that differ in seed alone. Records without that curve are skipped.
    """
    curves = defaultdict(list)
    for record in records:
        if "token_accuracy" in record.curves and "steps" in record.provenance:
            alike = frozenset(
                (name, str(value)) for name, value in record.labels.items() if name != "seed"
            )
            curves[alike].append(record)
    return after(
        record.provenance["steps"]
        for part in curves.values()
        if reaches(np.mean([rise(record.curves["token_accuracy"]) for record in part]), FLAT)
        for record in part
    )


def after(steps: Iterable[int]) -> str:
    """Return "still improving after 1,200 steps", for each number of steps once; empty for none."""
    counts = " and ".join(f"{count:,}" for count in sorted(set(steps)))
    return f"still improving after {counts} steps" if counts else ""
