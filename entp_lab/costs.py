"""Costs of runs: the page ``docs/costs.md``, and estimates before a command starts, which above an hour is confirmed.

Both go by the seconds of stored records. Operations are those of ``entp_lab.budgets``.
"""

import contextlib
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from entp_lab.budgets import training_operations
from entp_lab.configs import BEST_FIRST, ON_CPU, RunConfig, family
from entp_lab.experiment import own, spent
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import Config, device_for
from entp_lab.store import Record, Store, is_complete
from entp_lib.validation import ConfigError, require

GPU_RATE = 1e14  # multiply-adds and additions a second: a tenth of an H200's bf16 peak, assumed, not measured
ASK_SECONDS = 3600.0  # what takes longer is asked about
SAY_SECONDS = 120.0  # what takes less is not worth a line
PAGE = """# Costs

<!-- The whole page is written by python -m entp_lab readme; no line of it is typed. -->

## Measured

What the records of each experiment took at a tier that is whole, all runs added, from their provenance: \
processor time on CPUs, or by the clock where an older record has that alone. \
Cores were often shared with other work, which lengthens both, so that times are upper bounds.

{}

## Extrapolated

Tiers without records: multiply-adds of all their training steps, counted; core-hours at the rate that \
the stored runs of the same precision reached whose steps are nearest in size; GPU-hours at an assumed \
1e14 operations a second, a tenth of an H200's peak. Evaluation is left out, and nothing in this table was \
measured on a GPU.

{}
"""


def page(store: Store) -> str:
    """The page as Markdown, from the records of a store."""
    return PAGE.format(markdown_table(measured(store)), markdown_table(extrapolated(store)))


def markdown_table(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; bars and line ends inside a cell are escaped, a missing value is empty."""
    plain = frame.astype(object).where(frame.notna(), "").astype(str)
    cells = plain.map(lambda text: " ".join(text.replace("|", "\\|").splitlines()))
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured(store: Store) -> pd.DataFrame:
    """Processor time, memory and machines of each experiment's records, by tier."""
    rows = []
    for experiment in EXPERIMENTS.values():
        for tier in reversed(BEST_FIRST):
            records = own(experiment, experiment.stored(store, tier) or [])
            if records:
                row = {"notebook": experiment.notebook, "experiment": experiment.name, "tier": tier}
                row["runs"] = len(records)
                row["core-minutes" if tier in ON_CPU else "minutes"] = f"{sum(map(spent, records)) / 60:.1f}"
                peak = max(r.provenance["peak_memory_bytes"] for r in records)
                row["peak memory"] = f"{peak / 2**20:.0f} MiB"
                row["machine"] = ", ".join(sorted({r.provenance["device"] for r in records}))
                rows.append(row)
    return pd.DataFrame(rows).fillna("")


@dataclass(frozen=True)
class Rate:
    """The multiply-adds a second that stored CPU runs of one precision and size of step reached."""

    precision: str
    step_operations: float
    rate: float


def measured_rates(records: Iterable[Record]) -> list[Rate]:
    """The median rate of one core for each precision and size of a step among records of CPU training runs."""
    found = defaultdict(list)
    for record in records:
        config = record.config
        if not isinstance(config, RunConfig) or config.tier not in ON_CPU or not is_complete(record):
            continue
        took = spent(record)
        operations = training_operations(config)
        if took > 0:
            found[config.train.precision, operations / config.train.steps].append(operations / took)
    return [Rate(*kind, statistics.median(rates)) for kind, rates in found.items()]


def all_records(store: Store) -> Iterable[Record]:
    """The records of every experiment."""
    return (record for name in EXPERIMENTS for record in store.all(name))


def seconds_of(config: RunConfig, rates: Sequence[Rate]) -> float:
    """Seconds of a core for a run, at the rate of the stored runs in its precision whose steps are nearest in size.

    ``rates`` of another precision count where none has the run's; NaN where there are none.
    """
    operations = training_operations(config)
    step = operations / config.train.steps
    alike = [rate for rate in rates if rate.precision == config.train.precision] or rates
    if not alike:
        return math.nan
    nearest = min(alike, key=lambda rate: abs(math.log(rate.step_operations / step)))
    return operations / nearest.rate


def extrapolated(store: Store) -> pd.DataFrame:
    """A row for each tier of training runs without records: multiply-adds, of its first random seed times the number.

    Core-hours are at the rate of ``seconds_of``, measured; GPU-hours at ``GPU_RATE``.
    """
    rows, rates = [], measured_rates(all_records(store))
    for experiment in EXPERIMENTS.values():
        for tier in ("gpu", "paper"):
            once, every = experiment.configs(tier, 1), experiment.configs(tier, 0)
            runs = [config for config in once if isinstance(config, RunConfig)]
            if not runs or experiment.stored(store, tier):
                continue
            times = len(every) / len(once)
            operations = times * sum(map(training_operations, runs))
            seconds = times * sum(seconds_of(config, rates) for config in runs)
            row = {"experiment": experiment.name, "tier": tier, "runs": len(every)}
            row["multiply-adds"] = f"{operations:.1e}"
            row["core-hours"] = f"{seconds / 3600:,.0f}"
            row["GPU-hours"] = f"{2 * operations / GPU_RATE / 3600:.2g}"
            rows.append(row)
    return pd.DataFrame(rows)


def expected(configs: Sequence[Config], jobs: int, store: Store, device: str = "cpu") -> tuple[float, int]:
    """Wall seconds of runs of one tier, ``jobs`` at a time, and how many of them are like no stored run.

    A run takes the median seconds of records that differ from it in seeds alone; another training run on a CPU those
    of ``seconds_of``. Those on a GPU go by records of a GPU.
    """
    names, seconds, alike = {c.experiment for c in configs}, defaultdict(list), []
    for place in (store, Store()):
        for record in (r for name in names for r in place.all(name) if is_complete(r) and spent(r)):
            if ("cuda" in record.provenance) == (device == "cuda"):
                seconds[family(record.config)].append(spent(record))
                alike.append(record)
        if seconds:
            break
    each = {key: statistics.median(found) for key, found in seconds.items()}

    unlike = [c for c in configs if family(c) not in each and isinstance(c, RunConfig) and device == "cpu"]
    rates = measured_rates(alike or all_records(Store())) if unlike else []
    for config in unlike:
        with contextlib.suppress(ConfigError):  # a run whose data are not there: it will say so
            each[family(config)] = seconds_of(config, rates)
    took = [each[family(config)] for config in configs if family(config) in each]
    return max(sum(took) / max(1, min(jobs, len(took))), *took, 0.0), len(configs) - len(took)


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
    if seconds < SAY_SECONDS:
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
