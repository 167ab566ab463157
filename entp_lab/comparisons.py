"""The ``measure`` of an experiment as a table: paired differences between two arms, one claim a row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from entp_lab.frames import levels, paired, select, summary
from entp_lab.measurements import Measurement
from entp_lab.store import Record, RecordError


def measured(claim: str, values: Iterable[float], records: Sequence[Record], paper: bool = False, **judged: Any):
    """A ``Measurement`` that rests on ``records``, which are of one tier, at the least one.

    ``paper``: whether the runs of the paper's tier are at the paper's settings. ``judged``: its further fields.
    """
    tier = records[0].config.tier
    values, names = list(map(float, values)), tuple(r.name for r in records)
    return Measurement(claim, values, tier, names, paper_settings=paper and tier == "paper", **judged)


@dataclass(frozen=True)
class Paired:
    """A claim on the differences first − second of a column, paired by random seed, of runs with labels ``where``."""

    claim: str
    metric: str
    first: str
    second: str
    where: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arms(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True)
class Comparisons:
    """``measure`` as a table of claims, called with the records of a tier; claims that no pair is of are left out.

    ``frame``: records to a row per run. Scores lie between ``floor`` (a number, or the column of the frame whose mean
    it is, the baseline's where None) and ``ceiling``, and closer than ``near`` to the floor counts as being there.
    ``excluded``: of the records with a claim's labels, and its arms, why they say nothing; empty where they do.
    ``paper``: whether the paper's tier has the paper's settings. ``others``: what a table cannot say, further functions
    from records to measurements.
    """

    claims: Sequence[Paired]
    ceiling: float = 1.0
    floor: float | str | None = None
    near: float = 0.02
    frame: Callable[[Sequence[Record]], pd.DataFrame] = summary
    excluded: Callable[[Sequence[Record], Sequence[str]], str] = lambda records, arms: ""
    paper: bool = False
    others: Sequence[Callable[[Sequence[Record]], Sequence[Any]]] = ()

    def __call__(self, records: Sequence[Record]) -> list[Any]:
        found: list[Any] = []
        for claim in self.claims:
            part = select(records, **claim.where)
            used = select(part, arm=claim.arms)
            table = self.frame(part) if used else pd.DataFrame()
            if used and claim.metric not in table:
                raise RecordError(f"record {used[0].name} has no {claim.metric!r}, of which {claim.claim} is measured")
            values = paired(table, claim.metric, *claim.arms) if used else ()
            if len(values):
                floor = f"baseline_{claim.metric}" if self.floor is None else self.floor
                floor = table[floor].mean() if isinstance(floor, str) else floor
                scale = dict(floor=floor, ceiling=self.ceiling, distance=self.near)
                judged = dict(levels=levels(table, claim.metric, claim.arms, **scale))
                judged["excluded_because"] = self.excluded(part, claim.arms)
                found.append(measured(claim.claim, values, used, self.paper, **judged))
        return [*found, *(m for other in self.others for m in other(records))]
