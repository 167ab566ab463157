"""No positions: the interface of all schemes, which add to embeddings, turn queries and keys, or add to scores.

Letters: B batch (1 where all rows are alike), T tokens, Q queries, S keys, D width, H heads, K head width.
"""

from torch import Tensor, nn

from entp_lib.config import ModelConfig


class Positions(nn.Module):
    """The scheme ``none``, whose methods the others override.

    Full attention looks both ways: a scheme must say how it treats a key behind its query. ``table``: how many
    different positions a scheme has vectors for, None where any will do.
    """

    table: int | None = None

    def __init__(self, cfg: ModelConfig):
        super().__init__()

    def embeddings(self, ids: Tensor | slice) -> Tensor | None:
        """Vectors added to token embeddings at positions ``ids`` (B, T), or a slice of them: (B, T, D) or (T, D)."""
        return None

    def rotation(self, ids_BT: Tensor) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines, each (B, 1, T, K), by which queries and keys are turned in every layer."""
        return None

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor | None:
        """Numbers added to the scores of every layer, (B, H, Q, S), for queries and keys at these positions."""
        return None
