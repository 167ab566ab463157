"""Train any model on any task: batches, a step, an evaluation (appendix C).

Batches depend only on the seed and the step, and ``TrainingState`` holds everything that a step
changes. A run continued from a copy of its state therefore ends bit for bit like an uninterrupted
one on the same machine. Everything else is a ``Hook``: ``entp_lab`` adds checkpoints, time limits,
progress and several processes.

Letters: B batch, T tokens, N scored positions, V vocabulary.
"""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.arguments import REALS, check_ids, check_tensor, widest
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import autocast, device_for, evaluate
from entp_lib.tasks.base import Batch, Task, generator_for, loss_curve
from entp_lib.validation import ConfigError, Json, OneLine, require

STEPS_PER_DRAW = 16  # generating many small batches at once is several times cheaper


class TrainingError(OneLine, RuntimeError):
    """A run that cannot go on: its loss is not finite, or a batch has nothing to learn from."""


@dataclass
class TrainingState:
    """All that changes while a model is trained.

    ``curves``: a list per score, with an entry per evaluation. ``kept``: for each checkpoint rule
    of the task, the step and score of the best weights so far. ``kept_weights``: those weights, by
    rule.
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

    @property
    def has_ended(self) -> bool:
        """Whether the run made its last step, ran out of patience or reached its ``stop_loss``."""
        config = self.config
        loss = self.curves.get("loss", [math.inf])[-1]
        is_impatient = 0 < config.patience <= self.evals_since_best
        is_low = config.stop_loss is not None and loss <= config.stop_loss
        return is_impatient or is_low or self.step >= config.steps

    def take_mean_loss(self) -> float:
        """Return the mean training loss since the last evaluation, and reset the sum."""
        steps = (self.step - 1) % self.config.eval_every + 1
        mean = float(self.loss_sum) / steps  # waits for the device
        self.loss_sum.zero_()
        return mean


class Hook:
    """Extension points of ``train``. A subclass overrides the methods it needs."""

    def begin(self, state: TrainingState) -> None:
        """Prepare before the first step; may fill ``state`` from a checkpoint."""

    def should_stop(self, state: TrainingState) -> bool:
        """Tell, before each step, whether training must stop."""
        return False

    def on_batch(self, batch: Batch) -> Batch:
        """Return the rows of a step's batch that this process computes."""
        return batch

    def before_update(self, model: nn.Module, loss: Tensor) -> Tensor:
        """Return the loss of the whole batch; may change gradients in place."""
        return loss

    def columns(self) -> dict[str, float]:
        """Return further columns of the curves; called at each evaluation."""
        return {}

    def after_step(self, state: TrainingState) -> None:
        """Do whatever follows a step and its evaluation."""


def train(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    *,
    seed: int = 0,
    device: str | None = None,
    hooks: Sequence[Hook] = (),
) -> TrainingState:
    """Train ``model`` in place on ``task`` and return its state, with the ``curves`` of its scores.

    ``seed`` determines all batches and evaluations. ``model`` is a ``Transformer``, or has the same
    ``plan`` and ``forward``; frozen parameters do not change. ``device``: where batches are drawn,
    by default where the model is, which does not move. Raises ConfigError if the model's ``cfg`` or
    a batch does not fit the task, TrainingError if a loss is not finite or a batch has no scored
    position.
    """
    if isinstance(cfg := getattr(model, "cfg", None), ModelConfig):
        check_fit(task, cfg)
    model.train()
    device = device_for(model, device)
    loss_sum = torch.zeros((), dtype=widest(device), device=device)
    state = TrainingState(model, make_optimizer(model, config), config, loss_sum)
    state.optimizer.zero_grad()  # of a step that was interrupted
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
            columns = {
                name: value for hook in hooks for name, value in hook.columns().items()
            }
            add_point(state, task, mean_loss, seed, columns, device)
        for hook in hooks:
            hook.after_step(state)
    return state


