"""Train any model on any task: batches, a step, an evaluation.

Batches depend on the seed and the step alone, and ``TrainingState`` holds all that a step changes, so that a run which
is continued from a copy of its state ends, bit for bit on one machine, where an uninterrupted one does. Whatever else a
run may need is a ``Hook``: ``entp_lab`` hands in checkpoints, time limits, progress and several processes.

Letters: B batch, T tokens, N scored positions, V vocabulary.
"""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import autocast, evaluate
from entp_lib.tasks.base import Batch, Task, generator_for, loss_curve
from entp_lib.validation import OneLine, require

STEPS_PER_DRAW = 16  # generating many small batches at once is several times cheaper; a curriculum moves between draws


class TrainingError(OneLine, RuntimeError):
    """A run that cannot go on: its loss is no longer finite."""


@dataclass
class TrainingState:
    """All that changes while a model is trained.

    ``curves`` has a list a score, with an entry an evaluation. ``kept`` has, by the task's checkpoint rules, the step
    and the score of the best weights so far, ``kept_weights`` these weights.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    config: TrainConfig
    loss_sum: Tensor  # of the steps since the last evaluation
    step: int = 0
    seconds: float = 0.0  # of training steps alone, evaluation left out
    best_loss: float = math.inf
    evals_since_best: int = 0
    curves: dict[str, list] = field(default_factory=dict)
    kept: dict[str, dict[str, float]] = field(default_factory=dict)
    kept_weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def is_evaluation(self) -> bool:
        """Whether the step just made is one at which the model is evaluated."""
        return self.step % self.config.eval_every == 0 or self.step == self.config.steps

    def take_mean_loss(self) -> float:
        """Return the mean training loss of the steps since the last evaluation, and begin the next mean."""
        mean = float(self.loss_sum) / ((self.step - 1) % self.config.eval_every + 1)  # waits for the device
        self.loss_sum.zero_()
        return mean

    @property
    def has_ended(self) -> bool:
        """Whether the run has made its last step, lost its patience or reached the loss that ends it."""
        config, losses = self.config, self.curves.get("loss", [])
        reached = config.stop_loss is not None and bool(losses) and losses[-1] <= config.stop_loss
        impatient = 0 < config.patience <= self.evals_since_best
        return self.step >= config.steps or impatient or reached


class Hook:
    """Where a caller of ``train`` can step in. A subclass overrides what it needs."""

    def begin(self, state: TrainingState) -> None:
        """Called before the first step; may fill ``state`` from a checkpoint."""

    def should_stop(self, state: TrainingState) -> bool:
        """Asked of every hook before each step."""
        return False

    def on_batch(self, batch: Batch) -> Batch:
        """Called with the batch of each step; returns the rows of it that this process computes."""
        return batch

    def before_update(self, model: nn.Module, loss: Tensor) -> Tensor:
        """Called with gradients in place; returns the loss of the whole batch."""
        return loss

    def columns(self) -> dict[str, float]:
        """Return further columns of the curves, asked for at each evaluation."""
        return {}

    def after_step(self, state: TrainingState) -> None:
        """Called after each step and its evaluation."""


def train(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    *,
    seed: int = 0,
    device: str = "cpu",
    hooks: Sequence[Hook] = (),
) -> TrainingState:
    """Train ``model`` in place on ``task``, and return its state; ``state.curves`` is what was measured on the way.

    ``seed`` decides all batches and evaluations. ``model`` is a ``Transformer``, or has its ``plan`` and
    ``forward``; frozen parameters stay. Raises ConfigError where model and task do not fit, and TrainingError where a
    loss stops being finite.
    """
    model.train()
    state = TrainingState(
        model,
        make_optimizer(model, config),
        config,
        loss_sum=torch.zeros((), dtype=torch.float64, device=device),
    )
    for hook in hooks:
        hook.begin(state)
    batches = training_batches(task, config, seed, state.step + 1, device)
    while not state.has_ended:
        if any([hook.should_stop(state) for hook in hooks]):
            break
        started = time.monotonic()
        batch = next(batches)
        set_learning_rate(state.optimizer, learning_rate(state.step + 1, config))
        update(state, task, batch, hooks)
        mean_loss = state.take_mean_loss() if state.is_evaluation else math.nan
        state.seconds += time.monotonic() - started
        if state.is_evaluation:
            columns = {name: value for hook in hooks for name, value in hook.columns().items()}
            add_point(state, task, mean_loss, seed, device, columns)
        for hook in hooks:
            hook.after_step(state)
    return state


def update(state: TrainingState, task: Task, batch: Batch, hooks: Sequence[Hook] = ()) -> None:
    """Make one optimiser step on the mean loss over the scored positions of ``batch``."""
    share = batch
    for hook in hooks:
        share = hook.on_batch(share)
    loss = accumulate_gradients(state.model, task, share, len(batch.targets_N), state.config.precision)
    for hook in hooks:
        loss = hook.before_update(state.model, loss)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    state.step += 1
    state.loss_sum += loss.double()


def accumulate_gradients(model: nn.Module, task: Task, batch: Batch, count: int, precision: str) -> Tensor:
    """Add the gradients of the batch's summed losses over ``count``, a micro-batch at a time; returns that loss."""
    device, relations = batch.inputs_BT.device, batch.relations()
    loss = torch.zeros((), device=device)
    micro_batches = model.plan(batch.scored_BT)
    shared = None
    if len(micro_batches) > 1 and hasattr(model, "shared"):
        with autocast(device, precision):
            shared = model.shared(batch.inputs_BT, **relations)
    if shared is not None:  # gradients of all micro-batches add up at it, and go on from there once
        relations |= {"projected": tuple(x.detach().requires_grad_() for x in shared)}
    for part in micro_batches:
        with autocast(device, precision):
            logits_NV = model(batch.inputs_BT, part, batch.prompt_lengths_B, **relations)
        part_loss = task.losses(logits_NV, batch.targets_BT[part.scored_BT]).sum() / count
        part_loss.backward()
        loss += part_loss.detach()
    if shared is not None:
        torch.autograd.backward(shared, [x.grad for x in relations["projected"]])
    return loss


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the rate of the 1-based ``step``: linear from 0 to max_lr, cosine to min_lr at ``decay_steps``, flat."""
    decay_steps = config.decay_steps or config.steps
    if step <= config.warmup_steps:
        return config.max_lr * step / config.warmup_steps
    if step >= decay_steps:
        return config.min_lr
    done = (step - config.warmup_steps) / (decay_steps - config.warmup_steps)
    return config.min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (config.max_lr - config.min_lr)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return AdamW on what is not frozen, with weight decay on matrices, embeddings included, and not on vectors."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.max_lr, betas=config.betas, fused=True)


def training_batches(task: Task, config: TrainConfig, seed: int, first_step: int, device: str) -> Iterator[Batch]:
    """Yield the batches of the 1-based steps from ``first_step`` on."""
    size, drawn = config.batch_size, None
    for step in itertools.count(first_step - 1):
        draw, place = divmod(step, STEPS_PER_DRAW)
        if drawn is None or place == 0:
            now = task.at_step(draw * STEPS_PER_DRAW + 1)
            drawn = now.batch(generator_for(device, "train", seed, draw), size * STEPS_PER_DRAW)
        yield drawn.rows(slice(place * size, (place + 1) * size))


def add_point(
    state: TrainingState,
    task: Task,
    train_loss: float,
    seed: int,
    device: str,
    columns: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Evaluate, append a point to the curves, and keep the weights that are the best so far."""
    config = state.config
    check_finite("training", train_loss, state.step, config.max_lr)
    options = dict(device=device, precision=config.precision)
    scores = evaluate(state.model, task, config.eval_sequences, seed, state.step, **options)
    check_finite("held-out", scores["loss"], state.step, config.max_lr)  # the last update may have ruined the weights
    for name, other in task.watched().items():
        found = evaluate(state.model, other, config.eval_sequences, seed, name, state.step, **options)
        scores[loss_curve(name)] = found["loss"]
    spent = {"step": state.step, **columns, "seconds": round(state.seconds, 3)}
    point = spent | {"train_loss": train_loss} | scores
    for name, value in point.items():
        state.curves.setdefault(name, []).append(value)
    watched = point[task.patience_score]
    if watched < state.best_loss:
        state.best_loss = watched
        state.evals_since_best = 0
    else:
        state.evals_since_best += 1
    if task.test() is not None:
        keep_best_weights(state, task)


