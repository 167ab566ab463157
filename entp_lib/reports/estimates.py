"""Estimates of how long runs take, by the seconds of stored records: printed before, above an hour confirmed."""

import contextlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

from entp_lib.config import RunConfig, family
from entp_lib.experiments.budgets import training_operations
from entp_lib.experiments.experiment import spent
from entp_lib.records.execution import Config, device_for
from entp_lib.records.store import Store, is_complete
from entp_lib.records.sweeps import available_cores
from entp_lib.validation import ConfigError

ASK_SECONDS = 3600.0  # what takes longer is asked about
SAY_SECONDS = 120.0  # what takes less is not worth a line


def expected(configs: Sequence[Config], jobs: int, store: Store, device: str = "cpu") -> tuple[float, int]:
    """Wall seconds of runs of one tier, ``jobs`` at a time, and how many of them are like no stored run.

    A run takes the median seconds of records that differ from it in seeds alone. Another training run takes its
    multiply-adds at the median rate of its experiment's records, the project's where ``store`` has none; those
    on a GPU go by records of a GPU.
    """
    names, seconds, kinds = {c.experiment for c in configs}, defaultdict(list), {}
    for place in (store, Store()):
        for record in (r for name in names for r in place.all(name) if is_complete(r) and spent(r)):
            if ("packed_attention" in record.provenance) == (device == "cuda"):
                seconds[family(record.config)].append(spent(record))
                kinds.setdefault(family(record.config), record.config)
        if seconds:
            break
    each = {key: statistics.median(found) for key, found in seconds.items()}
    rates = [work / each[key] for key, config in kinds.items() if (work := counted(config))]
    planned = {family(config): config for config in configs}
    if rates:
        new = {key: counted(config) for key, config in planned.items() if key not in each}
        each |= {key: found / statistics.median(rates) for key, found in new.items() if found}
    took = [each[family(config)] for config in configs if family(config) in each]
    return max(sum(took) / max(1, min(jobs, len(took))), *took, 0.0), len(configs) - len(took)


def counted(config: Config) -> float:
    """Multiply-adds of a training run; 0 for a study, and for a run whose data are not there: it will say so itself."""
    with contextlib.suppress(ConfigError):
        return training_operations(config) if isinstance(config, RunConfig) else 0.0
    return 0.0


def announce_runs(
    what: str, configs: Sequence[Config], jobs: int, yes: bool, time_limit: float = 0.0, store: Store | None = None
) -> None:
    """``announce`` for runs that are to be computed, ``jobs`` at a time (0: one per core, on a GPU one).

    A time limit, in seconds, bounds what it takes. ``store``: where records of such runs may be. ConfigError where the
    answer is no.
    """
    if not configs or configs[0].tier == "smoke":  # which takes seconds
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
