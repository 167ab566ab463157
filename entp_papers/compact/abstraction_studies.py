"""Abstraction from instantiations of a template as records: a function of JSON arguments, (metrics, curves) back."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.records import resuming
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.training.evaluation import evaluate
from entp_lib.training.flat import FlatAdam
from entp_lib.validation import from_dict, require
from entp_papers.compact import heads
from entp_papers.compact.templates import Templates, bayes_floor, floor_by_position

WARM_UP = 100  # steps
FINAL = 512  # sequences of the last evaluation


def abstraction_study(
    task: dict[str, Any],
    architecture: str,
    n_layers: int,
    n_heads: int,
    width: int,
    steps: int,
    batch_size: int = 64,
    rate: float = 1e-3,
    evaluations: int = 10,
    sequences: int = 256,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train on the templates of one side, and look at both (§2.3).

    Metrics: ``held_out`` and ``seen``, the scores of all positions on either side, loss and accuracy by position among
    them; ``last`` and ``matching``, the two accuracies of §2.3.2, by side; the Bayes ``floor`` over the templates of
    training and ``floor_by_position``; ``heads``. Curves: training loss, the two accuracies on held-out templates.
    Twins of a seed start from the same weights and see the same sequences and scored positions.
    """
    check(steps, batch_size, evaluations)
    source, model, optimizer = prepared(task, architecture, n_layers, n_heads, width, rate, seed)
    every = max(1, steps // evaluations)
    curves: dict[str, list] = {"step": [], "loss": [], "last": [], "matching": []}
    since = {"loss": 0.0, "steps": 0}
    for step in resuming.steps(resuming.Progress(curves, since), steps, model, optimizer):
        loss = training(model, optimizer, source, rate, batch_size, seed, step)
        since["loss"], since["steps"] = since["loss"] + loss, since["steps"] + 1
        if step % every == 0 or step == steps:
            curves["step"].append(step)
            curves["loss"].append(since["loss"] / since["steps"])
            for scored in ("last", "matching"):
                found = evaluate(model, source.variant(scored=scored), sequences, seed, step)
                curves[scored].append(found["token_accuracy"])
            since["loss"], since["steps"] = 0.0, 0
    return final(model, source, seed), curves


def check(steps: int, batch_size: int, evaluations: int) -> None:
    """Raise ConfigError where one of them is below 1."""
    for name, value in (("steps", steps), ("batch_size", batch_size), ("evaluations", evaluations)):
        require(value >= 1, f"{name} = {value}: must be at least 1")


def prepared(
    task: dict[str, Any], architecture: str, n_layers: int, n_heads: int, width: int, rate: float, seed: int
) -> tuple[Templates, nn.Module, torch.optim.Optimizer]:
    """The task, a model with the seed's weights and its optimizer. Raises ConfigError for a task that is none."""
    source = from_dict(Templates, task, "task.")
    require(source.scored in ("all", "sampled"), f"task.scored = {source.scored!r}: training scores all or sampled")
    cfg = ModelConfig(architecture, n_layers, n_heads, width, source.vocab_size, source.length)
    model = build_model(cfg, seed_from("abstraction", seed))
    return source, model, FlatAdam(model.parameters(), lr=rate)


def training(model, optimizer, source: Templates, rate: float, batch_size: int, seed: int, step: int) -> float:
    """One step of training after a short warm-up, on the seed's sequences of this step; returns the loss."""
    for group in optimizer.param_groups:
        group["lr"] = rate * min(1.0, step / WARM_UP)
    batch = source.batch(generator_for("cpu", "abstraction", seed, step), batch_size)
    loss = F.cross_entropy(model(batch.inputs_BT, batch.wanted_BT, None), batch.targets_N)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def final(model, source: Templates, seed: int) -> dict[str, Any]:
    """What the record says of the trained model."""
    trained, apart = source.sides()
    metrics: dict[str, Any] = {"last": {}, "matching": {}}
    for side, seen in (("held_out", False), ("seen", True)):
        whole = evaluate(model, source.variant(scored="all", seen=seen), FINAL, seed, side, detailed=True)
        by_position = whole["token_accuracy_by_position"]
        last, matching = by_position[source.last_prefix - 1], by_position[source.last_prefix :]
        metrics[side] = {name: value for name, value in whole.items() if not name.startswith("margin")}
        metrics["last"][side] = last
        metrics["matching"][side] = sum(matching) / len(matching)
    return metrics | {
        "floor": bayes_floor(source, trained),
        "floor_by_position": floor_by_position(source, trained),
        "templates": [len(trained), len(apart) if source.held_out else 0],
        "heads": heads.examine(model, source, generator_for("cpu", "heads", seed)),
    }
