"""Train for a record, so that a run that was cut goes on from its checkpoint and ends bit for bit as without the cut.

``train_run`` trains what a ``RunConfig`` describes, by ``entp_lib.train``; a study with a loop of its own writes it as
``for step in steps(...)``. Both leave their state by the ``Checkpoint`` that ``runs.run`` puts into ``CURRENT``. Where
no record is made, as in a notebook's cell, nothing is written.
"""

import contextlib
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from entp_lab import stopping
from entp_lab.budgets import token_forwards
from entp_lab.configs import RunConfig, canonical_json, to_dict
from entp_lab.ranks import Ranks
from entp_lab.registry import build_task
from entp_lab.stopping import Cut
from entp_lab.store import check_processes
from entp_lab.weights import start_from
from entp_lib import checkpoint as files
from entp_lib import kernels
from entp_lib.checkpoint import MOMENTS, DamagedFileError
from entp_lib.evaluation import constant_baseline, evaluate
from entp_lib.model import build_model
from entp_lib.tasks import Batch, Task, generator_for, seed_from
from entp_lib.training import Hook, TrainingState, learned, train
from entp_lib.validation import (
    ConfigError,
    check_intervals,
    check_types,
    from_dict,
    require,
)

log = logging.getLogger(__name__)
CHECKPOINT_SECONDS = 60.0
CLOCKS = {"wall_seconds": time.monotonic, "cpu_seconds": time.process_time}


@dataclass
class Progress:
    """Steps made, the curves so far, and sums since their last point; a checkpoint is restored into them."""

    curves: dict[str, list] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    step: int = 0


State = TypeVar("State", Progress, TrainingState)


@dataclass(frozen=True)
class Costs:
    """What a checkpoint tells of the making of its record: all processes until now, and what they have spent."""

    processes: list = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    token_forwards: int = 0

    def __post_init__(self):
        check_types(self)
        check_intervals(self, dict.fromkeys((*CLOCKS, "token_forwards"), "[0, inf)"))
        check_processes("processes", self.processes)


@dataclass(frozen=True)
class LoopState:
    """What a checkpoint tells of a study's loop; ``spent`` has the clocks of ``Costs``."""

    step: int
    curves: dict[str, list]
    sums: dict[str, float]
    processes: list
    spent: dict[str, Any]
    generator: dict[str, Any] | None

    def __post_init__(self):
        check_types(self)


@dataclass
class Checkpoint:
    """The file that a record in progress goes on from, what the record has cost, and when its loop must stop.

    ``config``: the record's configuration, which the file must name. ``process``: this process's provenance, which
    joins ``processes``. ``set_aside``: called with a damaged file and what is wrong; without it that is an error.
    ``deadline`` is on ``time.time``; ``stop`` is asked before each step and ``on_step`` called after it.
    """

    path: Path | None = None
    config: str = ""
    process: dict[str, Any] = field(default_factory=dict)
    set_aside: Callable[[Path, str], None] | None = None
    deadline: float | None = None
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[int], None] = lambda step: None
    read_only: bool = False
    # of the loop, once it has begun
    state: Progress | TrainingState = field(default_factory=Progress)
    before: Costs = field(default_factory=Costs)  # what earlier processes did and spent
    # with this one, once the loop has begun
    processes: list[dict[str, Any]] = field(default_factory=list)
    # requests to end, while the loop runs
    deferred: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    begun: dict[str, float] = field(
        default_factory=lambda: {name: clock() for name, clock in CLOCKS.items()}
    )
    saved_at: float = 0.0

    def times(self) -> dict[str, float]:
        """Return the wall and processor seconds that all processes have given the record until now."""
        return {
            name: getattr(self.before, name) + clock() - self.begun[name]
            for name, clock in CLOCKS.items()
        }

    def begin(self, state: State, read: Callable[[Path, State], Costs]) -> bool:
        """Begin a loop, with ``state`` filled by ``read`` from the file; say whether there was one.

        A damaged file is set aside. From now on a request to end waits for the end of a step. ConfigError where the
        steps so far were computed by kernels of bf16 that this process does not have.
        """
        if self.processes:
            raise RuntimeError("a study keeps one training loop, and this is its second")
        self.state = state
        found = False
        if self.path is not None:
            self.deferred.enter_context(stopping.defer_signals())
            if self.path.exists():
                try:
                    self.before = read(self.path, state)
                    found = True
                except DamagedFileError as error:
                    if self.set_aside is None:
                        raise
                    self.set_aside(self.path, error.why)
        if self.before.processes:
            self.check_arithmetic(self.before.processes[-1], state.step)
        self.processes = [*self.before.processes, {**self.process, "from_step": state.step}]
        self.saved_at = time.monotonic()
        return found

    def check_arithmetic(self, last: dict[str, Any], step: int) -> None:
        """Raise ConfigError unless this process computes bf16 as the ``last`` one did, up to ``step``.

        Another instruction set changes the last bits alone: a warning names it, and the record has the steps it made.
        """
        here = self.process.get("kernels")
        before = last.get("kernels", kernels.UNNAMED)
        require(
            here in (None, before),
            f"kernels = {here!r}: the first {step} steps of {self.path} were computed with {before!r}, and a run keeps "
            "its kernels; continue it where they are the same, or begin it anew (fresh)",
        )
        sets = last.get("cpu_capability"), self.process.get("cpu_capability")
        if None not in sets and sets[0] != sets[1]:
            log.warning(
                "%s: %d steps were computed with %s; it goes on with %s", self.path, step, *sets
            )

    def asked_to_stop(self) -> bool:
        """Say whether the loop must end before its next step."""
        late = self.deadline is not None and time.time() >= self.deadline
        return late or stopping.REQUEST.made or self.stop()

    def after_step(self, write: Callable[[Path], None]) -> None:
        """Report the step, and write the checkpoint where the last one is a minute old."""
        self.on_step(self.state.step)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save(write)
            self.saved_at = time.monotonic()

    def save(self, write: Callable[[Path], None]) -> None:
        """Write the checkpoint, where there is a place for it."""
        if self.path is not None and not self.read_only:
            write(self.path)


