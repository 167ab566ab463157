"""What ENTP and decoders cost, counted (§5, Table 1, appendix D).

Operations are multiply-adds of the matrix products: all linear maps, scores and weighted sums. Table 1 gives the
encoder O(n² D L) and the decoder O(n D L) per token. That leaves out the linear maps, 12 D² per token and layer, which
for a decoder outweigh attention's 2 n D until n = 6 D; ``encoder_token`` and ``decoder_token`` hold both terms.

Letters: n length of the prefix, D width, L layers, H heads, V vocabulary.
"""

from collections.abc import Sequence

from entp_lib.config import ModelConfig


def linear_maps(cfg: ModelConfig) -> int:
    """Multiply-adds per token of one layer's linear maps: 3 D² + D² in attention, 8 D² in the MLP."""
    return 12 * cfg.width**2


def head(cfg: ModelConfig) -> int:
    """Multiply-adds of one position's output."""
    return cfg.width * (cfg.vocab_size if cfg.output_dim is None else cfg.output_dim)


def encoder_token(cfg: ModelConfig, n: int) -> int:
    """One next token by the definition: the whole stack over n tokens, L (12 n D² + 2 n² D)."""
    return cfg.n_layers * (n * linear_maps(cfg) + 2 * n * n * cfg.width) + head(cfg)


def decoder_token(cfg: ModelConfig, n: int) -> int:
    """One next token with n - 1 positions in the cache: L (12 D² + 2 n D)."""
    return cfg.n_layers * (linear_maps(cfg) + 2 * n * cfg.width) + head(cfg)


def decoder_pass(cfg: ModelConfig, n: int) -> int:
    """All n next tokens in one masked pass, scores above the diagonal included: L (12 n D² + 2 n² D)."""
    return cfg.n_layers * (n * linear_maps(cfg) + 2 * n * n * cfg.width) + n * head(cfg)


def entp_loop(cfg: ModelConfig, lengths: Sequence[int]) -> int:
    """The wanted prefixes of one sequence, each by itself: the definition."""
    return sum(encoder_token(cfg, n) for n in lengths)


def entp_fast(cfg: ModelConfig, lengths: Sequence[int], tokens: int) -> int:
    """The same as ``entp_lib.models.entp.fast`` computes it, for one sequence of ``tokens`` tokens.

    The first layer's projections once per token; the last layer once per prefix, but for 2 n H D of scores and means.
    """
    if cfg.n_layers == 1:
        return cfg.n_layers * (tokens * linear_maps(cfg) + 2 * tokens**2 * cfg.width) + len(lengths) * head(cfg)
    width, pairs, squares = cfg.width, sum(lengths), sum(n * n for n in lengths)
    first = 3 * tokens * width**2 + 9 * pairs * width**2 + 2 * squares * width
    middle = (cfg.n_layers - 2) * (pairs * linear_maps(cfg) + 2 * squares * width)
    last = len(lengths) * linear_maps(cfg) + 2 * pairs * cfg.n_heads * width
    return first + middle + last + len(lengths) * head(cfg)


def persistent_entries(cfg: ModelConfig, n: int) -> int:
    """Numbers kept between tokens: a decoder's keys and values, 2 n D L; none for an encoder of L > 1."""
    if cfg.architecture == "entp" and cfg.n_layers > 1:
        return 0
    return 2 * n * cfg.width * cfg.n_layers


def crossover(cfg: ModelConfig) -> int:
    """The n from which attention outweighs the linear maps, in a pass and in a cached step alike: 6 D."""
    return 6 * cfg.width
