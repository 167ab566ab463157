"""The training run of a record: ``entp_lib.train`` with a checkpoint, its costs, and final scores."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from entp_lab import heap
from entp_lab.configs import RunConfig
from entp_lab.ranks import Ranks
from entp_lab.registry import build_task
from entp_lab.weights import start_from
from entp_lib.checkpoint import load_checkpoint, save_checkpoint
from entp_lib.config import canonical_json, to_dict
from entp_lib.entp import token_forwards
from entp_lib.evaluation import constant_baseline, evaluate
from entp_lib.kernels import UNNAMED
from entp_lib.model import build_model
from entp_lib.tasks import Batch, Task, generator_for, seed_from
from entp_lib.training import Hook, TrainingState, check_fit, learned, train
from entp_lib.validation import require

CHECKPOINT_SECONDS = 60.0
log = logging.getLogger(__name__)


@dataclass
class Bookkeeping(Hook):
    """Continue a run from its checkpoint, write it every minute, count what the run costs, and stop it when asked.

    ``process``: this process's provenance, which joins ``processes``, the list of those that worked on the run.
    """

    config: RunConfig
    checkpoint: Path | None
    initialise: Callable[[nn.Module], None]  # of a run without a checkpoint
    process: dict[str, Any]
    on_step: Callable[[int], None] | None = None
    stop: Callable[[], bool] | None = None
    ranks: Ranks | None = None
    processes: list[dict[str, Any]] = field(default_factory=list)
    token_forwards: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0  # what the processor gave of the wall seconds
    clocks: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))
    saved_at: float = 0.0

    def begin(self, state: TrainingState) -> None:
        """Fill the state from the checkpoint where there is one, else from the weights that the run starts from."""
        if self.checkpoint is not None and self.checkpoint.exists():
            extra = ("processes", "token_forwards", "wall_seconds", "cpu_seconds")
            found = load_checkpoint(self.checkpoint, state, self.text, extra)
            for name, value in found.items():
                setattr(self, name, value)
            self.warn_of_other_kernels(state.step)
        else:
            self.initialise(state.model)
        if self.ranks is not None:
            self.ranks.begin(self.config, state.step)
        self.processes.append({**self.process, "from_step": state.step})
        self.saved_at = time.monotonic()

    def should_stop(self, state: TrainingState) -> bool:
        """Say whether this rank, or any other, is asked to stop."""
        asked = self.stop is not None and self.stop()
        return asked if self.ranks is None else self.ranks.any_asks(asked)

    def on_batch(self, batch: Batch) -> Batch:
        """Count the tokens of the batch, and return this rank's rows of it."""
        self.token_forwards += token_forwards(self.config.model, batch.scored_BT)
        return batch if self.ranks is None else self.ranks.own(batch)

    def before_update(self, model: nn.Module, loss):
        """Add up gradients over the ranks."""
        return loss if self.ranks is None else self.ranks.add_up(model, loss)

    def columns(self) -> dict[str, float]:
        """Return the tokens until now."""
        return {"token_forwards": self.token_forwards}

    def after_step(self, state: TrainingState) -> None:
        """Report the step, and write the checkpoint when it is due."""
        if self.on_step is not None:
            self.on_step(state.step)
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save(state)
            self.saved_at = time.monotonic()

    @property
    def leads(self) -> bool:
        """Whether this rank writes the checkpoint and computes the final scores."""
        return self.ranks is None or self.ranks.rank == 0

    @property
    def text(self) -> str:
        """The configuration as the checkpoint names it."""
        return canonical_json(to_dict(self.config))

    def save(self, state: TrainingState) -> None:
        """Count the time until now, and write the checkpoint where there is a place for it."""
        now = (time.monotonic(), time.process_time())
        self.wall_seconds += now[0] - self.clocks[0]
        self.cpu_seconds += now[1] - self.clocks[1]
        self.clocks = now
        if self.checkpoint is not None and self.leads:
            names = ("token_forwards", "wall_seconds", "cpu_seconds", "processes")
            save_checkpoint(self.checkpoint, state, self.text, {name: getattr(self, name) for name in names})

    def warn_of_other_kernels(self, step: int) -> None:
        """Warn where a run in bf16 goes on with other kernels than before; ``processes`` says which, from where on."""
        now = self.process.get("kernels")
        before = self.processes[-1].get("kernels", UNNAMED) if self.processes else now
        if now and now != before:
            message = "steps from %d on are computed by other kernels (%s) than before (%s)"
            log.warning(message, step + 1, now, before)