CURRENT: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


def moments_in(
    tensors: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return an optimizer's state with the moments among ``tensors``, and a tensor as each of these must be."""
    held = optimizer.state_dict()
    expected: dict[str, torch.Tensor] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, p in enumerate(parameters):
        if f"optimizer.step.{number}" in tensors:  # a parameter that has had a gradient
            moments = {key: f"optimizer.{key}.{number}" for key in MOMENTS}
            expected |= {
                name: torch.tensor(0.0) if key == "step" else p for key, name in moments.items()
            }
            held["state"][number] = {key: tensors.get(name) for key, name in moments.items()}
    return held, expected


def steps(
    progress: Progress,
    last: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator | None = None,
) -> Iterator[int]:
    """Yield the steps up to ``last`` that are left, from 1 or from where the checkpoint is.

    The checkpoint holds the model's tensors, the moments of Adam or AdamW, ``progress``, torch's generator and
    ``generator``; whatever else the loop depends on must follow from the step. Raises Cut where it is asked to end.
    """
    checkpoint = CURRENT.get() or Checkpoint()

    def write(path: Path) -> None:
        """Write the tensors of the model and of Adam, by name and number of the parameter, and the rest as JSON."""
        tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
        for number, values in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{key}.{number}": values[key] for key in MOMENTS}
        tensors["torch_generator"] = torch.get_rng_state()
        state = {
            **vars(progress),
            "processes": checkpoint.processes,
            "spent": checkpoint.times(),
            "generator": generator.bit_generator.state if generator else None,
        }
        files.save_tensors(path, tensors, {"config": checkpoint.config, "state": json.dumps(state)})

    def read(path: Path, progress: Progress) -> Costs:
        """Fill the loop from the file of ``write``, and return what it has cost.

        DamagedFileError, and nothing is filled, where no such loop can have left it.
        """
        tensors, values = files.read_checkpoint(path, checkpoint.config)
        held, expected = moments_in(tensors, optimizer)
        expected |= {f"model.{name}": p for name, p in model.state_dict().items()}
        expected["torch_generator"] = torch.get_rng_state()
        files.check_tensors(path, tensors, expected)
        with files.damaged_unless_fitting(path):
            state = from_dict(LoopState, values)
            costs = Costs(state.processes, **state.spent)
            if generator is not None:
                generator.bit_generator.state = state.generator
        model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
        optimizer.load_state_dict(held)
        torch.set_rng_state(tensors["torch_generator"])
        for name, curve in progress.curves.items():
            curve[:] = state.curves[name]
        progress.sums.update(state.sums)
        progress.step = state.step
        return costs

    checkpoint.begin(progress, read)
    while progress.step < last:
        if checkpoint.asked_to_stop():
            checkpoint.save(write)
            raise Cut(progress.step)
        yield progress.step + 1
        progress.step += 1
        checkpoint.after_step(write)
    checkpoint.save(write)
    checkpoint.deferred.close()


@dataclass
class Bookkeeping(Hook):
    """The hook of ``train`` by which a training run keeps its checkpoint and counts the tokens that it computes.

    ``text``: the configuration as the checkpoint names it. ``initialise``: called where there is no checkpoint.
    """

    config: RunConfig
    text: str
    checkpoint: Checkpoint
    initialise: Callable[[nn.Module], None]
    ranks: Ranks | None
    token_forwards: int = 0

    def begin(self, state: TrainingState) -> None:
        """Fill the state from the checkpoint where there is one, else from the weights that the run starts from."""
        self.state = state
        if not self.checkpoint.begin(
            state, lambda path, state: files.load_checkpoint(path, state, self.text, Costs)
        ):
            self.initialise(state.model)
        self.token_forwards = self.checkpoint.before.token_forwards

    def should_stop(self, state: TrainingState) -> bool:
        """Say whether this process, or any rank, is asked to stop."""
        asked = self.checkpoint.asked_to_stop()
        return asked if self.ranks is None else self.ranks.any_asks(asked)

    def on_batch(self, batch: Batch) -> Batch:
        """Count the tokens of the batch."""
        self.token_forwards += token_forwards(self.config.model, batch.scored_BT)
        return batch

    def columns(self) -> dict[str, float]:
        """Return the tokens until now."""
        return {"token_forwards": self.token_forwards}

    def after_step(self, state: TrainingState) -> None:
        """Report the step, and write the checkpoint when it is due."""
        self.checkpoint.after_step(self.write)

    def write(self, path: Path) -> None:
        """Write the state with what the run has cost until now."""
        costs = {
            **self.columns(),
            **self.checkpoint.times(),
            "processes": self.checkpoint.processes,
        }
        files.save_checkpoint(path, self.state, self.text, costs)


@dataclass
class Outcome:
    """A run's end: its state, its final metrics, and what it has cost in tokens and seconds."""

    state: TrainingState
    metrics: dict[str, Any]
    costs: dict[str, Any]

    @property
    def model(self) -> nn.Module:
        return self.state.model


def train_run(
    config: RunConfig,
    *,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    start: Callable[[], Path] | None = None,
    task: Task | None = None,
    model: nn.Module | None = None,
    ranks: Ranks | None = None,
) -> Outcome:
    """Train ``config`` to its end, from its checkpoint (by default the record's that is being computed) if it exists.

    ``start``: gives the file of the weights that ``config.start_from`` names. ``task``, ``model``: used in place of
    what the configuration describes. ``ranks``: the processes that compute their rows of every batch each.

    Raises Cut where it was asked to stop, ConfigError where task and model do not fit, its subclass DamagedFileError
    where a checkpoint is damaged and cannot be set aside, and TrainingError where the loss stops being finite.
    """
    task = task or build_task(config.task, config.task_params)
    task.facts()  # which loads or makes the data, before the clock of the steps
    if model is None:
        model = build_model(config.model, seed_from("model", config.model_seed), device)

    def initialise(model: nn.Module) -> None:
        if config.start_from:
            if start is None:
                raise ConfigError(
                    f"start_from = {config.start_from!r}: its file of weights was not given"
                )
            start_from(start(), config, task, model)

    checkpoint = checkpoint or CURRENT.get() or Checkpoint()
    before = checkpoint.times()
    book = Bookkeeping(config, canonical_json(to_dict(config)), checkpoint, initialise, ranks)
    hooks: list[Hook] = [book]
    if ranks is not None:
        ranks.run = book.text
        hooks.append(ranks)
    state = train(model, task, config.train, seed=config.data_seed, device=device, hooks=hooks)
    checkpoint.save(book.write)
    if not state.has_ended:
        raise Cut(state.step)
    checkpoint.deferred.close()
    metrics = final_metrics(model, task, config, device)
    if (test := task.test()) is not None:
        metrics["test"] = test_metrics(state, test, config, device)
    times = {name: now - before[name] for name, now in checkpoint.times().items()}
    return Outcome(state, metrics, {"token_forwards": book.token_forwards, **times})


def final_metrics(model: nn.Module, task: Task, config: RunConfig, device: str) -> dict[str, Any]:
    """Return detailed scores of the last weights, those the task reports apart, the constant baseline, and samples."""
    count = config.train.final_eval_sequences
    seed = config.data_seed
    score = functools.partial(evaluate, model, device=device, precision=config.train.precision)
    metrics = score(task, count, seed, "final", detailed=True)
    for name, other in task.reported_apart().items():
        metrics[name] = score(other, count, seed, "final", detailed=other.continuous)
    metrics["baseline"] = constant_baseline(task, count, seed, device=device)
    return metrics | task.facts() | task.samples(model, generator_for(device, "samples", seed))


def test_metrics(
    state: TrainingState, task: Task, config: RunConfig, device: str
) -> dict[str, dict]:
    """Return scores on the test set of the last weights and of those that each rule kept, on the same test items."""
    model = state.model
    score = functools.partial(
        evaluate, model, device=device, precision=config.train.precision, grouped=True
    )
    last = {name: p.detach().clone() for name, p in learned(model).items()}
    steps = {"last": state.step} | {rule: int(kept["step"]) for rule, kept in state.kept.items()}
    found: dict[int, dict] = {}  # rules that chose the same step share its scores
    for rule, weights in {"last": last, **state.kept_weights}.items():
        if steps[rule] not in found:
            model.load_state_dict(weights, strict=False)
            scores = score(task, config.train.final_eval_sequences, config.data_seed, "test")
            found[steps[rule]] = {"step": steps[rule], **scores}
    model.load_state_dict(last, strict=False)
    return {rule: found[step] for rule, step in steps.items()}
