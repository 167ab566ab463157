"""The primer's parts, corrected: post-norm layers (§2.1, §3.1), masked batches (§2.2.1), losses.

The library's own models are pre-norm, like GPT-2. The layers here are the printed ones, x = LN(x +
sublayer(x)), as in BERT, with what is missing in print: an order of axes that mixes tokens, masks
of the right shape, positions, embeddings. The printed arithmetic of masked batches is right; it
lacks special tokens that are never selected or drawn, a padding mask, and an error if nothing was
selected. Each of the three losses (§2.2, §3.2) is the mean of -log p over the labels that count, in
nats; if none counts, the printed loss is NaN.

Letters: B batch, T tokens, S = T - 1 next tokens, D width, F hidden width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab.studies import seeded
from entp_lib.attention_bias import attention_bias, combine_masks
from entp_lib.config import ModelConfig
from entp_lib.model import Attention, Transformer, causal_pass
from entp_lib.validation import require

IGNORED = -100  # label of a token that has no loss
# Shares of the selected tokens that become the mask token, or another token; the others stay.
MASKED = 0.8
DRAWN = 0.1

# --- Layers ---------------------------------------------------------------------------------------


def causal_mask(length: int) -> Tensor:
    """Return a mask (T, T), True where a token may look: at itself and at those before it."""
    return torch.ones(length, length, dtype=torch.bool).tril()


def attention_mask(length: int, causal: bool, visible_BT: Tensor | None) -> Tensor | None:
    """Return a mask, True where a token may look; None if every token sees all.

    It is (B or 1, 1, T, T), or (B, 1, 1, T) if all tokens of a row see the same ones.

    ``visible_BT``: False for padding, which no token sees. ValueError if a token would see nothing:
    a softmax over nothing has no value, and a large negative number in place of minus infinity
    would give all hidden tokens the same weight.
    """
    mask = None if visible_BT is None else visible_BT[:, None, None]
    if causal:
        mask = combine_masks(mask, causal_mask(length)[None, None])
    if mask is not None and not mask.any(-1).all():
        row, _, token = (~mask.any(-1)).nonzero()[0].tolist()
        raise ValueError(
            f"token {token} of row {row} sees no token at all: no attention can be computed for it"
        )
    return mask


class Layer(nn.Module):
    """LN(x + attention(x)), then LN(x + MLP(x)): the printed encoder layer (ReLU) and decoder layer
    (GELU).
    """

    def __init__(self, n_heads: int, width: int, hidden: int, activation: str, norm_eps: float):
        super().__init__()
        self.attention = Attention(ModelConfig("entp", 1, n_heads, width, 1, 1))
        self.norm_1, self.norm_2 = (nn.LayerNorm(width, norm_eps) for _ in range(2))
        self.fc_in = nn.Linear(width, hidden)
        self.fc_out = nn.Linear(hidden, width)
        self.activation = getattr(F, activation)

    def forward(self, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return states (B, T, D); ``mask`` as ``attention_mask`` makes it."""
        q, k, v = self.attention.project(x_BTD)
        x_BTD = self.norm_1(x_BTD + self.attention(q, k, v, mask, causal=False))
        return self.norm_2(x_BTD + self.fc_out(self.activation(self.fc_in(x_BTD))))


class Stack(nn.Module):
    """Embeddings, learned positions, post-norm layers: an encoder, or a decoder if ``causal``.

    ``max_length``: rows of the table of learned positions; 0 for a stack that has no positions, as
    printed. ``input_norm``: a LayerNorm after the embeddings, as in BERT.
    """

    def __init__(
        self,
        n_layers: int,
        n_heads: int,
        width: int,
        hidden: int,
        vocab_size: int,
        max_length: int,
        causal: bool = False,
        activation: str = "relu",
        norm_eps: float = 1e-5,
        input_norm: bool = False,
    ):
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_length, width) if max_length else None
        self.input_norm = nn.LayerNorm(width, norm_eps) if input_norm else nn.Identity()
        self.layers = nn.ModuleList(
            Layer(n_heads, width, hidden, activation, norm_eps) for _ in range(n_layers)
        )

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor | None = None) -> Tensor:
        """Return hidden states (B, T, D). Raises ValueError as ``attention_mask`` does."""
        length = tokens_BT.shape[1]
        mask = attention_mask(length, self.causal, visible_BT)
        x_BTD = self.embedding(tokens_BT)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions.weight[:length]
        x_BTD = self.input_norm(x_BTD)
        for layer in self.layers:
            x_BTD = layer(x_BTD, mask)
        return x_BTD


def random_stack(seed: int, *shape: int, **options: Any) -> Stack:
    """Draw a stack in double precision whose weights are large enough for every part to matter."""
    stack = Stack(*shape, **options)
    generator = seeded(seed)
    with torch.no_grad():
        for p in stack.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(noise * 0.3 + 0.5 if p.dim() == 1 else noise * (2.0 / p.shape[1] ** 0.5))
    return stack.double().eval()


