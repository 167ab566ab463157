"""Rotary positions (Su et al., 2021): queries and keys turned by angles that grow with the position.

A score depends on the difference of two positions alone, sign included: a key behind its query counts otherwise than
one as far before it.
"""

import torch
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models.positions.none import Positions
from entp_lib.validation import require

BASE = 10_000.0


class Rotary(Positions):
    """Coordinate i of a head's first half is turned with coordinate i of its second, by position · BASE^(-2i/K)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.head_width = cfg.width // cfg.n_heads
        heads = f"width = {cfg.width} over n_heads = {cfg.n_heads} gives heads of {self.head_width}"
        require(self.head_width % 2 == 0, f"positions = 'rotary': {heads}; they must be even")

    def rotation(self, ids_BT: Tensor) -> tuple[Tensor, Tensor]:
        halves = torch.arange(0, self.head_width, 2, device=ids_BT.device, dtype=torch.float64) / self.head_width
        angles_BTK = (ids_BT[..., None] * BASE**-halves).repeat(1, 1, 2)
        return angles_BTK.cos()[:, None], angles_BTK.sin()[:, None]
