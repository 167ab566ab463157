"""Attention's half-block for a CPU, in fp32 and fp64 or with products in bf16, and its gradient written out.

In bf16 attention itself takes rounded queries, keys and values and computes in fp32, which is the faster on short
sequences.

Letters as in the package.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from entp_lib.models.kernels.mlp import affine, back_in_fp32, in_fp32, normalise, normalise_backward, product

Group = tuple[Tensor | None, int, int]  # (row numbers or None for the first R, R, T)
Groups = Sequence[Group]
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def offsets(groups: Groups) -> list[int]:
    """First flat token of every group, and one past the last."""
    found = [0]
    for _, rows, length in groups:
        found.append(found[-1] + rows * length)
    return found


def heads(flat: Tensor, rows: int, length: int, n_heads: int) -> Tensor:
    """A slice (R·T, D) of flat tokens as (R, H, T, K), without a copy."""
    return flat.view(rows, length, n_heads, -1).transpose(1, 2)


class Attend(torch.autograd.Function):
    """x + W_O attention(LN(x)) + b_O over groups of equally long sequences, or of prefixes of shared inputs (B, T, D).

    Prefixes are projected once per token, however many hold it. ``kind``: the type of products.
    """

    @staticmethod
    @in_fp32
    def forward(ctx, x, scale, shift, w, b, w_out, b_out, groups, n_heads, causal, prefixes, kind):
        width, starts, sums = x.shape[-1], offsets(groups), []
        x_MD = x.reshape(-1, width)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        normed, w, w_out = normed.to(kind), w.to(kind), w_out.to(kind)
        qkv = affine(normed, w, b).to(x.dtype).view(*x.shape[:-1], 3, n_heads, -1)
        y, out = x.new_empty(starts[-1], width), x.new_empty(starts[-1], width)
        for i, (chosen, rows, length) in zip(starts, groups, strict=False):
            part, pick = slice(i, i + rows * length), slice(rows) if chosen is None else chosen
            z = qkv[pick, :length] if prefixes else qkv[part].unflatten(0, (rows, length))
            attended, log_sums = flash(*z.permute(2, 0, 3, 1, 4), 0.0, causal)
            heads(y[part], rows, length, n_heads).copy_(attended)
            inputs = x[pick, :length] if prefixes else x[part].view(rows, length, width)
            torch.add(inputs, b_out, out=out[part].view(rows, length, width))
            sums.append(log_sums)
        rounded = y.to(kind)
        ctx.save_for_backward(x_MD, normed, mean, inverse, qkv, rounded, scale, shift, w, w_out, *sums)
        ctx.layout = x.shape, groups, n_heads, causal, prefixes
        return out.addmm_(y, w_out.t()) if kind == x.dtype else out.add_(product(rounded, w_out.t()))

    @staticmethod
    @once_differentiable
    @back_in_fp32
    def backward(ctx, grad_MD):
        x_MD, normed, mean, inverse, qkv, y, scale, shift, w, w_out, *sums = ctx.saved_tensors
        shape, groups, n_heads, causal, prefixes = ctx.layout
        grad_MD, kind = grad_MD.contiguous(), y.dtype
        rounded, starts = grad_MD.to(kind), offsets(groups)
        d_y, y_MD = product(rounded, w_out).to(x_MD.dtype), y.to(x_MD.dtype)
        d_qkv = torch.zeros_like(qkv) if prefixes else torch.empty_like(qkv)
        d_x = x_MD.new_zeros(shape) if prefixes else grad_MD
        for i, (chosen, rows, length), log_sums in zip(starts, groups, sums, strict=False):
            part, pick = slice(i, i + rows * length), slice(rows) if chosen is None else chosen
            z = (qkv[pick, :length] if prefixes else qkv[part].unflatten(0, (rows, length))).permute(2, 0, 3, 1, 4)
            d_out, out = (heads(u[part], rows, length, n_heads) for u in (d_y, y_MD))
            grads = flash_backward(d_out, *z, out, log_sums, 0.0, causal)
            if prefixes:  # the rows of a group differ: nothing is lost
                for which, grad in enumerate(grads):
                    d_qkv[pick, :length, which] += grad.transpose(1, 2)
                d_x[pick, :length] += grad_MD[part].view(rows, length, -1)
            else:
                targets = d_qkv[part].unflatten(0, (rows, length)).permute(2, 0, 3, 1, 4)
                for target, grad in zip(targets, grads, strict=True):
                    target.copy_(grad)
        d_flat = d_qkv.view(len(x_MD), -1)
        d_rounded = d_flat.to(kind)
        through = product(d_rounded, w).to(x_MD.dtype)
        through, d_scale, d_shift = normalise_backward(through, x_MD, mean, inverse, scale, shift)
        d_w, d_wout = (product(d.t(), z).to(x_MD.dtype) for d, z in ((d_rounded, normed), (rounded, y)))
        d_b, d_bout = d_flat.sum(0), grad_MD.sum(0)
        return d_x + through.view(shape), d_scale, d_shift, d_w, d_b, d_wout, d_bout, *(None,) * 5
