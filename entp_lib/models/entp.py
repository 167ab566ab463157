"""ENTP: the unmasked stack run afresh on each wanted prefix, read at the prefix's last position.

``reference`` is the definition as a loop and the oracle of the tests. ``fast`` is the same function with less work:
the first layer's projections are shared by all prefixes, prefixes of one length run together, all lengths of a
micro-batch go through the matrix products as one flat batch, and the last layer is computed where it is read only.
On a GPU prefixes are packed into rows instead (``entp_lib.models.packing``).

Letters: B batch, T tokens, P prefixes of a micro-batch, N wanted prefixes in all, M flat tokens of a micro-batch,
D width, H heads, K head width.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.models import kernels, packing
from entp_lib.models.kernels import Groups, offsets

# Entries (tokens times width) that a micro-batch holds unless a budget is given.
MICRO_BATCH_ENTRIES = {"cpu": 2**20, "cuda": 2**26}


def reference(blocks: Sequence[nn.Module], x_BTD: Tensor, wanted_BT: Tensor) -> Tensor:
    """Hidden states (N, D) after the stack, one prefix at a time: the definition, for tests and comparison."""
    rows = []
    for b, t in wanted_BT.nonzero().tolist():
        x = x_BTD[b : b + 1, : t + 1]
        for block in blocks:
            x = block(x)
        rows.append(x[0, -1].clone())  # a view would keep the whole prefix
    return torch.stack(rows) if rows else x_BTD.new_zeros(0, x_BTD.shape[-1])


def fast(
    blocks: Sequence[nn.Module],
    x_BTD: Tensor,
    wanted_BT: Tensor,
    token_budget: int | None = None,
    pack: bool | None = None,
) -> Tensor:
    """Hidden states (N, D) in row-major order of ``wanted_BT``; needs two layers or more.

    With a ``token_budget``, no more than so many tokens are in the stack at any time: what does not fit is computed
    in micro-batches, whose activations are computed again for the gradient. Without one, all activations are kept.
    ``pack``: in rows under a block mask in place of groups of one length (None: as ``packs`` says). Raises ValueError
    where the budget is below the longest wanted prefix.
    """
    rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
    if not len(rows_N):
        return x_BTD.new_zeros(0, x_BTD.shape[-1])
    budget = token_budget
    if budget is None:
        budget = micro_batch_tokens(x_BTD.device.type, x_BTD.shape[2], x_BTD.shape[1])
    check_budget(budget, int(ends_N.max()) + 1)
    if packs(x_BTD) if pack is None else pack:
        return packing.packed(blocks, x_BTD, wanted_BT, budget, again=token_budget is not None)
    order_N = ends_N.argsort(stable=True)
    parts = micro_batches(rows_N[order_N], ends_N[order_N] + 1, len(x_BTD), budget)
    again = token_budget is not None and len(parts) > 1 and torch.is_grad_enabled()
    outputs = []
    for groups in parts:
        if again:
            outputs.append(checkpoint(stack, blocks, x_BTD, groups, use_reentrant=False))
        else:
            outputs.append(stack(blocks, x_BTD, groups))
    return torch.cat(outputs)[order_N.argsort()]


def packs(x_BTD: Tensor) -> bool:
    """Whether prefixes go packed in rows: on a GPU, where sequences are short beside the width.

    Groups launch kernels for every length and layer, packed rows a handful a layer; but they compute about T² / 3
    masked scores a row, T / 18 D of the work of its linear maps. Not measured on a GPU yet: ``benchmarks.engine`` does.
    """
    return x_BTD.device.type == "cuda" and x_BTD.shape[1] <= 2 * x_BTD.shape[2]


def check_budget(token_budget: int, longest: int) -> None:
    """Raise ValueError where not even one prefix fits."""
    if token_budget < longest:
        raise ValueError(f"token_budget = {token_budget}: below the longest wanted prefix, of {longest} tokens")


def stack(blocks: Sequence[nn.Module], x_BTD: Tensor, groups: Groups) -> Tensor:
    """Hidden states (P, D) after the stack for the prefixes of ``groups``, in their order."""
    first, *middle, last = blocks
    dropout = first.attention.dropout if first.training else 0.0
    fused = first.fusible and kernels.usable(x_BTD, dropout)
    if fused:
        x_MD = kernels.feed_forward(first, kernels.attend_prefixes(first, x_BTD, groups))
    else:
        x_MD = first.residual(*plain_attend_prefixes(first, x_BTD, groups))
    for block in middle:
        if fused:
            x_MD = kernels.feed_forward(block, kernels.attend(block, x_MD, groups))
        else:
            x_MD = block.residual(x_MD, plain_attend(block, x_MD, groups))
    x_PD, attended_PD = read_last(last, x_MD, groups)
    if fused:
        return kernels.feed_forward(last, x_PD + attended_PD)
    return last.residual(x_PD, attended_PD)


def plain_attend_prefixes(block: nn.Module, x_BTD: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """First layer: the prefixes' inputs and their attention output, each (M, D), from shared projections."""
    qkv_BHTK = block.attention.project(block.ln_1(x_BTD))
    inputs, outputs = [], []
    for chosen, rows, length in groups:
        pick = slice(rows) if chosen is None else chosen
        inputs.append(x_BTD[pick, :length].flatten(0, 1))
        q, k, v = (z[pick, :, :length] for z in qkv_BHTK)
        outputs.append(block.attention(q, k, v, None, False).flatten(0, 1))
    return torch.cat(inputs), torch.cat(outputs)


