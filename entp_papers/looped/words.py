"""Integers as ±1 bits: pointers (§4.1) and two's complement words (§5.1), least significant bit first."""

import math

import torch
from torch import Tensor

from entp_lib.validation import require

MOST_BITS = 20  # an adder's sums stay below 2^(bits + 2), its gates below 2^(bits + 3): exact in fp32


def pointer_bits(tokens: int) -> int:
    """Bits of a pointer to one of ``tokens`` positions, L = ceil(log2 n)."""
    return max(1, math.ceil(math.log2(tokens)))


def to_bits(values: Tensor, bits: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """(..., bits) of ±1 for integers mod 2^bits: negative ones in two's complement."""
    powers = torch.arange(bits)
    return (2 * (values.unsqueeze(-1) >> powers & 1) - 1).to(dtype)


def to_unsigned(bits_X: Tensor) -> Tensor:
    """The integers from 0 to 2^bits - 1 that ±1 bits (..., bits) stand for."""
    powers = torch.arange(bits_X.shape[-1])
    return ((bits_X > 0).long() << powers).sum(-1)


def to_signed(bits_X: Tensor) -> Tensor:
    """The integers that two's complement words (..., bits) stand for."""
    return to_unsigned(bits_X) - ((bits_X[..., -1] > 0).long() << bits_X.shape[-1])


def wrap(value: int, bits: int) -> int:
    """``value`` mod 2^bits as a signed word, from -2^(bits-1) to 2^(bits-1) - 1."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def check_word(name: str, value: int, bits: int) -> None:
    """Raise ConfigError where ``value`` does not fit into a word of ``bits``."""
    half = 1 << (bits - 1)
    require(
        -half <= value < half,
        f"{name} = {value}: does not fit into a word of {bits} bits, which holds {-half} to {half - 1}",
    )
