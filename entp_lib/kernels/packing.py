"""ENTP where launching a kernel costs more than a short sequence's work: prefixes packed in pairs into equal rows.

A long prefix and a short one share a row of the longest scored length, under a block-diagonal mask, so that a layer is
a handful of kernels whatever the lengths: the same algebra as ``entp_lib.entp``, without its loop over lengths.
Some attention is computed for nothing (the masked blocks); matrix products lose only the few unpaired rows' padding.

Letters: B batch, T tokens, N scored prefixes, R rows, C tokens of a row, S = 2 slots of a row, M flat tokens of all
rows, D width, H heads, K head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entp_lib.relations import NOTHING, Relations, Rotation, attention_weights, masked, read_last, rotate

PADDING = 2  # the segment of tokens that belong to no prefix; they see each other, and nobody reads them


@dataclass(frozen=True)
class Rows:
    """Packed prefixes: where tokens come from, which segment they belong to, and where each prefix is read."""

    index_RC: Tensor  # into B·T tokens
    segment_RC: Tensor  # 0 or 1, the slot, or PADDING
    slot_N: Tensor  # 2·row + slot of each prefix
    end_N: Tensor  # C·row + place of its last token
    prefix_N: Tensor  # which prefix that is, in the order given to ``pack``


def pack(rows_N: Tensor, lengths_N: Tensor, tokens: int) -> Rows:
    """Pack prefixes x[rows_N, :lengths_N] of a batch of ``tokens`` tokens a row, at most two to a row.

    The longest goes with the shortest while both fit, the fewest rows there can be. Equal rows lie together.
    """
    capacity = int(lengths_N.max())
    order_N = lengths_N.argsort(stable=True).cpu()
    lengths, counts = (x.tolist() for x in torch.unique_consecutive(lengths_N.cpu()[order_N], return_counts=True))
    first, second = [], []  # prefixes by row, -1 where the second slot is empty
    starts = torch.tensor([0, *counts]).cumsum(0).tolist()
    low, high = 0, len(lengths) - 1
    left = list(counts)

    def take(group: int, count: int) -> Tensor:
        left[group] -= count
        return order_N[starts[group] + left[group] : starts[group] + left[group] + count]

    while low <= high:
        fits = lengths[low] + lengths[high] <= capacity
        pairs = min(left[low], left[high]) if low < high else left[low] // 2
        if not fits or pairs == 0:  # alone in its row
            first.append(take(high, left[high]))
            second.append(torch.full_like(first[-1], -1))
        else:
            first.append(take(high, pairs))
            second.append(take(low, pairs))
        low, high = low + (left[low] == 0), high - (left[high] == 0)
    device = rows_N.device
    first_R, second_R = torch.cat(first).to(device), torch.cat(second).to(device)
    place_C = torch.arange(capacity, device=device)
    there_R = second_R >= 0
    one_R1, two_R1 = lengths_N[first_R, None], torch.where(there_R, lengths_N[second_R], 0)[:, None]
    in_one, in_two = place_C < one_R1, (place_C >= one_R1) & (place_C < one_R1 + two_R1)
    from_one, from_two = rows_N[first_R, None] * tokens + place_C, rows_N[second_R, None] * tokens + place_C - one_R1
    index_RC = torch.where(in_one, from_one, torch.where(in_two, from_two, 0))
    segment_RC = torch.where(in_one, 0, torch.where(in_two, 1, PADDING))
    row_R = torch.arange(len(first_R), device=device)
    prefix_N = torch.cat([first_R, second_R[there_R]])
    slot_N = torch.cat([2 * row_R, 2 * row_R[there_R] + 1])
    ends = row_R * capacity + one_R1[:, 0] - 1
    end_N = torch.cat([ends, (ends + two_R1[:, 0])[there_R]])
    return Rows(index_RC, segment_RC, slot_N, end_N, prefix_N)


def chunks(rows: Rows, size: int) -> Sequence[Rows]:
    """The same packing in pieces of at most ``size`` rows."""
    total, capacity = rows.index_RC.shape
    if size >= total:
        return [rows]
    parts = []
    for start in range(0, total, size):
        here, here_N = slice(start, start + size), rows.slot_N // 2 // size == start // size
        slots_N, ends_N = rows.slot_N[here_N] - 2 * start, rows.end_N[here_N] - capacity * start
        parts.append(Rows(rows.index_RC[here], rows.segment_RC[here], slots_N, ends_N, rows.prefix_N[here_N]))
    return parts


def stack(blocks: Sequence[nn.Module], x_BTD: Tensor, rows: Rows, relations: Relations = NOTHING) -> Tensor:
    """Hidden states after the stack at the ends of the prefixes in ``rows``, in the order of ``rows.prefix_N``."""
    first, *middle, last = blocks
    bias, rotation = of_rows(rows, x_BTD.shape[1], relations)
    x_RCD = x_BTD.flatten(0, 1)[rows.index_RC]
    qkv_RCE = first.attention.qkv(first.ln_1(x_BTD)).flatten(0, 1)[rows.index_RC]  # projected once per token
    q, k, v = (first.attention.split(z) for z in qkv_RCE.chunk(3, dim=-1))
    attended = first.attention(rotate(q, rotation), rotate(k, rotation), v, bias, False)
    x_RCD = first.residual(x_RCD, attended)
    for block in middle:
        x_RCD = block(x_RCD, bias, rotation=rotation)
    return last.residual(*read_ends(last, x_RCD, rows, bias, rotation))


def of_rows(rows: Rows, tokens: int, relations: Relations = NOTHING) -> tuple[Tensor, Rotation | None]:
    """Mask or bias of packed tokens' scores (R, 1 or H, C, C), segments kept apart, and their rotation."""
    row_RC, place_RC = rows.index_RC // tokens, rows.index_RC % tokens
    bias, rotation = relations.bias_BHTT, relations.rotation
    if bias is not None:
        row_R11 = row_RC[:, :, None] if len(bias) > 1 else torch.zeros_like(row_RC)[:, :, None]
        bias = bias.permute(0, 2, 3, 1)[row_R11, place_RC[:, :, None], place_RC[:, None]].permute(0, 3, 1, 2)
    if rotation is not None:
        row_RC = row_RC if len(rotation[0]) > 1 else torch.zeros_like(row_RC)
        rotation = tuple(x[row_RC, 0, place_RC][:, None] for x in rotation)
    return masked(bias, (rows.segment_RC[:, :, None] == rows.segment_RC[:, None])[:, None]), rotation


