"""Train for a record, so that a run that was cut goes on from its checkpoint and ends bit for bit as without the cut.

``train_run`` trains what a ``RunConfig`` describes, by ``entp_lib.train``; a study with a loop of its own writes it as
``for step in steps(...)``. Both leave their state by the ``Checkpoint`` that ``runs.run`` puts into ``CURRENT``. Where
no record is made, as in a notebook's cell, nothing is written.
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
from entp_lab.ranks import Ranks
from entp_lab.registry import build_task
from entp_lab.stopping import Cut
from entp_lab.weights import start_from
from entp_lib import checkpoint as files
from entp_lib.checkpoint import MOMENTS, DamagedFileError
from entp_lib.config import canonical_json, to_dict
from entp_lib.entp import token_forwards
from entp_lib.evaluation import constant_baseline, evaluate
from entp_lib.model import build_model
from entp_lib.tasks import Batch, Task, generator_for, seed_from
from entp_lib.training import Hook, TrainingState, check_fit, learned, train
from entp_lib.validation import require

CHECKPOINT_SECONDS = 60.0
EXTRA = ("processes", "token_forwards", "wall_seconds", "cpu_seconds")  # of a training run, beside its state


@dataclass
class Progress:
    """Steps made, the curves so far, and sums since their last point; a checkpoint is restored into them."""

    curves: dict[str, list] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    step: int = 0


def no_seconds() -> dict[str, float]:
    """Return the times of a run that has not begun."""
    return {"wall_seconds": 0.0, "cpu_seconds": 0.0}


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
    stop: Callable[[], bool] | None = None
    on_step: Callable[[int], None] | None = None
    read_only: bool = False
    state: Progress | TrainingState = field(default_factory=Progress)  # of the loop, once it has begun
    counts: dict[str, Any] = field(default_factory=dict)  # tokens and seconds of a training run
    processes: list[dict[str, Any]] = field(default_factory=list)  # that have worked on it; none before the loop begins
    spent: dict[str, float] = field(default_factory=no_seconds)  # by earlier processes
    deferred: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # requests to end, while the loop runs
    clocks: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))
    saved_at: float = 0.0

    def times(self) -> dict[str, float]:
        """Return the wall and processor seconds that all processes have given the record until now."""
        wall = time.monotonic() - self.clocks[0]
        cpu = time.process_time() - self.clocks[1]
        return {
            "wall_seconds": self.spent["wall_seconds"] + wall,
            "cpu_seconds": self.spent["cpu_seconds"] + cpu,
        }

    def begin(self, state: Progress | TrainingState, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
        """Begin a loop, with ``state`` filled by ``read`` from the file; return what else is in it, None without one.

        A damaged file is set aside. From now on a request to end waits for the end of a step.
        """
        if self.processes:
            raise RuntimeError("a study keeps one training loop, and this is its second")
        self.state = state
        found = None
        if self.path is not None:
            self.deferred.enter_context(stopping.defer_signals())
            if self.path.exists():
                try:
                    found = read(self.path)
                except DamagedFileError as error:
                    if self.set_aside is None:
                        raise
                    self.set_aside(self.path, error.why)
        if found is not None:
            self.processes = found.get("processes", [])
            self.spent = {name: found.get(name, 0.0) for name in self.spent}
        self.processes.append({**self.process, "from_step": state.step})
        self.saved_at = time.monotonic()
        return found

    def asked_to_stop(self) -> bool:
        """Say whether the loop must end before its next step."""
        late = self.deadline is not None and time.time() >= self.deadline
        return late or stopping.REQUEST.made or (self.stop is not None and self.stop())

    def after_step(self, write: Callable[[Path], None]) -> None:
        """Report the step, and write the checkpoint where the last one is a minute old."""
        if self.on_step is not None:
            self.on_step(self.state.step)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save(write)
            self.saved_at = time.monotonic()

    def save(self, write: Callable[[Path], None]) -> None:
        """Write the checkpoint, where there is a place for it."""
        if self.path is not None and not self.read_only:
            write(self.path)


CURRENT: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


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
        save_loop(path, checkpoint, model, optimizer, generator)

    checkpoint.begin(progress, lambda path: restore_loop(path, checkpoint, last, model, optimizer, generator))
    while progress.step < last:
        if checkpoint.asked_to_stop():
            checkpoint.save(write)
            raise Cut
        yield progress.step + 1
        progress.step += 1
        checkpoint.after_step(write)
    checkpoint.save(write)
    checkpoint.deferred.close()


def save_loop(
    path: Path,
    checkpoint: Checkpoint,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator | None,
) -> None:
    """Write the tensors of the model and of Adam, by name and number of the parameter, and the rest as JSON."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{key}.{number}": values[key] for key in MOMENTS}
    tensors["torch_generator"] = torch.get_rng_state()
    state = {
        **vars(checkpoint.state),
        "processes": checkpoint.processes,
        "spent": checkpoint.times(),
        "generator": generator.bit_generator.state if generator is not None else None,
    }
    files.save_tensors(path, tensors, {"config": checkpoint.config, "state": json.dumps(state)})


