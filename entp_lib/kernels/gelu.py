"""The tanh GELU of bf16 tensors with its slope, in one pass where this machine can compile it.

Letters as in ``entp_lib.kernels``.
"""

import functools
import logging
import math
from collections.abc import Callable

import torch
from torch import Tensor

GELU_1 = math.sqrt(2 / math.pi)
GELU_3 = 0.044715 * GELU_1
PIECE = 196_608  # entries of a buffer: four buffers fit into the L2 caches of two cores
log = logging.getLogger(__name__)


def pieces(tokens: int, hidden: int, entries: int) -> list[tuple[int, int]]:
    """Return row ranges that keep a hidden buffer within ``entries``."""
    rows = max(1, entries // hidden)
    return [(i, min(i + rows, tokens)) for i in range(0, tokens, rows)]


def fused(up_MF: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU(h) = h σ(2 h (c + c' h²)) and its slope, in fp32 and rounded to bf16.

    The slope is σ + GELU(h) (1 - σ) 2 (c + 3 c' h²).
    """
    h = up_MF.float()
    s = torch.sigmoid(2 * h * (GELU_1 + GELU_3 * h * h))
    g = h * s
    return g.bfloat16(), (
        s + g * (1 - s) * 2 * (GELU_1 + 3 * GELU_3 * h * h)
    ).bfloat16()


def in_pieces(up_MF: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``fused`` by PyTorch's own operations, in pieces that stay in the cache."""
    active_MF = torch.empty_like(up_MF)
    slope_MF = torch.empty_like(up_MF)
    tokens, hidden = up_MF.shape
    for i, j in pieces(tokens, hidden, PIECE):
        active_MF[i:j], slope_MF[i:j] = fused(up_MF[i:j])
    return active_MF, slope_MF


@functools.cache
def with_slope() -> tuple[str, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """Choose, once per process, how the GELU is computed: compiled if that works, else eagerly."""
    example_MF = torch.linspace(-9, 9, 4 * 64).bfloat16().view(4, 64)
    try:
        compiled = torch.compile(fused, dynamic=True, options={"compile_threads": 1})
        with torch.no_grad():  # as the kernels call it; else it would be compiled again
            found = compiled(example_MF)
        torch.testing.assert_close(found, in_pieces(example_MF), atol=1e-2, rtol=1e-2)
    # no compiler, a failing one, or a cache folder that cannot be written
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        log.warning(
            "GELU in bf16 is slower: compiled, it fails or differs here (%s)", why
        )
        return "eager", in_pieces
    return "compiled", compiled
