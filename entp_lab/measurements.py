"""Measurements, checks and observations: an experiment's side of a claim, which ``claims`` judges."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from entp_lab.statistics import exceeds

MIN_PAIRS = 5


@dataclass(frozen=True)
class Level:
    """The level of one side of a comparison: its mean score, between that of guessing and the best there is.

    ``floor`` may lie above ``ceiling``, as for errors. Closer than ``distance`` to the floor counts as being there.
    """

    score: float
    floor: float
    ceiling: float
    distance: float

    @property
    def at_floor(self) -> bool:
        above = self.score - self.floor if self.ceiling > self.floor else self.floor - self.score
        return exceeds(self.distance, above)

    @property
    def room(self) -> float:
        """The distance to the ceiling, that is by how much another could be ahead."""
        return self.ceiling - self.score if self.ceiling > self.floor else self.score - self.ceiling


@dataclass(frozen=True)
class Measurement:
    """Our side of one claim: a value per seed, paired differences where the claim compares two models.

    ``paper_settings``: whether task, model and training are the paper's own, without which nothing counts as
    reproduced. ``levels``: where the sides of the comparison are. ``excluded_because``: why nothing can be compared by
    a rule of the experiment's own; empty where it can. ``paper_value``: the paper's over the settings that were
    measured, where the claim's own is a mean over more. ``margin``: below it a difference counts as none.
    """

    claim: str
    values: Sequence[float]
    tier: str
    records: Sequence[str] = field(default_factory=tuple)
    paper_settings: bool = False
    levels: Sequence[Level] = field(default_factory=tuple)
    excluded_because: str = ""
    paper_value: float | None = None
    remark: str = ""
    margin: float = math.nan

    @property
    def unlearned(self) -> bool:
        """Whether all sides are at the floor."""
        return bool(self.levels) and all(v.at_floor for v in self.levels)

    @property
    def uninformative_because(self) -> str:
        """Why nothing can be compared: a rule, all sides at the floor, or a ceiling that decides; empty if it can.

        A side at its ceiling leaves the other no room to lead by the margin (where none is stated, by its distance).
        That tells nothing unless the sides are further apart than that all the same.
        """
        if self.excluded_because or self.unlearned:
            return self.excluded_because or "no side is above guessing"
        rooms = [v.room for v in self.levels]
        near = self.margin if self.margin > 0 else max((v.distance for v in self.levels), default=0.0)
        decided = bool(rooms) and min(rooms) < near and max(rooms) - min(rooms) <= near
        return "a side is nearer to its ceiling than the margin" if decided else ""

    @property
    def undecided(self) -> str:
        """Why there is no verdict: nothing can be compared, or pairs are too few; empty where the interval decides."""
        pairs, scoreless = len(self.values), sum(map(math.isnan, self.values))
        if self.uninformative_because or pairs < MIN_PAIRS:
            return self.uninformative_because or f"{pairs} of {MIN_PAIRS} pairs"
        return f"{scoreless} of {pairs} pairs without a score" if scoreless else ""


@dataclass(frozen=True)
class Check:
    """Our side of one theoretical claim: whether the statement holds in everything that was tried.

    ``printed``: as the paper states it; None where that could not be decided, as for a conjecture. ``corrected``: as
    ``correction`` words it, None where there is no corrected statement. ``remark``: what a reader should know of a
    statement that holds.
    """

    claim: str
    printed: bool | None
    tier: str
    corrected: bool | None = None
    correction: str = ""
    records: Sequence[str] = field(default_factory=tuple)
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
    """Our side of an empirical claim that no interval over seeds decides: of one run a setting, or of a whole sample.

    ``found``: the verdict, one of an empirical claim's; ``why``: what keeps it open, empty where it decides. ``seen``:
    what was found, which goes with the statement. ``runs``: how many each side has.
    """

    claim: str
    found: Literal["same direction", "not reproduced", "inconclusive", "uninformative"]
    tier: str
    why: str = ""
    seen: str = ""
    runs: int = 1
    records: Sequence[str] = field(default_factory=tuple)


def priority(measurement: Measurement | Check | Observation) -> tuple[bool, bool]:
    """Key by which one tier's measurement of a claim comes before another's: that it can conclude, then its pairs."""
    if isinstance(measurement, Check):
        return True, True
    if isinstance(measurement, Observation):
        return measurement.found != "uninformative", not measurement.why
    enough, begun = len(measurement.values) >= MIN_PAIRS, not (measurement.excluded_because or measurement.unlearned)
    return enough and begun, enough  # where too little was learned a smaller tier may say more


def strongest(measured: Iterable[tuple[Measurement | Check | Observation, Any]]) -> dict[str, tuple]:
    """Of (measurement, whatever goes with it) the one by claim that can conclude most; of equals the first."""
    best: dict[str, tuple] = {}
    for m, about in measured:
        if m.claim not in best or priority(m) > priority(best[m.claim][0]):
            best[m.claim] = m, about
    return best