def restore_loop(
    path: Path,
    checkpoint: Checkpoint,
    last: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: np.random.Generator | None,
) -> dict[str, Any]:
    """Fill the loop from ``save_loop``'s file, and return its processes and times.

    DamagedFileError, and nothing is filled, where no such loop can have left it.
    """
    progress = checkpoint.state
    tensors, state = files.read_checkpoint(path, checkpoint.config)
    expected: dict[str, Tensor] = {f"model.{name}": p for name, p in model.state_dict().items()}
    expected["torch_generator"] = torch.get_rng_state()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, p in enumerate(parameters):
        if f"optimizer.step.{number}" in tensors:  # a parameter that has had a gradient
            expected[f"optimizer.step.{number}"] = torch.tensor(0.0)
            expected |= {f"optimizer.{key}.{number}": p for key in MOMENTS if key != "step"}
    files.check_tensors(path, tensors, expected)
    try:
        for name, mine in (("curves", progress.curves), ("sums", progress.sums)):
            if set(state[name]) != set(mine):
                raise ValueError(f"{name} of {sorted(state[name])}")
        if type(state["step"]) is not int or not 0 <= state["step"] <= last:
            raise ValueError(f"step {state['step']} of {last}")
        costs = {"processes": [dict(process) for process in state["processes"]]}
        costs |= {name: float(state["spent"][name]) for name in no_seconds()}
        if generator is not None:
            generator.bit_generator.state = state["generator"]
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
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
    return costs


@dataclass
class Bookkeeping(Hook):
    """The hook of ``train`` by which a training run keeps its checkpoint and counts the tokens that it computes.

    ``start``: gives the file of the weights that a run begins with where there is no checkpoint.
    """

    config: RunConfig
    task: Task
    checkpoint: Checkpoint
    start: Callable[[], Path] | None
    ranks: Ranks | None
    token_forwards: int = 0

    @property
    def text(self) -> str:
        """The configuration as the checkpoint names it."""
        return canonical_json(to_dict(self.config))

    def begin(self, state: TrainingState) -> None:
        """Fill the state from the checkpoint where there is one, else from the weights that the run starts from."""
        found = self.checkpoint.begin(state, lambda path: files.load_checkpoint(path, state, self.text, EXTRA))
        if found is not None:
            self.token_forwards = found.get("token_forwards", 0)
        elif self.config.start_from:
            message = f"start_from = {self.config.start_from!r}: its file of weights was not given"
            require(self.start is not None, message)
            start_from(self.start(), self.config, self.task, state.model)

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
        extra = {
            "token_forwards": self.token_forwards,
            "processes": self.checkpoint.processes,
            **self.checkpoint.times(),
        }
        files.save_checkpoint(path, self.checkpoint.state, self.text, extra)


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
    check_fit(task, config.model)
    task.facts()  # which loads or makes the data, before the clock of the steps
    if model is None:
        model = build_model(config.model, seed_from("model", config.model_seed), device)
    checkpoint = checkpoint or CURRENT.get() or Checkpoint()
    before = checkpoint.times()
    hook = Bookkeeping(config, task, checkpoint, start, ranks)
    hooks: list[Hook] = [hook]
    if ranks is not None:
        ranks.run = hook.text
        hooks.append(ranks)
    state = train(model, task, config.train, seed=config.data_seed, device=device, hooks=hooks)
    checkpoint.save(hook.write)
    checkpoint.counts = {"token_forwards": hook.token_forwards, "train_seconds": state.seconds}
    if not state.has_ended:
        raise Cut
    checkpoint.deferred.close()
    metrics = final_metrics(model, task, config, device)
    if task.test() is not None:
        metrics["test"] = test_metrics(state, task.test(), config, device)
    times = {name: now - before[name] for name, now in checkpoint.times().items()}
    return Outcome(state, metrics, {"token_forwards": hook.token_forwards, **times})


def final_metrics(model: nn.Module, task: Task, config: RunConfig, device: str) -> dict[str, Any]:
    """Return detailed scores of the last weights, those the task reports apart, the constant baseline, and samples."""
    sequences = config.train.final_eval_sequences
    seed = config.data_seed
    options = {"device": device, "precision": config.train.precision}
    metrics = evaluate(model, task, sequences, seed, "final", detailed=True, **options)
    for name, other in task.reported_apart().items():
        metrics[name] = evaluate(model, other, sequences, seed, "final", detailed=other.continuous, **options)
    metrics["baseline"] = constant_baseline(task, sequences, seed, device=device)
    return metrics | task.facts() | task.samples(model, generator_for(device, "samples", seed))


def test_metrics(state: TrainingState, task: Task, config: RunConfig, device: str) -> dict[str, dict]:
    """Return scores on the test set of the last weights and of those that each rule kept, on the same test items."""
    model = state.model
    last = {name: p.detach().clone() for name, p in learned(model).items()}
    by_step: dict[int, dict] = {}  # rules that chose the same step share its scores
    found: dict[str, dict] = {}
    for rule, weights in {"last": last, **state.kept_weights}.items():
        step = state.kept[rule]["step"] if rule in state.kept_weights else state.step
        if step not in by_step:
            model.load_state_dict(weights, strict=False)
            scores = evaluate(
                model,
                task,
                config.train.final_eval_sequences,
                config.data_seed,
                "test",
                device=device,
                precision=config.train.precision,
                grouped=True,
            )
            by_step[step] = {"step": step, **scores}
        found[rule] = by_step[step]
    model.load_state_dict(last, strict=False)
    return found