@dataclass
class Outcome:
    """A run's end: its state, what it cost, its final metrics, and whether it reached its last step."""

    state: TrainingState
    costs: Bookkeeping
    metrics: dict[str, Any]
    complete: bool

    @property
    def model(self) -> nn.Module:
        return self.state.model


def train_run(
    config: RunConfig,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
    start: Path | None = None,
    process: dict[str, Any] | None = None,
    task: Task | None = None,
    model: nn.Module | None = None,
    on_step: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    ranks: Ranks | None = None,
) -> Outcome:
    """Train ``config`` to its end, or until ``stop``, asked between steps, says so; from ``checkpoint`` if it exists.

    ``start``: the file of the weights that ``config.start_from`` names. ``process``: this process's provenance.
    ``task``, ``model``: used in place of what the configuration describes. ``ranks``: the processes that compute their
    rows of every batch each; only the first writes the checkpoint and returns metrics.

    Raises ConfigError where task and model do not fit, its subclass DamagedFileError where the checkpoint is damaged
    or belongs to another configuration, and TrainingError where the loss stops being finite.
    """
    task = task or build_task(config.task, config.task_params)
    check_fit(task, config.model)
    task.facts()  # which loads or makes the data, before any clock of training runs
    heap.keep_freed()
    if model is None:
        model = build_model(config.model, seed_from("model", config.model_seed), device)

    def initialise(model: nn.Module) -> None:
        if config.start_from:
            require(start is not None, f"start_from = {config.start_from!r}: its file of weights was not given")
            start_from(start, config, task, model)

    hook = Bookkeeping(config, checkpoint, initialise, process or {}, on_step, stop, ranks)
    state = train(model, task, config.train, seed=config.data_seed, device=device, hooks=[hook])
    hook.save(state)
    metrics: dict[str, Any] = {}
    if state.has_ended and hook.leads:
        metrics = final_metrics(model, task, config, device)
        if task.test() is not None:
            metrics["test"] = test_metrics(state, task.test(), config, device)
    hook.checkpoint = None
    hook.save(state)  # the times of the final scores, too
    return Outcome(state, hook, metrics, state.has_ended)


def final_metrics(model: nn.Module, task: Task, config: RunConfig, device: str) -> dict[str, Any]:
    """Return detailed scores of the last weights, those the task reports apart, the constant baseline, and samples."""
    sequences, seed = config.train.final_eval_sequences, config.data_seed
    options = dict(device=device, precision=config.train.precision)
    metrics = evaluate(model, task, sequences, seed, "final", detailed=True, **options)
    for name, other in task.reported_apart().items():
        metrics[name] = evaluate(model, other, sequences, seed, "final", detailed=other.continuous, **options)
    metrics["baseline"] = constant_baseline(task, sequences, seed, device=device)
    return metrics | task.facts() | task.samples(model, generator_for(device, "samples", seed))


def test_metrics(state: TrainingState, task: Task, config: RunConfig, device: str) -> dict[str, dict]:
    """Return scores on the test set of the last weights and of those that each rule kept, on the same test items."""
    model = state.model
    last = {name: p.detach().clone() for name, p in learned(model).items()}
    scored: dict[int, dict] = {}  # rules that chose the same step share its scores
    found: dict[str, dict] = {}
    options = dict(device=device, precision=config.train.precision, grouped=True)
    for rule, weights in {"last": last, **state.kept_weights}.items():
        step = state.kept[rule]["step"] if rule in state.kept_weights else state.step
        if step not in scored:
            model.load_state_dict(weights, strict=False)
            scores = evaluate(model, task, config.train.final_eval_sequences, config.data_seed, "test", **options)
            scored[step] = {"step": step, **scores}
        found[rule] = scored[step]
    model.load_state_dict(last, strict=False)
    return found