def update(
    state: TrainingState, task: Task, batch: Batch, hooks: Sequence[Hook] = ()
) -> None:
    """Make one optimiser step on the mean loss over the scored positions of ``batch``."""
    share = batch
    for hook in hooks:
        share = hook.on_batch(share)
    config = state.config
    count = len(batch.targets_N)
    if not count:
        raise TrainingError(
            f"no position of the batch of step {state.step + 1} is scored"
        )
    loss = accumulate_gradients(state.model, task, share, count, config.precision)
    for hook in hooks:
        loss = hook.before_update(state.model, loss)
    if config.grad_clip is not None:
        nn.utils.clip_grad_norm_(
            trainable_parameters(state.model).values(), config.grad_clip
        )
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1
    state.loss_sum += loss


def accumulate_gradients(
    model: Any, task: Task, batch: Batch, count: int, precision: str
) -> Tensor:
    """Add the gradients of sum(losses) / ``count`` by micro-batches, and return that loss."""
    device = batch.inputs_BT.device
    arguments = batch.model_arguments()
    loss = torch.zeros((), device=device)
    micro_batches = model.plan(batch.scored_BT)
    shared: Sequence[Tensor] = ()
    if len(micro_batches) > 1 and hasattr(model, "project_once"):
        with autocast(device, precision):
            shared = model.project_once(batch.inputs_BT, **arguments) or ()
    # micro-batches add their gradients to these copies; one backward pass below continues
    projected = tuple(x.detach().requires_grad_(x.requires_grad) for x in shared)
    if projected:
        arguments["projected"] = projected
    for micro_batch in micro_batches:
        with autocast(device, precision):
            logits_NV = model(
                batch.inputs_BT, micro_batch, batch.prompt_lengths_B, **arguments
            )
        targets_N = batch.targets_BT[micro_batch.scored_BT]
        part_loss = task.losses(logits_NV, targets_N).sum() / count
        part_loss.backward()
        loss += part_loss.detach()
    gradients = [copy.grad for copy in projected]
    if any(g is not None for g in gradients):  # unless all before them is frozen
        torch.autograd.backward(shared, gradients)
    return loss


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the learning rate of the 1-based ``step``.

    It rises linearly to max_lr, falls by a cosine to min_lr, and then stays flat.
    """
    decay_steps = config.decay_steps or config.steps
    if step <= config.warmup_steps:
        return config.max_lr * step / config.warmup_steps
    if step >= decay_steps:
        return config.min_lr
    done = (step - config.warmup_steps) / (decay_steps - config.warmup_steps)
    return config.min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (
        config.max_lr - config.min_lr
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Return AdamW for all unfrozen parameters, with weight decay on matrices but not vectors."""
    parameters = list(trainable_parameters(model).values())
    require(parameters, "all parameters are frozen")
    matrices = [p for p in parameters if p.dim() >= 2]  # embeddings included
    vectors = [p for p in parameters if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.max_lr, betas=config.betas, fused=True)


def training_batches(
    task: Task, config: TrainConfig, seed: int, first_step: int, device: str
) -> Iterator[Batch]:
    """Yield the batches of the 1-based steps from ``first_step`` on."""
    size = config.batch_size
    rows = size * STEPS_PER_DRAW

    def drawn(step: int) -> Batch:
        draw = step // STEPS_PER_DRAW
        # a curriculum advances between draws only
        now = task.at_step(draw * STEPS_PER_DRAW + 1)
        batch = now.batch(generator_for(device, "train", seed, draw), rows)
        check_batch(now, batch, rows)
        return batch

    start = first_step - 1
    batch, again = drawn(start), drawn(start)
    names = ("inputs_BT", "scored_BT", "targets_N")
    require(
        all(torch.equal(getattr(batch, name), getattr(again, name)) for name in names),
        f"{type(task).__name__}.batch draws without its generator: models would not "
        "see the same sequences",
    )
    for step in itertools.count(start):
        place = step % STEPS_PER_DRAW
        if place == 0 and step > start:
            batch = drawn(step)
        yield batch.rows(slice(place * size, (place + 1) * size))


