"""The small Transformer that memorises random sequences (§2.1.2), as a function of its weights.

Embedding, positions and output layer are frozen; attention and feed-forward weights are trained. The width of a head is
a parameter of its own, not the width divided by the heads. Only the token after the last position is predicted, so
the last layer is computed there alone, and its keys and values are never formed: a query meets the inputs themselves
through W_Kᵀ q, and W_V is applied after the weighted sum. With one layer that makes the decoder and ENTP one function.

Weights are plain dictionaries of tensors, so that ``torch.func.vmap`` runs many models side by side.

Letters: S sequences, T tokens, D width, H heads, K head width, F hidden width, V symbols.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.validation import check_types, require

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class MemoryConfig:
    """Shape of a model that predicts the last of ``length`` tokens from the others.

    ``feed_forward``: ``trained``; ``identity`` hands its input on unchanged, beside the residual path; ``none`` drops
    it. ``attention_weights``: ``all`` four matrices, or ``query_key`` alone, where a head's output is the mixed
    inputs themselves (equation 4), which needs one head.
    """

    symbols: int = 32
    length: int = 8
    width: int = 32
    n_heads: int = 1
    head_width: int = 32
    n_layers: int = 1
    architecture: Literal["decoder", "entp"] = "decoder"
    feed_forward: Literal["trained", "identity", "none"] = "trained"
    attention_weights: Literal["all", "query_key"] = "all"

    def __post_init__(self):
        check_types(self)
        for name in ("width", "n_heads", "head_width", "n_layers"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: must be at least 1")
        require(self.symbols >= 2, f"symbols = {self.symbols}: must be at least 2")
        require(self.length >= 2, f"length = {self.length}: must be at least 2, one token to predict from")
        require(
            self.attention_weights == "all" or self.n_heads == 1,
            f"n_heads = {self.n_heads}: must be 1 where attention_weights is query_key",
        )


def trained_weights(cfg: MemoryConfig, generator: torch.Generator) -> Weights:
    """Attention and feed-forward weights, uniform within ±1/√(inputs), as PyTorch's linear layers begin; biases 0."""
    D, H, K = cfg.width, cfg.n_heads, cfg.head_width
    weights: Weights = {}

    def draw(*shape: int, inputs: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(inputs)

    for layer in range(cfg.n_layers):
        weights[f"{layer}.query"] = draw(H, D, K, inputs=D)
        weights[f"{layer}.key"] = draw(H, D, K, inputs=D)
        if cfg.attention_weights == "all":
            weights[f"{layer}.value"] = draw(H, D, K, inputs=D)
            weights[f"{layer}.out"] = draw(H, K, D, inputs=H * K)
        if cfg.feed_forward == "trained":
            weights[f"{layer}.up"] = draw(D, 4 * D, inputs=D)
            weights[f"{layer}.up_bias"] = torch.zeros(4 * D)
            weights[f"{layer}.down"] = draw(4 * D, D, inputs=4 * D)
            weights[f"{layer}.down_bias"] = torch.zeros(D)
    return weights


def frozen_weights(cfg: MemoryConfig, generator: torch.Generator) -> Weights:
    """Embedding and positions N(0, 1), output layer N(0, 1/D): never trained."""
    return {
        "embedding": torch.randn(cfg.symbols, cfg.width, generator=generator),
        "positions": torch.randn(cfg.length - 1, cfg.width, generator=generator),
        "output": torch.randn(cfg.width, cfg.symbols, generator=generator) / math.sqrt(cfg.width),
    }


def parameter_count(cfg: MemoryConfig) -> int:
    """Number of trained parameters."""
    attention = cfg.n_heads * cfg.width * cfg.head_width * (4 if cfg.attention_weights == "all" else 2)
    feed_forward = 8 * cfg.width**2 + 5 * cfg.width if cfg.feed_forward == "trained" else 0
    return cfg.n_layers * (attention + feed_forward)


def last_logits(cfg: MemoryConfig, trained: Weights, frozen: Weights, tokens_ST: Tensor) -> Tensor:
    """Logits (S, V) of the token after the last of T = length - 1 tokens."""
    x_STD = frozen["embedding"][tokens_ST] + frozen["positions"]
    for layer in range(cfg.n_layers - 1):
        z_STD = normed(x_STD)
        x_STD = feed_forward(cfg, trained, layer, x_STD + attend_all(cfg, trained, layer, z_STD))
    layer = cfg.n_layers - 1
    z_STD = normed(x_STD)
    x_SD = feed_forward(cfg, trained, layer, x_STD[:, -1] + attend_last(cfg, trained, layer, z_STD))
    return normed(x_SD) @ frozen["output"]


def normed(x: Tensor) -> Tensor:
    """Layer norm without weights: with frozen inputs and outputs, those of the linear maps are enough."""
    return F.layer_norm(x, x.shape[-1:])


def attend_last(cfg: MemoryConfig, trained: Weights, layer: int, z_STD: Tensor) -> Tensor:
    """Attention output (S, D) of the last position, which sees all the others whatever the mask."""
    query, key = trained[f"{layer}.query"], trained[f"{layer}.key"]
    q_HSK = z_STD[:, -1] @ query
    seeking_SHD = (q_HSK @ key.transpose(1, 2)).transpose(0, 1) * cfg.head_width**-0.5
    weights_SHT = F.softmax(seeking_SHD @ z_STD.transpose(1, 2), -1)
    mixed_HSD = (weights_SHT @ z_STD).transpose(0, 1)
    if cfg.attention_weights == "query_key":
        return mixed_HSD[0]
    return (mixed_HSD @ trained[f"{layer}.value"] @ trained[f"{layer}.out"]).sum(0)


def attend_all(cfg: MemoryConfig, trained: Weights, layer: int, z_STD: Tensor) -> Tensor:
    """Attention output (S, T, D) of every position: causal in a decoder, unmasked in ENTP."""
    q_SHTK, k_SHTK = (split(z_STD, trained[f"{layer}.{name}"]) for name in ("query", "key"))
    scores_SHTT = q_SHTK @ k_SHTK.transpose(2, 3) * cfg.head_width**-0.5
    if cfg.architecture == "decoder":
        length = z_STD.shape[1]
        later_TT = torch.ones(length, length, dtype=torch.bool, device=z_STD.device).triu(1)
        scores_SHTT = scores_SHTT.masked_fill(later_TT, -math.inf)
    weights_SHTT = F.softmax(scores_SHTT, -1)
    if cfg.attention_weights == "query_key":
        return weights_SHTT[:, 0] @ z_STD
    mixed_SHTK = weights_SHTT @ split(z_STD, trained[f"{layer}.value"])
    return mixed_SHTK.transpose(1, 2).flatten(2) @ trained[f"{layer}.out"].flatten(0, 1)


def split(z_STD: Tensor, matrix_HDK: Tensor) -> Tensor:
    """Every head's projection, (S, H, T, K), in one product."""
    heads, width, _ = matrix_HDK.shape
    projected = z_STD @ matrix_HDK.transpose(0, 1).reshape(width, -1)
    return projected.unflatten(2, (heads, -1)).transpose(1, 2)


def feed_forward(cfg: MemoryConfig, trained: Weights, layer: int, x: Tensor) -> Tensor:
    """The residual stream after the feed-forward sublayer."""
    if cfg.feed_forward == "none":
        return x
    z = normed(x)
    if cfg.feed_forward == "identity":
        return x + z
    hidden = F.gelu(z @ trained[f"{layer}.up"] + trained[f"{layer}.up_bias"])
    return x + hidden @ trained[f"{layer}.down"] + trained[f"{layer}.down_bias"]
