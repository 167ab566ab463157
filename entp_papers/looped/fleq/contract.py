"""Whether a block keeps Definition 1: what it must compute, and what it must leave alone."""

import torch

from entp_papers.looped.fleq.frame import BlockStack, Maker


def violations(maker: Maker, d: int, seed: int = 0, batch: int = 4, scale: float = 1.0) -> dict[str, float]:
    """The largest deviation from each term of the contract, by name, over random matrices.

    error: C from the exact function · inputs: A and B afterwards · previous: C for another content of C before ·
    left_behind: temporary rows afterwards · together: C of one pair beside others in the batch.
    """
    stack = BlockStack(maker, d)
    generator = torch.Generator().manual_seed(seed)
    a, b, before = scale * torch.randn(3, batch, d, d, generator=generator, dtype=torch.float64)
    after = stack(stack.encode(a, b, before))
    c = stack.matrix(after, "c")
    again = stack.apply(a, b)
    left = [after[..., r.start : r.stop].abs().max() for r in stack.block.temporary]

    def largest(difference: torch.Tensor) -> float:
        return float(difference.abs().max())

    return {
        "error": largest(c - stack.block.exact(a, b)),
        "inputs": max(largest(stack.matrix(after, "a") - a), largest(stack.matrix(after, "b") - b)),
        "previous": largest(again - c),
        "left_behind": float(max(left)),
        "together": largest(stack.apply(a[:1], b[:1])[0] - again[0]),
    }


def padding_error(maker: Maker, small: int, large: int, seed: int = 0) -> float:
    """How far f of matrices in a corner of larger ones is from f of themselves, zeros around them included."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 3, small, small, generator=generator, dtype=torch.float64)
    pad = (0, large - small, 0, large - small)
    wide = BlockStack(maker, large).apply(torch.nn.functional.pad(a, pad), torch.nn.functional.pad(b, pad))
    return float((wide - torch.nn.functional.pad(BlockStack(maker, small).apply(a, b), pad)).abs().max())
