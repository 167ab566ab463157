"""The primer's computations twice: the least that has the printed fault, written anew, and the right one.

Letters: B batch, T tokens, H heads, K head width, D width, V vocabulary.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.config import ModelConfig
from entp_lib.models import Transformer, build_model, costs
from entp_lib.models.decoding import Cache, cached_logits
from entp_lib.models.transformer import Attention
from entp_papers.encoder_decoder.layers import Shape, attention_mask, random_stack
from entp_papers.encoder_decoder.losses import MaskedBatch, Masking, check_labels, mask_tokens

WIDTH, HEADS = 16, 4
MASKING = Masking(vocab_size=12, mask_token=11, special=(9, 10, 11))
PAD = 10


def across_heads(attention: Attention, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
    """As printed: heads stay behind tokens, (B, T, H, K), so that scores are (B, T, H, H), heads of one token."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in attention.qkv(x_BTD).chunk(3, -1))
    scores_BTHH = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores_BTHH = scores_BTHH.masked_fill(~mask, -1e9)
    return attention.out((scores_BTHH.softmax(-1) @ v).reshape(x_BTD.shape))


def across_tokens(attention: Attention, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
    """Corrected: heads before tokens, (B, H, T, K), so that scores are (B, H, T, T)."""
    return attention(*attention.project(x_BTD), mask, causal=False)


def causally(compute: Callable[..., Tensor]) -> Callable[[Attention, Tensor], Tensor]:
    """With a mask (T, T), True where a token may look."""

    def call(attention: Attention, x_BTD: Tensor) -> Tensor:
        return compute(attention, x_BTD, torch.ones(x_BTD.shape[1], x_BTD.shape[1], dtype=torch.bool).tril())

    return call


def merged_as_printed(attention: Attention, x_BTD: Tensor) -> Tensor:
    """The order of axes corrected, the printed merge kept: (B, H, T, K) is read as if it were (B, T, H K)."""
    q, k, v = attention.project(x_BTD)
    return attention.out(F.scaled_dot_product_attention(q, k, v).reshape(x_BTD.shape))


def filled_with_a_number(scores: Tensor, mask: Tensor) -> Tensor:
    """As printed: -10⁹ in place of hidden scores; of padding, the mask (B, T) goes on the scores as it is."""
    return scores.masked_fill(~mask, -1e9).softmax(-1)


def filled_with_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    """Corrected: minus infinity, and no row that sees nothing."""
    if not mask.any(-1).all():
        raise ValueError("a row sees nothing")
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def drawn_from_all(tokens_BT: Tensor, seed: int) -> Tensor:
    """As printed: the replacement of a token comes from the whole vocabulary. The replaced ones alone, (N,)."""
    generator = torch.Generator().manual_seed(seed)
    replaced_BT = replaced(mask_tokens(tokens_BT, MASKING, generator), tokens_BT)
    return torch.randint(MASKING.vocab_size, tokens_BT.shape, generator=generator)[replaced_BT]


def drawn_from_ordinary(tokens_BT: Tensor, seed: int) -> Tensor:
    """Corrected: from the ordinary tokens."""
    batch = mask_tokens(tokens_BT, MASKING, torch.Generator().manual_seed(seed))
    return batch.inputs_BT[replaced(batch, tokens_BT)]


def replaced(batch: MaskedBatch, tokens_BT: Tensor) -> Tensor:
    """Boolean, where another token than the mask is in place of the original."""
    return batch.selected_BT & (batch.inputs_BT != MASKING.mask_token) & (batch.inputs_BT != tokens_BT)


def encoder(vocab_size: int = 8, places: int = 8, visible: bool = False) -> Callable[[Tensor], Tensor]:
    """States (B, T, D) of an encoder, as printed without positions (``places`` 0) or without a mask of padding."""
    stack = random_stack(Shape(2, 2, WIDTH, 32, vocab_size, places), 0)
    return torch.no_grad()(lambda tokens_BT: stack(tokens_BT, tokens_BT != PAD if visible else None))


def loss_of_something(logits_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Corrected: labels are looked at first."""
    counted_N = check_labels(labels_N, logits_NV.shape[-1])
    return F.cross_entropy(logits_NV[counted_N], labels_N[counted_N])


class OneTokenCache:
    """As printed: one counter, one pair of fp32 buffers, one new token at a time."""

    def __init__(self, dtype: torch.dtype):
        self.keys = torch.zeros(2, HEADS, 8, WIDTH // HEADS)
        self.values, self.filled = torch.zeros_like(self.keys), 0

    def write(self, layer: int, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
        self.keys[:, :, self.filled] = k_BHTK.squeeze(2)
        self.values[:, :, self.filled] = v_BHTK.squeeze(2)
        self.filled += 1
        return self.keys[:, :, : self.filled]


class LayeredCache:
    """Corrected: the library's cache, of the model's own type, a place for each layer, any number of new tokens."""

    def __init__(self, dtype: torch.dtype):
        self.cache = Cache(build_model(ModelConfig("decoder", 2, HEADS, WIDTH, 8, 8)).to(dtype), 2)

    def write(self, layer: int, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
        return self.cache.extend(layer, k_BHTK, v_BHTK)[0]


def steps(model: Transformer, tokens_BT: Tensor, in_place: bool) -> Tensor:
    """Last logits (B, V) by a cache; as printed, nothing says which place a new token has, and it gets place 0."""
    cache = Cache(model, len(tokens_BT))
    for token_B1 in tokens_BT.split(1, 1):
        places = None if in_place else torch.zeros_like(token_B1)
        logits_BV = cached_logits(model, token_B1, cache, positions_BT=places)
    return logits_BV


def shaped_padding_mask(scores_BHTT: Tensor, visible_BT: Tensor) -> Tensor:
    """Corrected: as (B, 1, T, T), a row of the mask for every row of the batch."""
    mask = attention_mask(scores_BHTT.shape[-1], False, visible_BT)
    return scores_BHTT.masked_fill(~mask, -torch.inf).softmax(-1)


def right_costs(kind: str, cfg: ModelConfig, n: int) -> float:
    """Corrected: one pass grows with n and n², writing n tokens with a cache too."""
    if kind == "classify":
        return float(costs.decoder_pass(cfg, n) - n * costs.head(cfg))
    return float(sum(costs.decoder_token(cfg, m) for m in range(1, n + 1)))
