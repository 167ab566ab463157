"""Checkpoints of studies that train, so that one that was cut goes on from there, bit for bit.

A study writes its loop as ``for step in steps(...)``, or has it made by ``trained``. Whoever computes it for a record
says, by ``checkpointed``, where its checkpoint lies and when it must end; elsewhere, as in a cell or a test, the loop
merely counts.
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

from entp_lib.config import RunConfig
from entp_lib.records import stopping
from entp_lib.training import checkpoints
from entp_lib.training.loop import CHECKPOINT_SECONDS, Outcome, train
from entp_lib.training.tensors import DamagedFileError, check_tensors, damaged, read_tensors, save_tensors

MOMENTS = ("step", *checkpoints.MOMENTS)  # what Adam keeps of a parameter


@dataclass
class Progress:
    """How far a training loop has come: steps made, the curves so far, and sums since their last point, by name.

    What a checkpoint holds is put into these very lists and dicts.
    """

    curves: dict[str, list] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    step: int = 0


class Cut(Exception):
    """A study that was asked to end before its last step. Its checkpoint is written; ``progress`` is what it had."""

    def __init__(self, progress: Progress):
        super().__init__(f"cut at step {progress.step}")
        self.progress = progress


@dataclass
class StudyCheckpoint:
    """Where the training loop of a study leaves its state, and until when it may run.

    ``config``: what tells the study from others. ``set_aside``: called with a damaged checkpoint and what is wrong with
    it. ``process``: this process's provenance, for the list of those that worked on the study. ``deadline`` is on
    ``time.monotonic``; ``stop`` is asked between steps; ``on_step`` is called with each. ``deferred``: a stack on which
    requests to end are deferred from the first step on; whoever computes the study closes it after the record is saved.
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
    step: int = 0
    begun: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))

    def times(self) -> dict[str, float]:
        """Wall and processor seconds that all processes have given the study until now."""
        now = zip(self.spent.items(), self.begun, (time.monotonic(), time.process_time()), strict=True)
        return {name: before + end - begin for (name, before), begin, end in now}

    def companion(self, kind: str) -> Path:
        """A file or folder of the record's in its checkpoint's folder."""
        return self.path.with_name(f"{self.path.name.split('.')[0]}.{kind}")

    def begin(self) -> None:
        """Check that the study has no other loop, and defer requests to end from now on."""
        if self.processes:
            raise RuntimeError("a study keeps one training loop, and this is its second")
        self.deferred.enter_context(stopping.defer_signals())

    def asked_to_stop(self) -> bool:
        """Whether the loop must end behind this step."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or stopping.REQUEST.made() or (self.stop is not None and self.stop())


CURRENT: ContextVar[StudyCheckpoint | None] = ContextVar("study_checkpoint", default=None)


@contextlib.contextmanager
def checkpointed(kept: StudyCheckpoint) -> Iterator[StudyCheckpoint]:
    """Within it the training loop of the study that is computed has the checkpoint ``kept``."""
    token = CURRENT.set(kept)
    try:
        yield kept
    finally:
        CURRENT.reset(token)


def steps(
    progress: Progress,
    last: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator | None = None,
) -> Iterator[int]:
    """The steps up to ``last`` that are left, from 1 or from where the checkpoint is; it is written every minute.

    It holds the model's tensors, the moments of Adam or AdamW, ``progress``, torch's generator and ``generator``, from
    which the loop draws; whatever else the loop depends on must follow from the step. A study has one such loop. Raises
    Cut behind a step where it is asked to end.
    """
    kept = CURRENT.get()
    if kept is not None:
        kept.begin()
        restore(kept, progress, last, model, optimizer, generator)
        kept.processes.append({**kept.process, "from_step": progress.step})
    saved = time.monotonic()
    while progress.step < last:
        if kept is not None and kept.asked_to_stop():
            save(kept, progress, model, optimizer, generator)
            raise Cut(progress)
        yield progress.step + 1
        progress.step += 1
        if kept is None:
            continue
        kept.step = progress.step
        if kept.on_step is not None:
            kept.on_step(progress.step)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save(kept, progress, model, optimizer, generator)
            saved = time.monotonic()
    if kept is not None:
        save(kept, progress, model, optimizer, generator)
        kept.deferred.close()


def trained(config: RunConfig, **options) -> Outcome:
    """``entp_lib.training.loop.train`` as the training loop of a study: cut and continued as ``steps`` is."""
    kept = CURRENT.get()
    if kept is None:
        return train(config, **options)
    kept.begin()
    options |= dict(checkpoint=kept.path, process=kept.process, on_step=kept.on_step, stop=kept.asked_to_stop)
    begun = time.monotonic(), time.process_time()
    try:
        outcome = train(config, **options)
    except DamagedFileError as error:
        kept.set_aside(kept.path, error.why)
        outcome = train(config, **options)
    state = outcome.state
    mine = time.monotonic() - begun[0], time.process_time() - begun[1]
    earlier = max(0.0, state.wall_seconds - mine[0]), max(0.0, state.cpu_seconds - mine[1])
    kept.spent = dict(zip(("wall_seconds", "cpu_seconds"), earlier, strict=True))
    kept.processes, kept.step = state.processes, state.step
    if not outcome.complete:
        raise Cut(Progress(state.curves, step=state.step))
    kept.deferred.close()
    return outcome


def save(kept: StudyCheckpoint, progress: Progress, model, optimizer, generator) -> None:
    """Write the checkpoint: the tensors of the model and of Adam, by name and number of the parameter, and the rest."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{key}.{number}": values[key] for key in MOMENTS}
    tensors["torch_generator"] = torch.get_rng_state()
    state = {
        "step": progress.step,
        "curves": progress.curves,
        "sums": progress.sums,
        "generator": generator.bit_generator.state if generator is not None else None,
        "processes": kept.processes,
        "spent": kept.times(),
    }
    save_tensors(kept.path, tensors, {"config": kept.config, "state": json.dumps(state)})


