"""Train for a record: an interrupted run continues from its checkpoint and ends bit for bit like an uninterrupted one.

``train_run`` trains a ``RunConfig`` by ``entp_lib.train``; a study with a loop of its own writes it as ``for step in
steps(...)``. Both save their state through the ``Checkpoint`` that ``runs.run`` puts into ``CURRENT``. If no record is
made, as in a notebook's cell, nothing is written.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from entp_lab import stopping
from entp_lab.budgets import token_forwards
from entp_lab.configs import RunConfig, canonical_json, to_dict
from entp_lab.ranks import Ranks
from entp_lab.registry import build_task
from entp_lab.stopping import Cut
from entp_lab.store import Store
from entp_lab.weights import start_from
from entp_lib import checkpoint as files
from entp_lib import kernels
from entp_lib.checkpoint import DamagedFileError
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import constant_baseline, evaluate
from entp_lib.model import build_model
from entp_lib.tasks import Batch, Task, generator_for, seed_from
from entp_lib.training import Hook, TrainingState, train, trainable_parameters
from entp_lib.validation import Json, check_intervals, check_types, require

log = logging.getLogger(__name__)
CHECKPOINT_SECONDS = 60.0
OnStep = Callable[[int, int], None]  # called with a step and the last one
CLOCKS = {"wall_seconds": time.monotonic, "cpu_seconds": time.process_time}


@dataclass(frozen=True)
class Costs:
    """What a checkpoint says besides the training state: all processes so far, and what they have spent.

    ``loop``: of a study, the sums of its loop and its generators.
    """

    processes: list = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    token_forwards: int = 0
    loop: Json = field(default_factory=dict)

    def __post_init__(self):
        check_types(self)
        check_intervals(self, dict.fromkeys((*CLOCKS, "token_forwards"), "[0, inf)"))


@dataclass
class Checkpoint(Hook):
    """The checkpoint file of a record in progress, what the record has cost, and when its loop must stop.

    ``config``: the configuration, which the file must name. ``process``: this process's provenance, which is
    added to ``processes``. ``set_aside``: called with a damaged file and what is wrong; without it, such a file is an
    error. ``deadline``: a time of ``time.time``. ``stop`` is called before each step, and ``on_step`` after it.
    """

    path: Path | None = None
    config: str = ""
    process: Json = field(default_factory=dict)
    set_aside: Callable[[Path, str], None] | None = None
    deadline: float | None = None
    stop: Callable[[], bool] = lambda: False
    on_step: OnStep = lambda step, last: None
    read_only: bool = False
    # of a training run: its model, what fills the model if there is no file, and the ranks that share its batches
    model: ModelConfig = field(init=False)
    initialise: Callable[[nn.Module], None] = lambda model: None
    ranks: Ranks | None = None
    token_forwards: int = 0  # of a training run, by all processes so far
    loop: Callable[[], Json] = dict  # of a study: ``Costs.loop`` as it is now
    state: TrainingState = field(init=False)  # of the loop, once it has begun
    before: Costs = field(default_factory=Costs)  # what earlier processes did and spent
    # the earlier processes and this one, once the loop has begun
    processes: list[Json] = field(default_factory=list)
    # defers requests to end while the loop runs
    deferred: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    begun: dict[str, float] = field(
        default_factory=lambda: {name: clock() for name, clock in CLOCKS.items()}
    )
    saved_at: float = 0.0

    def times(self) -> dict[str, float]:
        """Return the wall and CPU seconds that all processes have spent on the record so far."""
        return {
            name: getattr(self.before, name) + clock() - self.begun[name]
            for name, clock in CLOCKS.items()
        }

    def begin(self, state: TrainingState) -> None:
        """Begin a loop: fill ``state`` and ``before`` from the file if there is one, else initialise the model.

        A damaged file is set aside. From now on a request to end waits for the end of a step. Raises ConfigError if the
        steps so far used bf16 kernels that this process does not have.
        """
        if self.processes:
            raise RuntimeError("a study keeps one training loop, and this is its second")
        self.state = state
        if self.path:
            self.deferred.enter_context(stopping.defer_signals())
            if self.path.exists():
                try:
                    self.before = files.load_checkpoint(self.path, state, self.config, Costs)
                except DamagedFileError as error:
                    if self.set_aside is None:
                        raise
                    self.set_aside(self.path, error.why)
        self.token_forwards = self.before.token_forwards
        # a process that began at this step was cut before it made one
        earlier = [p for p in self.before.processes if p.get("from_step") != state.step]
        if earlier:
            self.check_arithmetic(earlier[-1], state.step)
        else:
            self.initialise(state.model)
        self.processes = [*earlier, {**self.process, "from_step": state.step}]
        self.saved_at = time.monotonic()

    def check_arithmetic(self, last: Json, step: int) -> None:
        """Raise ConfigError unless this process has the bf16 kernels of the ``last`` one, which got to ``step``.

        Another instruction set, which changes the last bits alone, and other code are logged as a warning, and the
        record says who made which steps.
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
        if last.get("sources") != self.process.get("sources"):
            log.warning(
                "%s: %d steps were computed by other code, and it goes on with today's; fresh begins it anew",
                self.path,
                step,
            )

    def should_stop(self, state: TrainingState) -> bool:
        """Say whether the loop must end before its next step, since this process or any rank is asked to."""
        late = self.deadline is not None and time.time() >= self.deadline
        asked = late or stopping.REQUEST.made or self.stop()
        return self.ranks.any_asks(asked) if self.ranks else asked

    def on_batch(self, batch: Batch) -> Batch:
        """Count the tokens of a training run's batch."""
        self.token_forwards += token_forwards(self.model, batch.scored_BT)
        return batch

    def columns(self) -> dict[str, float]:
        """Return the number of tokens so far."""
        return {"token_forwards": self.token_forwards}

    def after_step(self, state: TrainingState) -> None:
        """Report the step, and write the checkpoint if the last one is more than a minute old."""
        self.on_step(state.step, state.config.steps)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save()
            self.saved_at = time.monotonic()

    def save(self) -> None:
        """Write the checkpoint, unless it has no path or is read-only."""
        if self.path and not self.read_only:
            costs = {
                **self.columns(),
                **self.times(),
                "loop": self.loop(),
                "processes": self.processes,
            }
            files.save_checkpoint(self.path, self.state, self.config, costs)


