"""Both half-blocks for a CPU with matrix products in bf16, as under autocast, and gradients.

Weights, the residual stream, norms, GELU, softmax and sums over products are in fp32. Operands of
matrix products are rounded to bf16 once and stored in bf16 for the backward pass. Products are
rounded to bf16, as a processor with bf16 instructions does. A processor without them multiplies the
rounded operands in fp32: the result is the same up to the order of sums, so that a run can continue
there.

Up to ``EXPLICIT`` tokens, attention scores are computed explicitly and the probabilities are kept.
The scale of attention is applied when queries are projected.

Letters as in ``entp_lib.kernels``; ``_16`` marks tensors in bf16.
"""

import functools
import logging
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from entp_lib.kernels.attention import (
    add_gradients,
    flash,
    flash_backward,
    heads,
    input_gradients,
    qkv_heads,
    spans,
    tokens_of,
)
from entp_lib.kernels.gelu import with_slope
from entp_lib.kernels.mlp import normalise, normalise_backward
from entp_lib.kernels.processor import multiplies_bf16

VERSION = "bf16-2"  # to be changed whenever results may change
# Longest sequence whose scores (R, H, T, T) are kept: they take no more memory than the MLP's.
EXPLICIT = 256
softmax_backward = torch.ops.aten._softmax_backward_data
log = logging.getLogger(__name__)


def without_autocast(function: Callable) -> Callable:
    """Run a function without autocast, since it rounds to bf16 by itself."""
    return torch.autocast("cpu", enabled=False)(function)


@functools.cache
def say_emulated() -> None:
    """Warn, once per process, that this processor has no bf16 products."""
    log.warning("bf16 is no faster than fp32 here: the processor multiplies none")


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply bf16 matrices, or stacks of them; sums are in fp32 and rounded to bf16."""
    if multiplies_bf16():
        return a @ b
    say_emulated()
    return (a.float() @ b.float()).bfloat16()


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b of bf16 matrices; the bias is rounded first, the result at the end."""
    bias = bias.bfloat16()
    if multiplies_bf16():
        return torch.addmm(bias, x, weight.t())
    return torch.addmm(bias.float(), x.float(), weight.t().float()).bfloat16()


def column_sums(x_16: Tensor) -> Tensor:
    """Sum over rows as a product with ones, which makes no copy of ``x_16`` in fp32."""
    return product(x_16.new_ones(1, len(x_16)), x_16)[0].float()


class HalfFeedForward(torch.autograd.Function):
    """x + W₂ gelu(W₁ LN(x) + b₁) + b₂; keeps activations and slopes in bf16."""

    @staticmethod
    @without_autocast
    def forward(ctx, x_MD, scale, shift, w_1, b_1, w_2, b_2):
        normed, mean, inverse = normalise(x_MD, scale, shift)
        normed_16 = normed.bfloat16()
        w1_16 = w_1.bfloat16()
        w2_16 = w_2.bfloat16()
        active_16, slope_16 = with_slope()[1](affine(normed_16, w1_16, b_1))
        ctx.save_for_backward(
            x_MD,
            normed_16,
            mean,
            inverse,
            active_16,
            slope_16,
            scale,
            shift,
            w1_16,
            w2_16,
        )
        return x_MD + affine(active_16, w2_16, b_2)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad_MD):
        x_MD, normed_16, mean, inverse, *rest = ctx.saved_tensors
        active_16, slope_16, scale, shift, w1_16, w2_16 = rest
        grad_16 = grad_MD.bfloat16()
        d_up_16 = product(grad_16, w2_16).mul_(slope_16)
        d_w2 = product(grad_16.t(), active_16).float()
        d_w1 = product(d_up_16.t(), normed_16).float()
        d_b1 = column_sums(d_up_16)
        d_normed = product(d_up_16, w1_16).float()
        d_x, d_scale, d_shift = normalise_backward(
            d_normed, x_MD, mean, inverse, scale, shift
        )
        return d_x.add_(grad_MD), d_scale, d_shift, d_w1, d_b1, d_w2, grad_MD.sum(0)


class HalfProject(torch.autograd.Function):
    """Tokens (…, D), and their scaled queries, keys and values, (…, 3D), in bf16.

    For shared inputs (B, T, D) the projections are in fp32, since their gradients are sums over
    prefixes.
    """

    @staticmethod
    @without_autocast
    def forward(ctx, x, scale, shift, w, b, n_heads):
        width = x.shape[-1]
        x_MD = x.reshape(-1, width)
        normed, mean, inverse = normalise(x_MD, scale, shift)
        factor_E = torch.ones_like(b)
        factor_E[:width] = (width // n_heads) ** -0.5
        normed_16 = normed.bfloat16()
        w_16 = (w * factor_E[:, None]).bfloat16()
        ctx.save_for_backward(
            x_MD, normed_16, mean, inverse, factor_E, scale, shift, w_16
        )
        qkv_16 = affine(normed_16, w_16, b * factor_E).view(*x.shape[:-1], -1)
        return x.view_as(x), qkv_16.float() if x.dim() == 3 else qkv_16

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, d_x, d_qkv):
        x_MD, normed_16, mean, inverse, factor_E, scale, shift, w_16 = ctx.saved_tensors
        d_16 = d_qkv.reshape(len(x_MD), -1).bfloat16()
        d_normed = product(d_16, w_16).float()
        through, d_scale, d_shift = normalise_backward(
            d_normed, x_MD, mean, inverse, scale, shift
        )
        d_w = product(d_16.t(), normed_16) * factor_E[:, None]
        d_b = column_sums(d_16) * factor_E
        return through.view(d_x.shape).add_(d_x), d_scale, d_shift, d_w, d_b, None


