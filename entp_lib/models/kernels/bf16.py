"""Half-blocks with products in bf16: what autocast means on a CPU, in fewer and faster passes.

Weights, the residual stream, norms, softmax, GELU and sums over many products stay in fp32. Operands of matrix products
are rounded to bf16 once, kept so for the backward pass, and products are rounded to bf16 as a processor with bf16
instructions leaves them. A processor without them multiplies the rounded operands in fp32: the same up to the order of
sums, so that a run can continue there. Attention takes rounded queries, keys and values and computes in fp32, which is
the faster on short sequences.

Letters as in the package; ``_16`` marks tensors in bf16.
"""

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import once_differentiable

from entp_lib.arithmetic import multiplies_bf16
from entp_lib.models.kernels.fp32 import (
    BLOCK,
    GELU_1,
    GELU_3,
    PIECE,
    flash,
    flash_backward,
    heads,
    normalise,
    normalise_backward,
    offsets,
    pieces,
)

in_fp32 = custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # without autocast, which the products are instead
back_in_fp32 = custom_bwd(device_type="cpu")


def product(a_16: Tensor, b_16: Tensor) -> Tensor:
    """a @ b of bf16 matrices, summed in fp32 and rounded to bf16."""
    return a_16 @ b_16 if multiplies_bf16() else (a_16.float() @ b_16.float()).bfloat16()