def plain_attend(block: nn.Module, x_MD: Tensor, groups: Groups) -> Tensor:
    """Attention output (M, D) over groups of equally long sequences."""
    sizes = [rows * length for _, rows, length in groups]
    outputs = []
    for part, (_, rows, length) in zip(block.ln_1(x_MD).split(sizes), groups, strict=True):
        q, k, v = block.attention.project(part.view(rows, length, -1))
        outputs.append(block.attention(q, k, v, None, False).flatten(0, 1))
    return torch.cat(outputs)


def read_last(block: nn.Module, x_MD: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """Last layer: the inputs (P, D) at the prefixes' ends and their attention output (P, D).

    Keys and values are never formed: q·(W_K z + b_K) = (W_Kᵀ q)·z plus a constant that the softmax drops, and a
    weighted mean of W_V z + b_V is W_V (weighted mean of z) + b_V.
    """
    attention, n_heads, width = block.attention, block.attention.n_heads, x_MD.shape[-1]
    z_MD = block.ln_1(x_MD)
    ends_P = last_tokens(groups, x_MD.device)
    (w_q, w_k, w_v), (b_q, _, b_v) = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    q_HPK = F.linear(z_MD[ends_P], w_q, b_q).unflatten(-1, (n_heads, -1)).transpose(0, 1)
    seeking_PHD = (q_HPK @ w_k.unflatten(0, (n_heads, -1))).transpose(0, 1) * (width // n_heads) ** -0.5
    dropout = attention.dropout if attention.training else 0.0
    means, masses = [], []
    sizes, counts = [rows * length for _, rows, length in groups], [rows for _, rows, _ in groups]
    for z, seeking, (_, rows, length) in zip(z_MD.split(sizes), seeking_PHD.split(counts), groups, strict=True):
        z = z.view(rows, length, width)
        weights = F.softmax(seeking @ z.transpose(1, 2), -1, dtype=torch.float32 if z.dtype == torch.bfloat16 else None)
        weights = F.dropout(weights, dropout).to(z.dtype)
        means.append(weights @ z)
        masses.append(weights.sum(-1))
    mean_HPD, mass_PH = torch.cat(means).transpose(0, 1), torch.cat(masses)
    value_PHK = (mean_HPD @ w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)).transpose(0, 1)
    bias_HK = b_v.unflatten(0, (n_heads, -1))
    value_PHK = value_PHK + (bias_HK if dropout == 0 else mass_PH[..., None] * bias_HK)  # dropout spoils the sum of 1
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))


