"""Rotations, biases and masks of attention.

They are computed once per call of the model, for whole sequences; a prefix takes the upper left
corner. None of them depends on the length of the prefix, so that all prefixes can share ENTP's
first layer.

Letters: B batch (1 where all rows are alike), T tokens, H heads (or 1), K head width, R some rows.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.positions import Positions, Rotation


@dataclass(frozen=True)
class AttentionBias:
    """The rotation and mask that attention applies; None leaves one out.

    ``rotation`` turns queries and keys. ``mask_BHTT`` is added to the scores, or is boolean and
    True where attention is allowed.
    """

    rotation: Rotation | None = None
    mask_BHTT: Tensor | None = None

    @property
    def is_empty(self) -> bool:
        return self.rotation is None and self.mask_BHTT is None

    def of_prefixes(
        self, rows: slice | Tensor, length: int
    ) -> tuple[Tensor | None, Rotation | None]:
        """Return mask (R, H, length, length) and rotation (R, 1, length, K) of some prefixes."""

        def starts(x: Tensor) -> Tensor:
            x = x[:, :, :length]
            return x if len(x) == 1 else x[rows]  # a single row is shared by all

        mask = self.mask_BHTT
        if mask is not None:
            mask = starts(mask[..., :length])
        rotation = self.rotation
        if rotation is not None:
            rotation = starts(rotation[0]), starts(rotation[1])
        return mask, rotation


NO_BIAS = AttentionBias()


def attention_bias(
    scheme: Positions, ids_BT: Tensor, mask_BTT: Tensor | None, dtype: torch.dtype
) -> AttentionBias:
    """Return the bias for tokens at positions ``ids_BT`` from a positional scheme and a mask."""
    mask = scheme.bias(ids_BT, ids_BT)
    if mask is not None:
        mask = mask.to(dtype)
    if mask_BTT is not None:
        mask = combine_masks(mask, mask_BTT[:, None])
    return AttentionBias(scheme.rotation(ids_BT), mask)


def combine_masks(bias: Tensor | None, allowed: Tensor) -> Tensor:
    """Restrict ``bias``, a mask or numbers added to scores, to where ``allowed`` is True."""
    if bias is None:
        return allowed
    if bias.dtype == torch.bool:
        return bias & allowed
    return bias.masked_fill(~allowed, -torch.inf)


def rotate(x: Tensor, rotation: Rotation | None) -> Tensor:
    """Turn queries or keys (B, H, T, K) by (cosines, sines)."""
    if rotation is None:
        return x
    cosines, sines = (z.to(x.dtype) for z in rotation)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines


def attention_weights(
    scores: Tensor, mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return the softmax of masked scores over the last dimension, as ``dtype``.

    It is computed in fp32 if ``dtype`` is half precision.
    """
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = F.softmax(
        scores, -1, dtype=torch.float32 if dtype.itemsize == 2 else None
    )
    return weights.to(dtype)
