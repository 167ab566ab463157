"""Transposing a matrix that is given entry by entry, in one layer (§8's example of 30 × 30).

Two codes stand in every token, its own place and the place that it takes its entry from; one head does the rest. The
paper counts a value and two codes, 2 · 10 + 1 = 21 rows; ours has one more, for what is read.
"""

import torch
from torch import Tensor

from entp_papers.looped.layers import Stack
from entp_papers.looped.plan import LayerPlan, Rows
from entp_papers.looped.subleq import temperature
from entp_papers.looped.words import pointer_bits, to_bits


def transposer(d: int, error: float = 1e-9) -> tuple[Stack, Rows]:
    """One layer with one head that transposes d × d matrices of one entry per token."""
    rows, plan = Rows(), LayerPlan("take the entry of the token that the second code names")
    L = pointer_bits(d * d)
    for name, size in (("value", 1), ("taken", 1), ("own", L), ("source", L)):
        rows.add(name, size)
    match = [({q: 1.0}, {k: 1.0}) for q, k in zip(rows["source"], rows["own"], strict=True)]
    plan.head(match, [({rows["value"][0]: 1.0}, {rows["taken"][0]: 1.0})], temperature(d * d, error))
    return Stack([plan.build(rows.width)], rows.width), rows


def transpose(a_Bdd: Tensor) -> Tensor:
    """A^T (B, d, d) by the one-layer Transformer."""
    B, d, _ = a_Bdd.shape
    stack, rows = transposer(d)
    L = pointer_bits(d * d)
    own = torch.arange(d * d)
    x_BTD = torch.zeros(B, d * d, rows.width, dtype=torch.float64)
    x_BTD[..., rows["value"][0]] = a_Bdd.flatten(1).double()
    x_BTD[..., rows.slice("own")] = to_bits(own, L)
    x_BTD[..., rows.slice("source")] = to_bits(own % d * d + own // d, L)
    return stack(x_BTD)[..., rows["taken"][0]].view(B, d, d)
