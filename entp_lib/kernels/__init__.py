"""Half-blocks of the Transformer for a CPU: the same function as PyTorch's own operations in fewer passes.

A token batch is flat, (M, D); ``groups`` are runs of equally long sequences, whose tokens see each other. Products are
those of fp32 and fp64, or in bf16 for autocast. Nothing here knows dropout: ``usable`` says where it applies.

Letters: M flat tokens, D width, F hidden width of the MLP, H heads, K head width, R rows of a group, T its length.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from entp_lib.kernels.attention import Attend, Group, Groups, Project, offsets
from entp_lib.kernels.bf16 import VERSION, HalfAttend, HalfFeedForward, HalfProject
from entp_lib.kernels.gelu import with_slope
from entp_lib.kernels.mlp import FeedForward

__all__ = [
    "UNNAMED",
    "Group",
    "Groups",
    "attend",
    "feed_forward",
    "left_out",
    "names",
    "offsets",
    "project",
    "usable",
]

ALLOWED = [True]
UNNAMED = "bf16-1"  # the kernels of runs in bf16 whose provenance names none


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Do without these kernels meanwhile, so that PyTorch's own tools can see the operations."""
    before, ALLOWED[0] = ALLOWED[0], False
    try:
        yield
    finally:
        ALLOWED[0] = before


def usable(x: Tensor, dropout: float) -> bool:
    """Whether these kernels apply: fp32, fp64 or autocast to bf16 on a CPU, without dropout or functional transform."""
    return (
        ALLOWED[0]
        and x.device.type == "cpu"
        and x.dtype in ((torch.float32,) if in_bf16() else (torch.float32, torch.float64))
        and dropout == 0
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def in_bf16() -> bool:
    """Whether products are to be made in bf16: within autocast on a CPU."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def feed_forward(block: nn.Module, x_MD: Tensor) -> Tensor:
    """x + MLP(LN(x)) of ``block``."""
    norm, up, down = block.ln_2, block.fc_in, block.fc_out
    weights = norm.weight, norm.bias, up.weight, up.bias, down.weight, down.bias
    if in_bf16():
        return HalfFeedForward.apply(x_MD, *weights)
    return FeedForward.apply(x_MD, *weights, torch.is_grad_enabled())


def project(block: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (…, D) and their queries, keys and values (…, 3D), which ``attend`` takes; inputs (B, T, D) are shared."""
    norm, qkv = block.ln_1, block.attention.qkv
    weights = norm.weight, norm.bias, qkv.weight, qkv.bias
    if in_bf16():
        return HalfProject.apply(x, *weights, block.attention.n_heads)
    return Project.apply(x, *weights)


def attend(block: nn.Module, projected: tuple[Tensor, Tensor], groups: Groups, causal: bool = False) -> Tensor:
    """x + attention of ``block``, each sequence of each group by itself, one group after the other, (M, D).

    The groups are runs of flat tokens (M, D), or prefixes x[rows, :T] of shared inputs (B, T, D).
    """
    kind, out = HalfAttend if in_bf16() else Attend, block.attention.out
    return kind.apply(*projected, out.weight, out.bias, groups, block.attention.n_heads, causal)


def names() -> str:
    """Which kernels compute bf16 in this process, for a run's provenance: other names, other bits."""
    return f"{VERSION}, GELU {with_slope()[0]}"
