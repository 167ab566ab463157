"""Which curves of in-context learning are flat at their end: a rule written down before the ``overnight`` runs."""

from collections.abc import Sequence

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.records.store import Record
from entp_lib.statistics import reaches
from entp_lib.tasks import InContext

FLAT = 0.01  # of E[y²]: the most by which training error may fall from the fourth fifth of the steps to the last


def task_of(record: Record) -> InContext:
    """The task of a run or of a study of baselines."""
    config = record.config
    return InContext(**(config.params["task"] if isinstance(config, StudyConfig) else config.task_params))


def training_error(record: Record, start: float, end: float) -> float:
    """Mean training loss / E[y²] over the steps from the share ``start`` of a run's steps to the share ``end``.

    A point of the curve is the mean since the point before it; one that lies partly within counts with that part.
    """
    total, weights, previous = 0.0, 0.0, 0
    first, last = (share * record.curves["step"][-1] for share in (start, end))
    for step, loss in zip(record.curves["step"], record.curves["train_loss"], strict=True):
        weight = max(0.0, min(step, last) - max(previous, first))
        total, weights, previous = total + weight * loss, weights + weight, step
    return total / weights / task_of(record).normaliser


def flatness(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run: training error over the ``fourth`` fifth of its steps and over the ``last``, and the ``fall``.

    ``flat`` where the mean fall over the seeds of an arm, of one tier and class, is at most ``FLAT``.
    """
    found = pd.DataFrame(
        {**r.labels, "steps": r.curves["step"][-1], "fourth": training_error(r, 0.6, 0.8)}
        | {"last": training_error(r, 0.8, 1.0)}
        for r in records
    )
    found["fall"] = found["fourth"] - found["last"]
    found["flat"] = reaches(FLAT, found.groupby(["tier", "function", "arm"])["fall"].transform("mean"))
    return found
