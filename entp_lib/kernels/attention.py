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

# the rows of the batch that prefixes come from, how many they are (R), and the prefixes' length T
Group = tuple[slice | Tensor, int, int]
Groups = Sequence[Group]
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def spans(groups: Groups) -> list[tuple[Group, slice]]:
    """Return each group with the slice of flat tokens that it has."""
    found = []
    start = 0
    for group in groups:
        stop = start + group[1] * group[2]
        found.append((group, slice(start, stop)))
        start = stop
    return found


def tokens_of(x: Tensor, group: Group, span: slice) -> Tensor:
    """Return a group's tokens (R, T, …), from shared inputs (B, T, …) or flat tokens (M, …)."""
    rows, count, length = group
    if x.dim() == 3:
        return x[rows, :length]
    return x[span].unflatten(0, (count, length))


def heads(flat: Tensor, group: Group, span: slice, n_heads: int) -> Tensor:
    """View a group's flat tokens (M, D) as (R, H, T, K)."""
    return tokens_of(flat, group, span).unflatten(-1, (n_heads, -1)).transpose(1, 2)


def qkv_heads(qkv: Tensor, group: Group, span: slice, n_heads: int) -> Tensor:
    """Return a group's queries, keys and values, (3, R, H, T, K); flat tokens give a view."""
    tokens = tokens_of(qkv, group, span).unflatten(-1, (3, n_heads, -1))
    return tokens.permute(2, 0, 3, 1, 4)


def add_gradients(
    d_qkv: Tensor, grads: Sequence[Tensor], group: Group, span: slice, n_heads: int
) -> None:
    """Add a group's gradients of queries, keys and values, each (R, H, T, K), to ``d_qkv``.

    Flat tokens (M, 3D) belong to one group each and are overwritten; shared inputs (B, T, 3D) sum
    over their prefixes.
    """
    if d_qkv.dim() == 3:  # a group's rows are distinct, so += loses nothing
        rows, _, length = group
        target = d_qkv.unflatten(-1, (3, n_heads, -1))
        for which, grad in enumerate(grads):
            target[rows, :length, which] += grad.transpose(1, 2)
        return
    targets = qkv_heads(d_qkv, group, span, n_heads)
    for target, grad in zip(targets, grads, strict=True):
        target.copy_(grad)


def input_gradients(grad_MD: Tensor, shape: torch.Size, groups: Groups) -> Tensor:
    """Return gradients of flat inputs (M, D), or of shared ones (B, T, D) summed over prefixes."""
    if len(shape) == 2:
        return grad_MD
    d_x = grad_MD.new_zeros(*shape[:-1], grad_MD.shape[-1])
    for group, span in spans(groups):
        rows, _, length = group
        d_x[rows, :length] += tokens_of(grad_MD, group, span)
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
        y = x.new_empty(sum(rows * length for _, rows, length in groups), x.shape[-1])
        out = torch.empty_like(y)
        sums = []
        for group, span in spans(groups):
            z = qkv_heads(qkv, group, span, n_heads)
            attended, log_sums = flash(*z, 0.0, causal)
            heads(y, group, span, n_heads).copy_(attended)
            torch.add(tokens_of(x, group, span), b_out, out=tokens_of(out, group, span))
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
        for (group, span), log_sums in zip(spans(groups), sums, strict=True):
            z = qkv_heads(qkv, group, span, n_heads)
            d_attended, attended = (heads(u, group, span, n_heads) for u in (d_y, y))
            grads = flash_backward(d_attended, *z, attended, log_sums, 0.0, causal)
            add_gradients(d_qkv, grads, group, span, n_heads)
        d_x = input_gradients(grad_MD, qkv.shape, groups)
        return d_x, d_qkv, grad_MD.t() @ y, grad_MD.sum(0), None, None, None
