"""Positional schemes: they add to embeddings, rotate queries and keys, or add to scores.

Full attention looks both ways, so that a scheme must also define what a key after its query gets.

Letters: B batch (1 where all rows are alike), T tokens, Q queries, S keys, D width, H heads, K head
width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.arguments import widest
from entp_lib.config import ModelConfig
from entp_lib.validation import require

ROTARY_BASE = 10_000.0
Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, K)


class Positions(nn.Module):
    """The scheme ``none``: no positions. The other schemes override its methods.

    ``table``: number of positions that a scheme has vectors for, None if any position id is
    allowed. ``rotates``: whether it rotates queries and keys. The model draws a scheme's matrices;
    its vectors begin as the scheme made them.
    """

    table: int | None = None
    rotates = False

    def __init__(self, cfg: ModelConfig):
        super().__init__()

    def embeddings(self, ids: Tensor | slice) -> Tensor | None:
        """Return vectors to add to token embeddings at positions ``ids``, (B, T, D) or (T, D)."""
        return None

    def rotation(self, ids_BT: Tensor) -> Rotation | None:
        """Return cosines and sines of the rotation of queries and keys in every layer."""
        return None

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor | None:
        """Return the numbers to add to the scores of every layer, (B, H, Q, S)."""
        return None


class Learned(Positions):
    """A learned vector for each of ``max_length`` positions (GPT-2; the paper)."""

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.weight = nn.Parameter(torch.empty(cfg.max_length, cfg.width))
        self.table = cfg.max_length

    def embeddings(self, ids: Tensor | slice) -> Tensor:
        if isinstance(ids, slice):
            return self.weight[ids]
        return F.embedding(ids, self.weight)


class Alibi(Positions):
    """ALiBi (Press et al., 2022): scores fall linearly with the distance of two tokens.

    The distance is absolute, as its authors suggest for encoders; under a causal mask this is the
    original scheme.
    """

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.slopes = alibi_slopes(cfg.n_heads)

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor:
        device = keys_BS.device
        slopes_H = torch.tensor(self.slopes, dtype=widest(device), device=device)
        distance_BQS = (queries_BQ[:, :, None] - keys_BS[:, None]).abs()
        return -slopes_H[:, None, None] * distance_BQS[:, None]


def alibi_slopes(n_heads: int) -> list[float]:
    """Return 2^(-8/n), 2^(-16/n) … for n heads.

    If n is not a power of two, the rest are every other slope of the next power of two.
    """
    below = 2 ** (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    return slopes + [2 ** (-4 * h / below) for h in range(1, 2 * (n_heads - below), 2)]


class Rotary(Positions):
    """RoPE (Su et al., 2021): queries and keys are rotated by angles that grow with the position.

    Coordinate i of a head's first half and coordinate i of its second half are rotated together by
    position · 10,000^(-2i/K). A score then depends only on the signed difference of two positions.
    """

    rotates = True

    def __init__(self, cfg: ModelConfig):
        super().__init__(cfg)
        self.head_width = cfg.width // cfg.n_heads
        require(
            self.head_width % 2 == 0,
            f"positions = 'rotary': heads of width {self.head_width}; they must be even",
        )

    def rotation(self, ids_BT: Tensor) -> Rotation:
        device = ids_BT.device
        even = torch.arange(0, self.head_width, 2, device=device, dtype=widest(device))
        frequencies = ROTARY_BASE ** -(even / self.head_width)
        angles_BTK = (ids_BT[..., None] * frequencies).repeat(1, 1, 2)
        return angles_BTK.cos()[:, None], angles_BTK.sin()[:, None]


SCHEMES = {"alibi": Alibi, "learned": Learned, "none": Positions, "rotary": Rotary}