def affine(x_16: Tensor, weight_16: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b, rounded to bf16 at the end, as the bias is before."""
    bias_16 = bias.bfloat16()
    if multiplies_bf16():
        return torch.addmm(bias_16, x_16, weight_16.t())
    return torch.addmm(bias_16.float(), x_16.float(), weight_16.t().float()).bfloat16()


class FeedForward(torch.autograd.Function):
    """x + W₂ gelu(W₁ LN(x) + b₁) + b₂; keeps activations and slopes in bf16."""

    @staticmethod
    @in_fp32
    def forward(ctx, x_MD, scale, shift, w_1, b_1, w_2, b_2, keep):
        hidden = len(b_1)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        normed_16, w1_16, w2_16 = normed.bfloat16(), w_1.bfloat16(), w_2.bfloat16()
        out, linear = x_MD + b_2, x_MD.new_tensor(2 * GELU_1)
        active_16 = normed_16.new_empty(len(x_MD), hidden)
        slope_16 = normed_16.new_empty(len(x_MD) if keep else 0, hidden)
        buffers = x_MD.new_empty(4, pieces(len(x_MD), hidden, PIECE)[0][1], hidden)
        for start, stop in pieces(len(x_MD), hidden, BLOCK):
            up_16 = affine(normed_16[start:stop], w1_16, b_1)
            for i, j in pieces(stop - start, hidden, PIECE):
                h, a, s, g = buffers[:, : j - i]
                h.copy_(up_16[i:j])
                torch.addcmul(linear, h, h, value=2 * GELU_3, out=a)
                torch.mul(a, h, out=s).sigmoid_()
                torch.mul(h, s, out=g)  # gelu(h) = h σ(2 h (c + c' h²))
                active_16[start + i : start + j] = g
                if keep:  # gelu'(h) = σ + gelu(h) (1 - σ) 2 (c + 3 c' h²)
                    torch.addcmul(linear, h, h, value=6 * GELU_3, out=a)
                    torch.addcmul(a, a, s, value=-1, out=a)
                    slope_16[start + i : start + j] = torch.addcmul(s, a, g, out=s)
            out[start:stop] += product(active_16[start:stop], w2_16.t())
        if keep:
            ctx.save_for_backward(x_MD, normed_16, mean, inverse, active_16, slope_16, scale, shift, w1_16, w2_16)
        return out

    @staticmethod
    @once_differentiable
    @back_in_fp32
    def backward(ctx, grad_MD):
        x_MD, normed_16, mean, inverse, active_16, slope_16, scale, shift, w1_16, w2_16 = ctx.saved_tensors
        grad_16 = grad_MD.bfloat16()
        d_w1, d_w2 = grad_MD.new_zeros(w1_16.shape), grad_MD.new_zeros(w2_16.shape)
        d_b1, d_normed = grad_MD.new_zeros(len(w1_16)), torch.empty_like(x_MD)
        for i, j in pieces(len(x_MD), len(w1_16), BLOCK):
            e_16 = product(grad_16[i:j], w2_16)
            d_w2 += product(grad_16[i:j].t(), active_16[i:j])
            e_16 *= slope_16[i:j]
            d_w1 += product(e_16.t(), normed_16[i:j])
            d_b1 += e_16.sum(0, dtype=torch.float32)
            d_normed[i:j] = product(e_16, w1_16)
        d_x, d_scale, d_shift = normalise_backward(d_normed, x_MD, mean, inverse, scale, shift)
        return d_x.add_(grad_MD), d_scale, d_shift, d_w1, d_b1, d_w2, grad_MD.sum(0), None


class Attend(torch.autograd.Function):
    """x + W_O attention(LN(x)) + b_O over groups of equally long sequences, or of prefixes of shared inputs (B, T, D).

    Prefixes are projected once per token, however many hold it.
    """

    @staticmethod
    @in_fp32
    def forward(ctx, x, scale, shift, w, b, w_out, b_out, groups, n_heads, causal, prefixes):
        width, starts, sums = x.shape[-1], offsets(groups), []
        x_MD = x.reshape(-1, width)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        normed_16, w_16, wout_16 = normed.bfloat16(), w.bfloat16(), w_out.bfloat16()
        qkv = affine(normed_16, w_16, b).float().view(*x.shape[:-1], 3, n_heads, -1)
        y, out = x.new_empty(starts[-1], width), x.new_empty(starts[-1], width)
        for i, (chosen, rows, length) in zip(starts, groups, strict=False):
            part = slice(i, i + rows * length)
            pick = slice(rows) if chosen is None else chosen
            z = qkv[pick, :length] if prefixes else qkv[part].unflatten(0, (rows, length))
            z = z.permute(2, 0, 3, 1, 4)
            attended, log_sums = flash(z[0], z[1], z[2], 0.0, causal)
            heads(y[part], rows, length, n_heads).copy_(attended)
            inputs = x[pick, :length] if prefixes else x[part].view(rows, length, width)
            torch.add(inputs, b_out, out=out[part].view(rows, length, width))
            sums.append(log_sums)
        y_16 = y.bfloat16()
        ctx.save_for_backward(x_MD, normed_16, mean, inverse, qkv, y_16, scale, shift, w_16, wout_16, *sums)
        ctx.layout = x.shape, groups, n_heads, causal, prefixes
        return out.add_(product(y_16, wout_16.t()))

    @staticmethod
    @once_differentiable
    @back_in_fp32
    def backward(ctx, grad_MD):
        x_MD, normed_16, mean, inverse, qkv, y_16, scale, shift, w_16, wout_16, *sums = ctx.saved_tensors
        shape, groups, n_heads, causal, prefixes = ctx.layout
        grad_16, starts = grad_MD.bfloat16(), offsets(groups)
        d_y, y = product(grad_16, wout_16).float(), y_16.float()
        d_qkv = torch.zeros_like(qkv) if prefixes else torch.empty_like(qkv)
        d_x = x_MD.new_zeros(shape) if prefixes else grad_MD
        for i, (chosen, rows, length), log_sums in zip(starts, groups, sums, strict=False):
            part = slice(i, i + rows * length)
            pick = slice(rows) if chosen is None else chosen
            z = (qkv[pick, :length] if prefixes else qkv[part].unflatten(0, (rows, length))).permute(2, 0, 3, 1, 4)
            d_out, out = (heads(u[part], rows, length, n_heads) for u in (d_y, y))
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
        d_16 = d_flat.bfloat16()
        through = product(d_16, w_16).float()
        through, d_scale, d_shift = normalise_backward(through, x_MD, mean, inverse, scale, shift)
        d_w, d_wout = product(d_16.t(), normed_16).float(), product(grad_16.t(), y_16).float()
        d_b, d_bout = d_flat.sum(0), grad_MD.sum(0)
        return (d_x + through.view(shape), d_scale, d_shift, d_w, d_b, d_wout, d_bout, *(None,) * 4)
