"""Transformer half-blocks for a CPU: what PyTorch computes, in fewer passes over memory.

Tokens are flat, (M, D); ``groups`` are runs of sequences of equal length, each of which attends
within itself. Matrix products are in fp32 or fp64, or in bf16 under autocast.

Letters: M flat tokens, D width, F hidden width of the MLP, H heads, K head width, R rows of a
group, T its length.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entp_lib.kernels.attention import Attend, Groups, Project
from entp_lib.kernels.bf16 import VERSION, HalfAttend, HalfFeedForward, HalfProject
from entp_lib.kernels.gelu import with_slope
from entp_lib.kernels.mlp import FeedForward

if TYPE_CHECKING:
    from entp_lib.model import Block

UNNAMED = "bf16-1"  # kernels of bf16 runs whose provenance names none
_are_enabled = ContextVar("fused kernels", default=True)


@contextlib.contextmanager
def without_fused_kernels() -> Iterator[None]:
    """Disable the fused kernels, so that PyTorch's own tools can see the operations."""
    token = _are_enabled.set(False)
    try:
        yield
    finally:
        _are_enabled.reset(token)


def usable(block: "Block", x: Tensor) -> bool:
    """Tell whether the kernels apply: on a CPU, in fp32, fp64 or bf16 autocast, uncompiled."""
    return (
        block.is_plain
        and not torch.compiler.is_compiling()
        and _are_enabled.get()
        and x.device.type == "cpu"
        and (in_bf16() or not torch.is_autocast_enabled("cpu"))
        and x.dtype
        in ((torch.float32,) if in_bf16() else (torch.float32, torch.float64))
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def in_bf16() -> bool:
    """Tell whether products are computed in bf16: under autocast on a CPU."""
    return (
        torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def feed_forward(block: "Block", x_MD: Tensor) -> Tensor:
    """Return x + MLP(LN(x)) of ``block``."""
    norm = block.ln_2
    up = block.fc_in
    down = block.fc_out
    weights = (norm.weight, norm.bias, up.weight, up.bias, down.weight, down.bias)
    if in_bf16():
        return HalfFeedForward.apply(x_MD, *weights)
    return FeedForward.apply(x_MD, *weights, torch.is_grad_enabled())


def project(block: "Block", x: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens (…, D) and their queries, keys and values (…, 3D), which ``attend`` takes.

    Inputs of shape (B, T, D) are shared by all their prefixes.
    """
    norm = block.ln_1
    qkv = block.attention.qkv
    weights = (norm.weight, norm.bias, qkv.weight, qkv.bias)
    if in_bf16():
        return HalfProject.apply(x, *weights, block.attention.n_heads)
    return Project.apply(x, *weights)


def attend(
    block: "Block",
    projected: tuple[Tensor, Tensor],
    groups: Groups,
    causal: bool = False,
) -> Tensor:
    """Return x + attention of ``block`` for each sequence, in the order of the groups, (M, D).

    The groups are runs of flat tokens (M, D), or prefixes x[rows, :T] of shared inputs (B, T, D).
    """
    kernel = HalfAttend if in_bf16() else Attend
    out = block.attention.out
    n_heads = block.attention.n_heads
    return kernel.apply(*projected, out.weight, out.bias, groups, n_heads, causal)


def kernel_names() -> str:
    """Name this process's bf16 kernels for provenance; another name means other last bits."""
    return f"{VERSION}, GELU {with_slope()[0]}"
