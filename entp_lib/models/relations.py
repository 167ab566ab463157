"""Positional turns and biases, and masks by row: attention between two tokens beyond their states.

They are computed once per call of the model, for whole sequences; a prefix has the upper left corner of its row's. In
none of this a token's share depends on how long the prefix is, so that ENTP's first layer stays shared.

Letters: B batch (1 where all rows are alike), T tokens, H heads (or 1), K head width, R some rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from entp_lib.models.positions import Positions

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, K)


@dataclass(frozen=True)
class Relations:
    """A rotation of queries and keys, and ``bias_BHTT``: boolean, True where attention is allowed, or added to scores.

    Either may be None, for nothing.
    """

    rotation: Rotation | None = None
    bias_BHTT: Tensor | None = None

    @property
    def empty(self) -> bool:
        return self.rotation is None and self.bias_BHTT is None

    def causal(self) -> "Relations":
        """The same with later tokens hidden; no bias stays none, since attention has a causal mask of its own."""
        if self.bias_BHTT is None:
            return self
        length = self.bias_BHTT.shape[-1]
        return self.allowing(torch.ones(length, length, dtype=torch.bool, device=self.bias_BHTT.device).tril())

    def allowing(self, mask: Tensor) -> "Relations":
        """The same where ``mask`` (broadcast to (B, H, T, T)) is True, and no attention elsewhere."""
        return Relations(self.rotation, masked(self.bias_BHTT, mask))

    def group(self, pick: slice | Tensor, length: int) -> tuple[Tensor | None, Rotation | None]:
        """Bias (R, H, length, length) and rotation (R, 1, length, K) of the first ``length`` tokens of some rows."""

        def of_rows(x: Tensor) -> Tensor:
            return x if len(x) == 1 else x[pick]  # a single row is everybody's

        bias = None if self.bias_BHTT is None else of_rows(self.bias_BHTT)[:, :, :length, :length]
        if self.rotation is None:
            return bias, None
        cosines, sines = (of_rows(x)[:, :, :length] for x in self.rotation)
        return bias, (cosines, sines)


NOTHING = Relations()


def relations_of(scheme: Positions, ids_BT: Tensor, mask_BTT: Tensor | None, dtype: torch.dtype) -> Relations:
    """The relations of tokens at positions ``ids_BT`` by a positional scheme and a mask by row."""
    rotation, bias = scheme.rotation(ids_BT), scheme.bias(ids_BT, ids_BT)
    if bias is not None:
        bias = bias.to(dtype)
    return Relations(rotation, bias if mask_BTT is None else masked(bias, mask_BTT[:, None]))


def masked(bias: Tensor | None, mask: Tensor) -> Tensor:
    """``bias`` where ``mask`` allows attention; both are masks, or the bias is added to scores."""
    if bias is None:
        return mask
    return bias & mask if bias.dtype == torch.bool else bias.masked_fill(~mask, -torch.inf)


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:
    """Queries or keys (B, H, T, K) turned by (cosines, sines)."""
    if rotation is None:
        return x
    cosines, sines = (z.to(x.dtype) for z in rotation)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines


def add_bias(scores: Tensor, bias: Tensor | None) -> Tensor:
    """Scores with a bias added, or hidden where a mask is False."""
    if bias is None:
        return scores
    return scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias.to(scores.dtype)