def keep_best_weights(state: TrainingState, task: Task) -> None:
    """Keep the weights whose last point is strictly better, by one of the task's rules, than all before."""
    for rule, curve in task.checkpoint_rules().items():
        value = state.curves[curve][-1]
        best = state.kept[rule]["score"] if rule in state.kept else math.nan
        if math.isnan(best) or (value > best if rule.startswith("highest") else value < best):
            state.kept[rule] = {"step": state.step, "score": value}
            state.kept_weights[rule] = {name: p.detach().clone() for name, p in learned(state.model).items()}


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name: those that are not frozen."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_finite(kind: str, loss: float, step: int, max_lr: float) -> None:
    """Raise TrainingError where a loss is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(f"the {kind} loss is {loss} at step {step}; a lower max_lr than {max_lr:g} may help")


def check_fit(task: Task, model: ModelConfig) -> None:
    """Raise ConfigError where the task's symbols or lengths do not fit the model."""
    kind = "tokens, which need None" if task.input_dim is None else f"inputs of {task.input_dim} numbers"
    symbols = model.vocab_size if model.input_dim is not None else getattr(task, "vocab_size", None)
    prompts = "trains without the prompts that it opens later; use 'decoder'"
    for fits, name, problem in (
        (task.input_dim == model.input_dim, "input_dim", f"has {kind}"),
        (not task.continuous or model.output_dim == 1, "output_dim", "predicts one number"),
        (symbols == model.vocab_size, "vocab_size", f"has {symbols} symbols"),
        (task.same_prompts or not model.open_prompt, "architecture", prompts),
        (task.length <= model.max_length, "max_length", f"has sequences of {task.length}"),
    ):
        require(fits, f"{name} = {getattr(model, name)!r}: the task {type(task).__name__} {problem}")