CURRENT: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


def steps(
    curves: dict[str, list],
    last: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    sums: dict[str, float] | None = None,
    generator: np.random.Generator | None = None,
) -> Iterator[int]:
    """Yield the remaining steps up to ``last``, from 1 or from where the checkpoint is.

    The checkpoint holds the model's parameters, the moments of Adam or AdamW, the curves so far, ``sums`` since their
    last point, torch's generator and ``generator``; everything else that the loop depends on must follow from the step.
    Raises Cut if it is asked to end.
    """
    checkpoint = CURRENT.get() or Checkpoint()
    schedule = TrainConfig(last, eval_every=last)
    state = TrainingState(model, optimizer, schedule, torch.zeros((), dtype=torch.float64))
    state.curves = curves

    def loop() -> Json:
        drawn = generator.bit_generator.state if generator else None
        torch_state = torch.get_rng_state().tolist()
        return {"sums": sums or {}, "generator": drawn, "torch_generator": torch_state}

    checkpoint.loop = loop
    checkpoint.begin(state)
    if before := checkpoint.before.loop:
        if sums is not None:
            sums.update(before["sums"])
        if generator:
            generator.bit_generator.state = before["generator"]
        torch.set_rng_state(torch.tensor(before["torch_generator"], dtype=torch.uint8))
        for name, curve in curves.items():
            curve[:] = state.curves[name]
        state.curves = curves
    while state.step < last:
        if checkpoint.should_stop(state):
            checkpoint.save()
            raise Cut(state.step)
        yield state.step + 1
        state.step += 1
        checkpoint.after_step(state)
    checkpoint.save()
    checkpoint.deferred.close()


@dataclass
class Outcome:
    """What a finished run gives: its state, its final metrics, and its costs in tokens and seconds."""

    state: TrainingState
    metrics: Json
    costs: Json

    @property
    def model(self) -> nn.Module:
        return self.state.model


def train_run(
    config: RunConfig,
    *,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    store: Store | None = None,
    task: Task | None = None,
    model: nn.Module | None = None,
    ranks: Ranks | None = None,
) -> Outcome:
    """Train ``config`` to its end, from its checkpoint if there is one (by default that of the record being computed).

    ``store``: where the weights lie that ``config.start_from`` names. ``task``, ``model``: used in place of those of
    the configuration. ``ranks``: the processes that share the rows of every batch.

    Raises Cut if it was asked to stop, ConfigError if task and model do not fit, its subclass DamagedFileError if a
    checkpoint is damaged and cannot be set aside, and TrainingError if the loss is no longer finite.
    """
    task = task or build_task(config.task, config.task_params)
    task.facts()  # loads or makes the data, before steps are timed
    if model is None:
        model = build_model(config.model, seed_from("model", config.model_seed), device)

    checkpoint = checkpoint or CURRENT.get() or Checkpoint()
    before = checkpoint.times()
    checkpoint.config = canonical_json(to_dict(config))
    checkpoint.model = config.model
    if config.start_from:
        checkpoint.initialise = functools.partial(start_from, store, config, task)
    checkpoint.ranks = ranks
    hooks: list[Hook] = [checkpoint]
    if ranks:
        ranks.run = checkpoint.config
        hooks.append(ranks)
    state = train(model, task, config.train, seed=config.data_seed, device=device, hooks=hooks)
    checkpoint.save()
    if not state.has_ended:
        raise Cut(state.step)
    checkpoint.deferred.close()
    metrics = final_metrics(model, task, config, device)
    if (test := task.test()) is not None:
        metrics["test"] = test_metrics(state, test, config, device)
    times = {name: now - before[name] for name, now in checkpoint.times().items()}
    return Outcome(state, metrics, {**checkpoint.columns(), **times})


def final_metrics(model: nn.Module, task: Task, config: RunConfig, device: str) -> Json:
    """Return detailed scores of the final weights, further scorings of the task, the constant baseline, and samples."""
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
    """Return test scores of the final weights and of those that each rule kept, on the same test items."""
    model = state.model
    score = functools.partial(
        evaluate, model, device=device, precision=config.train.precision, grouped=True
    )
    last = {name: p.detach().clone() for name, p in trainable_parameters(model).items()}
    steps = {"last": state.step} | {rule: int(kept["step"]) for rule, kept in state.kept.items()}
    found: dict[int, dict] = {}  # rules that chose the same step share its scores
    for rule, weights in {"last": last, **state.kept_weights}.items():
        if steps[rule] not in found:
            model.load_state_dict(weights, strict=False)
            scores = score(task, config.train.final_eval_sequences, config.data_seed, "test")
            found[steps[rule]] = {"step": steps[rule], **scores}
    model.load_state_dict(last, strict=False)
    return {rule: found[step] for rule, step in steps.items()}