def read_ends(
    block: nn.Module, x_RCD: Tensor, rows: Rows, bias: Tensor, rotation: Rotation | None = None
) -> tuple[Tensor, Tensor]:
    """Last layer: inputs (N, D) at the prefixes' ends and their attention output; ``bias`` as ``of_rows`` has it."""
    n_rows, capacity, width = x_RCD.shape
    n_heads = block.attention.n_heads

    def of_slots(x_N: Tensor, empty: float) -> Tensor:
        """(N, …) as (R, S, …), a slot without a prefix filled with ``empty``."""
        return x_N.new_full((2 * n_rows, *x_N.shape[1:]), empty).index_copy(0, rows.slot_N, x_N).unflatten(0, (-1, 2))

    def means(seeking_NHX: Tensor, z_MD: Tensor, keys_MHK):  # Tensor or None, as in grouping.py
        z_RCD, seeking_RSHX = z_MD.view_as(x_RCD), of_slots(seeking_NHX, 0)
        if keys_MHK is None:
            scores_RSHC = (seeking_RSHX.flatten(1, 2) @ z_RCD.transpose(1, 2)).unflatten(1, (2, n_heads))
        else:
            keys_RCHK = keys_MHK.unflatten(0, (n_rows, capacity))
            scores_RSHC = torch.einsum("rshk,rchk->rshc", seeking_RSHX, keys_RCHK)
        bias_NHC = bias[rows.end_N // capacity, :, rows.end_N % capacity]
        bias_RSHC = of_slots(bias_NHC, bias.dtype == torch.bool)  # an empty slot looks everywhere, unread
        weights_RSHC = attention_weights(scores_RSHC, bias_RSHC, z_RCD.dtype)
        mean_RSD = weights_RSHC.flatten(1, 2) @ z_RCD
        return mean_RSD.view(2 * n_rows, n_heads, width)[rows.slot_N]

    flat = None if rotation is None else tuple(x.transpose(1, 2).flatten(0, 1) for x in rotation)
    return read_last(block, x_RCD.flatten(0, 1), rows.end_N, means, flat)