def attention(qkv_16: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the attention (R, H, T, K) of scaled bf16 queries, and what its gradient needs.

    ``qkv_16``: queries, keys and values, (3, R, H, T, K). The gradient needs the probabilities or,
    above ``EXPLICIT`` tokens, the log-sums of exponentials of the scores.
    """
    if qkv_16.shape[-2] > EXPLICIT:
        return flash(*qkv_16.float(), 0.0, causal, scale=1.0)
    q_16, k_16, v_16 = qkv_16
    scores_16 = product(q_16, k_16.transpose(-1, -2))
    if causal:
        hidden_TT = torch.ones(scores_16.shape[-2:], dtype=torch.bool).triu(1)
        scores_16.masked_fill_(hidden_TT, -torch.inf)
    weights_16 = torch.softmax(scores_16, -1)  # in fp32, rounded at the end
    return product(weights_16, v_16), weights_16


def attention_backward(
    d_y, qkv_16, y, kept, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    if qkv_16.shape[-2] > EXPLICIT:
        return flash_backward(
            d_y.float(), *qkv_16.float(), y.float(), kept, 0.0, causal, scale=1.0
        )
    q_16, k_16, v_16 = qkv_16
    d_weights_16 = product(d_y, v_16.transpose(-1, -2))
    d_scores_16 = softmax_backward(d_weights_16, kept, -1, torch.bfloat16)
    d_q = product(d_scores_16, k_16)
    d_k = product(d_scores_16.transpose(-1, -2), q_16)
    d_v = product(kept.transpose(-1, -2), d_y)
    return d_q, d_k, d_v


class HalfAttend(torch.autograd.Function):
    """x + W_O attention + b_O, (M, D), over groups of sequences (M, D) or prefixes of (B, T, D)."""

    @staticmethod
    @without_autocast
    def forward(ctx, x, qkv, w_out, b_out, groups, n_heads, causal):
        tokens = sum(rows * length for _, rows, length in groups)
        y_16 = torch.empty(tokens, x.shape[-1], dtype=torch.bfloat16)
        kept = []
        for group, span in spans(groups):
            qkv_16 = copy_in_bf16(qkv_heads(qkv, group, span, n_heads))
            attended, of_gradient = attention(qkv_16, causal)
            heads(y_16, group, span, n_heads).copy_(attended)
            kept += [qkv_16, of_gradient]
        w_16 = w_out.bfloat16()
        ctx.save_for_backward(y_16, w_16, *kept)
        ctx.layout = groups, n_heads, causal, qkv.shape
        update_16 = affine(y_16, w_16, b_out)
        if x.dim() == 2:
            return x + update_16
        inputs = [
            tokens_of(x, group, span).flatten(0, 1) for group, span in spans(groups)
        ]
        return torch.cat(inputs).add_(update_16)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad_MD):
        y_16, w_16, *kept = ctx.saved_tensors
        groups, n_heads, causal, shape = ctx.layout
        grad_16 = grad_MD.bfloat16()
        d_y_16 = product(grad_16, w_16)
        are_prefixes = len(shape) == 3  # gradients are sums over prefixes
        d_qkv = torch.zeros(
            shape, dtype=torch.float32 if are_prefixes else torch.bfloat16
        )
        steps = zip(spans(groups), kept[::2], kept[1::2], strict=True)
        for (group, span), qkv_16, of_gradient in steps:
            d_attended = copy_in_bf16(heads(d_y_16, group, span, n_heads))
            attended = heads(y_16, group, span, n_heads)
            grads = attention_backward(
                d_attended, qkv_16, attended, of_gradient, causal
            )
            add_gradients(d_qkv, grads, group, span, n_heads)
        d_x = input_gradients(grad_MD, shape, groups)
        d_w = product(grad_16.t(), y_16).float()
        return d_x, d_qkv, d_w, grad_MD.sum(0), None, None, None


def copy_in_bf16(view: Tensor) -> Tensor:
    """Copy a view of heads, so that each head's entries lie together."""
    return torch.empty(view.shape, dtype=torch.bfloat16).copy_(view)
