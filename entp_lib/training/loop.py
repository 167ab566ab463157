"""One training loop for every model and task, exact to resume.

Batches depend on (data_seed, step) alone and a checkpoint holds weights, optimiser moments, curves and running
sums, so that a killed run ends, bit for bit on one machine, where an uninterrupted one does.
"""

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib import heap
from entp_lib.config import RunConfig, TrainConfig
from entp_lib.models import build_model
from entp_lib.models.entp import token_forwards
from entp_lib.models.kernels import UNNAMED
from entp_lib.tasks import Batch, Task, build_task, generator_for, loss_curve, seed_from
from entp_lib.training.evaluation import autocast, constant_baseline, evaluate
from entp_lib.training.weights import State, Weights, learned, load_checkpoint, save_checkpoint, start_from
from entp_lib.validation import OneLine, require

STEPS_PER_DRAW = 16  # generating many small batches at once is several times cheaper; a curriculum moves between draws
CHECKPOINT_SECONDS = 60.0
log = logging.getLogger(__name__)


class TrainingError(OneLine, RuntimeError):
    """A run that cannot go on: its loss is no longer finite."""


@dataclass
class Outcome:
    """A run's end: the model, its state, its final metrics, and whether it reached its last step."""

    model: nn.Module
    state: State
    metrics: dict[str, Any]
    complete: bool


def learning_rate(step: int, train: TrainConfig) -> float:
    """Rate of the 1-based ``step``: linear from 0 to max_lr, cosine to min_lr at ``decay_steps``, then flat."""
    decay_steps = train.decay_steps or train.steps
    if step <= train.warmup_steps:
        return train.max_lr * step / train.warmup_steps
    if step >= decay_steps:
        return train.min_lr
    done = (step - train.warmup_steps) / (decay_steps - train.warmup_steps)
    return train.min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (train.max_lr - train.min_lr)


