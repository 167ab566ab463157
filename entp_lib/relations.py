"""Attention beyond two tokens' states: positional turns and biases, masks by row, and a last layer read at few places.

Turns, biases and masks are computed once per call of the model, for whole sequences; a prefix has the upper left
corner of its row's. In none of this a token's share depends on how long the prefix is, so that ENTP's first layer stays
shared.

Letters: B batch (1 where all rows are alike), T tokens, H heads (or 1), K head width, D width, R some rows, M flat
tokens of all prefixes, P prefixes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.positions import Positions

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (B, 1, T, K)
# Scores of queries (P, H, D) with normed tokens (M, D), or (P, H, K) with keys (M, H, K) where these are formed, turned
# into ``attention_weights``: the weighted means (P, H, D) of the tokens.
Means = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Relations:
    """A rotation, and ``bias_BHTT``, added to scores or, boolean, True where attention is allowed; None for nothing."""

    rotation: Rotation | None = None
    bias_BHTT: Tensor | None = None

    @property
    def empty(self) -> bool:
        return self.rotation is None and self.bias_BHTT is None

    def group(self, pick: slice | Tensor, length: int) -> tuple[Tensor | None, Rotation | None]:
        """Bias (R, H, length, length) and rotation (R, 1, length, K) of the first ``length`` tokens of some rows."""
        bias, turns = self.bias_BHTT, self.rotation
        if bias is not None:
            bias = (bias if len(bias) == 1 else bias[pick])[:, :, :length, :length]  # a single row is everybody's
        if turns is not None:
            turns = tuple((x if len(x) == 1 else x[pick])[:, :, :length] for x in turns)
        return bias, turns


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


def attention_weights(scores: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Softmax over the last dimension of scores with a bias added, or hidden where a mask is False.

    In fp32 where the tokens' ``dtype``, which the weights get, is half precision.
    """
    if bias is not None:
        scores = masked(scores, bias) if bias.dtype == torch.bool else scores + bias.to(scores.dtype)
    weights = F.softmax(scores, -1, dtype=torch.float32 if dtype == torch.bfloat16 else None)
    return weights.to(dtype)


def read_last(
    block: nn.Module, x_MD: Tensor, ends_P: Tensor, means: Means, rotation: Rotation | None = None
) -> tuple[Tensor, Tensor]:
    """Last layer of a stack, read at the prefixes' ends alone: its inputs (P, D) there and their attention output.

    Keys and values are never formed: q·(W_K z + b_K) = (W_Kᵀ q)·z plus a constant that the softmax drops, and a
    weighted mean of W_V z + b_V is W_V (weighted mean of z) + b_V. Keys that are turned by their position are formed
    after all: ``rotation`` has cosines and sines for every token, (M, 1, K).
    """
    attention, n_heads, width = block.attention, block.attention.n_heads, x_MD.shape[-1]
    z_MD = block.ln_1(x_MD)
    (w_q, w_k, w_v), (b_q, b_k, b_v) = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    q_HPK = F.linear(z_MD[ends_P], w_q, b_q).unflatten(-1, (n_heads, -1)).transpose(0, 1)
    scale = (width // n_heads) ** -0.5
    if rotation is None:
        keys_MHK, seeking = None, (q_HPK @ w_k.unflatten(0, (n_heads, -1))).transpose(0, 1) * scale
    else:
        keys_MHK = rotate(F.linear(z_MD, w_k, b_k).unflatten(-1, (n_heads, -1)), rotation)
        seeking = rotate(q_HPK.transpose(0, 1), tuple(x[ends_P] for x in rotation)) * scale
    mean_PHD = means(seeking, z_MD, keys_MHK)
    value_PHK = (mean_PHD.transpose(0, 1) @ w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)).transpose(0, 1)
    value_PHK = value_PHK + b_v.unflatten(0, (n_heads, -1))
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))
