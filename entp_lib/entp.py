"""ENTP: the unmasked stack, run separately on each scored prefix and read at its last position.

    T_E(x_1 … x_n) = (f_E(x_1), f_E(x_1 x_2), …),  f_E(x_1 … x_t) = E(x_1 … x_t)_t   (§3, eq. 1)

``reference`` is this definition as a loop. ``fast`` computes the same function with less work;
tests check that the two agree. All prefixes share the first layer's projections, many prefixes go
through each matrix product together, and the last layer is computed only where it is read. Prefixes
that run together form a ``MicroBatch``, on every device: groups of prefixes of equal length
(``entp_lib.kernels.grouping``).

Letters: B batch, T tokens, P prefixes of a micro-batch, N scored prefixes in all, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entp_lib import kernels
from entp_lib.attention_bias import AttentionBias
from entp_lib.kernels import grouping
from entp_lib.kernels.attention import Groups
from entp_lib.kernels.grouping import Projected

if TYPE_CHECKING:
    from entp_lib.model import Block

# Width of the widest committed record in fp32; up to it the order of sums must not change.
RECORDED_WIDTH = 192


def reference(
    blocks: Sequence["Block"],
    x_BTD: Tensor,
    scored_BT: Tensor,
    bias: AttentionBias,
) -> Tensor:
    """Return the hidden states (N, D) after the stack, one prefix at a time: the definition."""
    rows = []
    for b, t in scored_BT.nonzero().tolist():
        x = x_BTD[b : b + 1, : t + 1]
        mask, rotation = bias.of_prefixes(slice(b, b + 1), t + 1)
        for block in blocks:
            x = block(x, mask, rotation=rotation)
        rows.append(x[0, -1].clone())  # a view would keep the whole prefix
    return torch.stack(rows) if rows else x_BTD.new_zeros(0, x_BTD.shape[-1])


@dataclass(frozen=True)
class MicroBatch:
    """Scored positions whose prefixes go through the stack together.

    ``scored_BT``: the scored positions of this micro-batch alone. ``groups``: their prefixes by
    length; None where the whole sequence runs once, as in a decoder. ``order_P``: the index of each
    prefix among all scored positions of the step, in row-major order.
    """

    scored_BT: Tensor
    groups: Groups | None = None
    order_P: Tensor | None = None


def fast(
    blocks: Sequence["Block"],
    x_BTD: Tensor,
    micro_batches: Sequence[MicroBatch],
    bias: AttentionBias,
    projected: Projected | None = None,
) -> Tensor:
    """Return the hidden states (N, D) at all scored positions, in row-major order.

    Needs at least two blocks. ``projected``: the result of ``project_once``, or None.
    """
    if not micro_batches:
        return x_BTD.new_zeros(0, x_BTD.shape[-1])
    if projected is None and len(micro_batches) > 1:
        projected = project_once(blocks, x_BTD, bias)
    outputs = []
    orders = []
    for micro_batch in micro_batches:
        groups = micro_batch.groups
        assert groups is not None and micro_batch.order_P is not None
        outputs.append(grouping.stack(blocks, x_BTD, groups, bias, projected))
        orders.append(micro_batch.order_P)
    return torch.cat(outputs)[torch.cat(orders).argsort()]


def project_once(
    blocks: Sequence["Block"], x_BTD: Tensor, bias: AttentionBias
) -> Projected | None:
    """Compute the first layer's projections for all micro-batches; None where each has its own.

    Training in fp32 returns None up to ``RECORDED_WIDTH``, since the gradients behind stored
    records were summed in that order.
    """
    in_fp32 = torch.is_grad_enabled() and not kernels.in_bf16()
    as_recorded = in_fp32 and x_BTD.shape[-1] <= RECORDED_WIDTH
    usable = bias.is_empty and all(kernels.usable(block, x_BTD) for block in blocks)
    return kernels.project(blocks[0], x_BTD) if usable and not as_recorded else None


def plan(scored_BT: Tensor, token_budget: int, even: bool = False) -> list[MicroBatch]:
    """Split the scored prefixes into micro-batches of at most ``token_budget`` tokens each.

    Short prefixes come first. ``even``: split into equal work instead, exceeding the budget by one
    prefix at most. A budget below the longest scored prefix is raised to its length.
    """
    rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
    if not len(rows_N):
        return []
    token_budget = max(token_budget, int(ends_N.max()) + 1)
    by_length_N = ends_N.argsort(stable=True)
    cut = grouping.even_micro_batches if even else grouping.micro_batches
    parts = cut(ends_N[by_length_N] + 1, token_budget)
    counts = [sum(count for count, _ in sizes) for sizes in parts]
    batch = len(scored_BT)
    micro_batches = []
    for sizes, order_P in zip(parts, by_length_N.split(counts), strict=True):
        rows_P = rows_N[order_P]
        mine_BT = torch.zeros_like(scored_BT)
        mine_BT[rows_P, ends_N[order_P]] = True
        each = rows_P.split([count for count, _ in sizes])
        groups = [
            (slice(batch) if len(rows) == batch else rows, *size)
            for rows, size in zip(each, sizes, strict=True)
        ]
        micro_batches.append(MicroBatch(mine_BT, groups, order_P))
    return micro_batches


def micro_batch_tokens(device: str, width: int, layers: int) -> int:
    """Return the default tokens of a micro-batch, for a CPU's cache or about 6 GiB of a GPU."""
    entries = 2**20 if device == "cpu" else 2**27 // layers  # tokens times width
    return entries // width
