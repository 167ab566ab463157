"""How long runs will take, said before they start: as long as the record of a run like it, else by its operations.

Operations are those of ``entp_lib.reports.costs``: multiply-adds of training, forward and backward, and of evaluation,
forward alone. They weigh every run by its cost, so that decoder and ENTP may be mixed. Their rate is measured in a few
first steps.
"""

import contextlib
import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from entp_lib.config import RunConfig, family
from entp_lib.experiments.experiment import spent
from entp_lib.experiments.operations import training_operations, wanted_lengths
from entp_lib.models import build_model
from entp_lib.models import costs as complexity
from entp_lib.records.execution import Config, device_for
from entp_lib.records.store import RecordError, Store
from entp_lib.records.sweeps import available_cores
from entp_lib.tasks import build_task, generator_for
from entp_lib.training.loop import make_optimizer, optimise
from entp_lib.validation import ConfigError

ASK_SECONDS = 3600.0  # what takes longer is asked about
SAY_SECONDS = 120.0  # what takes less is not worth a line
FAST = 2e11  # multiply-adds a second that no core of a CPU reaches: what is short at this rate may be short
PROBE = 2e10  # multiply-adds of a probing step, about: a second or less


def operations(config: RunConfig) -> float:
    """Multiply-adds of a run: its training, and every evaluation of its curves and of its end."""
    train = config.train
    points = -(-train.steps // train.eval_every)
    sequences = points * train.eval_sequences + 2 * train.final_eval_sequences
    forward = training_operations(config) / (3.0 * train.batch_size * train.steps)  # of one sequence
    if evaluates_all(config):  # training may draw a few prefixes, evaluation takes every one
        tokens = wanted_lengths(config.task, json.dumps(config.task_params, sort_keys=True))[0]
        forward = float(complexity.training_pass(config.model, range(1, tokens + 1), tokens))
    return training_operations(config) + forward * sequences


def evaluates_all(config: RunConfig) -> bool:
    """Whether evaluation scores every position though training draws some, as text does."""
    return bool(config.task_params.get("prefixes")) and not config.task_params.get("eval_prefixes")


def measured_rate(config: RunConfig, device: str = "cpu") -> float:
    """Multiply-adds a second of this run's own training steps, on one thread, with as few rows as a second allows.

    The first step, which loads and compiles, does not count. Raises ConfigError where its data are not there.
    """
    each = row_operations(config)
    most = PROBE if device == "cpu" else 100 * PROBE
    rows = max(1, min(config.train.batch_size, int(most / each)))
    task = build_task(config.task, config.task_params)
    task.prepare()
    model = build_model(config.model, 0, device).train()
    optimizer = make_optimizer(model, config.train)
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = []
        for step in range(1, 4):
            batch = task.batch(generator_for(device, "estimate", step), rows)
            begun = time.perf_counter()
            optimise(model, optimizer, task, batch, config, step, loss_sum)
            float(loss_sum)  # waits for the device
            seconds.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return rows * each / min(seconds[1:])


def row_operations(config: RunConfig) -> float:
    """Multiply-adds of one row of a training step, forward and backward."""
    return training_operations(config) / (config.train.batch_size * config.train.steps)


def recorded(configs: Sequence[Config], store: Store) -> dict[str, float]:
    """Seconds of the processor that complete records of such runs took, their median, by ``family``."""
    found: dict[str, list[float]] = {}
    for name in {config.experiment for config in configs}:
        for path in (store.root / "records" / name).glob("*.json"):
            with contextlib.suppress(RecordError):  # who reads it for its numbers says what is wrong with it
                record = store.read(name, path.stem)
                if record is not None and record.status == "complete":
                    found.setdefault(family(record.config), []).append(spent(record))
    return {key: statistics.median(seconds) for key, seconds in found.items()}


@dataclass(frozen=True)
class Estimate:
    """Wall seconds that runs will take, and how many of them it rests on ``measured`` first steps and leaves out."""

    seconds: float = 0.0
    measured: int = 0
    left_out: int = 0


def expected(configs: Sequence[Config], jobs: int, device: str = "cpu", store: Store | None = None) -> Estimate:
    """How long runs will take, so many at a time; 0 seconds where they are short at any rate.

    On a CPU a run takes as long as the record in ``store`` of one that differs in its seeds alone. Of the others,
    training runs take as long as their operations at a rate that is measured; left out are studies, since nothing
    tells beforehand how long one takes, and runs whose data are not there.
    """
    counts = Counter(map(family, configs))
    first = {family(config): config for config in reversed(configs)}
    known = recorded(configs, store) if store is not None and device == "cpu" else {}
    each = {key: known[key] for key in counts if key in known}
    operate: dict[str, float] = {}
    for key, config in first.items():
        if key not in each and isinstance(config, RunConfig):
            with contextlib.suppress(ConfigError):  # the run itself will say what it lacks
                operate[key] = operations(config)
    total, measured = sum(cost * counts[key] for key, cost in operate.items()), 0
    if device == "cpu" and total / FAST / jobs < SAY_SECONDS / 20:
        each |= dict.fromkeys(operate, 0.0)
    elif rate := first_rate([first[key] for key in operate], device):
        each |= {key: cost / rate for key, cost in operate.items()}
        measured = sum(counts[key] for key in operate)
    told = sum(counts[key] for key in each)
    if not told:
        return Estimate(left_out=len(configs))
    seconds = max(sum(each[key] * counts[key] for key in each) / min(jobs, told), max(each.values()))
    return Estimate(seconds, measured, len(configs) - told)


def first_rate(configs: Sequence[RunConfig], device: str) -> float:
    """The rate of the run whose steps are nearest to what a probe takes, of those whose data are there; 0 of none."""
    for config in sorted(configs, key=lambda config: abs(math.log(row_operations(config) * 8 / PROBE))):
        with contextlib.suppress(ConfigError):
            return measured_rate(config, device)
    return 0.0


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
    found = expected(configs, jobs or (available_cores() if device == "cpu" else 1), device, store or Store())
    if found.left_out:
        what += f" ({found.left_out} of them studies or without their data, whose time nothing tells beforehand)"
    by = "their first steps" if found.measured else "the records of such runs"
    if 0 < found.measured < len(configs) - found.left_out:
        by = f"the first steps of {found.measured} and the records of runs like the others"
    announce(what, min(found.seconds, time_limit) if time_limit else found.seconds, yes, by=by)


def announce(
    what: str, seconds: float, yes: bool, ask: Callable[[str], str] = input, by: str = "their first steps"
) -> None:
    """Say how long it will take, on stderr; above an hour ask where there is a terminal, unless ``yes``.

    Raises ConfigError where the answer is no. ``ask``: how a question is put. ``by``: what tells the time.
    """
    if seconds < SAY_SECONDS:
        return
    print(f"{what}: about {spoken(seconds)} on this machine, by {by}", file=sys.stderr, flush=True)
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
