"""x² by attention, at a depth that does not change, and by ReLU networks, whose error falls by 4 per level (§6.3)."""

import numpy as np
import torch
from numpy import ndarray

from entp_lib.validation import require
from entp_papers.looped.fleq.frame import BlockStack
from entp_papers.looped.fleq.product import product_block


def sawtooth_square(x: ndarray, levels: int) -> ndarray:
    """x² on [0, 1] as x - Σ_k g_k(x) / 4^k with g_k the tooth function applied k times: a ReLU network of that depth.

    The error is 4^-(levels + 1) at most: at the middle of the finest teeth.
    """
    require(levels >= 0, f"levels = {levels}: must not be negative")
    result, tooth = x.copy(), x
    for k in range(1, levels + 1):
        tooth = 2 * np.maximum(tooth, 0) - 4 * np.maximum(tooth - 0.5, 0) + 2 * np.maximum(tooth - 1, 0)
        result = result - tooth / 4**k
    return result


def attention_square(x: ndarray, delta: float, symmetric: bool = True) -> ndarray:
    """x² as the product of x with itself: two layers, one head or two."""
    stack = BlockStack(product_block("a", "a", delta=delta, symmetric=symmetric), 1)
    a = torch.from_numpy(x).view(-1, 1, 1)
    return stack.apply(a, torch.zeros_like(a))[:, 0, 0].numpy()
