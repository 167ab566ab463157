"""Abstract templates (§2.3): the task, its exact Bayes floor by position, and studies of models.

A template such as ABCABCAB is a sequence of variables in order of first appearance, in which all
variables occur and the last one is not new. One sequence holds several instantiations of one
template, each with its own digits for the variables, and then, for each instantiation, its digits
in order of first appearance; there are no separators:

    12312312 45645645 78978978 15915915 123 456 789 159

The first token has nothing before it and is not predicted. Of 43 predictions of the paper's 44
tokens most are certain once the template is known: the entropy of the rest, 0.686 nats a
prediction, is the 0.68 at which its losses end.

Some heads look back to the same place of an earlier instantiation (§4.3.4); the loss of accuracy
without each head is measured. A model is run on one prefix at a time and read at its end, which for
a decoder gives the same as one pass and for ENTP is its definition. Between guessing and knowing,
models get the last token of a held-out template right in two thirds of the sequences for long
stretches of training. They need not know the template for that: an earlier instantiation shows
whether the last place repeats the one before it, without any of the later digits.

Letters: M templates, B sequences, T tokens, L layers, H heads, K head width, D width, V symbols.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab import resume as resuming
from entp_lab.configs import Json
from entp_lab.studies import Study, descend
from entp_lib.config import ModelConfig
from entp_lib.evaluation import evaluate
from entp_lib.model import build_model
from entp_lib.tasks.base import Batch, Task, generator_for, seed_from

WARM_UP = 100  # steps
FINAL = 512  # sequences of the last evaluation
HEAD_SEQUENCES = 64
TARGETS = ("first", "first_next", "previous", "previous_next")
PARTS = ("last", "repeating", "others", "copied")


@functools.lru_cache(maxsize=16)
def all_templates(length: int, variables: int) -> tuple[tuple[int, ...], ...]:
    """List all templates in ascending order: S(8, 3) - S(7, 2) = 903 of length 8, 3 variables."""
    found = [(0,)]
    for _ in range(length - 1):
        found = [(*t, v) for t in found for v in range(min(max(t) + 2, variables))]
    return tuple(t for t in found if max(t) == variables - 1 and t[-1] in t[:-1])


@dataclass(frozen=True)
class Templates(Task):
    """Sequences of ``instances`` instantiations of a template and their variables.

    ``held_out``: share of the templates that training never sees and evaluation uses. ``scored``:
    ``all`` positions; ``sampled`` trains on ``sample`` positions drawn for each sequence (ENTP runs
    a prefix for each) and is evaluated on all; ``last`` scores the last token of the last
    instantiation, ``matching`` the variables at the end. ``seen`` evaluates on the templates of
    training.
    """

    template_length: int = 8
    variables: int = 3
    instances: int = 4
    digits: int = 9
    held_out: float = 0.2
    scored: Literal["all", "sampled", "last", "matching"] = "all"
    sample: int = 8
    seen: bool = False

    @property
    def vocab_size(self) -> int:
        return self.digits

    @property
    def length(self) -> int:
        return self.instances * (self.template_length + self.variables) - 1

    @property
    def last_prefix(self) -> int:
        """Return the length of the prefix before the last token of the last instantiation."""
        return self.instances * self.template_length - 1

    def sides(self) -> tuple[Tensor, Tensor]:
        """Split the templates (M, length) into those of training and evaluation, always alike."""
        found = torch.tensor(all_templates(self.template_length, self.variables))
        if self.held_out == 0:
            return found, found
        order = torch.randperm(len(found), generator=generator_for("cpu", "templates"))
        apart = round(self.held_out * len(found))
        return found[order[apart:]], found[order[:apart]]

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        templates = self.sides()[int(evaluating and not self.seen)]
        chosen_Bl = templates[torch.randint(len(templates), (size,), generator=generator)]
        # each instantiation's variables get the first digits of a random order, all different
        order = torch.rand(size, self.instances, self.digits, generator=generator).argsort(-1)[
            ..., : self.variables
        ]
        index = chosen_Bl[:, None].expand(-1, self.instances, -1)
        text_BT = torch.cat([order.gather(2, index).flatten(1), order.flatten(1)], 1)
        if self.scored == "sampled" and not evaluating:
            scored_BT = (
                torch.rand(size, self.length, generator=generator).argsort(-1).argsort(-1)
                < self.sample
            )
        else:
            where_T = torch.arange(self.length)
            last = self.last_prefix
            scored = {"last": where_T == last - 1, "matching": where_T >= last}
            scored_BT = scored.get(self.scored, where_T >= 0).expand(size, -1).clone()
        return Batch.of_text(text_BT, scored_BT)


def floor_by_position(task: Templates, templates: Tensor) -> list[float]:
    """Return the entropy in nats of each prediction, given the templates and the task.

    Within the first instantiation the next symbol is that of a template that fits so far; a new
    variable's digit is any that is not used yet. After the first, the template is known. Returns
    ``task.length`` numbers.
    """
    rows = [tuple(t) for t in templates.tolist()]
    first = []
    later = []
    for j in range(task.template_length):
        total = 0.0
        certain = 0.0
        prefixes = {}
        for row in rows:
            prefixes.setdefault(row[:j], []).append(row[j])
            used = len(set(row[:j]))
            if row[j] == used:
                certain += math.log(task.digits - used)
        for prefix, nexts in prefixes.items():
            used = len(set(prefix))
            for symbol in set(nexts):
                count = nexts.count(symbol)
                ways = task.digits - used if symbol == used else 1
                total -= count * math.log(count / len(nexts) / ways)
        first.append(total / len(rows))
        later.append(certain / len(rows))
    by_position = first + later * (task.instances - 1) + [0.0] * (task.instances * task.variables)
    return by_position[1:]


def bayes_floor(task: Templates, templates: Tensor) -> float:
    """Average ``floor_by_position``.

    With the paper's numbers it is [ln M + instances · ln(9 · 8 · 7) - ln 9] / 43.
    """
    return sum(floor_by_position(task, templates)) / task.length


def abstraction_study(task: Json, sequences: int = 256, seed: int = 0, **training: Any) -> Study:
    """Train on the templates of one side, and evaluate on both (§2.3); ``training``: as in
    ``trained``.

    Metrics: ``held_out`` and ``seen``, the scores of all positions on either side, loss and
    accuracy by position among them; ``last`` and ``matching``, the two accuracies of §2.3.2, by
    side; the Bayes ``floor`` over the templates of training and ``floor_by_position``; ``heads``.
    Curves: training loss, the two accuracies on held-out templates. Models of a seed start from the
    same weights and see the same sequences and scored positions.
    """

    def look(source: Templates, model: nn.Module, step: int, loss: float) -> dict[str, float]:
        found = {"loss": loss}
        for scored in ("last", "matching"):
            scores = evaluate(model, replace(source, scored=scored), sequences, seed, step)
            found[scored] = scores["token_accuracy"]
        return found

    source, model, curves = trained(task, ("loss", "last", "matching"), look, seed, **training)
    learned, apart = source.sides()
    metrics = {"last": {}, "matching": {}}
    for side, seen in (("held_out", False), ("seen", True)):
        whole = evaluate(
            model, replace(source, scored="all", seen=seen), FINAL, seed, side, detailed=True
        )
        by_position = whole["token_accuracy_by_position"]
        matching = by_position[source.last_prefix :]
        metrics[side] = {
            name: value for name, value in whole.items() if not name.startswith("margin")
        }
        metrics["last"][side] = by_position[source.last_prefix - 1]
        metrics["matching"][side] = sum(matching) / len(matching)
    return metrics | {
        "floor": bayes_floor(source, learned),
        "floor_by_position": floor_by_position(source, learned),
        "templates": [len(learned), len(apart) if source.held_out else 0],
        "heads": examine_heads(model, source, generator_for("cpu", "heads", seed)),
    }, curves


def last_token_study(task: Json, seed: int = 0, **training: Any) -> Study:
    """Train as in ``abstraction_study``, and split the accuracy at held-out templates' last token.

    Curves by step: ``last``, the share of all sequences that are right; ``repeating``, the share
    right if the token repeats the one before it; ``others``, the share right if it does not;
    ``copied``, the share of these others in which the token before is predicted nevertheless.
    Metrics: the same at the end; ``repeats``, the share of held-out templates whose last place
    repeats the one before; and ``rule``, the accuracy of recognising these and guessing on the
    others.
    """

    def look(source: Templates, model: nn.Module, step: int, loss: float) -> dict[str, float]:
        return split(model, source, 1024, generator_for("cpu", "last", seed, step))

    source, _, curves = trained(task, PARTS, look, seed, **training)
    apart = source.sides()[1]
    repeats = float((apart[:, -1] == apart[:, -2]).double().mean())
    rule = repeats + (1 - repeats) / max(1, source.variables - 1)
    return {part: curves[part][-1] for part in PARTS} | {"repeats": repeats, "rule": rule}, curves


def attention_study(task: Json, seed: int = 0, **training: Any) -> Study:
    """Train as in ``abstraction_study``, and keep the attention of one head (figures 24 and 28).

    It is the head with the most attention on an aligned place of an earlier instantiation. Metrics:
    its ``layer``, ``head`` and ``target``, the ``text``, and the ``accuracy`` at the last token of
    held-out templates. Curves: ``looked``, by token the head's attention to each token so far.
    """
    source, model, _ = trained(task, ("loss",), lambda *point: {"loss": point[3]}, seed, **training)
    heads = examine_heads(model, source, generator_for("cpu", "heads", seed))
    mass_LH4 = torch.tensor(heads["mass"])
    layer, head, target = (int(i) for i in torch.unravel_index(mass_LH4.argmax(), mass_LH4.shape))
    batch = replace(source, scored="all").batch(
        generator_for("cpu", "picture", seed), 1, evaluating=True
    )
    looked = [
        traced(model, batch.inputs_BT[:, :end])[1][layer, 0, head].tolist()
        for end in range(1, source.length + 1)
    ]
    return {
        "layer": layer,
        "head": head,
        "target": TARGETS[target],
        "mass": heads["strongest"],
        "text": batch.inputs_BT[0].tolist(),
        "accuracy": heads["accuracy"],
    }, {"looked": looked}


def trained(
    task: Json,
    names: tuple[str, ...],
    look: Callable[[Templates, nn.Module, int, float], dict[str, float]],
    seed: int,
    architecture: str,
    n_layers: int,
    n_heads: int,
    width: int,
    steps: int,
    batch_size: int = 64,
    rate: float = 1e-3,
    evaluations: int = 10,
) -> tuple[Templates, nn.Module, dict[str, list]]:
    """Train a model with the seed's weights on the seed's sequences; return task, model and curves.

    Training is Adam with a short warm-up. ``look`` gets the task, the model, the step and the mean
    training loss since the last evaluation, and returns ``names``.
    """
    source = Templates(**task)
    cfg = ModelConfig(architecture, n_layers, n_heads, width, source.vocab_size, source.length)
    model = build_model(cfg, seed_from("abstraction", seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    every = max(1, steps // evaluations)
    curves = {name: [] for name in ("step", *names)}
    since = {"loss": 0.0, "steps": 0}
    for step in resuming.steps(curves, steps, model, optimizer, since):
        batch = source.batch(generator_for("cpu", "abstraction", seed, step), batch_size)
        loss = F.cross_entropy(model(batch.inputs_BT, batch.scored_BT), batch.targets_N)
        since["loss"] += descend(model, optimizer, [loss], rate * min(1.0, step / WARM_UP))
        since["steps"] += 1
        if step % every == 0 or step == steps:
            found = look(source, model, step, since["loss"] / since["steps"])
            for name in curves:
                curves[name].append(step if name == "step" else found[name])
            since["loss"] = 0.0
            since["steps"] = 0
    return source, model, curves


@torch.no_grad()
def split(
    model: nn.Module, source: Templates, count: int, generator: torch.Generator
) -> dict[str, float]:
    """Return the shares of ``PARTS`` over ``count`` sequences of held-out templates.

    A share of no sequences is 0.
    """
    batch = replace(source, scored="last").batch(generator, count, evaluating=True)
    predicted_B = model(batch.inputs_BT, batch.scored_BT).argmax(-1)
    before_B = batch.inputs_BT[:, source.last_prefix - 1]
    right_B = predicted_B == batch.targets_N
    repeating_B = batch.targets_N == before_B

    def share(hits_B: Tensor, of_B: Tensor) -> float:
        return float(hits_B[of_B].double().mean()) if of_B.any() else 0.0

    return {
        "last": share(right_B, torch.ones_like(right_B)),
        "repeating": share(right_B, repeating_B),
        "others": share(right_B, ~repeating_B),
        "copied": share(predicted_B == before_B, ~repeating_B),
    }


@torch.no_grad()
def traced(
    model: nn.Module, inputs_BT: Tensor, without: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return logits (B, V) after the prefixes, and the attention of their last token, (L, B, H, T).

    ``without``: the layer and head whose output is set to zero at every token.
    """
    x_BTD = model.embed(inputs_BT)
    length = inputs_BT.shape[1]
    later_TT = torch.ones(length, length, dtype=torch.bool).triu(1)
    looked = []
    for layer, block in enumerate(model.blocks):
        q, k, v = block.attention.project(block.ln_1(x_BTD))
        scores_BHTT = q @ k.mT / math.sqrt(q.shape[-1])
        if model.cfg.architecture == "decoder":
            scores_BHTT = scores_BHTT.masked_fill(later_TT, -math.inf)
        weights_BHTT = scores_BHTT.softmax(-1)
        looked.append(weights_BHTT[:, :, -1])
        y_BHTK = weights_BHTT @ v
        if without and without[0] == layer:
            y_BHTK[:, without[1]] = 0
        x_BTD = block.residual(x_BTD, block.attention.out(y_BHTK.transpose(1, 2).flatten(2)))
    return model.head(model.ln_f(x_BTD[:, -1])), torch.stack(looked)


