"""How long runs will take, said before they start: operations counted, and their rate measured in a few first steps.

Operations are those of ``entp_lib.report.costs``: multiply-adds of training, forward and backward, and of evaluation,
forward alone. They weigh every run by its cost, so that decoder and ENTP may be mixed.
"""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from entp_lib.config import RunConfig, canonical_json, to_dict
from entp_lib.models import build_model
from entp_lib.models import costs as complexity
from entp_lib.report.costs import training_operations, wanted_lengths
from entp_lib.runs.execution import Config, device_for
from entp_lib.runs.workers import available_cores
from entp_lib.strict import ConfigError
from entp_lib.tasks import build_task, generator_for
from entp_lib.training.loop import make_optimizer, optimise

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


def alike(configs: Sequence[RunConfig]) -> list[tuple[RunConfig, int]]:
    """Runs that differ in their seeds alone, counted: they cost the same."""
    found: dict[str, tuple[RunConfig, int]] = {}
    for config in configs:
        params = {name: value for name, value in config.task_params.items() if not name.endswith("seed")}
        plain = replace(config, task_params=params, model_seed=0, data_seed=0, start_from="")
        key = canonical_json(to_dict(plain))
        first, count = found.get(key, (config, 0))
        found[key] = (first, count + 1)
    return list(found.values())


def expected_seconds(configs: Sequence[Config], jobs: int, device: str = "cpu") -> float:
    """Wall seconds that training runs will take, so many at a time; 0 where they are short at any rate.

    Studies are left out, since nothing tells beforehand how long one takes, and runs whose data are not there.
    """
    costs: list[tuple[float, int, RunConfig]] = []
    for config, count in alike([config for config in configs if isinstance(config, RunConfig)]):
        with contextlib.suppress(ConfigError):  # the run itself will say what it lacks
            costs.append((operations(config), count, config))
    if not costs:
        return 0.0
    total = sum(cost * count for cost, count, _ in costs)
    if device == "cpu" and total / FAST / jobs < SAY_SECONDS / 20:
        return 0.0
    slots = min(jobs, sum(count for _, count, _ in costs))
    longest = max(cost for cost, _, _ in costs)
    for _, _, config in sorted(costs, key=lambda entry: abs(math.log(row_operations(entry[2]) * 8 / PROBE))):
        with contextlib.suppress(ConfigError):
            return max(total / slots, longest) / measured_rate(config, device)
    return 0.0


def announce_runs(what: str, configs: Sequence[Config], jobs: int, yes: bool, time_limit: float = 0.0) -> None:
    """``announce`` for runs that are to be computed, ``jobs`` at a time (0: one per core, on a GPU one).

    A time limit, in seconds, bounds what it takes. ConfigError where the answer is no.
    """
    if not configs:
        return
    device = device_for(configs[0].tier)
    seconds = expected_seconds(configs, jobs or (available_cores() if device == "cpu" else 1), device)
    studies = sum(not isinstance(config, RunConfig) for config in configs)
    left_out = f" ({studies} of them studies, whose time nothing tells beforehand)" if studies else ""
    announce(what + left_out, min(seconds, time_limit) if time_limit else seconds, yes)


def announce(what: str, seconds: float, yes: bool, ask: Callable[[str], str] = input) -> None:
    """Say how long it will take, on stderr; above an hour ask where there is a terminal, unless ``yes``.

    Raises ConfigError where the answer is no. ``ask``: how a question is put.
    """
    if seconds < SAY_SECONDS:
        return
    print(f"{what}: about {spoken(seconds)} on this machine, by its first steps", file=sys.stderr, flush=True)
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
