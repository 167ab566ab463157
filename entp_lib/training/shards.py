"""One step's gradient from the shards of a batch: computed by one process, or each by a rank of its own.

A batch is cut by its work: sequences for a decoder; for ENTP prefixes, in row-major order, so that every shard has the
same number of tokens to send through the stack, a sequence that lies across a cut being begun in one shard and ended in
the next. Every shard's gradient of the mean loss over the whole batch is laid out as one flat vector, the loss behind
it, and these vectors are added up: by one process in the order of the shards, between ranks by one all-reduce a step.
With two shards both are the same sum to the last bit, a + b.

Letters: B batch, T tokens, N wanted positions of the whole batch.
"""

import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, RunConfig
from entp_lib.tasks import Batch, Task, seed_from
from entp_lib.training.evaluation import autocast


def cut(batch: Batch, cfg: ModelConfig, shards: int) -> list[Batch]:
    """The batch in so many parts that together want what it wants, each position once, with about equal work."""
    rows_N, ends_N = batch.wanted_BT.nonzero(as_tuple=True)
    if cfg.recomputed_layers > 1:
        tokens_N = ends_N + 1
        middle_N = tokens_N.cumsum(0) - tokens_N / 2
        shard_N = (middle_N * shards / tokens_N.sum().clamp_min(1)).long().clamp_max(shards - 1)
    else:
        shard_N = rows_N * shards // len(batch.wanted_BT)
    parts = []
    for i in range(shards):
        mine_N = shard_N == i
        wanted_BT = torch.zeros_like(batch.wanted_BT)
        wanted_BT[rows_N[mine_N], ends_N[mine_N]] = True
        touched = rows_N[mine_N]
        first, last = (int(touched[0]), int(touched[-1])) if len(touched) else (0, 0)
        parts.append(Batch(**{**vars(batch), "wanted_BT": wanted_BT}).rows(slice(first, last + 1)))
    return parts


def accumulate(model: nn.Module, task: Task, batch: Batch, count: int, precision: str) -> Tensor:
    """Add to the gradients those of the batch's summed losses over ``count``; returns that share of the mean loss."""
    device, relations = batch.inputs_BT.device, batch.relations()
    loss = torch.zeros((), device=device)
    parts = model.plan(batch.wanted_BT)
    shared = None
    if len(parts) > 1 and hasattr(model, "shared"):
        with autocast(device, precision):
            shared = model.shared(batch.inputs_BT, **relations)
    if shared is not None:  # the parts' gradients are added up at it, and go on from there once
        relations |= {"projected": tuple(x.detach().requires_grad_() for x in shared)}
    for part in parts:
        with autocast(device, precision):
            logits_NV = model(batch.inputs_BT, part, batch.prompt_lengths_B, **relations)
        part_loss = task.losses(logits_NV, batch.targets_BT[part.wanted_BT]).sum() / count
        part_loss.backward()
        loss += part_loss.detach()
    if shared is not None:
        torch.autograd.backward(shared, [x.grad for x in relations["projected"]])
    return loss


def gradients(model: nn.Module, task: Task, batch: Batch, config: RunConfig, step: int) -> Tensor:
    """Leave the gradient of the mean loss over the batch in the parameters; returns that loss. One process."""
    if config.train.gradient_shards == 1:
        if config.model.dropout > 0:
            torch.manual_seed(seed_from("dropout", config.model_seed, step))
        return accumulate(model, task, batch, len(batch.targets_N), config.train.precision)
    total = None
    for i, part in enumerate(cut(batch, config.model, config.train.gradient_shards)):
        flat = shard_gradient(model, task, part, len(batch.targets_N), config, step, i)
        total = flat if total is None else total + flat
    return spread(model, total)


def shard_gradient(
    model: nn.Module, task: Task, part: Batch, count: int, config: RunConfig, step: int, shard: int
) -> Tensor:
    """One shard's share of the gradient as a flat vector, in the order of the parameters, its loss behind it."""
    if config.model.dropout > 0:
        torch.manual_seed(seed_from("dropout", config.model_seed, step, shard))
    model.zero_grad(set_to_none=True)
    loss = accumulate(model, task, part, count, config.train.precision)
    pieces = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()]
    return torch.cat([*pieces, loss[None].to(pieces[0].dtype)])


def spread(model: nn.Module, flat: Tensor) -> Tensor:
    """Give every parameter its piece of a flat gradient; returns the loss behind it."""
    sizes = [p.numel() for p in model.parameters()]
    for p, piece in zip(model.parameters(), flat[:-1].split(sizes), strict=True):
        p.grad = piece.view_as(p)
    return flat[-1]