def examine_heads(model: nn.Module, task: Templates, generator: torch.Generator) -> Json:
    """Measure every head's attention on aligned places, and the last token's accuracy without it.

    ``mass``: by layer and head, the mean attention from place j of an instantiation, from the
    second on, to ``TARGETS``: places j and j + 1 of the first instantiation and of the previous
    one. The mean is over all places but the last, whose next token starts a new instantiation.
    ``strongest``: the largest mass. ``accuracy``: that of the whole model at the last token;
    ``without``: the same without each head, by layer. All on held-out templates.
    """
    batch = replace(task, scored="all").batch(generator, HEAD_SEQUENCES, evaluating=True)
    place = task.last_prefix
    total = 0.0
    length = task.template_length
    for instance in range(1, task.instances):
        for j in range(length - 1):
            end = instance * length + j
            previous = end - length
            _, looked_LBHT = traced(model, batch.inputs_BT[:, : end + 1])
            total = total + looked_LBHT[..., [j, j + 1, previous, previous + 1]].mean(1)
    mass_LH4 = total / ((task.instances - 1) * (length - 1))

    def accuracy(without: tuple[int, int] | None) -> float:
        logits_BV, _ = traced(model, batch.inputs_BT[:, :place], without)
        return float((logits_BV.argmax(-1) == batch.targets_BT[:, place - 1]).double().mean())

    layers, heads, _ = mass_LH4.shape
    return {
        "targets": list(TARGETS),
        "mass": mass_LH4.tolist(),
        "strongest": float(mass_LH4.max()),
        "accuracy": accuracy(None),
        "without": [[accuracy((layer, head)) for head in range(heads)] for layer in range(layers)],
    }
