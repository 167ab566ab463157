"""ENTP on a CPU: prefixes of one length run together, all lengths of a micro-batch in one flat batch of tokens.

Letters: B batch, T tokens, P prefixes of a micro-batch, M flat tokens of it, R rows of a group, D width, H heads,
K head width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from entp_lib.models import kernels
from entp_lib.models.kernels import Groups, offsets
from entp_lib.models.last_layer import attention_weights, read_last
from entp_lib.models.relations import Relations, add_bias


def stack(blocks: Sequence[nn.Module], x_BTD: Tensor, groups: Groups, relations: Relations | None = None) -> Tensor:
    """Hidden states (P, D) after the stack for the prefixes of ``groups``, in their order.

    The fused kernels attend without positional turns, biases or masks; with any of these they compute the MLPs alone.
    """
    first, *middle, last = blocks
    fused = first.fusible and kernels.usable(x_BTD, first.attention.dropout if first.training else 0.0)

    def finish(block: nn.Module, x: Tensor, attended: Tensor) -> Tensor:
        return kernels.feed_forward(block, x + attended) if fused else block.residual(x, attended)

    if fused and relations is None:
        x_MD = kernels.feed_forward(first, kernels.attend_prefixes(first, x_BTD, groups))
    else:
        x_MD = finish(first, *plain_attend_prefixes(first, x_BTD, groups, relations))
    for block in middle:
        if fused and relations is None:
            x_MD = kernels.feed_forward(block, kernels.attend(block, x_MD, groups))
        else:
            x_MD = finish(block, x_MD, plain_attend(block, x_MD, groups, relations))
    with torch.autocast(x_MD.device.type, enabled=torch.is_autocast_enabled(x_MD.device.type) and not fused):
        ends = read_ends(last, x_MD, groups, relations)  # many small products, which are no faster in bf16 on a CPU
    return finish(last, *ends)


def of_group(relations: Relations | None, chosen: Tensor | None, rows: int, length: int) -> tuple:
    """Bias and rotation of a group's prefixes, None for nothing."""
    return (None, None) if relations is None else relations.group(slice(rows) if chosen is None else chosen, length)


def plain_attend_prefixes(
    block: nn.Module, x_BTD: Tensor, groups: Groups, relations: Relations | None = None
) -> tuple[Tensor, Tensor]:
    """First layer: the prefixes' inputs and their attention output, each (M, D), from shared projections."""
    qkv_BHTK = block.attention.project(block.ln_1(x_BTD), None if relations is None else relations.rotation)
    inputs, outputs = [], []
    for chosen, rows, length in groups:
        pick = slice(rows) if chosen is None else chosen
        inputs.append(x_BTD[pick, :length].flatten(0, 1))
        q, k, v = (z[pick, :, :length] for z in qkv_BHTK)
        bias, _ = of_group(relations, chosen, rows, length)
        outputs.append(block.attention(q, k, v, bias, False).flatten(0, 1))
    return torch.cat(inputs), torch.cat(outputs)


def plain_attend(block: nn.Module, x_MD: Tensor, groups: Groups, relations: Relations | None = None) -> Tensor:
    """Attention output (M, D) over groups of equally long sequences."""
    sizes = [rows * length for _, rows, length in groups]
    outputs = []
    for part, (chosen, rows, length) in zip(block.ln_1(x_MD).split(sizes), groups, strict=True):
        bias, rotation = of_group(relations, chosen, rows, length)
        q, k, v = block.attention.project(part.view(rows, length, -1), rotation)
        outputs.append(block.attention(q, k, v, bias, False).flatten(0, 1))
    return torch.cat(outputs)


def read_ends(
    block: nn.Module, x_MD: Tensor, groups: Groups, relations: Relations | None = None
) -> tuple[Tensor, Tensor]:
    """Last layer: the inputs (P, D) at the prefixes' ends and their attention output (P, D)."""
    sizes, counts = [rows * length for _, rows, length in groups], [rows for _, rows, _ in groups]

    def means(seeking: Tensor, z_MD: Tensor, keys_MHK):  # Tensor or None; torch 2.9 compiles no "|" in here
        found, masses, start = [], [], 0
        for z, few, (chosen, rows, length) in zip(z_MD.split(sizes), seeking.split(counts), groups, strict=True):
            z = z.view(rows, length, -1)
            if keys_MHK is None:
                scores = few @ z.transpose(1, 2)
            else:
                keys_RTHK = keys_MHK[start : start + rows * length].unflatten(0, (rows, length))
                scores = torch.einsum("rhk,rthk->rht", few, keys_RTHK)
            bias, _ = of_group(relations, chosen, rows, length)
            scores = add_bias(scores, None if bias is None else bias[:, :, -1])
            weights = attention_weights(block.attention, scores, z.dtype)
            found.append(weights @ z)
            masses.append(weights.sum(-1))
            start += rows * length
        return torch.cat(found), torch.cat(masses)

    return read_last(block, x_MD, last_tokens(groups, x_MD.device), means, flat_rotation(groups, relations))


def flat_rotation(groups: Groups, relations: Relations | None) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines of every flat token, (M, 1, K)."""
    if relations is None or relations.rotation is None:
        return None
    parts = []
    for chosen, rows, length in groups:
        _, rotation = of_group(relations, chosen, rows, length)
        parts.append([x.expand(rows, -1, -1, -1).transpose(1, 2).flatten(0, 1) for x in rotation])
    return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def last_tokens(groups: Groups, device: torch.device) -> Tensor:
    """Flat index (P,) of every prefix's last token."""
    ends = [
        torch.arange(1, rows + 1, device=device) * length + (start - 1)
        for start, (_, rows, length) in zip(offsets(groups)[: len(groups)], groups, strict=True)
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


def check_budget(token_budget: int, longest: int) -> None:
    """Raise ValueError where not even one prefix fits."""
    if token_budget < longest:
        raise ValueError(f"token_budget = {token_budget}: below the longest wanted prefix, of {longest} tokens")
