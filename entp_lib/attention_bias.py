"""Attention beyond two tokens' states: rotations, biases and masks; and a last layer read at ends.

They are computed once a call of the model, for whole sequences; a prefix has the upper left corner
of its row's. In none of this a token's share depends on how long the prefix is, so that ENTP's
first layer stays shared.

Letters: B batch (1 where all rows are alike), T tokens, H heads (or 1), K head width, D width,
R some rows, M flat tokens of all prefixes, P prefixes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.positions import Positions, Rotation

if TYPE_CHECKING:
    from entp_lib.model import Block

# The means of tokens, (P, H, D), weighted by attention: from queries (P, H, D) and normed tokens
# (M, D); or, where keys (M, H, K) are formed, from queries (P, H, K) and these.
WeightedMeans = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class AttentionBias:
    """What attention knows beside the states of two tokens; None for nothing.

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

        def of_rows(x: Tensor) -> Tensor:
            return x if len(x) == 1 else x[rows]  # a single row is everybody's

        mask = self.mask_BHTT
        if mask is not None:
            mask = of_rows(mask)[:, :, :length, :length]
        rotation = self.rotation
        if rotation is not None:
            cosines, sines = rotation
            rotation = of_rows(cosines)[:, :, :length], of_rows(sines)[:, :, :length]
        return mask, rotation


NO_BIAS = AttentionBias()


def attention_bias(
    scheme: Positions, ids_BT: Tensor, mask_BTT: Tensor | None, dtype: torch.dtype
) -> AttentionBias:
    """Return the bias of tokens at positions ``ids_BT``, by a positional scheme and a mask."""
    mask = scheme.bias(ids_BT, ids_BT)
    if mask is not None:
        mask = mask.to(dtype)
    if mask_BTT is not None:
        mask = combine_masks(mask, mask_BTT[:, None])
    return AttentionBias(scheme.rotation(ids_BT), mask)


def combine_masks(bias: Tensor | None, allowed: Tensor) -> Tensor:
    """Return ``bias``, a mask or numbers added to scores, where ``allowed`` is True."""
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


def attention_weights(scores: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the softmax over the last dimension of scores with a mask, as ``dtype``.

    It is taken in fp32 where the tokens' ``dtype`` is half precision.
    """
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = F.softmax(scores, -1, dtype=torch.float32 if dtype.itemsize == 2 else None)
    return weights.to(dtype)


def last_layer_at_prefix_ends(
    block: "Block",
    x_MD: Tensor,
    ends_P: Tensor,
    weighted_means: WeightedMeans,
    rotation: Rotation | None = None,
) -> tuple[Tensor, Tensor]:
    """Return a last layer's inputs (P, D) at the prefixes' ends and their attention output (P, D).

    Keys and values are never formed: q·(W_K z + b_K) = (W_Kᵀ q)·z plus a constant that the softmax
    drops, and a weighted mean of W_V z + b_V is W_V (weighted mean of z) + b_V. Keys that are
    turned by their position are formed after all: ``rotation`` has cosines and sines for every
    token, (M, 1, K).
    """
    attention = block.attention
    n_heads = attention.n_heads
    z_MD = block.ln_1(x_MD)
    w_q, w_k, w_v = attention.qkv.weight.chunk(3)
    b_q, b_k, b_v = attention.qkv.bias.chunk(3)
    q_HPK = F.linear(z_MD[ends_P], w_q, b_q).unflatten(-1, (n_heads, -1)).transpose(0, 1)
    scale = (x_MD.shape[-1] // n_heads) ** -0.5
    if rotation is None:
        keys_MHK = None
        queries = (q_HPK @ w_k.unflatten(0, (n_heads, -1))).transpose(0, 1) * scale
    else:
        keys_MHK = rotate(F.linear(z_MD, w_k, b_k).unflatten(-1, (n_heads, -1)), rotation)
        cosines, sines = rotation
        queries = rotate(q_HPK.transpose(0, 1), (cosines[ends_P], sines[ends_P])) * scale
    mean_PHD = weighted_means(queries, z_MD, keys_MHK)
    w_v_HDK = w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)
    value_PHK = (mean_PHD.transpose(0, 1) @ w_v_HDK).transpose(0, 1)
    value_PHK = value_PHK + b_v.unflatten(0, (n_heads, -1))
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))
