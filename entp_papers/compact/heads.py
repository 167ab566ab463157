"""Heads that look back to the same place of an earlier instantiation (§4.3.4), and what is lost without them.

A model is run on one prefix at a time and read at its end, which for a decoder gives what one pass would and for ENTP
is its definition.

Letters: B sequences, P places of a template, L layers, H heads, T tokens of a prefix, K head width, V symbols.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

SEQUENCES = 64
TARGETS = ("first", "first_next", "previous", "previous_next")


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


def diagonals(model: nn.Module, inputs_BT: Tensor, template_length: int, instances: int) -> Tensor:
    """Mean attention (L, H, 4) from place j of a later instantiation to four places of an earlier one.

    Those of ``TARGETS``: place j and the next, j + 1, of the first instantiation, and the same of the previous one. The
    mean is over the instantiations from the second on and all places but the last, whose next token starts anew.
    """
    total, count = 0.0, 0
    for instance in range(1, instances):
        for place in range(template_length - 1):
            end = instance * template_length + place
            _, looked_LBHT = traced(model, inputs_BT[:, : end + 1])
            previous = (instance - 1) * template_length + place
            targets = [place, place + 1, previous, previous + 1]
            total = total + looked_LBHT[..., targets].mean(1)
            count += 1
    return total / count


def last_accuracy(model: nn.Module, inputs_BT: Tensor, answers_B: Tensor, without: tuple[int, int] | None) -> float:
    """Share of sequences whose next token is right."""
    logits_BV, _ = traced(model, inputs_BT, without)
    return float((logits_BV.argmax(-1) == answers_B).double().mean())


def examine(model: nn.Module, task, generator: torch.Generator) -> dict[str, Any]:
    """Every head's attention on the aligned places, and the accuracy at the last token without it.

    ``mass``: by layer and head, the four means of ``TARGETS``; ``strongest``: the largest of them all;
    ``accuracy`` of the whole model at the last token, ``without`` each head by layer. On held-out templates.
    """
    was_training = model.training
    model.eval()
    batch = task.variant(scored="all").batch(generator, SEQUENCES, evaluating=True)
    inputs_BT, place = batch.inputs_BT, task.last_prefix
    mass_LH4 = diagonals(model, inputs_BT, task.template_length, task.instances)
    prefix_BT, answers_B = inputs_BT[:, :place], batch.targets_BT[:, place - 1]
    heads = [[(layer, head) for head in range(mass_LH4.shape[1])] for layer in range(mass_LH4.shape[0])]
    found = {
        "targets": list(TARGETS),
        "mass": mass_LH4.tolist(),
        "strongest": float(mass_LH4.max()),
        "accuracy": last_accuracy(model, prefix_BT, answers_B, None),
        "without": [[last_accuracy(model, prefix_BT, answers_B, head) for head in row] for row in heads],
    }
    model.train(was_training)
    return found
