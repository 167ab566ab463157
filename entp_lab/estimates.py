"""Estimate how long runs will take, and ask before starting more than an hour of them.

The estimate is the time of stored runs that differ in random seeds alone. Without such runs, steps of the run's own
shape are timed on this machine.
"""

import contextlib
import dataclasses
import functools
import json
import math
import statistics
import sys
import time
from collections import defaultdict

import torch

from entp_lab.budgets import (
    scored_lengths,
    scored_prefixes,
    sequence_operations,
    training_operations,
)
from entp_lab.configs import Configs, RunConfig, canonical_json, family
from entp_lab.frames import spent
from entp_lab.registry import build_task
from entp_lab.runs import computing_threads, device_for, jobs_for
from entp_lab.store import Store
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.model import build_model
from entp_lib.tasks import generator_for
from entp_lib.training import TrainingError, TrainingState, make_optimizer, update
from entp_lib.validation import ConfigError, require

ASK_SECONDS = 3600.0  # ask before runs that take longer
SAY_SECONDS = 120.0  # print no estimate below this
TRIED_SECONDS = 1.0  # shortest timed step, if the batch is large enough
TRIED_OPERATIONS = 1e11  # multiply-adds of a sequence; above, a timed step scores fewer prefixes


@functools.cache
def rate_here(
    task_name: str, task_params: str, model: ModelConfig, train: TrainConfig, device: str
) -> float:
    """Measure the multiply-adds per second that a core or the GPU of this machine reaches in a run's own step.

    Times steps (forward, backward and update) of one sequence, two, four, up to the batch, until one lasts
    ``TRIED_SECONDS``.
    """
    task = build_task(task_name, json.loads(task_params))
    network = build_model(model, device=device)
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    state = TrainingState(network, make_optimizer(network, train), train, loss_sum)
    clock = time.process_time if device == "cpu" else time.perf_counter
    lengths = scored_lengths(task_name, task_params)
    every = round(sequence_operations(model, lengths) / TRIED_OPERATIONS)
    every = max(1, min(every, *map(len, lengths[1])))
    size = 0  # the first step also loads what steps need and is not counted
    with computing_threads(1):  # as in runs
        while True:
            batch = task.batch(generator_for(device, "estimate", size), max(1, size))
            scored_BT = batch.scored_BT & (batch.scored_BT.cumsum(1) % every == 0)
            began = clock()
            update(state, task, dataclasses.replace(batch, scored_BT=scored_BT))
            float(state.loss_sum)  # waits for the device
            seconds = clock() - began
            if size == train.batch_size or (size and seconds > TRIED_SECONDS):
                each = sequence_operations(model, scored_prefixes(scored_BT.cpu()))
                return each * size / seconds
            size = min(max(1, 2 * size), train.batch_size)


def seconds_here(config: RunConfig, device: str) -> float:
    """Return the seconds of a run's training steps on this machine; NaN if they cannot be timed here."""
    # if data are missing, the run itself will say so; a single sequence may have no scored position
    with contextlib.suppress(ConfigError, TrainingError, torch.OutOfMemoryError):
        params = canonical_json(config.task_params)
        rate = rate_here(config.task, params, config.model, config.train, device)
        return training_operations(config) / rate
    return math.nan


def expected(configs: Configs, jobs: int, store: Store, device: str = "cpu") -> tuple[float, int]:
    """Return the wall seconds of runs of one tier, ``jobs`` at a time, and the number of runs without an estimate.

    A run's estimate is the median over records that differ in seeds alone, else ``seconds_here`` for a training run.
    Only records of the same kind of device count, GPU or not.
    """
    stored = defaultdict(list)
    for name in {config.experiment for config in configs}:
        for record in store.all(name):
            if ("cuda" in record.provenance) == (device == "cuda"):
                stored[family(record.config)].append(spent(record))
    each: dict[str, float] = {key: statistics.median(seconds) for key, seconds in stored.items()}
    for config in configs:
        if family(config) not in each:
            each[family(config)] = (
                seconds_here(config, device) if isinstance(config, RunConfig) else math.nan
            )
    seconds = [each[family(config)] for config in configs]
    known = [one for one in seconds if not math.isnan(one)]
    at_a_time = max(1, min(jobs, len(known)))
    return max(sum(known) / at_a_time, *known, 0.0), len(configs) - len(known)


def announce_runs(
    what: str, configs: Configs, jobs: int, yes: bool, time_limit: float, store: Store
) -> float:
    """Print how long runs will take, ``jobs`` at a time (0: one per core, or one on a GPU), and return the seconds.

    Above an hour, ask on a terminal whether to start, unless ``yes``; ConfigError if the answer is no.
    """
    if not configs or configs[0].tier == "smoke":  # smoke runs take seconds
        return 0.0
    tier = configs[0].tier
    seconds, unknown = expected(configs, jobs_for(tier, jobs), store, device_for(tier))
    seconds = min(seconds, time_limit) if time_limit else seconds
    if seconds < SAY_SECONDS:
        return seconds
    if unknown:
        what += f" ({unknown} of them without an estimate)"
    spoken = f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
    print(f"{what}: about {spoken}, by stored runs like them and steps tried here", file=sys.stderr)
    if seconds < ASK_SECONDS or yes or not (sys.stdin and sys.stdin.isatty()):
        return seconds
    try:
        answer = input(
            "Start it? It can be stopped at any time, and the same command continues it. [y/N] "
        )
    except EOFError:
        answer = ""
    require(
        answer.strip().lower() in ("y", "yes"), "not started; --yes starts it without a question"
    )
    return seconds
