"""ENTP: the unmasked stack run afresh on each wanted prefix, read at the prefix's last position.

``reference`` is the definition as a loop and the oracle of the tests; ``grouped`` is the same function with less
work: the first layer's projections are shared by all prefixes, prefixes of neighbouring lengths run together, and
the last layer is computed where it is read only.

Letters: B batch, T tokens, P prefixes of one group, N wanted prefixes in all, D width.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Prefixes of different lengths share a batch, padded, while it holds fewer tokens than this: on a GPU small
# batches are bound by kernel launches, on a CPU padding costs more than another call.
GROUP_TOKENS = {"cpu": 512, "cuda": 65_536}


def reference(blocks: Sequence[nn.Module], x_BTD: Tensor, wanted_BT: Tensor) -> Tensor:
    """Hidden states (N, D) after the stack, one prefix at a time: the definition, for tests and comparison."""
    rows = []
    for b, t in wanted_BT.nonzero().tolist():
        x = x_BTD[b : b + 1, : t + 1]
        for block in blocks:
            x = block(x)
        rows.append(x[0, -1])
    return torch.stack(rows) if rows else x_BTD.new_zeros(0, x_BTD.shape[-1])


def grouped(blocks: Sequence[nn.Module], x_BTD: Tensor, wanted_BT: Tensor) -> Tensor:
    """Hidden states (N, D) in row-major order of ``wanted_BT``; needs two layers or more."""
    rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
    if not len(rows_N):
        return x_BTD.new_zeros(0, x_BTD.shape[-1])
    order_N = ends_N.argsort(stable=True)
    rows_N, ends_N = rows_N[order_N], ends_N[order_N]
    first, *middle, last = blocks
    qkv_BHTK = first.attention.project(first.ln_1(x_BTD))
    outputs, start = [], 0
    for size in group_sizes((ends_N + 1).tolist(), GROUP_TOKENS.get(x_BTD.device.type, 65_536)):
        rows_P, ends_P = rows_N[start : start + size], ends_N[start : start + size]
        start += size
        length, mask = int(ends_P[-1]) + 1, None
        if int(ends_P[0]) + 1 < length:
            mask = (torch.arange(length, device=x_BTD.device) <= ends_P[:, None])[:, None, None]
        whole = size == len(x_BTD) and mask is None  # every row, one length: slices instead of copies
        pick = slice(None) if whole else rows_P
        x = first(x_BTD[pick, :length], mask, qkv=[z[pick, :, :length] for z in qkv_BHTK])
        for block in middle:
            x = block(x, mask)
        outputs.append(last.forward_last(x, ends_P, mask))
    x_ND = torch.cat(outputs)
    return x_ND[order_N.argsort()]


def group_sizes(lengths: list[int], tokens: int) -> list[int]:
    """Cut ascending prefix lengths into groups: a length stays whole, and joins the next while both are small.

    >>> group_sizes([1, 1, 2, 2, 3, 3], tokens=8)
    [4, 2]
    """
    sizes, held = [], 0
    for length, same in itertools.groupby(lengths):
        n = len(list(same))
        if held and (held + n) * length > tokens:
            sizes.append(held)
            held = 0
        held += n
    return [*sizes, held] if held else sizes


def token_forwards(architecture: str, wanted_BT: Tensor) -> int:
    """Tokens that one pass sends through the stack, the paper's unit of work: B·T, or the prefixes' total length.

    One layer or several, ENTP is counted as it is defined, one full pass per prefix.
    """
    if architecture != "entp":
        return wanted_BT.numel()
    lengths_T = torch.arange(1, wanted_BT.shape[1] + 1, device=wanted_BT.device)
    return int((wanted_BT * lengths_T).sum())
