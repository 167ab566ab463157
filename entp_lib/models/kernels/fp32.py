"""Half-blocks in fp32 and fp64, with their gradients written out.

The MLP goes through the rows in pieces that stay in a core's second-level cache, computes the tanh GELU and its slope
with vectorised elementary functions (PyTorch's own kernel takes about as long as half a matrix product), and leaves
factors of one half to the matrix products.

Letters as in the package.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 196_608  # entries of a buffer of the GELU: four of them fit into the second-level caches of two cores
BLOCK = 8 * PIECE  # entries of a hidden buffer: matrix products gain from more rows than those caches hold
GELU_1 = math.sqrt(2 / math.pi)
GELU_3 = 0.044715 * GELU_1
EPS = 1e-5  # of nn.LayerNorm

Group = tuple[Tensor | None, int, int]  # (row numbers or None for the first R, R, T)
Groups = Sequence[Group]
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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


def heads(flat: Tensor, rows: int, length: int, n_heads: int) -> Tensor:
    """A slice (R·T, D) of flat tokens as (R, H, T, K), without a copy."""
    return flat.view(rows, length, n_heads, -1).transpose(1, 2)


def offsets(groups: Groups) -> list[int]:
    """First flat token of every group, and one past the last."""
    found = [0]
    for _, rows, length in groups:
        found.append(found[-1] + rows * length)
    return found


class Attend(torch.autograd.Function):
    """x + W_O attention(LN(x)) + b_O over groups of equally long sequences."""

    @staticmethod
    def forward(ctx, x_MD, scale, shift, w, b, w_out, b_out, groups, n_heads, causal):
        normed, mean, inverse = normalise(x_MD, scale, shift)
        qkv = torch.addmm(b, normed, w.t())
        y, sums, starts = torch.empty_like(x_MD), [], offsets(groups)
        for i, (_, rows, length) in zip(starts, groups, strict=False):
            z = qkv[i : i + rows * length].view(rows, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4)
            attended, log_sums = flash(z[0], z[1], z[2], 0.0, causal)
            heads(y[i : i + rows * length], rows, length, n_heads).copy_(attended)
            sums.append(log_sums)
        ctx.save_for_backward(x_MD, normed, mean, inverse, qkv, y, scale, shift, w, w_out, *sums)
        ctx.layout = groups, n_heads, causal
        return torch.addmm(x_MD + b_out, y, w_out.t())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_MD):
        x_MD, normed, mean, inverse, qkv, y, scale, shift, w, w_out, *sums = ctx.saved_tensors
        groups, n_heads, causal = ctx.layout
        grad_MD = grad_MD.contiguous()
        d_y, d_qkv, starts = grad_MD @ w_out, torch.empty_like(qkv), offsets(groups)
        for i, (_, rows, length), log_sums in zip(starts, groups, sums, strict=False):
            part = slice(i, i + rows * length)
            z, d_z = (u[part].view(rows, length, 3, n_heads, -1).permute(2, 0, 3, 1, 4) for u in (qkv, d_qkv))
            d_out, out = (heads(u[part], rows, length, n_heads) for u in (d_y, y))
            for target, grad in zip(d_z, flash_backward(d_out, *z, out, log_sums, 0.0, causal), strict=True):
                target.copy_(grad)
        d_x, d_scale, d_shift = normalise_backward(d_qkv @ w, x_MD, mean, inverse, scale, shift)
        d_w, d_wout = d_qkv.t() @ normed, grad_MD.t() @ y
        return d_x.add_(grad_MD), d_scale, d_shift, d_w, d_qkv.sum(0), d_wout, grad_MD.sum(0), None, None, None


class AttendPrefixes(torch.autograd.Function):
    """The same over prefixes of shared inputs (B, T, D): projected once per token, however many prefixes hold it."""

    @staticmethod
    def forward(ctx, x_BTD, scale, shift, w, b, w_out, b_out, groups, n_heads):
        batch, total, width = x_BTD.shape
        normed, mean, inverse = normalise(x_BTD.reshape(-1, width), scale, shift)
        qkv = torch.addmm(b, normed, w.t()).view(batch, total, 3, n_heads, -1)
        starts, sums = offsets(groups), []
        y, out = x_BTD.new_empty(starts[-1], width), x_BTD.new_empty(starts[-1], width)
        for i, (chosen, rows, length) in zip(starts, groups, strict=False):
            pick, part = slice(rows) if chosen is None else chosen, slice(i, i + rows * length)
            z = qkv[pick, :length].permute(2, 0, 3, 1, 4)
            attended, log_sums = flash(z[0], z[1], z[2], 0.0, False)
            heads(y[part], rows, length, n_heads).copy_(attended)
            torch.add(x_BTD[pick, :length], b_out, out=out[part].view(rows, length, width))
            sums.append(log_sums)
        ctx.save_for_backward(x_BTD, normed, mean, inverse, qkv, y, scale, shift, w, w_out, *sums)
        ctx.layout = groups, n_heads
        return out.addmm_(y, w_out.t())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_MD):
        x_BTD, normed, mean, inverse, qkv, y, scale, shift, w, w_out, *sums = ctx.saved_tensors
        groups, n_heads = ctx.layout
        grad_MD = grad_MD.contiguous()
        width = x_BTD.shape[2]
        d_y, d_qkv, d_x, starts = grad_MD @ w_out, torch.zeros_like(qkv), torch.zeros_like(x_BTD), offsets(groups)
        for i, (chosen, rows, length), log_sums in zip(starts, groups, sums, strict=False):
            pick, part = slice(rows) if chosen is None else chosen, slice(i, i + rows * length)
            z = qkv[pick, :length].permute(2, 0, 3, 1, 4)
            d_out, out = (heads(u[part], rows, length, n_heads) for u in (d_y, y))
            for which, grad in enumerate(flash_backward(d_out, *z, out, log_sums, 0.0, False)):
                d_qkv[pick, :length, which] += grad.transpose(1, 2)  # the rows of a group differ: nothing is lost
            d_x[pick, :length] += grad_MD[part].view(rows, length, width)
        d_flat = d_qkv.view(len(normed), -1)
        through, d_scale, d_shift = normalise_backward(
            d_flat @ w, x_BTD.reshape(-1, width), mean, inverse, scale, shift
        )
        d_w, d_wout = d_flat.t() @ normed, grad_MD.t() @ y
        d_x += through.view_as(d_x)
        return d_x, d_scale, d_shift, d_w, d_flat.sum(0), d_wout, grad_MD.sum(0), None, None
