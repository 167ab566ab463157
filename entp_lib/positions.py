"""Positional schemes, which add to embeddings, turn queries and keys, or add to scores.

Full attention looks both ways: a scheme must say how it treats a key behind its query.

Letters: B batch (1 where all rows are alike), T tokens, Q queries, S keys, D width, H heads,
K head width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.validation import require

ROTARY_BASE = 10_000.0
Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, K)


class Positions(nn.Module):
    """No positions: the scheme ``none``, whose methods the others override.

    ``table``: how many different positions a scheme has vectors for, None where any will do.
    """

    table: int | None = None

    def __init__(self, cfg: ModelConfig):
        super().__init__()

    def embeddings(self, ids: Tensor | slice) -> Tensor | None:
        """Return vectors added to token embeddings at positions ``ids``, (B, T, D) or (T, D)."""
        return None

    def rotation(self, ids_BT: Tensor) -> Rotation | None:
        """Return the angles by which queries and keys are turned in every layer."""
        return None

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor | None:
        """Return numbers added to the scores of every layer, (B, H, Q, S)."""
        return None


class Learned(Positions):
    """A learned vector for each of ``max_length`` positions (GPT-2; the paper)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.weight = nn.Parameter(torch.empty(cfg.max_length, cfg.width))
        self.table = cfg.max_length

    def embeddings(self, ids: Tensor | slice) -> Tensor:
        return self.weight[ids] if isinstance(ids, slice) else F.embedding(ids, self.weight)


class Alibi(Positions):
    """ALiBi (Press et al., 2022): scores fall linearly with the distance of two tokens.

    The distance is absolute, as the authors suggest for encoders; under a causal mask this is their
    scheme.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.slopes = alibi_slopes(cfg.n_heads)

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor:
        slopes_H = torch.tensor(self.slopes, dtype=torch.float64, device=keys_BS.device)
        distance_BQS = (queries_BQ[:, :, None] - keys_BS[:, None]).abs()
        return -slopes_H[:, None, None] * distance_BQS[:, None]


def alibi_slopes(n_heads: int) -> list[float]:
    """Return 2^(-8/n), 2^(-16/n) … for n heads.

    Where n is no power of two, every other slope of twice as many heads fills up.
    """
    below = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    return slopes + [2 ** (-4 * h / below) for h in range(1, 2 * (n_heads - below), 2)]


class Rotary(Positions):
    """Queries and keys turned by angles that grow with the position (Su et al., 2021).

    Coordinate i of a head's first half is turned with coordinate i of its second, by
    position · 10,000^(-2i/K), so that a score depends on the difference of two positions alone,
    sign included.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.head_width = cfg.width // cfg.n_heads
        require(
            self.head_width % 2 == 0,
            f"positions = 'rotary': heads of width {self.head_width}; they must be even",
        )

    def rotation(self, ids_BT: Tensor) -> Rotation:
        even = torch.arange(
            0, self.head_width, 2, device=ids_BT.device, dtype=torch.float64
        )
        frequencies = ROTARY_BASE ** -(even / self.head_width)
        angles_BTK = (ids_BT[..., None] * frequencies).repeat(1, 1, 2)
        return angles_BTK.cos()[:, None], angles_BTK.sin()[:, None]


SCHEMES = {"alibi": Alibi, "learned": Learned, "none": Positions, "rotary": Rotary}
