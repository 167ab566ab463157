"""ENTP on a CPU: prefixes of one length run together, all lengths of a micro-batch in one flat batch of tokens.

Letters: B batch, T tokens, P prefixes of a micro-batch, M flat tokens of it, R rows of a group, D width, H heads,
K head width.
"""

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from entp_lib import kernels
from entp_lib.kernels import Group, Groups, offsets
from entp_lib.relations import NOTHING, Relations, attention_weights, read_last

Projected = tuple[Tensor, Tensor]  # inputs (B, T, D) of the first layer, and their queries, keys and values (B, T, 3D)


def fused(block: nn.Module, x: Tensor) -> bool:
    """Whether the fused kernels compute the same as ``block``."""
    return block.fusible and kernels.usable(x, dropout=0.0)


def stack(
    blocks: Sequence[nn.Module],
    x_BTD: Tensor,
    groups: Groups,
    relations: Relations = NOTHING,
    projected: Projected | None = None,
) -> Tensor:
    """Hidden states (P, D) after the stack for the prefixes of ``groups``, in their order.

    The fused kernels attend without positional turns, biases or masks; with any of these they compute the MLPs alone.
    ``projected``: the first layer's projections of ``x_BTD``, where they are shared.
    """
    first, *middle, last = blocks
    fast = fused(first, x_BTD)

    def finish(block: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return kernels.feed_forward(block, x + y) if fast else block.residual(x, y)

    if fast and relations.empty:
        x_MD = kernels.feed_forward(first, kernels.attend(first, projected or kernels.project(first, x_BTD), groups))
        for block in middle:
            x_MD = kernels.feed_forward(block, kernels.attend(block, kernels.project(block, x_MD), groups))
    else:
        x_MD = finish(first, *prefixes_attended(first, x_BTD, groups, relations))
        for block in middle:
            x_MD = finish(block, x_MD, attended(block, x_MD, groups, relations))
    with torch.autocast("cpu", enabled=False) if fast else contextlib.nullcontext():
        ends = read_ends(last, x_MD, groups, relations)  # many small products, which are no faster in bf16
    return finish(last, *ends)


def rows_picked(group: Group) -> slice | Tensor:
    """The rows of the batch that a group's prefixes come from."""
    chosen, rows, _ = group
    return slice(rows) if chosen is None else chosen


def prefixes_attended(block: nn.Module, x_BTD: Tensor, groups: Groups, relations: Relations) -> tuple[Tensor, Tensor]:
    """First layer: the prefixes' inputs and their attention output, each (M, D), from shared projections."""
    qkv_BHTK = block.attention.project(block.ln_1(x_BTD), relations.rotation)
    inputs, outputs = [], []
    for group in groups:
        pick, length = rows_picked(group), group[2]
        inputs.append(x_BTD[pick, :length].flatten(0, 1))
        q, k, v = (z[pick, :, :length] for z in qkv_BHTK)
        bias, _ = relations.group(pick, length)
        outputs.append(block.attention(q, k, v, bias, False).flatten(0, 1))
    return torch.cat(inputs), torch.cat(outputs)


def attended(block: nn.Module, x_MD: Tensor, groups: Groups, relations: Relations) -> Tensor:
    """Attention output (M, D) over groups of equally long sequences."""
    sizes = [rows * length for _, rows, length in groups]
    outputs = []
    for part, group in zip(block.ln_1(x_MD).split(sizes), groups, strict=True):
        bias, rotation = relations.group(rows_picked(group), group[2])
        q, k, v = block.attention.project(part.view(*group[1:], -1), rotation)
        outputs.append(block.attention(q, k, v, bias, False).flatten(0, 1))
    return torch.cat(outputs)


def read_ends(block: nn.Module, x_MD: Tensor, groups: Groups, relations: Relations = NOTHING) -> tuple[Tensor, Tensor]:
    """Last layer: the inputs (P, D) at the prefixes' ends and their attention output (P, D)."""
    counts, sizes = [rows for _, rows, _ in groups], [rows * length for _, rows, length in groups]

    def means(seeking: Tensor, z_MD: Tensor, keys_MHK):  # Tensor or None; torch 2.9 compiles no "|" in here
        found = []
        # split, whose gradient is one tensor; that of a slice would be a whole one for each group
        keys = [None] * len(groups) if keys_MHK is None else keys_MHK.split(sizes)
        for few, z, key, group in zip(seeking.split(counts), z_MD.split(sizes), keys, groups, strict=True):
            _, rows, length = group
            z = z.view(rows, length, -1)
            if key is None:
                scores = few @ z.transpose(1, 2)
            else:
                scores = torch.einsum("rhk,rthk->rht", few, key.unflatten(0, (rows, length)))
            bias, _ = relations.group(rows_picked(group), length)
            weights = attention_weights(scores, None if bias is None else bias[:, :, -1], z.dtype)
            found.append(weights @ z)
        return torch.cat(found)

    ends, turns = [], []
    for start, group in zip(offsets(groups), groups, strict=False):
        _, rows, length = group
        ends.append(torch.arange(1, rows + 1, device=x_MD.device) * length + (start - 1))
        if relations.rotation is not None:  # of every flat token, (M, 1, K)
            _, rotation = relations.group(rows_picked(group), length)
            turns.append([x.expand(rows, -1, -1, -1).transpose(1, 2).flatten(0, 1) for x in rotation])
    rotation = tuple(torch.cat(x) for x in zip(*turns, strict=True)) if turns else None
    return read_last(block, x_MD, torch.cat(ends), means, rotation)


def micro_batches(rows_N: Tensor, lengths_N: Tensor, batch: int, token_budget: int) -> list[Groups]:
    """Cut prefixes in ascending order of length into micro-batches of at most ``token_budget`` tokens.

    Each is a list of groups (rows, R, T): R prefixes of length T, ``rows`` None where they are all rows in order.
    """
    parts, held = [[]], 0
    lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
    for length, rows in zip(lengths.tolist(), rows_N.split(counts.tolist()), strict=True):
        while len(rows):
            room = (token_budget - held) // length
            if room < min(len(rows), max(1, token_budget // length)):  # would not fit whole, nor fill a part alone
                parts.append([])
                held, room = 0, token_budget // length
            taken, rows = rows[:room], rows[room:]
            parts[-1].append((None if len(taken) == batch else taken, len(taken), length))
            held += len(taken) * length
    return [part for part in parts if part]


def even_micro_batches(rows_N: Tensor, lengths_N: Tensor, batch: int, token_budget: int) -> list[Groups]:
    """Cut as ``micro_batches`` does, into micro-batches of equal work to a prefix, about ``token_budget`` tokens each.

    None is left with a rest of few tokens, for which all weights would be read.
    """
    ends_N = lengths_N.cumsum(0)
    count = -(-int(ends_N[-1]) // token_budget)
    part_N = (ends_N - lengths_N) * count // ends_N[-1]
    found, counts = torch.unique_consecutive(torch.stack([part_N, lengths_N]), dim=1, return_counts=True)
    parts: list[Groups] = [[] for _ in range(count)]
    for part, length, rows in zip(*found.tolist(), rows_N.split(counts.tolist()), strict=True):
        parts[part].append((None if len(rows) == batch else rows, len(rows), length))
    return [part for part in parts if part]
