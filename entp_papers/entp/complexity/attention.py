"""One query's attention as appendix D prints it, and streamed in memory that does not grow with the sequence."""

import torch
from torch import Tensor


def printed_attention(q_D: Tensor, k_nD: Tensor, v_nD: Tensor) -> Tensor:
    """Algorithm 1 as printed: sums of exp(q·k), which overflow for large scores."""
    weighted, mass = torch.zeros_like(v_nD[0]), q_D.new_zeros(())
    for k_D, v_D in zip(k_nD, v_nD, strict=True):
        weight = (q_D @ k_D).exp()
        weighted, mass = weighted + weight * v_D, mass + weight
    return weighted / mass


def printed_error(n: int = 64, width: int = 16) -> float:
    """Largest error of Algorithm 1 as printed against softmax attention in fp64, q with the 1/√D, small scores."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((width,), (n, width), (n, width)))
    q = q / width**0.5
    return float((printed_attention(q, k, v) - (k @ q).softmax(0) @ v).abs().max())


def streaming_attention(q_D: Tensor, k_nD: Tensor, v_nD: Tensor) -> Tensor:
    """Softmax attention of one query over n keys with O(D) memory beside the inputs (appendix D, Algorithm 1).

    As printed, exp(q·k) overflows for large scores and the scale 1/√D is missing; here the running maximum is taken
    out, which changes nothing else. Raises ValueError where there is no key or the shapes do not agree.
    """
    if k_nD.dim() != 2 or len(k_nD) == 0 or len(v_nD) != len(k_nD) or k_nD.shape[1:] != q_D.shape:
        raise ValueError(
            f"query {tuple(q_D.shape)}, keys {tuple(k_nD.shape)}, values {tuple(v_nD.shape)}: "
            "must be (D,), (n, D) and (n, any width) with n at least 1"
        )
    weighted, mass = torch.zeros_like(v_nD[0]), q_D.new_zeros(())
    largest = q_D.new_full((), -torch.inf)
    for k_D, v_D in zip(k_nD, v_nD, strict=True):
        score = q_D @ k_D / len(q_D) ** 0.5
        new = torch.maximum(largest, score)
        shrink, weight = (largest - new).exp(), (score - new).exp()
        weighted, mass, largest = shrink * weighted + weight * v_D, shrink * mass + weight, new
    return weighted / mass
