"""ENTP by groups: prefixes of equal length run together, and a micro-batch is one flat batch.

Letters: B batch, T tokens, P prefixes of a micro-batch, M flat tokens of it, R rows of a group, D
width, H heads, K head width.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib import kernels
from entp_lib.attention_bias import NO_BIAS, AttentionBias, attention_weights, rotate
from entp_lib.kernels import Group, Groups, batch_rows, offsets

if TYPE_CHECKING:
    from entp_lib.model import Block

# Inputs (B, T, D) of the first layer, and their queries, keys and values (B, T, 3D).
Projected = tuple[Tensor, Tensor]


def is_fused(block: "Block", x: Tensor) -> bool:
    """Tell whether the fused kernels compute the same as ``block``."""
    return block.fusible and kernels.usable(x)


def stack(
    blocks: Sequence["Block"],
    x_BTD: Tensor,
    groups: Groups,
    bias: AttentionBias = NO_BIAS,
    projected: Projected | None = None,
) -> Tensor:
    """Return the hidden states (P, D) after the stack for the prefixes of ``groups``, in order.

    The fused kernels attend without rotations, biases or masks; with any of these they compute the
    MLPs alone. ``projected``: the first layer's projections of ``x_BTD``, where they are shared.
    """
    first, *middle, last = blocks
    fused = is_fused(first, x_BTD)

    def finish(block: "Block", x: Tensor, attended: Tensor) -> Tensor:
        if fused:
            return kernels.feed_forward(block, x + attended)
        return block.residual(x, attended)

    if fused and bias.is_empty:
        x_MD = kernels.attend(first, projected or kernels.project(first, x_BTD), groups)
        x_MD = kernels.feed_forward(first, x_MD)
        for block in middle:
            x_MD = kernels.attend(block, kernels.project(block, x_MD), groups)
            x_MD = kernels.feed_forward(block, x_MD)
    else:
        x_MD = finish(first, *first_attention(first, x_BTD, groups, bias))
        for block in middle:
            x_MD = finish(block, x_MD, attention(block, x_MD, groups, bias))
    # the last layer's many small products are no faster in bf16
    with torch.autocast("cpu", enabled=False) if fused else contextlib.nullcontext():
        ends_PD, attended_PD = read_ends(last, x_MD, groups, bias)
    return finish(last, ends_PD, attended_PD)


def first_attention(
    block: "Block", x_BTD: Tensor, groups: Groups, bias: AttentionBias
) -> tuple[Tensor, Tensor]:
    """Return the prefixes' inputs and their attention output, (M, D), from shared projections."""
    qkv_BHTK = block.attention.project(block.ln_1(x_BTD), bias.rotation)
    inputs = []
    outputs = []
    for group in groups:
        rows = batch_rows(group)
        length = group[2]
        inputs.append(x_BTD[rows, :length].flatten(0, 1))
        q, k, v = (z[rows, :, :length] for z in qkv_BHTK)
        mask, _ = bias.of_prefixes(rows, length)
        outputs.append(block.attention(q, k, v, mask, False).flatten(0, 1))
    return torch.cat(inputs), torch.cat(outputs)


def attention(block: "Block", x_MD: Tensor, groups: Groups, bias: AttentionBias) -> Tensor:
    """Return the attention output (M, D) over groups of equally long sequences."""
    outputs = []
    z_MD = block.ln_1(x_MD)
    sizes = [rows * length for _, rows, length in groups]
    for z, group in zip(z_MD.split(sizes), groups, strict=True):
        mask, rotation = bias.of_prefixes(batch_rows(group), group[2])
        q, k, v = block.attention.project(z.view(*group[1:], -1), rotation)
        outputs.append(block.attention(q, k, v, mask, False).flatten(0, 1))
    return torch.cat(outputs)


