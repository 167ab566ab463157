"""Estimate from the seconds of stored records how long runs will take, and ask before more than an hour."""

import contextlib
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from entp_lab.budgets import training_operations
from entp_lab.configs import ON_CPU, RunConfig, family
from entp_lab.frames import spent
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import Config, device_for
from entp_lab.store import Record, Store
from entp_lib.validation import ConfigError, require

ASK_SECONDS = 3600.0  # what takes longer is asked about
SAY_SECONDS = 120.0  # what takes less is not worth a line


@dataclass(frozen=True)
class Rate:
    """The multiply-adds a second that stored CPU runs of one precision and size of step reached."""

    precision: str
    step_operations: float
    rate: float


def measured_rates(records: Iterable[Record]) -> list[Rate]:
    """Return the median rate of one core for each precision and size of a step among CPU training runs."""
    found = defaultdict(list)
    for record in records:
        config = record.config
        if isinstance(config, RunConfig) and config.tier in ON_CPU:
            seconds = spent(record)
            operations = training_operations(config)
            if seconds > 0:
                kind = config.train.precision, operations / config.train.steps
                found[kind].append(operations / seconds)
    return [Rate(*kind, statistics.median(rates)) for kind, rates in found.items()]


def all_records(store: Store) -> Iterable[Record]:
    """Yield the records of every experiment."""
    return (record for name in EXPERIMENTS for record in store.all(name))


def seconds_of(config: RunConfig, rates: Sequence[Rate]) -> float:
    """Return the seconds of a core for a run, at the rate of stored runs whose steps are nearest in size.

    ``rates`` of another precision count where none has the run's; NaN where there are none.
    """
    operations = training_operations(config)
    step = operations / config.train.steps
    alike = [rate for rate in rates if rate.precision == config.train.precision] or rates
    if not alike:
        return math.nan
    nearest = min(alike, key=lambda rate: abs(math.log(rate.step_operations / step)))
    return operations / nearest.rate


def expected(configs: Sequence[Config], jobs: int, store: Store, device: str = "cpu") -> tuple[float, int]:
    """Return the wall seconds of runs of one tier, ``jobs`` at a time, and how many are like no stored run.

    A run takes the median seconds of records that differ from it in seeds alone; another training run on a CPU those
    of ``seconds_of``. Those on a GPU go by records of a GPU.
    """
    alike = []
    for place in (store, Store()):
        records = [r for name in {c.experiment for c in configs} for r in place.all(name)]
        records = [r for r in records if spent(r)]
        alike = [r for r in records if ("cuda" in r.provenance) == (device == "cuda")]
        if alike:
            break
    seconds = defaultdict(list)
    for record in alike:
        seconds[family(record.config)].append(spent(record))
    each = {key: statistics.median(found) for key, found in seconds.items()}
    unlike = [c for c in configs if family(c) not in each and isinstance(c, RunConfig) and device == "cpu"]
    rates = measured_rates(alike or all_records(Store())) if unlike else []
    for config in unlike:
        with contextlib.suppress(ConfigError):  # a run whose data are not there: it will say so
            each[family(config)] = seconds_of(config, rates)
    known = [each[family(config)] for config in configs if family(config) in each]
    at_a_time = max(1, min(jobs, len(known)))
    return max(sum(known) / at_a_time, *known, 0.0), len(configs) - len(known)


def announce_runs(
    what: str,
    configs: Sequence[Config],
    jobs: int,
    yes: bool,
    time_limit: float = 0.0,
    store: Store | None = None,
    device: str | None = None,
) -> None:
    """Say on stderr how long runs take by the records in ``store``, ``jobs`` at a time (0: one per core, on a GPU one).

    Above an hour ask where there is a terminal, unless ``yes``; ConfigError where the answer is no. ``device``: of all
    runs; None: by their tier.
    """
    if not configs or configs[0].tier == "smoke":  # which takes seconds
        return
    device = device or device_for(configs[0].tier)
    at_a_time = jobs or (available_cores() if device == "cpu" else 1)
    seconds, unlike = expected(configs, at_a_time, store or Store(), device)
    seconds = min(seconds, time_limit) if time_limit else seconds
    if not seconds >= SAY_SECONDS:  # or not known, NaN
        return
    if unlike:
        what += f" ({unlike} of them unlike any that is stored, whose time nothing tells)"
    spoken = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
    print(f"{what}: about {spoken}, by the seconds of stored records", file=sys.stderr, flush=True)
    if seconds < ASK_SECONDS or yes or not (sys.stdin and sys.stdin.isatty()):
        return
    try:
        answer = input("Start it? It can be stopped at any time, and the same command continues it. [y/N] ")
    except EOFError:
        answer = ""
    require(answer.strip().lower() in ("y", "yes"), "not started; --yes starts it without a question")