def last_tokens(groups: Groups, device: torch.device) -> Tensor:
    """Flat index (P,) of every prefix's last token."""
    ends = [
        torch.arange(1, rows + 1, device=device) * length + (start - 1)
        for start, (_, rows, length) in zip(offsets(groups), groups, strict=False)
    ]
    return torch.cat(ends)


def micro_batches(rows_N: Tensor, lengths_N: Tensor, batch: int, token_budget: int) -> list[Groups]:
    """Cut prefixes in ascending order of length into micro-batches of at most ``token_budget`` tokens.

    Each is a list of groups (rows, R, T): R prefixes of length T, ``rows`` None where they are all rows in order.
    """
    check_budget(token_budget, int(lengths_N[-1]))
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


def micro_batch_tokens(device: str, width: int, longest: int) -> int:
    """Tokens of a micro-batch where none is asked for: what keeps the machine's caches warm and busy."""
    return max(longest, MICRO_BATCH_ENTRIES.get(device, 2**26) // width)


def split_wanted(wanted_BT: Tensor, token_budget: int) -> Iterator[Tensor]:
    """Masks like ``wanted_BT``, disjoint, whose prefixes hold at most ``token_budget`` tokens each, short ones first.

    Losses of the parts add up to the loss of the whole, so a training step that goes part by part bounds its memory
    without computing anything twice. Raises ValueError where the budget is below the longest wanted prefix.
    """
    rows_N, ends_N = wanted_BT.nonzero(as_tuple=True)
    if not len(rows_N):
        return
    order_N = ends_N.argsort(stable=True)
    rows_N, ends_N = rows_N[order_N], ends_N[order_N]
    start = 0
    for groups in micro_batches(rows_N, ends_N + 1, len(wanted_BT), token_budget):
        stop = start + sum(rows for _, rows, _ in groups)
        part_BT = torch.zeros_like(wanted_BT)
        part_BT[rows_N[start:stop], ends_N[start:stop]] = True
        yield part_BT
        start = stop


def budget_tokens(cfg: ModelConfig, activation_bytes: int, dtype: torch.dtype = torch.float32) -> int:
    """Token budget that keeps the activations of one training micro-batch within so many bytes.

    A layer keeps about 15 D entries per token (norms, projections, attention, twice the hidden width of the MLP),
    and half as much again is in use at the peak of the backward pass.
    """
    per_token = 23 * cfg.n_layers * cfg.width * dtype.itemsize
    if activation_bytes < per_token * cfg.max_length:
        raise ValueError(
            f"activation_bytes = {activation_bytes}: one prefix of {cfg.max_length} tokens needs about "
            f"{per_token * cfg.max_length}"
        )
    return activation_bytes // per_token


def token_forwards(model: ModelConfig | str, wanted_BT: Tensor) -> int:
    """Tokens that one pass sends through the stack, the paper's unit of work: B·T, or the prefixes' total length.

    ``model``: a configuration, or an architecture's name. One layer or several, ENTP is counted as it is defined, one
    full pass per prefix, and so is the authors' hybrid, though its first layer would do with one pass for all. Where a
    configuration says how many layers are full, each layer is counted by itself: their mean, to the nearest token.
    """
    name = model if isinstance(model, str) else model.architecture
    once = wanted_BT.numel()
    if ARCHITECTURES[name].causal_layers is None:
        return once
    lengths_T = torch.arange(1, wanted_BT.shape[1] + 1, device=wanted_BT.device)
    afresh = int((wanted_BT * lengths_T).sum())
    if isinstance(model, str) or model.full_layers is None:
        return afresh
    causal = model.n_layers - model.full_layers
    return round((causal * once + model.full_layers * afresh) / model.n_layers)
