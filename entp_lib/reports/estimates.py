"""Estimates of how long runs take, by the seconds of stored records: printed before, above an hour confirmed."""

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from entp_lib.config import RunConfig, family
from entp_lib.experiments.budgets import training_operations
from entp_lib.experiments.experiment import spent
from entp_lib.records.execution import Config, device_for
from entp_lib.records.store import Record, RecordError, Store, is_complete
from entp_lib.records.sweeps import available_cores
from entp_lib.validation import ConfigError

ASK_SECONDS = 3600.0  # what takes longer is asked about
SAY_SECONDS = 120.0  # what takes less is not worth a line
FAST = 2e11  # multiply-adds a second that no core of a CPU reaches: what is short at this rate is


def expected(configs: Sequence[Config], jobs: int, store: Store, device: str = "cpu") -> tuple[float, int]:
    """Wall seconds of runs of one tier, ``jobs`` at a time, and how many of them no record tells of.

    A run takes the median seconds of records that differ from it in seeds alone. Another training run takes its
    multiply-adds at the median rate of its experiment's records, or where that has none of all in the project's store;
    those on a GPU go by records of a GPU.
    """
    operate: dict[str, float] = {}
    for config in {family(c): c for c in configs if isinstance(c, RunConfig)}.values():
        with contextlib.suppress(ConfigError):  # its data are not there: the run itself will say so
            operate[family(config)] = training_operations(config)
    counts = {key: [*map(family, configs)].count(key) for key in map(family, configs)}
    if device == "cpu" and counts.keys() == operate.keys():
        if sum(operate[key] * count for key, count in counts.items()) / FAST / jobs < SAY_SECONDS / 20:
            return 0.0, 0
    alike = list(complete(store, device, {c.experiment for c in configs}))
    seconds: dict[str, list[float]] = {}
    for record in alike:
        seconds.setdefault(family(record.config), []).append(spent(record))
    each = {key: statistics.median(seconds[key]) for key in counts if key in seconds}
    if unlike := [key for key in operate if key not in each]:
        found = rates(alike) or rates(complete(Store(), device))
        each |= {key: operate[key] / statistics.median(found) for key in unlike if found}
    known = sum(counts[key] for key in each)
    total = sum(each[key] * counts[key] for key in each) / max(1, min(jobs, known))
    return max(total, *each.values(), 0.0), len(configs) - known


def complete(store: Store, device: str, experiments: set[str] | None = None) -> Iterator[Record]:
    """Complete records of these experiments, or of all, that were made on a CPU or on a GPU.

    Whoever reads a damaged one for its numbers will say so.
    """
    for path in sorted((store.root / "records").glob("*/*.json")):
        if experiments is None or path.parent.name in experiments:
            with contextlib.suppress(RecordError):
                record = store.read(path.parent.name, path.stem)
                if is_complete(record) and ("packed_attention" in record.provenance) == (device == "cuda"):
                    yield record


def rates(records: Iterable[Record]) -> list[float]:
    """Multiply-adds a second of training records, one for each kind of run."""
    found = {}
    for record in records:
        if isinstance(record.config, RunConfig) and spent(record) > 0 and (key := family(record.config)) not in found:
            with contextlib.suppress(ConfigError):
                found[key] = training_operations(record.config) / spent(record)
    return list(found.values())


def announce_runs(
    what: str, configs: Sequence[Config], jobs: int, yes: bool, time_limit: float = 0.0, store: Store | None = None
) -> None:
    """``announce`` for runs that are to be computed, ``jobs`` at a time (0: one per core, on a GPU one).

    A time limit, in seconds, bounds what it takes. ``store``: where records of such runs may be. ConfigError where the
    answer is no.
    """
    if not configs:
        return
    device = device_for(configs[0].tier)
    at_a_time = jobs or (available_cores() if device == "cpu" else 1)
    seconds, unlike = expected(configs, at_a_time, store or Store(), device)
    if unlike:
        what += f" ({unlike} of them unlike any that is stored, whose time nothing tells)"
    announce(what, min(seconds, time_limit) if time_limit else seconds, yes)


def announce(what: str, seconds: float, yes: bool, ask: Callable[[str], str] = input) -> None:
    """Say how long it will take, on stderr; above an hour ask where there is a terminal, unless ``yes``.

    Raises ConfigError where the answer is no. ``ask``: how a question is put.
    """
    if seconds < SAY_SECONDS:
        return
    print(f"{what}: about {spoken(seconds)}, by the seconds of stored records", file=sys.stderr, flush=True)
    if seconds < ASK_SECONDS or yes or not (sys.stdin and sys.stdin.isatty()):
        return
    try:
        answer = ask("Start it? It can be stopped at any time, and the same command continues it. [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError("not started; --yes starts it without a question")


def spoken(seconds: float) -> str:
    """A long time as people say it."""
    for size, unit in ((86400 * 365, "years"), (86400, "days"), (3600, "hours")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.0f} minutes"