def read_ends(
    block: "Block", x_MD: Tensor, groups: Groups, bias: AttentionBias = NO_BIAS
) -> tuple[Tensor, Tensor]:
    """Return the last layer's inputs and attention output at the prefixes' ends, both (P, D).

    Keys and values are never formed: q·(W_K z + b_K) = (W_Kᵀ q)·z plus a constant that the softmax
    drops, and a weighted mean of W_V z + b_V is W_V (weighted mean of z) + b_V. Only rotary
    positions need explicit keys, since they rotate each key by its position.
    """
    attention = block.attention
    n_heads = attention.n_heads
    counts = [rows for _, rows, _ in groups]
    sizes = [rows * length for _, rows, length in groups]
    ends_P = torch.cat(
        [
            torch.arange(1, rows + 1, device=x_MD.device) * length + (start - 1)
            for start, (_, rows, length) in zip(offsets(groups), groups, strict=False)
        ]
    )
    z_MD = block.ln_1(x_MD)
    w_q, w_k, w_v = attention.qkv.weight.chunk(3)
    b_q, b_k, b_v = attention.qkv.bias.chunk(3)
    q_PHK = F.linear(z_MD[ends_P], w_q, b_q).unflatten(-1, (n_heads, -1))
    if bias.rotation is None:
        w_k_HKD = w_k.unflatten(0, (n_heads, -1))
        queries = (q_PHK.transpose(0, 1) @ w_k_HKD).transpose(0, 1)
        keys = [None] * len(groups)
    else:
        cosines, sines = flat_rotation(groups, bias)
        queries = rotate(q_PHK, (cosines[ends_P], sines[ends_P]))
        keys_MHK = F.linear(z_MD, w_k, b_k).unflatten(-1, (n_heads, -1))
        keys = rotate(keys_MHK, (cosines, sines)).split(sizes)
    queries = queries * (x_MD.shape[-1] // n_heads) ** -0.5
    means = []
    # the gradient of split is one tensor; slices would make a full-size one for each group
    parts = zip(queries.split(counts), z_MD.split(sizes), keys, groups, strict=True)
    for queries_R, z, key, group in parts:
        _, rows, length = group
        z = z.view(rows, length, -1)
        if key is None:
            scores = queries_R @ z.transpose(1, 2)
        else:
            key = key.unflatten(0, (rows, length))
            scores = torch.einsum("rhk,rthk->rht", queries_R, key)
        mask, _ = bias.of_prefixes(batch_rows(group), length)
        mask = None if mask is None else mask[:, :, -1]
        means.append(attention_weights(scores, mask, z.dtype) @ z)
    mean_HPD = torch.cat(means).transpose(0, 1)
    w_v_HDK = w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)
    value_PHK = (mean_HPD @ w_v_HDK).transpose(0, 1) + b_v.unflatten(0, (n_heads, -1))
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))


def flat_rotation(groups: Groups, bias: AttentionBias) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of every flat token, each (M, 1, K)."""
    cosines: list[Tensor] = []
    sines: list[Tensor] = []
    for group in groups:
        _, rows, length = group
        _, rotation = bias.of_prefixes(batch_rows(group), length)
        assert rotation is not None
        for found, x in zip((cosines, sines), rotation, strict=True):
            found.append(x.expand(rows, -1, -1, -1).transpose(1, 2).flatten(0, 1))
    return torch.cat(cosines), torch.cat(sines)


def micro_batches(
    rows_N: Tensor, lengths_N: Tensor, batch: int, token_budget: int
) -> list[Groups]:
    """Cut prefixes in ascending order of length into micro-batches of ``token_budget`` tokens.

    Each is a list of groups (rows, R, T): R prefixes of length T; ``rows`` is None if they are all
    rows in order.
    """
    parts: list[list[Group]] = [[]]
    held = 0
    lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
    for length, rows in zip(lengths.tolist(), rows_N.split(counts.tolist()), strict=True):
        while len(rows):
            room = (token_budget - held) // length
            # start a new micro-batch unless this one has room for the group or a full load
            if room < min(len(rows), max(1, token_budget // length)):
                parts.append([])
                held = 0
                room = token_budget // length
            taken = rows[:room]
            rows = rows[room:]
            parts[-1].append((None if len(taken) == batch else taken, len(taken), length))
            held += len(taken) * length
    return [part for part in parts if part]


def even_micro_batches(
    rows_N: Tensor, lengths_N: Tensor, batch: int, token_budget: int
) -> list[Groups]:
    """Cut as ``micro_batches`` does, into equal work of about ``token_budget`` tokens.

    This avoids a remainder of few tokens, for which all weights would be read again.
    """
    ends_N = lengths_N.cumsum(0)
    count = -(-int(ends_N[-1]) // token_budget)
    part_N = (ends_N - lengths_N) * count // ends_N[-1]
    pairs = torch.stack([part_N, lengths_N])
    runs, counts = torch.unique_consecutive(pairs, dim=1, return_counts=True)
    parts: list[list[Group]] = [[] for _ in range(count)]
    for part, length, rows in zip(
        *runs.tolist(), rows_N.split(counts.tolist()), strict=True
    ):
        parts[part].append((None if len(rows) == batch else rows, len(rows), length))
    return [part for part in parts if part]
