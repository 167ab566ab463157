"""Checkpoints of whatever trains for a record, so that a run that was cut goes on from there, bit for bit.

A study writes its loop as ``for step in steps(...)``, or has it made by ``trained``. ``records.execution`` sets in
``CURRENT`` where its checkpoint lies and when it must end; elsewhere, as in a cell, the loop only counts.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entp_lab import stopping
from entp_lab.configs import RunConfig
from entp_lab.stopping import Cut
from entp_lab.training_runs import CHECKPOINT_SECONDS, Outcome, train_run
from entp_lib.checkpoint import MOMENTS, DamagedFileError, check_tensors, read_checkpoint, save_tensors
from entp_lib.training import TrainingState


@dataclass
class Progress:
    """Steps made, the curves so far, and sums since their last point; a checkpoint is restored into them."""

    curves: dict[str, list] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    step: int = 0


@dataclass
class StudyCheckpoint:
    """Where the training loop of a record leaves its state, and until when it may run.

    ``config``: what tells the study from others. ``set_aside``: called with a damaged checkpoint and what is wrong.
    ``process``: this process's provenance. ``deadline`` is on ``time.time``; ``stop`` is asked between steps;
    ``on_step`` is called with each. ``deferred``: a stack, on which requests to end wait for the last step.
    """

    path: Path
    config: str
    set_aside: Callable[[Path, str], None]
    process: dict[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    stop: Callable[[], bool] | None = None
    on_step: Callable[[int], None] | None = None
    deferred: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    processes: list[dict[str, Any]] = field(default_factory=list)  # none before a loop has begun
    spent: dict[str, float] = field(default_factory=lambda: dict(wall_seconds=0.0, cpu_seconds=0.0))  # by earlier ones
    progress: Progress | TrainingState = field(default_factory=Progress)  # of the loop, once it has begun
    counts: dict[str, Any] = field(default_factory=dict)  # what a training run has spent: tokens, seconds of its steps
    begun: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))

    def times(self) -> dict[str, float]:
        """Wall and processor seconds that all processes have given the record until now."""
        now = zip(self.spent.items(), self.begun, (time.monotonic(), time.process_time()), strict=True)
        return {name: before + end - begin for (name, before), begin, end in now}

    def begin(self) -> None:
        """Check that the record has no other loop, and defer requests to end from now on."""
        if self.processes:
            raise RuntimeError("a study keeps one training loop, and this is its second")
        self.deferred.enter_context(stopping.defer_signals())

    def asked_to_stop(self) -> bool:
        """Whether the loop must end behind this step."""
        late = self.deadline is not None and time.time() >= self.deadline
        return late or stopping.REQUEST.made or (self.stop is not None and self.stop())


CURRENT: ContextVar[StudyCheckpoint | None] = ContextVar("study_checkpoint", default=None)


def trained(config: RunConfig, *, start: Callable[[], Path] | None = None, **options) -> Outcome:
    """``train_run`` as the training loop of a record: cut and continued as ``steps`` is.

    ``start``: gives the file of the weights that it begins with where there is no checkpoint. A damaged checkpoint is
    set aside and the run begins anew.
    """
    checkpoint = CURRENT.get()
    if checkpoint is None:
        return train_run(config, start=start and start(), **options)
    checkpoint.begin()
    path, begun = checkpoint.path, checkpoint.times()
    options |= dict(checkpoint=path, process=checkpoint.process, on_step=checkpoint.on_step)
    options["stop"] = checkpoint.asked_to_stop
    try:
        outcome = train_run(config, start=start() if start and not path.exists() else None, **options)
    except DamagedFileError as error:
        if error.path != path:
            raise
        checkpoint.set_aside(path, error.why)
        outcome = train_run(config, start=start and start(), **options)
    costs, now = outcome.costs, checkpoint.times()
    checkpoint.spent = {name: max(0.0, getattr(costs, name) - (now[name] - begun[name])) for name in now}
    checkpoint.processes = costs.processes
    checkpoint.progress = outcome.state
    checkpoint.counts = {"token_forwards": costs.token_forwards, "train_seconds": outcome.state.seconds}
    if not outcome.complete:
        raise Cut
    checkpoint.deferred.close()
    return outcome


def steps(
    progress: Progress,
    last: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator | None = None,
) -> Iterator[int]:
    """The steps up to ``last`` that are left, from 1 or from where the checkpoint is; it is written every minute.

    It holds the model's tensors, the moments of Adam or AdamW, ``progress``, torch's generator and ``generator``;
    whatever else the loop depends on must follow from the step. Raises Cut behind a step where it is asked to end.
    """
    checkpoint = CURRENT.get()
    if checkpoint is None:
        while progress.step < last:
            yield progress.step + 1
            progress.step += 1
        return
    checkpoint.begin()
    checkpoint.progress, loop = progress, (checkpoint, model, optimizer, generator)
    if checkpoint.path.exists():
        try:
            restore(*loop, last)
        except DamagedFileError as error:
            checkpoint.set_aside(checkpoint.path, error.why)
    checkpoint.processes.append({**checkpoint.process, "from_step": progress.step})
    saved = time.monotonic()
    while progress.step < last:
        if checkpoint.asked_to_stop():
            save(*loop)
            raise Cut
        yield progress.step + 1
        progress.step += 1
        if checkpoint.on_step is not None:
            checkpoint.on_step(progress.step)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save(*loop)
            saved = time.monotonic()
    save(*loop)
    checkpoint.deferred.close()


def save(checkpoint: StudyCheckpoint, model, optimizer, generator) -> None:
    """Write the checkpoint: the tensors of the model and of Adam, by name and number of the parameter, and the rest."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{key}.{number}": values[key] for key in MOMENTS}
    tensors["torch_generator"] = torch.get_rng_state()
    state = vars(checkpoint.progress) | {"processes": checkpoint.processes, "spent": checkpoint.times()}
    state["generator"] = generator.bit_generator.state if generator is not None else None
    save_tensors(checkpoint.path, tensors, {"config": checkpoint.config, "state": json.dumps(state)})


def restore(checkpoint: StudyCheckpoint, model, optimizer, generator, last: int) -> None:
    """Take all from the checkpoint; DamagedFileError, and nothing is taken, unless such a loop can have left it."""
    path, progress = checkpoint.path, checkpoint.progress
    tensors, state = read_checkpoint(path, checkpoint.config)
    expected: dict[str, Tensor] = {f"model.{name}": value for name, value in model.state_dict().items()}
    expected["torch_generator"] = torch.get_rng_state()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, p in enumerate(parameters):
        if f"optimizer.step.{number}" in tensors:  # a parameter that has had a gradient
            expected |= {f"optimizer.{key}.{number}": torch.tensor(0.0) if key == "step" else p for key in MOMENTS}
    check_tensors(path, tensors, expected)
    try:
        for name, mine in (("curves", progress.curves), ("sums", progress.sums)):
            if set(state[name]) != set(mine):
                raise ValueError(f"{name} of {sorted(state[name])}")
        if type(state["step"]) is not int or not 0 <= state["step"] <= last:
            raise ValueError(f"step {state['step']} of {last}")
        if generator is not None:
            generator.bit_generator.state = state["generator"]
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})
    held = optimizer.state_dict()
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, key, number = name.split(".")
            held["state"].setdefault(int(number), {})[key] = value
    optimizer.load_state_dict(held)
    torch.set_rng_state(tensors["torch_generator"])
    for name, curve in progress.curves.items():
        curve[:] = state["curves"][name]
    progress.sums.update(state["sums"])
    progress.step = state["step"]
    checkpoint.processes, checkpoint.spent = state["processes"], state["spent"]
