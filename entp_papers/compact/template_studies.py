"""The two studies of abstraction from templates (§2.3): training with a look at the heads, and at the last token.

Heads: some look back to the same place of an earlier instantiation (§4.3.4); what is lost without each is measured. A
model is run on one prefix at a time and read at its end, which for a decoder gives the same as one pass and for ENTP is
its definition.

The last token: between guessing and knowing, the last token of a held-out template is right in two thirds of the
sequences for long stretches. A model need not know the template for that: whether the last place repeats the one before
it can be read off an earlier instantiation, without any of the later digits.

Letters: B sequences, L layers, H heads, T tokens of a prefix, K head width, D width, V symbols.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.experiments.studies import Study, at_least, descend
from entp_lib.models import build_model
from entp_lib.records import resuming
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.training.evaluation import evaluate
from entp_lib.validation import from_dict, require
from entp_papers.compact.flat import FlatAdam
from entp_papers.compact.templates import Templates, bayes_floor, floor_by_position

WARM_UP = 100  # steps
FINAL = 512  # sequences of the last evaluation
HEAD_SEQUENCES = 64
TARGETS = ("first", "first_next", "previous", "previous_next")
PARTS = ("last", "repeating", "others", "copied")


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
) -> Study:
    """Train on the templates of one side, and evaluate on both (§2.3).

    Metrics: ``held_out`` and ``seen``, the scores of all positions on either side, loss and accuracy by position among
    them; ``last`` and ``matching``, the two accuracies of §2.3.2, by side; the Bayes ``floor`` over the templates of
    training and ``floor_by_position``; ``heads``. Curves: training loss, the two accuracies on held-out templates.
    Twins of a seed start from the same weights and see the same sequences and scored positions.
    """
    source, model = prepared(task, architecture, n_layers, n_heads, width, seed)

    def look(step: int, loss: float) -> dict[str, float]:
        found = {"loss": loss}
        for scored in ("last", "matching"):
            scores = evaluate(model, source.variant(scored=scored), sequences, seed, step)
            found[scored] = scores["token_accuracy"]
        return found

    names = ("loss", "last", "matching")
    curves = train(model, source, steps, batch_size, rate, evaluations, seed, names, look)
    trained, apart = source.sides()
    metrics: dict[str, Any] = {"last": {}, "matching": {}}
    for side, seen in (("held_out", False), ("seen", True)):
        whole = evaluate(model, source.variant(scored="all", seen=seen), FINAL, seed, side, detailed=True)
        by_position = whole["token_accuracy_by_position"]
        matching = by_position[source.last_prefix :]
        metrics[side] = {name: value for name, value in whole.items() if not name.startswith("margin")}
        metrics["last"][side] = by_position[source.last_prefix - 1]
        metrics["matching"][side] = sum(matching) / len(matching)
    return metrics | {
        "floor": bayes_floor(source, trained),
        "floor_by_position": floor_by_position(source, trained),
        "templates": [len(trained), len(apart) if source.held_out else 0],
        "heads": examine_heads(model, source, generator_for("cpu", "heads", seed)),
    }, curves


def last_token_study(
    task: dict[str, Any],
    architecture: str,
    n_layers: int,
    n_heads: int,
    width: int,
    steps: int,
    batch_size: int = 64,
    rate: float = 1e-3,
    evaluations: int = 16,
    sequences: int = 1024,
    seed: int = 0,
) -> Study:
    """Train as ``abstraction_study`` does, and split the accuracy at the last token of held-out templates.

    Curves by step, each a share of the sequences that it concerns: ``last``, right of all; ``repeating``, right where
    the token repeats the one before it; ``others``, right of all others; ``copied``, of those others, where the token
    before is predicted all the same. Metrics: the same at the end, ``repeats``, the share of held-out templates whose
    last place repeats the one before, and ``rule``, the accuracy of telling these and guessing among the others.
    """
    source, model = prepared(task, architecture, n_layers, n_heads, width, seed)

    def look(step: int, loss: float) -> dict[str, float]:
        return split(model, source, sequences, generator_for("cpu", "last", seed, step))

    curves = train(model, source, steps, batch_size, rate, evaluations, seed, PARTS, look)
    apart = source.sides()[1]
    repeats = float((apart[:, -1] == apart[:, -2]).double().mean())
    rule = repeats + (1 - repeats) / max(1, source.variables - 1)
    return {**{part: curves[part][-1] for part in PARTS}, "repeats": repeats, "rule": rule}, curves


def prepared(task: dict, architecture: str, n_layers: int, n_heads: int, width: int, seed: int):
    """The ``Templates`` and a model with the seed's weights. Raises ConfigError naming what does not fit."""
    source = from_dict(Templates, task, "task.")
    require(source.scored in ("all", "sampled"), f"task.scored = {source.scored!r}: training scores all or sampled")
    cfg = ModelConfig(architecture, n_layers, n_heads, width, source.vocab_size, source.length)
    return source, build_model(cfg, seed_from("abstraction", seed))


