"""A whole tier without notebooks: one experiment after the other, at the lowest priority, continued whenever asked.

Meant for ``overnight``, whose runs take a laptop hours: whatever is cut, by a time limit, Ctrl-C or a power failure,
goes on from its last checkpoint when the same command is given again.
"""

import os
import sys
import time
from collections.abc import Sequence

from entp_lib import paths
from entp_lib.experiments.experiment import Experiment
from entp_lib.records.store import Store
from entp_lib.records.sweeps import SweepError, sweep
from entp_lib.registry import EXPERIMENTS, nightly_order
from entp_lib.reports.execution import duration


def experiments_of(tier: str, only: Sequence[str] = ()) -> list[Experiment]:
    """The experiments of a tier in ``NIGHTLY_ORDER``, those first that decide most; ``only``: of these notebooks.

    One that is not in that order has no design in the journal yet, and is left to ``train``.
    """
    found = [EXPERIMENTS[name] for name in nightly_order()]
    return [e for e in found if e.plan(tier, 0) and (not only or paths.number_of(e.notebook) in only)]


def lower_priority() -> None:
    """Make way for everything else on the machine, where the system lets a process say so."""
    if hasattr(os, "nice"):
        os.nice(19 - os.nice(0))


def run_tier(tier: str, *, jobs: int = 0, time_limit: float = 0.0, only: Sequence[str] = ()) -> int:
    """Complete a tier's records, one line for each experiment on stderr; returns how many runs failed.

    ``time_limit``: seconds for all of it, 0 for none. Runs are given to workers in the order of their plan, mostly seed
    by seed, so that what is there at any moment is paired as far as it goes.
    """
    lower_priority()
    store = Store(paths.results() / "smoke") if tier == "smoke" else Store()
    begun, failures = time.monotonic(), 0
    for experiment in experiments_of(tier, only):
        todo, total = experiment.missing(store, tier), len(experiment.plan(tier, 0))
        say(f"{experiment.name}: {total - len(todo)} of {total} runs are complete")
        left = time_limit - (time.monotonic() - begun) if time_limit else 0.0
        if not todo or (time_limit and left <= 0):
            continue
        started = time.monotonic()
        try:
            label = f"{experiment.name} {tier}"
            sweep(todo, experiment.version, store=store, jobs=jobs or experiment.jobs, time_limit=left, label=label)
        except SweepError as error:
            failures += len(error.sweep.failures)
            say(str(error))
        done = len(todo) - len(experiment.missing(store, tier))
        say(f"{experiment.name}: {done} more in {duration(time.monotonic() - started)}")
    return failures


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