def check_batch(task: Task, batch: Batch, size: int) -> None:
    """Raise ConfigError for another number of sequences than asked for, or wrong targets."""
    shape = batch.scored_BT.shape
    name = f"{type(task).__name__}.batch"
    require(
        shape[0] == size,
        f"{name} returned {shape[0]} sequences of {size} asked for",
    )
    require(
        shape[1] <= task.length,
        f"{name} returned {shape[1]} tokens; length = {task.length}",
    )
    targets_BT = batch.targets_BT
    ids = (torch.int64,)
    try:
        if task.continuous:
            check_tensor("targets", targets_BT, REALS, shape, "real")
        else:
            check_tensor("targets", targets_BT, ids, shape, "ids, torch.int64,")
            if len(batch.targets_N):
                check_ids("target", batch.targets_N.cpu(), task.vocab_size)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def add_point(
    state: TrainingState,
    task: Task,
    train_loss: float,
    seed: int,
    columns: Mapping[str, float],
    device: str | None = None,
) -> None:
    """Evaluate, append a point to the curves, and keep the weights that are the best so far."""

    def score(scoring: Task, *name: str) -> Json:
        return evaluate(
            state.model,
            scoring,
            state.config.eval_sequences,
            seed,
            *name,
            state.step,
            device=device,
            precision=state.config.precision,
        )

    check_finite("training", train_loss, state)
    scores = score(task)
    # the last update may have ruined the weights
    check_finite("held-out", scores["loss"], state)
    for name, other in task.extra_scorings().items():
        scores[loss_curve(name)] = score(other, name)["loss"]
    point = {
        "step": state.step,
        **columns,
        "seconds": round(state.seconds, 3),
        "train_loss": train_loss,
        **scores,
    }
    for name, value in point.items():
        state.curves.setdefault(name, []).append(value)
    if point[task.patience_score] < state.best_loss:
        state.best_loss = point[task.patience_score]
        state.evals_since_best = 0
    else:
        state.evals_since_best += 1
    if task.test() is not None:
        keep_best_weights(state, task)


def keep_best_weights(state: TrainingState, task: Task) -> None:
    """Keep a copy of the weights for each rule of the task whose score has strictly improved.

    NaN counts as worse than any other score.
    """
    for rule, curve in task.checkpoint_rules().items():
        value = state.curves[curve][-1]
        best = state.kept[rule]["score"] if rule in state.kept else math.nan
        is_better = value > best if rule.startswith("highest") else value < best
        if is_better or math.isnan(best):
            state.kept[rule] = {"step": state.step, "score": value}
            state.kept_weights[rule] = {
                name: p.detach().clone()
                for name, p in trainable_parameters(state.model).items()
            }


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name: those that are not frozen."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_finite(kind: str, loss: float, state: TrainingState) -> None:
    """Raise TrainingError where a loss is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"the {kind} loss is {loss} at step {state.step}; a lower max_lr than "
            f"{state.config.max_lr:g} may help"
        )


def check_fit(task: Task, model: ModelConfig) -> None:
    """Raise ConfigError where the task's symbols or lengths do not fit the model."""

    def check(name: str, fits: bool, problem: str) -> None:
        value = getattr(model, name)
        require(fits, f"{name} = {value!r}: the task {type(task).__name__} {problem}")

    kind = (
        "tokens, which need None"
        if task.input_dim is None
        else f"{task.input_dim} numbers"
    )
    check("input_dim", task.input_dim == model.input_dim, f"has inputs of {kind}")
    name = "vocab_size" if model.input_dim is None else "output_dim"
    outputs = 1 if task.continuous else task.vocab_size
    check(name, getattr(model, name) == outputs, f"needs {outputs}")
    check(
        "architecture",
        task.same_prompts or not model.open_prompt,
        "trains without the prompts that it opens later; use 'decoder'",
    )
    fits = task.length <= model.max_length
    check("max_length", fits, f"has sequences of {task.length}")
