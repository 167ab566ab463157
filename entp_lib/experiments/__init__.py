"""The experiments, one file each, and the literal registry that names them."""

from entp_lib.experiments.base import (
    BEST_FIRST,
    Experiment,
    by_position,
    cost,
    cost_per_run,
    curves,
    describe,
    mean_table,
    paired,
    summary,
)
from entp_lib.experiments.complexity import COMPLEXITY
from entp_lib.experiments.count3 import COUNT3
from entp_lib.experiments.match3 import MATCH3

EXPERIMENTS = {e.name: e for e in (COMPLEXITY, COUNT3, MATCH3)}

__all__ = [
    "BEST_FIRST",
    "COMPLEXITY",
    "COUNT3",
    "EXPERIMENTS",
    "MATCH3",
    "Experiment",
    "by_position",
    "cost",
    "cost_per_run",
    "curves",
    "describe",
    "mean_table",
    "paired",
    "summary",
]