def restore(kept: StudyCheckpoint, progress: Progress, last: int, model, optimizer, generator) -> None:
    """Take all from the checkpoint if there is a sound one of this study; a damaged one is set aside."""
    if not kept.path.exists():
        return
    try:
        state, tensors = read(kept, progress, last, model, optimizer)
        if generator is not None:
            generator.bit_generator.state = state["generator"]
    except DamagedFileError as error:
        kept.set_aside(kept.path, error.why)
        return
    except (ValueError, TypeError, KeyError) as error:
        kept.set_aside(kept.path, f"checkpoint {kept.path} has a state that no run can be in ({error})")
        return
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
    progress.step = kept.step = state["step"]
    kept.processes, kept.spent = state["processes"], state["spent"]


def read(
    kept: StudyCheckpoint, progress: Progress, last: int, model, optimizer
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """State and tensors of the checkpoint. DamagedFileError or ValueError unless such a loop can have left it."""
    tensors, header = read_tensors(kept.path, {"config", "state"})
    if header["config"] != kept.config:
        raise damaged(kept.path, "belongs to another configuration")
    expected = {f"model.{name}": value for name, value in model.state_dict().items()}
    expected["torch_generator"] = torch.get_rng_state()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, p in enumerate(parameters):
        if f"optimizer.step.{number}" in tensors:  # a parameter that has had a gradient
            shapes = {"step": torch.tensor(0.0), "exp_avg": p, "exp_avg_sq": p}
            expected |= {f"optimizer.{key}.{number}": shapes[key] for key in MOMENTS}
    check_tensors(kept.path, tensors, expected)
    state = json.loads(header["state"])
    for name, mine in (("curves", progress.curves), ("sums", progress.sums)):
        if set(state[name]) != set(mine):
            raise ValueError(f"{name} of {sorted(state[name])}")
    if type(state["step"]) is not int or not 0 <= state["step"] <= last:
        raise ValueError(f"step {state['step']} of {last}")
    return state, tensors
