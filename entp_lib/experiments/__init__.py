"""The experiments, one file each, and the literal registry that names them."""

from entp_lib.experiments.addition import ADDITION, ADDITION_TO_999
from entp_lib.experiments.addition_lengths import LENGTHS
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
from entp_lib.experiments.chain_of_thought import CHAIN_OF_THOUGHT
from entp_lib.experiments.complexity import COMPLEXITY
from entp_lib.experiments.count3 import COUNT3
from entp_lib.experiments.depth import DEPTH
from entp_lib.experiments.downstream import DOWNSTREAM, PRONOUNS
from entp_lib.experiments.expressivity import EXPRESSIVITY
from entp_lib.experiments.in_context import IN_CONTEXT, IN_CONTEXT_BASELINES, IN_CONTEXT_SETTINGS
from entp_lib.experiments.match3 import MATCH3
from entp_lib.experiments.rasp import RASP
from entp_lib.experiments.shakespeare import SHAKESPEARE
from entp_lib.experiments.text import OPENWEBTEXT

EXPERIMENTS = {
    e.name: e
    for e in (
        EXPRESSIVITY,
        COMPLEXITY,
        COUNT3,
        MATCH3,
        RASP,
        CHAIN_OF_THOUGHT,
        DEPTH,
        ADDITION,
        ADDITION_TO_999,
        LENGTHS,
        IN_CONTEXT,
        IN_CONTEXT_SETTINGS,
        IN_CONTEXT_BASELINES,
        OPENWEBTEXT,
        SHAKESPEARE,
        DOWNSTREAM,
        PRONOUNS,
    )
}

__all__ = [
    "ADDITION",
    "ADDITION_TO_999",
    "BEST_FIRST",
    "CHAIN_OF_THOUGHT",
    "COMPLEXITY",
    "COUNT3",
    "DEPTH",
    "DOWNSTREAM",
    "EXPERIMENTS",
    "EXPRESSIVITY",
    "IN_CONTEXT",
    "IN_CONTEXT_BASELINES",
    "IN_CONTEXT_SETTINGS",
    "LENGTHS",
    "MATCH3",
    "OPENWEBTEXT",
    "PRONOUNS",
    "RASP",
    "SHAKESPEARE",
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
