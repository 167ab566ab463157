"""The MLP's half-block for a CPU, in fp32 and fp64 and with products in bf16, and its gradients written out.

It goes through the rows in pieces that stay in a core's second-level cache, computes the tanh GELU and its slope with
vectorised elementary functions (PyTorch's own kernel takes about as long as half a matrix product), and leaves factors
of one half to the matrix products.

In bf16, what autocast means on a CPU in fewer and faster passes: weights, the residual stream, norms, softmax, GELU and
sums over many products stay in fp32. Operands of matrix products are rounded to bf16 once, kept so for the backward
pass, and products are rounded to bf16 as a processor with bf16 instructions leaves them. A processor without them
multiplies the rounded operands in fp32: the same up to the order of sums, so that a run can continue there.

Letters as in the package; ``_16`` marks tensors in bf16.
"""

import math

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import once_differentiable

from entp_lib.arithmetic import multiplies_bf16

PIECE = 196_608  # entries of a buffer of the GELU: four of them fit into the second-level caches of two cores
BLOCK = 8 * PIECE  # entries of a hidden buffer: matrix products gain from more rows than those caches hold
GELU_1 = math.sqrt(2 / math.pi)
GELU_3 = 0.044715 * GELU_1
EPS = 1e-5  # of nn.LayerNorm
in_fp32 = custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # without autocast, which the products are instead
back_in_fp32 = custom_bwd(device_type="cpu")


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b; of bf16 matrices summed in fp32 and rounded to bf16."""
    return a @ b if a.dtype != torch.bfloat16 or multiplies_bf16() else (a.float() @ b.float()).bfloat16()


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b; in bf16 rounded at the end, as the bias is before."""
    bias = bias.to(x.dtype)
    if x.dtype != torch.bfloat16 or multiplies_bf16():
        return torch.addmm(bias, x, weight.t())
    return torch.addmm(bias.float(), x.float(), weight.t().float()).bfloat16()


def normalise(x_MD: Tensor, weight_D: Tensor, bias_D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm, and the means and inverse deviations that its gradient needs."""
    return torch.native_layer_norm(x_MD, weight_D.shape, weight_D, bias_D, EPS)


def normalise_backward(grad_MD, x_MD, mean, inverse, weight_D, bias_D) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.native_layer_norm_backward(
        grad_MD, x_MD, weight_D.shape, mean, inverse, weight_D, bias_D, [True, True, True]
    )


def pieces(tokens: int, hidden: int, entries: int) -> list[tuple[int, int]]:
    """Row ranges that keep a hidden buffer within ``entries``."""
    rows = max(1, entries // hidden)
    return [(i, min(i + rows, tokens)) for i in range(0, tokens, rows)]


class FeedForward(torch.autograd.Function):
    """x + W₂ gelu(W₁ LN(x) + b₁) + b₂; stores twice the activation and twice the slope, less one."""

    @staticmethod
    def forward(ctx, x_MD, scale, shift, w_1, b_1, w_2, b_2, keep):
        hidden = len(b_1)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        out = x_MD + b_2
        linear = x_MD.new_tensor(GELU_1)
        blocks = pieces(len(x_MD), hidden, BLOCK)
        stored = len(x_MD) if keep else blocks[0][1]
        active_MF, slope_MF = x_MD.new_empty(stored, hidden), x_MD.new_empty(stored if keep else 0, hidden)
        up_MF = x_MD.new_empty(blocks[0][1], hidden)
        buffers = x_MD.new_empty(2, pieces(len(x_MD), hidden, PIECE)[0][1], hidden)
        for start, stop in blocks:
            up = up_MF[: stop - start]
            active = active_MF[start:stop] if keep else active_MF[: stop - start]
            torch.addmm(b_1, normed[start:stop], w_1.t(), out=up)
            for i, j in pieces(stop - start, hidden, PIECE):
                h, g, (a, t) = up[i:j], active[i:j], buffers[:, : j - i]
                torch.addcmul(linear, h, h, value=GELU_3, out=a)
                torch.mul(a, h, out=t).tanh_()
                torch.addcmul(h, h, t, out=g)  # 2 gelu(h) = h (1 + t)
                if keep:  # 2 gelu'(h) - 1 = t + h (1 + t) (1 - t) (c + 3 c' h²)
                    torch.addcmul(linear, h, h, value=3 * GELU_3, out=a)
                    torch.addcmul(a, a, t, value=-1, out=a)
                    torch.addcmul(t, a, g, out=slope_MF[start + i : start + j])
            out[start:stop].addmm_(active, w_2.t(), alpha=0.5)
        if keep:
            ctx.save_for_backward(x_MD, normed, mean, inverse, active_MF, slope_MF, scale, shift, w_1, w_2)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_MD):
        x_MD, normed, mean, inverse, active_MF, slope_MF, scale, shift, w_1, w_2 = ctx.saved_tensors
        grad_MD = grad_MD.contiguous()
        d_w1, d_w2, d_b1 = torch.zeros_like(w_1), torch.zeros_like(w_2), w_1.new_zeros(len(w_1))
        d_normed = torch.empty_like(normed)
        parts = pieces(len(x_MD), len(w_1), BLOCK)
        buffer, ones = x_MD.new_empty(parts[0][1], len(w_1)), x_MD.new_ones(parts[0][1])
        for i, j in parts:
            d, e = grad_MD[i:j], buffer[: j - i]
            torch.mm(d, w_2, out=e)
            d_w2.addmm_(d.t(), active_MF[i:j], alpha=0.5)
            torch.addcmul(e, e, slope_MF[i:j], out=e)
            d_w1.addmm_(e.t(), normed[i:j], alpha=0.5)
            d_b1.addmv_(e.t(), ones[: j - i], alpha=0.5)
            torch.mm(e, w_1, out=d_normed[i:j])
        d_x, d_scale, d_shift = normalise_backward(d_normed.mul_(0.5), x_MD, mean, inverse, scale, shift)
        return d_x.add_(grad_MD), d_scale, d_shift, d_w1, d_b1, d_w2, grad_MD.sum(0), None


class HalfFeedForward(torch.autograd.Function):
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
