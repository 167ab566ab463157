"""The MLP half-block for a CPU in fp32 and fp64, with an explicit gradient.

Rows are processed in pieces that stay in a core's L2 cache. The tanh GELU and its slope use
vectorised elementary functions, since PyTorch's own kernel takes about as long as half a matrix
product. Factors of one half are applied within the matrix products.

Letters as in ``entp_lib.kernels``.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from entp_lib.kernels.gelu import GELU_1, GELU_3, PIECE, pieces

BLOCK = 8 * PIECE  # entries of a hidden buffer: matrix products gain from more rows
EPS = 1e-5  # of nn.LayerNorm


def normalise(
    x_MD: Tensor, weight_D: Tensor, bias_D: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm, and the means and inverse deviations that its gradient needs."""
    return torch.native_layer_norm(x_MD, weight_D.shape, weight_D, bias_D, EPS)


def normalise_backward(grad_MD, x_MD, mean, inverse, weight_D, bias_D):
    """Return the gradients of LayerNorm's input, weight and bias."""
    return torch.ops.aten.native_layer_norm_backward(
        grad_MD, x_MD, weight_D.shape, mean, inverse, weight_D, bias_D, [True] * 3
    )


class FeedForward(torch.autograd.Function):
    """x + W₂ gelu(h) + b₂ of h = W₁ LN(x) + b₁; stores 2 gelu(h) and 2 gelu'(h) - 1."""

    @staticmethod
    def forward(ctx, x_MD, scale, shift, w_1, b_1, w_2, b_2, keep):
        hidden = len(b_1)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        out = x_MD + b_2
        linear = x_MD.new_tensor(GELU_1)
        blocks = pieces(len(x_MD), hidden, BLOCK)
        stored = len(x_MD) if keep else blocks[0][1]
        active_MF = x_MD.new_empty(stored, hidden)
        slope_MF = x_MD.new_empty(stored, hidden)
        up_MF = x_MD.new_empty(blocks[0][1], hidden)
        buffers = x_MD.new_empty(2, pieces(len(x_MD), hidden, PIECE)[0][1], hidden)
        for start, stop in blocks:
            up = up_MF[: stop - start]
            active = active_MF[start:stop] if keep else active_MF[: stop - start]
            torch.addmm(b_1, normed[start:stop], w_1.t(), out=up)
            for i, j in pieces(stop - start, hidden, PIECE):
                h = up[i:j]
                g = active[i:j]
                a, t = buffers[:, : j - i]
                torch.addcmul(linear, h, h, value=GELU_3, out=a)
                torch.mul(a, h, out=t).tanh_()
                torch.addcmul(h, h, t, out=g)  # 2 gelu(h) = h (1 + t)
                if keep:  # 2 gelu'(h) - 1 = t + h (1 + t) (1 - t) (c + 3 c' h²)
                    torch.addcmul(linear, h, h, value=3 * GELU_3, out=a)
                    torch.addcmul(a, a, t, value=-1, out=a)
                    torch.addcmul(t, a, g, out=slope_MF[start + i : start + j])
            out[start:stop].addmm_(active, w_2.t(), alpha=0.5)
        if keep:
            ctx.save_for_backward(
                x_MD, normed, mean, inverse, active_MF, slope_MF, scale, shift, w_1, w_2
            )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_MD):
        x_MD, normed, mean, inverse, *rest = ctx.saved_tensors
        active_MF, slope_MF, scale, shift, w_1, w_2 = rest
        grad_MD = grad_MD.contiguous()
        d_w1 = torch.zeros_like(w_1)
        d_w2 = torch.zeros_like(w_2)
        d_b1 = w_1.new_zeros(len(w_1))
        d_normed = torch.empty_like(normed)
        parts = pieces(len(x_MD), len(w_1), BLOCK)
        buffer = x_MD.new_empty(parts[0][1], len(w_1))
        ones = x_MD.new_ones(parts[0][1])
        for i, j in parts:
            d = grad_MD[i:j]
            e = buffer[: j - i]
            torch.mm(d, w_2, out=e)
            d_w2.addmm_(d.t(), active_MF[i:j], alpha=0.5)
            torch.addcmul(e, e, slope_MF[i:j], out=e)
            d_w1.addmm_(e.t(), normed[i:j], alpha=0.5)
            d_b1.addmv_(e.t(), ones[: j - i], alpha=0.5)
            torch.mm(e, w_1, out=d_normed[i:j])
        d_x, d_scale, d_shift = normalise_backward(
            d_normed.mul_(0.5), x_MD, mean, inverse, scale, shift
        )
        d_b2 = grad_MD.sum(0)
        return d_x.add_(grad_MD), d_scale, d_shift, d_w1, d_b1, d_w2, d_b2, None
