"""What a model of templates does at the last token, while it learns: (metrics, curves) of JSON arguments.

On the way from a guess to one, the last token of a held-out template is right in two thirds of the sequences for long
stretches. A model need not know the template for that: whether the last place repeats the one before it can be read
off an earlier instantiation, without any of the later digits.
"""

from typing import Any

import torch

from entp_lib.records import resuming
from entp_lib.tasks.base import generator_for
from entp_papers.compact.abstraction_studies import check, prepared, training
from entp_papers.compact.templates import Templates

PARTS = ("last", "repeating", "others", "copied")


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
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train as ``abstraction_study`` does, and split what the last token of held-out templates is right for.

    Curves by step, each a share of the sequences that it concerns: ``last``, right of all; ``repeating``, right where
    the token repeats the one before it; ``others``, right of all others; ``copied``, of those others, where the token
    before is foretold all the same. Metrics: the same at the end, ``repeats``, the share of held-out templates whose
    last place repeats the one before, and ``rule``, what telling these and guessing among the other variables gets.
    """
    check(steps, batch_size, evaluations)
    source, model, optimizer = prepared(task, architecture, n_layers, n_heads, width, rate, seed)
    every = max(1, steps // evaluations)
    curves: dict[str, list] = {"step": [], **{part: [] for part in PARTS}}
    for step in resuming.steps(resuming.Progress(curves), steps, model, optimizer):
        training(model, optimizer, source, rate, batch_size, seed, step)
        if step % every == 0 or step == steps:
            curves["step"].append(step)
            for part, share in split(model, source, sequences, generator_for("cpu", "last", seed, step)).items():
                curves[part].append(share)
    repeats = repeating_share(source)
    others = 1 / max(1, source.variables - 1)
    return {
        **{part: curves[part][-1] for part in PARTS},
        "repeats": repeats,
        "rule": repeats + (1 - repeats) * others,
    }, curves


def repeating_share(source: Templates) -> float:
    """Share of the held-out templates whose last place has the variable of the place before."""
    apart = source.sides()[1]
    return float((apart[:, -1] == apart[:, -2]).double().mean())


@torch.no_grad()
def split(model, source: Templates, count: int, generator: torch.Generator) -> dict[str, float]:
    """The shares of ``PARTS`` over so many sequences of held-out templates; 0 where none is concerned."""
    batch = source.variant(scored="last").batch(generator, count, evaluating=True)
    was_training = model.training
    model.eval()
    foretold_B = model(batch.inputs_BT, batch.wanted_BT, None).argmax(-1)
    model.train(was_training)
    before_B = batch.inputs_BT[:, source.last_prefix - 1]
    right_B, repeating_B = foretold_B == batch.targets_N, batch.targets_N == before_B

    def share(hits_B, of_B) -> float:
        return float(hits_B[of_B].double().mean()) if of_B.any() else 0.0

    everything_B = torch.ones_like(right_B)
    return {
        "last": share(right_B, everything_B),
        "repeating": share(right_B, repeating_B),
        "others": share(right_B, ~repeating_B),
        "copied": share(foretold_B == before_B, ~repeating_B),
    }
