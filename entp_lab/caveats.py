"""Reservations about a comparison: models that were still improving."""

from collections.abc import Iterable, Sequence

import numpy as np

from entp_lab.configs import RunConfig
from entp_lab.statistics import reaches
from entp_lab.store import Record

FLAT = 0.01  # of token accuracy, between the last fifth of a run's evaluations and the fifth before


def rise(values: Sequence[float]) -> float:
    """Mean over the last fifth of a curve less that over the fifth before; NaN for fewer than five values."""
    if len(values) < 5:
        return float("nan")
    *_, before, last = np.array_split(np.asarray(values, dtype=float), 5)
    return float(last.mean() - before.mean())


def still_improving(records: Sequence[Record]) -> str:
    """After how many steps an arm's token accuracy was still rising by ``FLAT`` or more, in words; empty where none's.

    The mean over seeds decides, of runs whose other labels are alike. Studies and runs without that curve say nothing.
    """
    curves: dict[frozenset, list[Record]] = {}
    for r in records:
        if isinstance(r.config, RunConfig) and "token_accuracy" in r.curves:
            alike = frozenset((name, str(value)) for name, value in r.labels.items() if name != "seed")
            curves.setdefault(alike, []).append(r)
    rises = ((part, np.mean([rise(r.curves["token_accuracy"]) for r in part])) for part in curves.values())
    return after(r.config.train.steps for part, mean in rises if reaches(mean, FLAT) for r in part)


def after(steps: Iterable[int]) -> str:
    """ "still improving after 1,200 steps", for each number of steps once; empty for none."""
    counts = " and ".join(f"{count:,}" for count in sorted(set(steps)))
    return f"still improving after {counts} steps" if counts else ""