def make_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.AdamW:
    """AdamW on what is not frozen, with weight decay on parameters of two or more dimensions, embeddings included."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": train.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=train.max_lr, betas=train.betas, fused=True)


def training_batches(task: Task, config: RunConfig, first_step: int, device: str) -> Iterator[Batch]:
    """Batches of the 1-based steps from ``first_step`` on."""
    size, drawn = config.train.batch_size, None
    for step in itertools.count(first_step - 1):
        draw, place = divmod(step, STEPS_PER_DRAW)
        if drawn is None or place == 0:
            now = task.at_step(draw * STEPS_PER_DRAW + 1)
            drawn = now.batch(generator_for(device, "train", config.data_seed, draw), size * STEPS_PER_DRAW)
        yield drawn.rows(slice(place * size, (place + 1) * size))


def train(
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
    ranks: Any = None,
) -> Outcome:
    """Run ``config`` to its end or until ``stop``, asked between steps, says so; from ``checkpoint`` if it exists.

    ``start``: the file of the weights that ``config.start_from`` names. ``process``: this process's provenance, for
    the state's list of those that worked on the run. ``task``, ``model``: used in place of what the configuration
    describes; such a model has ``plan`` and ``forward`` as a Transformer, and its frozen parameters are neither trained
    nor checkpointed. ``ranks``: the processes that compute their sequences of every batch each
    (``entp_lib.records.ranks``); only the first writes the checkpoint and returns metrics.

    Raises ConfigError where task and model do not fit, its subclass DamagedFileError where the checkpoint is damaged
    or belongs to another configuration, and TrainingError where the loss stops being finite.
    """
    task = task or build_task(config.task, config.task_params)
    check_fit(task, config)
    leads = ranks is None or ranks.rank == 0
    task.facts()  # which loads or makes the data, before any clock of training runs
    heap.keep_freed()
    started, cpu_started = time.monotonic(), time.process_time()
    if model is None:
        model = build_model(config.model, seed_from("model", config.model_seed), device)
    model.train()
    optimizer = make_optimizer(model, config.train)
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    state = State()
    kept: dict[str, Weights] = {}
    if checkpoint is not None and checkpoint.exists():
        state = load_checkpoint(checkpoint, config, model, optimizer, loss_sum, kept)
        warn_of_other_kernels(state, process or {})
    elif config.start_from:
        require(start is not None, f"start_from = {config.start_from!r}: its file of weights was not given")
        start_from(start, config, task, model)
    if ranks is not None:
        ranks.begin(config, state.step)
    state.processes.append({**(process or {}), "from_step": state.step})
    earlier, cpu_earlier = state.wall_seconds, state.cpu_seconds
    saved = time.monotonic()

    def save(file: Path | None) -> None:
        state.wall_seconds = earlier + time.monotonic() - started
        state.cpu_seconds = cpu_earlier + time.process_time() - cpu_started
        if file is not None and leads:
            save_checkpoint(file, config, model, optimizer, loss_sum, state, kept)

    ended = state.has_ended(config)  # a checkpoint may lie behind the last step
    batches = training_batches(task, config, state.step + 1, device)
    while not ended:
        asked = stop is not None and stop()
        if asked if ranks is None else ranks.any_asks(asked):
            break
        begun = time.monotonic()
        batch = next(batches)
        optimise(model, optimizer, task, batch, config, state.step + 1, loss_sum, ranks)
        state.step += 1
        state.token_forwards += token_forwards(config.model, batch.wanted_BT)
        if state.step % config.train.eval_every == 0 or state.step == config.train.steps:
            average = float(loss_sum) / ((state.step - 1) % config.train.eval_every + 1)  # waits for the device
            state.seconds += time.monotonic() - begun
            loss_sum.zero_()
            ended = record_point(model, task, config, state, kept, average, device)
        else:
            state.seconds += time.monotonic() - begun
        if on_step is not None:
            on_step(state.step)
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            save(checkpoint)
            saved = time.monotonic()
    save(checkpoint)
    metrics: dict[str, Any] = {}
    if ended and leads:
        metrics = final_metrics(model, task, config, device)
        if task.test() is not None:
            metrics["test"] = test_metrics(model, task.test(), config, state, kept, device)
    save(None)  # the times of the final scores, too
    return Outcome(model, state, metrics, ended)


def warn_of_other_kernels(state: State, process: dict[str, Any]) -> None:
    """Say where a run in bf16 goes on with other kernels than before; its list of processes keeps which, from where."""
    now = process.get("kernels")
    before = state.processes[-1].get("kernels", UNNAMED) if state.processes else now
    if now and now != before:
        log.warning("steps from %d on are computed by other kernels (%s) than before (%s)", state.step + 1, now, before)


def optimise(model, optimizer, task: Task, batch: Batch, config: RunConfig, step: int, loss_sum: Tensor, ranks=None):
    """One optimiser step on the mean loss over the batch's wanted positions, which ``ranks`` share."""
    train = config.train
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, train)
    part = batch if ranks is None else ranks.own(batch)
    loss = accumulate(model, task, part, len(batch.targets_N), train.precision)
    if ranks is not None:
        loss = ranks.add_up(model, loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss_sum += loss.double()


def accumulate(model: nn.Module, task: Task, batch: Batch, count: int, precision: str) -> Tensor:
    """Add to the gradients those of the batch's summed losses over ``count``; returns that share of the mean loss."""
    device, relations = batch.inputs_BT.device, batch.relations()
    loss = torch.zeros((), device=device)
    parts = model.plan(batch.wanted_BT)
    shared = None
    if len(parts) > 1 and hasattr(model, "shared"):
        with autocast(device, precision):
            shared = model.shared(batch.inputs_BT, **relations)
    if shared is not None:  # the parts' gradients are added up at it, and go on from there once
        relations |= {"projected": tuple(x.detach().requires_grad_() for x in shared)}
    for part in parts:
        with autocast(device, precision):
            logits_NV = model(batch.inputs_BT, part, batch.prompt_lengths_B, **relations)
        part_loss = task.losses(logits_NV, batch.targets_BT[part.wanted_BT]).sum() / count
        part_loss.backward()
        loss += part_loss.detach()
    if shared is not None:
        torch.autograd.backward(shared, [x.grad for x in relations["projected"]])
    return loss


def check_finite(kind: str, loss: float, step: int, max_lr: float) -> None:
    """Raise TrainingError where a loss is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(f"the {kind} loss is {loss} at step {step}; a lower max_lr than {max_lr:g} may help")


def record_point(
    model, task: Task, config: RunConfig, state: State, kept: dict[str, Weights], train_loss: float, device: str
) -> bool:
    """Evaluate, append a point to the curves, and keep the weights that are best so far; whether the run has ended."""
    train = config.train
    check_finite("training", train_loss, state.step, train.max_lr)
    options = dict(device=device, precision=train.precision)
    scores = evaluate(model, task, train.eval_sequences, config.data_seed, state.step, **options)
    check_finite("held-out", scores["loss"], state.step, train.max_lr)  # the last update may have ruined the weights
    for name, other in task.watched().items():
        found = evaluate(model, other, train.eval_sequences, config.data_seed, name, state.step, **options)
        scores[loss_curve(name)] = found["loss"]
    spent = {"step": state.step, "token_forwards": state.token_forwards, "seconds": round(state.seconds, 3)}
    point = spent | {"train_loss": train_loss} | scores
    for name, value in point.items():
        state.curves.setdefault(name, []).append(value)
    watched = point[task.patience_score]
    if watched < state.best_loss:
        state.best_loss, state.evals_since_best = watched, 0
    else:
        state.evals_since_best += 1
    for name, curve in task.checkpoint_rules().items() if task.test() is not None else ():
        value, before = state.curves[curve][-1], state.kept.get(name, {"score": math.nan})["score"]
        # strictly better: the first of equals stays
        if math.isnan(before) or (value > before if name.startswith("highest") else value < before):
            state.kept[name] = {"step": state.step, "score": value}
            kept[name] = {weight: p.detach().clone() for weight, p in learned(model).items()}
    return state.has_ended(config)


def test_metrics(model, task: Task, config: RunConfig, state: State, kept: dict[str, Weights], device: str) -> dict:
    """Scores on the test set of the last weights and of those that each rule kept, the same test items for all."""
    last = {name: p.detach().clone() for name, p in learned(model).items()}
    scored: dict[int, dict] = {}  # rules that chose the same step share its scores
    found: dict[str, dict] = {}
    options = dict(device=device, precision=config.train.precision, grouped=True)
    for rule, weights in {"last": last, **kept}.items():
        step = state.kept[rule]["step"] if rule in kept else state.step
        if step not in scored:
            model.load_state_dict(weights, strict=False)
            scores = evaluate(model, task, config.train.final_eval_sequences, config.data_seed, "test", **options)
            scored[step] = {"step": step, **scores}
        found[rule] = scored[step]
    model.load_state_dict(last, strict=False)
    return found


def final_metrics(model, task: Task, config: RunConfig, device: str) -> dict[str, Any]:
    """Detailed scores of the last weights, those the task reports apart, the constant baseline, and samples."""
    sequences, seed = config.train.final_eval_sequences, config.data_seed
    options = dict(device=device, precision=config.train.precision)
    metrics = evaluate(model, task, sequences, seed, "final", detailed=True, **options)
    for name, other in task.reported_apart().items():
        metrics[name] = evaluate(model, other, sequences, seed, "final", detailed=other.continuous, **options)
    metrics["baseline"] = constant_baseline(task, sequences, seed, device=device)
    return metrics | task.facts() | task.samples(model, generator_for(device, "samples", seed))


def check_fit(task: Task, config: RunConfig) -> None:
    """ConfigError where the task's symbols or lengths do not fit the model."""
    model = config.model
    kind = "tokens, which need None" if task.input_dim is None else f"inputs of {task.input_dim} numbers"
    symbols = model.vocab_size if model.input_dim is not None else getattr(task, "vocab_size", None)
    prompts = "trains without the prompts that it opens later; use 'decoder'"
    for fits, name, right in (
        (task.input_dim == model.input_dim, "input_dim", f"has {kind}"),
        (not task.continuous or model.output_dim == 1, "output_dim", "predicts one number"),
        (symbols == model.vocab_size, "vocab_size", f"has {symbols} symbols"),
        (task.same_prompts or not model.open_prompt, "architecture", prompts),
        (task.length <= model.max_length, "max_length", f"has sequences of {task.length}"),
    ):
        require(fits, f"{name} = {getattr(model, name)!r}: task {config.task!r} {right}")
