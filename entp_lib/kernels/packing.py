"""ENTP on a GPU, where launching a kernel costs more than a short sequence's work: packed prefixes.

A long prefix and a short one share a row of the longest scored length, under a block-diagonal mask,
so that a layer is a handful of kernels whatever the lengths: the same algebra as
``entp_lib.kernels.grouping``, without its loop over lengths. Some attention is computed for nothing
(the masked blocks); matrix products lose only the padding of the few unpaired rows.

Letters: B batch, T tokens, N scored prefixes, R rows, C tokens of a row, S = 2 slots of a row,
M flat tokens of all rows, D width, H heads, K head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entp_lib.attention_bias import (
    NO_BIAS,
    AttentionBias,
    attention_weights,
    combine_masks,
    last_layer_at_prefix_ends,
    rotate,
)
from entp_lib.positions import Rotation

if TYPE_CHECKING:
    from entp_lib.model import Block

PADDING = 2  # the segment of tokens that belong to no prefix; they see each other, unread


@dataclass(frozen=True)
class PackedRows:
    """Packed prefixes: where tokens come from, their segments, and where each prefix is read."""

    index_RC: Tensor  # into B·T tokens
    segment_RC: Tensor  # 0 or 1, the slot, or PADDING
    slot_N: Tensor  # 2·row + slot of each prefix
    end_N: Tensor  # C·row + place of its last token
    prefix_N: Tensor  # which prefix that is, in the order given to ``pack``


def pack(rows_N: Tensor, lengths_N: Tensor, tokens: int) -> PackedRows:
    """Pack prefixes x[rows_N, :lengths_N] of a batch of ``tokens`` tokens, at most two to a row."""
    capacity = int(lengths_N.max())
    first_R, second_R = (x.to(rows_N.device) for x in pair_up(lengths_N.cpu(), capacity))
    there_R = second_R >= 0
    place_C = torch.arange(capacity, device=rows_N.device)
    one_R1 = lengths_N[first_R, None]
    two_R1 = torch.where(there_R, lengths_N[second_R], 0)[:, None]
    in_one = place_C < one_R1
    in_two = ~in_one & (place_C < one_R1 + two_R1)
    from_one = rows_N[first_R, None] * tokens + place_C
    from_two = rows_N[second_R, None] * tokens + place_C - one_R1
    row_R = torch.arange(len(first_R), device=rows_N.device)
    end_R = row_R * capacity + one_R1[:, 0] - 1
    return PackedRows(
        index_RC=torch.where(in_one, from_one, torch.where(in_two, from_two, 0)),
        segment_RC=torch.where(in_one, 0, torch.where(in_two, 1, PADDING)),
        slot_N=torch.cat([2 * row_R, 2 * row_R[there_R] + 1]),
        end_N=torch.cat([end_R, (end_R + two_R1[:, 0])[there_R]]),
        prefix_N=torch.cat([first_R, second_R[there_R]]),
    )


def pair_up(lengths_N: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Return the first and second prefix of each row, (R,); -1 where the second slot is empty.

    The longest goes with the shortest while both fit: the fewest rows there can be. Equal rows lie
    together.
    """
    order_N = lengths_N.argsort(stable=True)
    runs, counts = torch.unique_consecutive(lengths_N[order_N], return_counts=True)
    lengths = runs.tolist()
    left = [prefixes.tolist() for prefixes in order_N.split(counts.tolist())]
    first: list[int] = []
    second: list[int] = []
    low = 0
    high = len(lengths) - 1
    while low <= high:
        fits = lengths[low] + lengths[high] <= capacity
        pairs = min(len(left[low]), len(left[high])) if low < high else len(left[low]) // 2
        if fits and pairs:
            first += take(left[high], pairs)
            second += take(left[low], pairs)
        else:
            alone = take(left[high], len(left[high]))
            first += alone
            second += [-1] * len(alone)
        low += not left[low]
        high -= not left[high]
    return torch.tensor(first), torch.tensor(second)


def take(prefixes: list[int], count: int) -> list[int]:
    """Remove the last ``count`` prefixes and return them in their order."""
    kept = len(prefixes) - count
    taken = prefixes[kept:]
    del prefixes[kept:]
    return taken


def chunks(packed: PackedRows, size: int) -> list[PackedRows]:
    """Return the same packing in pieces of at most ``size`` rows."""
    total, capacity = packed.index_RC.shape
    if size >= total:
        return [packed]
    parts = []
    for start in range(0, total, size):
        rows = slice(start, start + size)
        here_N = packed.slot_N // 2 // size == start // size
        parts.append(
            PackedRows(
                packed.index_RC[rows],
                packed.segment_RC[rows],
                packed.slot_N[here_N] - 2 * start,
                packed.end_N[here_N] - capacity * start,
                packed.prefix_N[here_N],
            )
        )
    return parts


