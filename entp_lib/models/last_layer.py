"""The last layer of a stack that is read at the end of each prefix only: one query per prefix.

Letters: M flat tokens of all prefixes, P prefixes, D width, H heads, K head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.models.relations import Rotation, rotate

# Scores of queries (P, H, D) with normed tokens (M, D), or (P, H, K) with keys (M, H, K) where these are formed, turned
# into ``attention_weights``: the weighted means (P, H, D) of the tokens and the sums (P, H) of the weights.
Means = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]


def read_last(
    block: nn.Module, x_MD: Tensor, ends_P: Tensor, means: Means, rotation: Rotation | None = None
) -> tuple[Tensor, Tensor]:
    """The inputs (P, D) at the prefixes' ends and their attention output (P, D).

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
    mean_PHD, mass_PH = means(seeking, z_MD, keys_MHK)
    value_PHK = (mean_PHD.transpose(0, 1) @ w_v.unflatten(0, (n_heads, -1)).transpose(1, 2)).transpose(0, 1)
    bias_HK = b_v.unflatten(0, (n_heads, -1))
    certain = attention.dropout == 0 or not attention.training  # dropout spoils the weights' sum of 1
    value_PHK = value_PHK + (bias_HK if certain else mass_PH[..., None] * bias_HK)
    return x_MD[ends_P], attention.out(value_PHK.flatten(1))


def attention_weights(attention: nn.Module, scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Softmax over the last dimension, in fp32 where the tokens' ``dtype`` is half precision, then dropout; as it."""
    weights = F.softmax(scores, -1, dtype=torch.float32 if dtype == torch.bfloat16 else None)
    return F.dropout(weights, attention.dropout if attention.training else 0.0).to(dtype)
