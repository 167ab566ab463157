"""ENTP where launching a kernel costs more than a short sequence's work: prefixes packed in pairs into equal rows.

A long prefix and a short one share a row of the longest wanted length, under a block-diagonal mask, so that a layer is
a handful of kernels whatever the lengths: the same algebra as ``entp_lib.models.entp``, without its loop over lengths.
Some attention is computed for nothing (the masked blocks); matrix products lose only the few unpaired rows' padding.

Letters: B batch, T tokens, N wanted prefixes, R rows, C tokens of a row, S = 2 slots of a row, D width, H heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

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

    The longest goes with the shortest while both fit: with two to a row no packing has fewer rows. Rows that hold
    the same two lengths lie together.
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
    return build(torch.cat(first), torch.cat(second), rows_N, lengths_N, tokens, capacity)


def build(first_R: Tensor, second_R: Tensor, rows_N: Tensor, lengths_N: Tensor, tokens: int, capacity: int) -> Rows:
    """The rows in which prefix ``first_R`` comes first and ``second_R`` (or none, -1) follows."""
    device = rows_N.device
    first_R, second_R = first_R.to(device), second_R.to(device)
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
        here_N = (rows.slot_N >= 2 * start) & (rows.slot_N < 2 * (start + size))
        parts.append(
            Rows(
                rows.index_RC[start : start + size],
                rows.segment_RC[start : start + size],
                rows.slot_N[here_N] - 2 * start,
                rows.end_N[here_N] - capacity * start,
                rows.prefix_N[here_N],
            )
        )
    return parts


def packed(blocks: Sequence[nn.Module], x_BTD: Tensor, wanted_BT: Tensor, budget: int, again: bool) -> Tensor:
    """Hidden states (N, D) in row-major order of ``wanted_BT``, at most ``budget`` tokens at a time.

    ``again``: activations are computed again for the gradient where they did not fit at once.
    """
    rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
    rows = pack(rows_N, ends_N + 1, wanted_BT.shape[1])
    parts = chunks(rows, max(1, budget // rows.index_RC.shape[1]))
    again = again and len(parts) > 1 and torch.is_grad_enabled()
    outputs = [
        checkpoint(stack, blocks, x_BTD, part, use_reentrant=False) if again else stack(blocks, x_BTD, part)
        for part in parts
    ]
    return torch.cat(outputs)[torch.cat([part.prefix_N for part in parts]).argsort()]


def stack(blocks: Sequence[nn.Module], x_BTD: Tensor, rows: Rows) -> Tensor:
    """Hidden states after the stack at the ends of the prefixes in ``rows``, in the order of ``rows.prefix_N``."""
    first, *middle, last = blocks
    mask_R1CC = (rows.segment_RC[:, :, None] == rows.segment_RC[:, None])[:, None]
    x_RCD = x_BTD.flatten(0, 1)[rows.index_RC]
    qkv_RCE = first.attention.qkv(first.ln_1(x_BTD)).flatten(0, 1)[rows.index_RC]  # projected once per token
    q, k, v = (first.attention.split(z) for z in qkv_RCE.chunk(3, dim=-1))
    x_RCD = first.residual(x_RCD, first.attention(q, k, v, mask_R1CC, False))
    for block in middle:
        x_RCD = block(x_RCD, mask_R1CC)
    return last.residual(*read_last(last, x_RCD, rows))


def read_last(block: nn.Module, x_RCD: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Last layer: inputs (N, D) at the prefixes' ends and their attention output; as in ``entp.read_last``."""
    attention, n_heads = block.attention, block.attention.n_heads
    n_rows, _, width = x_RCD.shape
    z_RCD = block.ln_1(x_RCD)
    w_q, w_k, w_v = attention.qkv.weight.chunk(3)
    b_q, _, b_v = attention.qkv.bias.chunk(3)
    q_HNK = F.linear(z_RCD.flatten(0, 1)[rows.end_N], w_q, b_q).unflatten(-1, (n_heads, -1)).transpose(0, 1)
    seeking_NHD = (q_HNK @ w_k.unflatten(0, (n_heads, -1))).transpose(0, 1) * (width // n_heads) ** -0.5
    empty = seeking_NHD.new_zeros(2 * n_rows, n_heads, width)
    seeking_RSD = empty.index_copy(0, rows.slot_N, seeking_NHD).view(n_rows, 2 * n_heads, width)
    scores_RSHC = (seeking_RSD @ z_RCD.transpose(1, 2)).unflatten(1, (2, n_heads))
    slots = torch.arange(2, device=x_RCD.device)
    seen_RSC = rows.segment_RC[:, None] == slots[:, None]
    seen_RSC = seen_RSC | ~seen_RSC.any(-1, keepdim=True)  # an empty slot looks everywhere, unread
    scores_RSHC = scores_RSHC.masked_fill(~seen_RSC[:, :, None], -torch.inf)
    half = scores_RSHC.dtype == torch.bfloat16
    weights_RSHC = F.softmax(scores_RSHC, -1, dtype=torch.float32 if half else None)
    dropout = attention.dropout if attention.training else 0.0
    weights_RSHC = F.dropout(weights_RSHC, dropout).to(z_RCD.dtype)
    mean_RSD = weights_RSHC.flatten(1, 2) @ z_RCD
    mean_HND = mean_RSD.view(2 * n_rows, n_heads, width)[rows.slot_N].transpose(0, 1)
    value_NHK = (mean_HND @ w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)).transpose(0, 1)
    mass_NH = weights_RSHC.sum(-1).view(2 * n_rows, n_heads)[rows.slot_N]
    bias_HK = b_v.unflatten(0, (n_heads, -1))
    value_NHK = value_NHK + (bias_HK if dropout == 0 else mass_NH[..., None] * bias_HK)
    return x_RCD.flatten(0, 1)[rows.end_N], attention.out(value_NHK.flatten(1))