def train(
    model: nn.Module,
    source: Templates,
    steps: int,
    batch_size: int,
    rate: float,
    evaluations: int,
    seed: int,
    names: tuple[str, ...],
    look: Callable[[int, float], dict[str, float]],
) -> dict[str, list]:
    """Adam with a short warm-up on the seed's sequences; returns the curves ``names`` of what ``look`` finds.

    ``look`` is given the step and the mean training loss since the last evaluation.
    """
    at_least(1, steps=steps, batch_size=batch_size, evaluations=evaluations)
    optimizer = FlatAdam(model.parameters(), lr=rate)
    every = max(1, steps // evaluations)
    curves: dict[str, list] = {name: [] for name in ("step", *names)}
    since = {"loss": 0.0, "steps": 0}
    for step in resuming.steps(resuming.Progress(curves, since), steps, model, optimizer):
        batch = source.batch(generator_for("cpu", "abstraction", seed, step), batch_size)
        loss = F.cross_entropy(model(batch.inputs_BT, batch.wanted_BT, None), batch.targets_N)
        since["loss"] += descend(model, optimizer, [loss], rate * min(1.0, step / WARM_UP))
        since["steps"] += 1
        if step % every == 0 or step == steps:
            for name, value in {"step": step, **look(step, since["loss"] / since["steps"])}.items():
                curves[name].append(value)
            since["loss"], since["steps"] = 0.0, 0
    return curves


@torch.no_grad()
def split(model: nn.Module, source: Templates, count: int, generator: torch.Generator) -> dict[str, float]:
    """The shares of ``PARTS`` over so many sequences of held-out templates; 0 where none is concerned."""
    batch = source.variant(scored="last").batch(generator, count, evaluating=True)
    was_training = model.training
    model.eval()
    predicted_B = model(batch.inputs_BT, batch.wanted_BT, None).argmax(-1)
    model.train(was_training)
    before_B = batch.inputs_BT[:, source.last_prefix - 1]
    right_B, repeating_B = predicted_B == batch.targets_N, batch.targets_N == before_B

    def share(hits_B: Tensor, of_B: Tensor) -> float:
        return float(hits_B[of_B].double().mean()) if of_B.any() else 0.0

    return {
        "last": share(right_B, torch.ones_like(right_B)),
        "repeating": share(right_B, repeating_B),
        "others": share(right_B, ~repeating_B),
        "copied": share(predicted_B == before_B, ~repeating_B),
    }


@torch.no_grad()
def traced(model: nn.Module, inputs_BT: Tensor, without: tuple[int, int] | None = None) -> tuple[Tensor, Tensor]:
    """Logits (B, V) after the prefixes and the attention of their last token, (L, B, H, T).

    ``without``: the layer and head whose output is set to zero at every token.
    """
    x_BTD = model.embed(inputs_BT)
    length = inputs_BT.shape[1]
    later_TT = torch.ones(length, length, dtype=torch.bool, device=x_BTD.device).triu(1)
    looked = []
    for layer, block in enumerate(model.blocks):
        q, k, v = block.attention.project(block.ln_1(x_BTD))
        scores_BHTT = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if model.cfg.architecture == "decoder":
            scores_BHTT = scores_BHTT.masked_fill(later_TT, -math.inf)
        weights_BHTT = scores_BHTT.softmax(-1)
        looked.append(weights_BHTT[:, :, -1])
        y_BHTK = weights_BHTT @ v
        if without is not None and without[0] == layer:
            y_BHTK[:, without[1]] = 0
        x_BTD = block.residual(x_BTD, block.attention.out(y_BHTK.transpose(1, 2).flatten(2)))
    return model.head(model.ln_f(x_BTD[:, -1])), torch.stack(looked)


def aligned_attention(model: nn.Module, inputs_BT: Tensor, template_length: int, instances: int) -> Tensor:
    """Mean attention (L, H, 4) from place j of a later instantiation to four places of an earlier one.

    Those of ``TARGETS``: place j and the next, j + 1, of the first instantiation, and the same of the previous one. The
    mean is over the instantiations from the second on and all places but the last, whose next token starts anew.
    """
    total, count = 0.0, 0
    for instance in range(1, instances):
        for place in range(template_length - 1):
            end, previous = instance * template_length + place, (instance - 1) * template_length + place
            _, looked_LBHT = traced(model, inputs_BT[:, : end + 1])
            total = total + looked_LBHT[..., [place, place + 1, previous, previous + 1]].mean(1)
            count += 1
    return total / count


def examine_heads(model: nn.Module, task: Templates, generator: torch.Generator) -> dict[str, Any]:
    """Every head's attention on the aligned places, and the accuracy at the last token without it.

    ``mass``: by layer and head, the four means of ``TARGETS``; ``strongest``: the largest of them all;
    ``accuracy`` of the whole model at the last token, ``without`` each head by layer. On held-out templates.
    """
    was_training = model.training
    model.eval()
    batch = task.variant(scored="all").batch(generator, HEAD_SEQUENCES, evaluating=True)
    inputs_BT, place = batch.inputs_BT, task.last_prefix
    mass_LH4 = aligned_attention(model, inputs_BT, task.template_length, task.instances)

    def accuracy(without: tuple[int, int] | None) -> float:
        logits_BV, _ = traced(model, inputs_BT[:, :place], without)
        return float((logits_BV.argmax(-1) == batch.targets_BT[:, place - 1]).double().mean())

    layers, heads, _ = mass_LH4.shape
    found = {
        "targets": list(TARGETS),
        "mass": mass_LH4.tolist(),
        "strongest": float(mass_LH4.max()),
        "accuracy": accuracy(None),
        "without": [[accuracy((layer, head)) for head in range(heads)] for layer in range(layers)],
    }
    model.train(was_training)
    return found
