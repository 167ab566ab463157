"""ENTP: the unmasked stack run afresh on each scored prefix, read at the prefix's last position.

``reference`` is the definition as a loop and the oracle of the tests. ``fast`` is the same function with less work:
the first layer's projections are shared by all prefixes, many prefixes go through the matrix products together, and
the last layer is computed where it is read only. What goes together is a ``Part``: on a CPU groups of prefixes of one
length (``entp_lib.kernels.grouping``), on a GPU prefixes packed into rows (``entp_lib.kernels.packing``).

Letters: B batch, T tokens, P prefixes of a part, N scored prefixes in all, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entp_lib import kernels
from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.kernels import Groups, grouping, packing
from entp_lib.kernels.grouping import Projected
from entp_lib.kernels.packing import Rows
from entp_lib.relations import NOTHING, Relations
from entp_lib.validation import one_of

RECORDED_WIDTH = 192  # committed records in fp32 are no wider: up to it, the order of all sums stays as it is


@dataclass(frozen=True)
class Part:
    """Wanted positions that go through the stack at one time, and how.

    ``scored_BT``: those of this part alone. ``layout``: groups or rows of prefixes, None where the whole sequence runs
    once. ``places_P``: which of the whole step's scored positions, in row-major order, each prefix is.
    """

    scored_BT: Tensor
    layout: Groups | Rows | None = None
    places_P: Tensor | None = None


def plan(scored_BT: Tensor, token_budget: int, pack: bool, even: bool = False) -> list[Part]:
    """Parts of at most ``token_budget`` tokens each that hold every scored prefix once.

    ``pack``: in rows under a block mask, in place of groups of one length, short ones first. ``even``: groups are cut
    into parts of equal work, by a prefix more at most. Losses of the parts add up to that of the whole, which bounds
    memory. A budget below the longest scored prefix is raised to it.
    """
    rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
    if not len(rows_N):
        return []
    token_budget = max(token_budget, int(ends_N.max()) + 1)
    if pack:
        rows = packing.pack(rows_N, ends_N + 1, scored_BT.shape[1])
        layouts = packing.chunks(rows, max(1, token_budget // rows.index_RC.shape[1]))
        places = [layout.prefix_N for layout in layouts]
    else:
        order_N = ends_N.argsort(stable=True)
        cut = grouping.even_micro_batches if even else grouping.micro_batches
        layouts = cut(rows_N[order_N], ends_N[order_N] + 1, len(scored_BT), token_budget)
        places = order_N.split([sum(rows for _, rows, _ in layout) for layout in layouts])
    parts = []
    for layout, places_P in zip(layouts, places, strict=True):
        part_BT = torch.zeros_like(scored_BT)
        part_BT[rows_N[places_P], ends_N[places_P]] = True
        parts.append(Part(part_BT, layout, places_P))
    return parts


def whole(scored_BT: Tensor) -> Part:
    """Every prefix of every row as one part, planned from the shape alone: where entries cannot be looked at."""
    batch, length = scored_BT.shape
    places_BT = torch.arange(batch * length, device=scored_BT.device).view(batch, length)
    return Part(scored_BT, [(None, batch, t) for t in range(1, length + 1)], places_BT.t().flatten())


def reference(blocks: Sequence[nn.Module], x_BTD: Tensor, scored_BT: Tensor, relations: Relations = NOTHING) -> Tensor:
    """Hidden states (N, D) after the stack, one prefix at a time: the definition, for tests and comparison."""
    rows = []
    for b, t in scored_BT.nonzero().tolist():
        x = x_BTD[b : b + 1, : t + 1]
        bias, rotation = relations.group(slice(b, b + 1), t + 1)
        for block in blocks:
            x = block(x, bias, rotation=rotation)
        rows.append(x[0, -1].clone())  # a view would keep the whole prefix
    return torch.stack(rows) if rows else x_BTD.new_zeros(0, x_BTD.shape[-1])


def shared(blocks: Sequence[nn.Module], x_BTD: Tensor, relations: Relations = NOTHING) -> Projected | None:
    """Make the first layer's projections once for all parts of a step; None where each part makes its own.

    A training step does so in fp32 up to ``RECORDED_WIDTH``, whose records have gradients added up in that order.
    """
    free = not torch.is_grad_enabled() or kernels.in_bf16() or x_BTD.shape[-1] > RECORDED_WIDTH
    if not (free and relations.empty and grouping.fused(blocks[0], x_BTD)):
        return None
    return kernels.project(blocks[0], x_BTD)


def fast(
    blocks: Sequence[nn.Module],
    x_BTD: Tensor,
    parts: Sequence[Part],
    relations: Relations = NOTHING,
    projected: Projected | None = None,
) -> Tensor:
    """Hidden states (N, D) of the parts together, in row-major order of what they want; two layers or more.

    ``projected``: what ``shared`` made, if anything.
    """
    if not parts:
        return x_BTD.new_zeros(0, x_BTD.shape[-1])
    if projected is None and len(parts) > 1 and not isinstance(parts[0].layout, Rows):
        projected = shared(blocks, x_BTD, relations)
    outputs = []
    for part in parts:
        if isinstance(part.layout, Rows):
            outputs.append(packing.stack(blocks, x_BTD, part.layout, relations))
        else:
            outputs.append(grouping.stack(blocks, x_BTD, part.layout, relations, projected))
    return torch.cat(outputs)[torch.cat([part.places_P for part in parts]).argsort()]


def micro_batch_tokens(device: str, width: int, longest: int) -> int:
    """Tokens of a micro-batch where none is asked for: what keeps the machine's caches warm and busy."""
    entries = 2**20 if device == "cpu" else 2**26  # tokens times width
    return max(longest, entries // width)


def token_forwards(model: ModelConfig | str, scored_BT: Tensor) -> int:
    """Tokens that one pass sends through the stack, the unit of work here: B·T, or the prefixes' total length.

    ``model``: a configuration, or an architecture's name (ConfigError for an unknown one). ENTP is counted as it is
    defined, one full pass per prefix, and so is the authors' hybrid. Where a configuration says how many layers are
    full, each layer is counted by itself: their mean, to the nearest token.
    """
    name = model if isinstance(model, str) else model.architecture
    one_of("architecture", name, ARCHITECTURES)
    once = scored_BT.numel()
    if ARCHITECTURES[name].causal_layers is None:
        return once
    lengths_T = torch.arange(1, scored_BT.shape[1] + 1, device=scored_BT.device)
    afresh = int((scored_BT * lengths_T).sum())
    if isinstance(model, str) or model.full_layers is None:
        return afresh
    causal = model.n_layers - model.full_layers
    return round((causal * once + model.full_layers * afresh) / model.n_layers)
