"""What a positional scheme may do: add to embeddings, turn queries and keys, or add to attention scores.

Letters: B batch (1 where all rows are alike), T tokens, Q queries, S keys, D width, H heads, K head width.
"""

from torch import Tensor, nn

from entp_lib.config import ModelConfig


class Positions(nn.Module):
    """A scheme that says nothing about positions: ``none``, and what the others override.

    Distances are signed nowhere here: full attention looks both ways, and a scheme must say what it makes of a key
    behind its query. ``table``: how many different positions a scheme knows, None where any will do.
    """

    table: int | None = None

    def __init__(self, cfg: ModelConfig):
        super().__init__()

    def embeddings(self, ids: Tensor | slice) -> Tensor | None:
        """What is added to token embeddings at positions ``ids`` (B, T), or a slice of them: (B, T, D) or (T, D)."""
        return None

    def rotation(self, ids_BT: Tensor) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines, each (B, 1, T, K), by which queries and keys are turned in every layer."""
        return None

    def bias(self, queries_BQ: Tensor, keys_BS: Tensor) -> Tensor | None:
        """What is added to the scores of every layer, (B, H, Q, S), for queries and keys at these positions."""
        return None