def stack(
    blocks: Sequence["Block"],
    x_BTD: Tensor,
    packed: PackedRows,
    bias: AttentionBias = NO_BIAS,
) -> Tensor:
    """Return the hidden states (N, D) at the prefixes' ends, in the order of ``prefix_N``."""
    first, *middle, last = blocks
    mask, rotation = packed_attention_bias(packed, x_BTD.shape[1], bias)
    x_RCD = x_BTD.flatten(0, 1)[packed.index_RC]
    qkv_BTE = first.attention.qkv(first.ln_1(x_BTD))  # projected once per token
    qkv_RCE = qkv_BTE.flatten(0, 1)[packed.index_RC]
    q, k, v = (first.attention.split_heads(z) for z in qkv_RCE.chunk(3, dim=-1))
    attended = first.attention(rotate(q, rotation), rotate(k, rotation), v, mask, False)
    x_RCD = first.residual(x_RCD, attended)
    for block in middle:
        x_RCD = block(x_RCD, mask, rotation=rotation)
    return last.residual(*read_ends(last, x_RCD, packed, mask, rotation))


def packed_attention_bias(
    packed: PackedRows, tokens: int, bias: AttentionBias = NO_BIAS
) -> tuple[Tensor, Rotation | None]:
    """Return the block-diagonal mask (R, 1 or H, C, C) of packed segments, and their rotation."""
    row_RC = packed.index_RC // tokens
    place_RC = packed.index_RC % tokens
    mask = bias.mask_BHTT
    if mask is not None:
        row_R11 = (row_RC if len(mask) > 1 else torch.zeros_like(row_RC))[:, :, None]
        mask = mask.permute(0, 2, 3, 1)[row_R11, place_RC[:, :, None], place_RC[:, None]]
        mask = mask.permute(0, 3, 1, 2)
    rotation = bias.rotation
    if rotation is not None:
        cosines, sines = rotation
        row_RC = row_RC if len(cosines) > 1 else torch.zeros_like(row_RC)
        rotation = (
            cosines[row_RC, 0, place_RC][:, None],
            sines[row_RC, 0, place_RC][:, None],
        )
    same_RCC = packed.segment_RC[:, :, None] == packed.segment_RC[:, None]
    return combine_masks(mask, same_RCC[:, None]), rotation


def read_ends(
    block: "Block",
    x_RCD: Tensor,
    packed: PackedRows,
    mask: Tensor,
    rotation: Rotation | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the last layer's inputs (N, D) at the prefixes' ends and their attention output."""
    n_rows, capacity, width = x_RCD.shape
    n_heads = block.attention.n_heads

    def by_slot(x_N: Tensor, empty: float) -> Tensor:
        """Arrange (N, …) as (R, S, …), a slot without a prefix filled with ``empty``."""
        slots = x_N.new_full((2 * n_rows, *x_N.shape[1:]), empty)
        return slots.index_copy(0, packed.slot_N, x_N).unflatten(0, (-1, 2))

    def weighted_means(
        queries_NHX: Tensor,
        z_MD: Tensor,
        keys_MHK,  # Tensor or None, as in grouping.py
    ):
        z_RCD = z_MD.view_as(x_RCD)
        queries_RSHX = by_slot(queries_NHX, 0)
        if keys_MHK is None:
            scores = queries_RSHX.flatten(1, 2) @ z_RCD.transpose(1, 2)
            scores_RSHC = scores.unflatten(1, (2, n_heads))
        else:
            keys_RCHK = keys_MHK.unflatten(0, (n_rows, capacity))
            scores_RSHC = torch.einsum("rshk,rchk->rshc", queries_RSHX, keys_RCHK)
        mask_NHC = mask[packed.end_N // capacity, :, packed.end_N % capacity]
        # an empty slot looks everywhere
        mask_RSHC = by_slot(mask_NHC, mask.dtype == torch.bool)
        weights_RSHC = attention_weights(scores_RSHC, mask_RSHC, z_RCD.dtype)
        mean_RSD = weights_RSHC.flatten(1, 2) @ z_RCD
        return mean_RSD.view(2 * n_rows, n_heads, width)[packed.slot_N]

    if rotation is not None:
        cosines, sines = rotation
        rotation = (
            cosines.transpose(1, 2).flatten(0, 1),
            sines.transpose(1, 2).flatten(0, 1),
        )
    x_MD = x_RCD.flatten(0, 1)
    return last_layer_at_prefix_ends(block, x_MD, packed.end_N, weighted_means, rotation)