# --- Masked batches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Masking:
    """Settings of masking: a ``share`` of the ordinary tokens is selected.

    Of these, ``MASKED`` become the mask token and ``DRAWN`` another token. ``special``: ids that
    are never selected or drawn, including the mask token.
    """

    vocab_size: int
    mask_token: int
    special: tuple[int, ...]
    share: float = 0.15

    def ordinary(self) -> Tensor:
        """Return the ids that may be drawn, in order."""
        return torch.tensor(
            [token for token in range(self.vocab_size) if token not in self.special]
        )


@dataclass(frozen=True)
class MaskedBatch:
    """``labels_BT``: the selected tokens as they were, ``IGNORED`` elsewhere. ``visible_BT``: False
    for padding.
    """

    inputs_BT: Tensor
    labels_BT: Tensor
    visible_BT: Tensor

    @property
    def selected_BT(self) -> Tensor:
        return self.labels_BT != IGNORED


def mask_tokens(
    tokens_BT: Tensor, masking: Masking, generator: torch.Generator, padding: int | None = None
) -> MaskedBatch:
    """Mask a batch of texts (B, T), padded with ``padding``, which should be a special token.

    Random numbers are drawn in the order of ``transformers``' collator, so that both select and
    mask the same tokens from one generator.
    """

    def chosen(share: float) -> Tensor:  # True with probability ``share``, for every token
        return torch.bernoulli(torch.full(tokens_BT.shape, share), generator=generator).bool()

    special_BT = torch.isin(tokens_BT, torch.tensor(masking.special))
    selected_BT = chosen(masking.share) & ~special_BT
    masked_BT = chosen(MASKED) & selected_BT
    other_BT = chosen(DRAWN / (1 - MASKED)) & selected_BT & ~masked_BT
    ordinary = masking.ordinary()
    random_BT = ordinary[torch.randint(len(ordinary), tokens_BT.shape, generator=generator)]
    inputs_BT = torch.where(
        masked_BT, masking.mask_token, torch.where(other_BT, random_BT, tokens_BT)
    )
    visible_BT = torch.ones_like(special_BT) if padding is None else tokens_BT != padding
    return MaskedBatch(inputs_BT, tokens_BT.masked_fill(~selected_BT, IGNORED), visible_BT)


# --- Losses ---------------------------------------------------------------------------------------


def check_labels(labels: Tensor) -> Tensor:
    """Return a mask of the labels that count; ConfigError if none does."""
    counted = labels != IGNORED
    require(
        counted.any(),
        f"labels: all {labels.numel()} are {IGNORED}, so none counts and the loss is no number; "
        "select at least one token, or leave the batch out",
    )
    return counted


def counted_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of the labels that count; ConfigError if none does."""
    counted = check_labels(labels)
    return F.cross_entropy(logits[counted], labels[counted])


def causal_loss(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the mean next-token loss of logits and labels of the *same* text, shifting once."""
    return counted_loss(logits_BTV[:, :-1], labels_BT[:, 1:])


def entp_loss(model: Transformer, labels_BT: Tensor) -> Tensor:
    """Average -log p(x_{t+1}) over prefixes, the unmasked stack being read at the end of x_1..x_t.

    Each prefix takes one run. For a decoder it is the causal loss. Ignored labels are read as token
    0, which the prefixes of later labels then contain.
    """
    targets_BS = labels_BT[:, 1:]
    counted_BS = check_labels(targets_BS)
    logits_NV = model(labels_BT.clamp_min(0)[:, :-1], counted_BS)
    return F.cross_entropy(logits_NV, targets_BS[counted_BS])


def masked_loss(model: Transformer, batch: MaskedBatch) -> Tensor:
    """Return the mean loss of the selected tokens, read at their own places with full attention.

    There is no shift.
    """
    selected_BT = check_labels(batch.labels_BT)
    states_BTD = full_states(model, batch.inputs_BT)
    return F.cross_entropy(model.head(states_BTD[selected_BT]), batch.labels_BT[selected_BT])


def full_states(
    model: Transformer, tokens_BT: Tensor, causal: bool = False, prompt_PD: Tensor | None = None
) -> Tensor:
    """Return final states (B, T, D) of one pass with full or, if ``causal``, causal attention.

    ``prompt_PD``: vectors before every text; their states come first, (B, P + T, D).
    """
    x_BTD = model.embed(tokens_BT)
    if prompt_PD is not None:
        x_BTD = torch.cat([prompt_PD.expand(len(x_BTD), -1, -1), x_BTD], 1)
    ids_BT = torch.arange(x_BTD.shape[1])[None]
    bias = attention_bias(model.positions, ids_BT, None, x_BTD.dtype)
    if causal:
        x_BTD = causal_pass(model.layers, x_BTD, bias)
    else:
        for block in model.blocks:
            x_BTD = block(x_BTD, bias.mask_BHTT, rotation=bias.rotation)
    return model.ln_f(x_BTD)
