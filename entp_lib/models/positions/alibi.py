"""ALiBi (Press et al., 2022): scores fall linearly with the distance between two tokens, at a rate for each head.

The authors define it for a causal mask. Here the distance is absolute, as in their suggestion for encoders: a key
behind its query loses as much as one as far before it. Under a causal mask this is their scheme.
"""

import math

import torch
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models.positions.none import Positions


class Alibi(Positions):
    """Minus slope times distance; nothing is learned."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.slopes = slopes(cfg.n_heads)

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor:
        slopes_H11 = torch.tensor(self.slopes, dtype=torch.float64, device=keys_BS.device)[:, None, None]
        distance_BQS = (queries_BQ[:, :, None] - keys_BS[:, None]).abs()
        return -slopes_H11 * distance_BQS[:, None]


def slopes(n_heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n) … for n heads; where n is no power of two, every other one of twice as many fills up."""
    below = 2 ** math.floor(math.log2(n_heads))
    found = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    return found + [2 ** (-4 * h / below) for h in range(1, 2 * (n_heads - below), 2)]
