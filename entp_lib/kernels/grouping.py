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
from entp_lib.attention_bias import AttentionBias, attention_weights, rotate
from entp_lib.kernels.attention import Groups, spans

if TYPE_CHECKING:
    from entp_lib.model import Block

Size = tuple[int, int]  # how many prefixes a group has (R), and their length T
# Inputs (B, T, D) of the first layer, and their queries, keys and values (B, T, 3D).
Projected = tuple[Tensor, Tensor]


def stack(
    blocks: Sequence["Block"],
    x_BTD: Tensor,
    groups: Groups,
    bias: AttentionBias,
    projected: Projected | None,
) -> Tensor:
    """Return the hidden states (P, D) after the stack for the prefixes of ``groups``, in order.

    The fused kernels attend without rotations, biases or masks; with any of these they compute the
    MLPs alone. ``projected``: the first layer's projections of ``x_BTD``, where they are shared.
    """
    first, *middle, last = blocks
    fused = all(kernels.usable(block, x_BTD) for block in blocks)

    def finish(block: "Block", x: Tensor, attended: Tensor) -> Tensor:
        if fused:
            return kernels.feed_forward(block, x + attended)
        return block.residual(x, attended)

    if fused and bias.is_empty:
        x_MD = x_BTD
        for block in (first, *middle):
            x_MD = kernels.attend(
                block, projected or kernels.project(block, x_MD), groups
            )
            x_MD = kernels.feed_forward(block, x_MD)
            projected = None  # the first layer's alone are shared
    else:
        x_MD = finish(first, *first_attention(first, x_BTD, groups, bias))
        for block in middle:
            x_MD = finish(block, x_MD, grouped_attention(block, x_MD, groups, bias))
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
    for rows, _, length in groups:
        inputs.append(x_BTD[rows, :length].flatten(0, 1))
        q, k, v = (z[rows, :, :length] for z in qkv_BHTK)
        mask, _ = bias.of_prefixes(rows, length)
        outputs.append(block.attention(q, k, v, mask, False).flatten(0, 1))
    return torch.cat(inputs), torch.cat(outputs)


def grouped_attention(
    block: "Block", x_MD: Tensor, groups: Groups, bias: AttentionBias
) -> Tensor:
    """Return the attention output (M, D) over groups of equally long sequences."""
    outputs = []
    z_MD = block.ln_1(x_MD)
    sizes = [rows * length for _, rows, length in groups]
    for z, (rows, count, length) in zip(z_MD.split(sizes), groups, strict=True):
        mask, rotation = bias.of_prefixes(rows, length)
        q, k, v = block.attention.project(z.view(count, length, -1), rotation)
        outputs.append(block.attention(q, k, v, mask, False).flatten(0, 1))
    return torch.cat(outputs)


def read_ends(
    block: "Block", x_MD: Tensor, groups: Groups, bias: AttentionBias
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
            torch.arange(span.start + length - 1, span.stop, length, device=x_MD.device)
            for (_, _, length), span in spans(groups)
        ]
    )
    if not attention.is_plain:
        return x_MD[ends_P], grouped_attention(block, x_MD, groups, bias)[ends_P]
    z_MD = block.ln_1(x_MD)
    w_q, w_k, w_v = attention.qkv.weight.chunk(3)
    b_q, b_k, b_v = attention.qkv.bias.chunk(3)
    q_PHK = F.linear(z_MD[ends_P], w_q, b_q).unflatten(-1, (n_heads, -1))
    scale = (x_MD.shape[-1] // n_heads) ** -0.5
    # the gradient of split is one tensor; slices would make a full-size one for each group
    keys = inputs = z_MD.split(sizes)
    if bias.rotation is None:
        w_k_HKD = w_k.unflatten(0, (n_heads, -1))
        q_PHK = (q_PHK.transpose(0, 1) @ w_k_HKD).transpose(0, 1) * scale
    else:
        keys = F.linear(z_MD, w_k, b_k).unflatten(-1, (n_heads, -1)).split(sizes)
    means = []
    parts = zip(q_PHK.split(counts), inputs, keys, groups, strict=True)
    for queries_R, z, key, (rows, count, length) in parts:
        z = z.view(count, length, -1)
        mask, rotation = bias.of_prefixes(rows, length)
        if rotation is None:
            scores = queries_R @ z.transpose(1, 2)
        else:
            cosines, sines = (x.transpose(1, 2) for x in rotation)
            queries_R = rotate(queries_R, (cosines[:, -1], sines[:, -1]))
            key = rotate(key.unflatten(0, (count, length)), (cosines, sines))
            scores = torch.einsum("rhk,rthk->rht", queries_R * scale, key)
        mask = None if mask is None else mask[:, :, -1]
        means.append(attention_weights(scores, mask, z.dtype) @ z)
    mean_HPD = torch.cat(means).transpose(0, 1)
    w_v_HDK = w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)
    value_PHK = (mean_HPD @ w_v_HDK).transpose(0, 1) + b_v.unflatten(0, (n_heads, -1))
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))


def micro_batches(lengths_N: Tensor, token_budget: int) -> list[list[Size]]:
    """Cut prefixes in ascending order of length into micro-batches of ``token_budget`` tokens.

    Each is a list of sizes (R, T): R prefixes of length T. The budget is at least the longest.
    """
    parts: list[list[Size]] = [[]]
    held = 0
    lengths, counts = torch.unique_consecutive(lengths_N, return_counts=True)
    for length, left in zip(lengths.tolist(), counts.tolist(), strict=True):
        while left:
            room = (token_budget - held) // length
            # start a new micro-batch unless this one has room for the group or a full load
            if room < min(left, token_budget // length):
                parts.append([])
                held = 0
                room = token_budget // length
            taken = min(room, left)
            left -= taken
            held += taken * length
            parts[-1].append((taken, length))
    return parts


def even_micro_batches(lengths_N: Tensor, token_budget: int) -> list[list[Size]]:
    """Cut as ``micro_batches`` does, into equal work of about ``token_budget`` tokens.

    This avoids a remainder of few tokens, for which all weights would be read again.
    """
    ends_N = lengths_N.cumsum(0)
    count = -(-int(ends_N[-1]) // token_budget)
    part_N = (ends_N - lengths_N) * count // ends_N[-1]
    pairs = torch.stack([part_N, lengths_N])
    runs, counts = torch.unique_consecutive(pairs, dim=1, return_counts=True)
    parts: list[list[Size]] = [[] for _ in range(count)]
    for part, length, rows in zip(*runs.tolist(), counts.tolist(), strict=True):
        parts[part].append((rows, length))
    return [part for part in parts if part]
