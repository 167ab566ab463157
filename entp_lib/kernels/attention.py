"""The attention half-block for a CPU in fp32 and fp64, in two steps, with explicit gradients.

``Project`` computes the queries, keys and values of tokens, ``Attend`` the rest. They are separate
because prefixes share projections: ENTP's first layer projects every token once, however many
prefixes contain it.

Letters as in ``entp_lib.kernels``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from entp_lib.kernels.mlp import normalise, normalise_backward

Group = tuple[Tensor | None, int, int]  # (row numbers or None for the first R, R, T)
Groups = Sequence[Group]
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def offsets(groups: Groups) -> list[int]:
    """Return the first flat token of every group, and one past the last."""
    starts = [0]
    for _, rows, length in groups:
        starts.append(starts[-1] + rows * length)
    return starts


def heads(flat: Tensor, rows: int, length: int, n_heads: int) -> Tensor:
    """View a slice (R·T, D) of flat tokens as (R, H, T, K)."""
    return flat.view(rows, length, n_heads, -1).transpose(1, 2)


def batch_rows(group: Group) -> slice | Tensor:
    """Return the rows of the batch that a group's prefixes come from."""
    chosen, rows, _ = group
    return slice(rows) if chosen is None else chosen


def tokens_of(x: Tensor, group: Group, start: int) -> Tensor:
    """Return a group's tokens (R, T, …), from shared inputs (B, T, …) or flat tokens (M, …)."""
    _, rows, length = group
    if x.dim() == 3:
        return x[batch_rows(group), :length]
    return x[start : start + rows * length].unflatten(0, (rows, length))


def add_gradients(
    d_qkv: Tensor, grads: Sequence[Tensor], group: Group, start: int, n_heads: int
) -> None:
    """Add a group's gradients of queries, keys and values, each (R, H, T, K), to ``d_qkv``.

    Flat tokens (M, 3D) belong to one group each and are overwritten; shared inputs (B, T, 3D) sum
    over their prefixes.
    """
    _, rows, length = group
    if d_qkv.dim() == 3:  # a group's rows are distinct, so += loses nothing
        target = d_qkv.unflatten(-1, (3, n_heads, -1))
        for which, grad in enumerate(grads):
            target[batch_rows(group), :length, which] += grad.transpose(1, 2)
        return
    part = d_qkv[start : start + rows * length].view(rows, length, 3, n_heads, -1)
    for target, grad in zip(part.permute(2, 0, 3, 1, 4), grads, strict=True):
        target.copy_(grad)


def input_gradients(grad_MD: Tensor, shape: torch.Size, groups: Groups) -> Tensor:
    """Return gradients of flat inputs (M, D), or of shared ones (B, T, D) summed over prefixes."""
    if len(shape) == 2:
        return grad_MD
    d_x = grad_MD.new_zeros(*shape[:-1], grad_MD.shape[-1])
    for start, group in zip(offsets(groups), groups, strict=False):
        d_x[batch_rows(group), : group[2]] += tokens_of(grad_MD, group, start)
    return d_x


class Project(torch.autograd.Function):
    """Tokens (…, D), and their queries, keys and values W LN(x) + b, (…, 3D).

    The tokens are passed through, so that their two gradients are added in one place.
    """

    @staticmethod
    def forward(ctx, x, scale, shift, w, b):
        x_MD = x.reshape(-1, x.shape[-1])
        normed, mean, inverse = normalise(x_MD, scale, shift)
        ctx.save_for_backward(x_MD, normed, mean, inverse, scale, shift, w)
        return x.view_as(x), torch.addmm(b, normed, w.t()).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_x, d_qkv):
        x_MD, normed, mean, inverse, scale, shift, w = ctx.saved_tensors
        d_ME = d_qkv.reshape(len(x_MD), -1)
        through, d_scale, d_shift = normalise_backward(
            d_ME @ w, x_MD, mean, inverse, scale, shift
        )
        return (
            d_x + through.view(d_x.shape),
            d_scale,
            d_shift,
            d_ME.t() @ normed,
            d_ME.sum(0),
        )


class Attend(torch.autograd.Function):
    """x + W_O attention + b_O, (M, D), over groups of sequences (M, D) or prefixes of (B, T, D)."""

    @staticmethod
    def forward(ctx, x, qkv, w_out, b_out, groups, n_heads, causal):
        width = x.shape[-1]
        starts = offsets(groups)
        y = x.new_empty(starts[-1], width)
        out = x.new_empty(starts[-1], width)
        sums = []
        for start, group in zip(starts, groups, strict=False):
            _, rows, length = group
            part = slice(start, start + rows * length)
            z = tokens_of(qkv, group, start).unflatten(-1, (3, n_heads, -1))
            attended, log_sums = flash(*z.permute(2, 0, 3, 1, 4), 0.0, causal)
            heads(y[part], rows, length, n_heads).copy_(attended)
            tokens = tokens_of(x, group, start)
            torch.add(tokens, b_out, out=out[part].view(rows, length, width))
            sums.append(log_sums)
        ctx.save_for_backward(qkv, y, w_out, *sums)
        ctx.layout = groups, n_heads, causal
        return out.addmm_(y, w_out.t())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_MD):
        qkv, y, w_out, *sums = ctx.saved_tensors
        groups, n_heads, causal = ctx.layout
        grad_MD = grad_MD.contiguous()
        d_y = grad_MD @ w_out
        d_qkv = torch.zeros_like(qkv) if qkv.dim() == 3 else torch.empty_like(qkv)
        for start, group, log_sums in zip(offsets(groups), groups, sums, strict=False):
            _, rows, length = group
            part = slice(start, start + rows * length)
            z = tokens_of(qkv, group, start).unflatten(-1, (3, n_heads, -1))
            d_attended, attended = (heads(u[part], rows, length, n_heads) for u in (d_y, y))
            q, k, v = z.permute(2, 0, 3, 1, 4)
            grads = flash_backward(d_attended, q, k, v, attended, log_sums, 0.0, causal)
            add_gradients(d_qkv, grads, group, start, n_heads)
        d_x = input_gradients(grad_MD, qkv.shape, groups)
        return d_x, d_qkv, grad_MD.t() @ y, grad_MD.sum(0), None, None, None
