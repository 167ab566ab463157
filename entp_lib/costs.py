"""Operation counts of ENTP and decoders (§5, Table 1, appendix D).

Operations are multiply-adds of the matrix products: all linear maps but that of continuous inputs,
scores and weighted sums. Table 1 gives the encoder O(n² D L) and the decoder O(n D L) per token,
where a query, key or value vector is O(D) work; it is D². A token's linear maps, 12 D² per layer,
cost a decoder more than attention's 2 n D until n = 6 D.
``encoder_token`` and ``decoder_token`` count both terms.

Letters: n length of the prefix, D width, L layers, H heads, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from entp_lib import kernels
from entp_lib.config import ModelConfig
from entp_lib.positions import SCHEMES


def layer(cfg: ModelConfig, tokens: int, scores: int) -> int:
    """Count a layer: 12 D² a token in linear maps (4 D² in attention, 8 D² in the MLP), and 2 D a
    score, for itself and its part of a weighted sum.
    """
    return 12 * tokens * cfg.width**2 + 2 * scores * cfg.width


def head(cfg: ModelConfig) -> int:
    """Count the output projection of one position."""
    return cfg.width * (cfg.output_dim or cfg.vocab_size)


def encoder_token(cfg: ModelConfig, n: int) -> int:
    """Count one next token by ENTP's definition, the stack over n tokens: L (12 n D² + 2 n² D)."""
    return cfg.n_layers * layer(cfg, n, n * n) + head(cfg)


def decoder_token(cfg: ModelConfig, n: int) -> int:
    """Count one next token with n - 1 positions in the cache: L (12 D² + 2 n D)."""
    return cfg.n_layers * layer(cfg, 1, n) + head(cfg)


def decoder_pass(cfg: ModelConfig, n: int) -> int:
    """Count all n next tokens in one pass, masked scores included: L (12 n D² + 2 n² D)."""
    return cfg.n_layers * layer(cfg, n, n * n) + n * head(cfg)


def training_pass(cfg: ModelConfig, lengths: Sequence[int], tokens: int) -> int:
    """Count the scored prefixes of a sequence of ``tokens`` tokens as this library computes them.

    Causal layers run once over the sequence; scores above the diagonal are counted. Full layers run
    on every prefix, with two savings: the first computes its projections once per token, and the
    last runs once per prefix of length n, apart from 2 n H D for scores and means. With rotary
    positions the last layer must form its keys: n D² more, and n D for scores in place of n H D.
    Outputs are computed at scored positions only. Left out: in fp32 up to width 192 each
    micro-batch of a step projects the first layer anew, so that a step of ENTP really has 3 % more
    (width 64, all 64 positions scored) to 14 % more (width 192).
    """
    width = cfg.width
    prefixes = len(lengths)
    # a single full layer equals a causal one
    full = cfg.recomputed_layers if cfg.recomputed_layers > 1 else 0
    total = (cfg.n_layers - full) * layer(cfg, tokens, tokens**2) + prefixes * head(cfg)
    if not full:
        return total
    pairs = sum(lengths)
    every_prefix = (full - 1) * layer(cfg, pairs, sum(n * n for n in lengths))
    shared = 3 * (pairs - tokens) * width**2
    last = layer(cfg, prefixes, pairs * cfg.n_heads)
    if SCHEMES[cfg.positions].rotates:
        last += (pairs - prefixes) * width**2 - pairs * (cfg.n_heads - 1) * width
    return total + every_prefix - shared + last


def counted(call: Callable[[], Any]) -> int:
    """Count the multiply-adds of ``call`` by PyTorch's counter, without the fused kernels."""
    with (
        kernels.without_fused_kernels(),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        call()
    return counter.get_total_flops() // 2
