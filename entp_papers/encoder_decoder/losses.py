"""Masked-language batches (§2.2.1), and three losses on one text: masked, causal and ENTP's (§2.2, §3.2).

Of the ordinary tokens a share is selected; of these 80 % become the mask token, 10 % another token, 10 % stay. The
printed arithmetic is right. What it lacks: special tokens that are never selected nor drawn, a mask of padding, and an
answer where nothing was selected. Each loss is the mean of -log p over the labels that count, in nats. Labels are
checked before any compute: a mean over nothing is no number, and the printed loss would be NaN.

Letters: B batch, T tokens, S = T - 1 next tokens, V vocabulary, D width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.models import Transformer
from entp_lib.models.entp import Part
from entp_lib.models.relations import Relations, relations_of
from entp_lib.models.transformer import causal_pass
from entp_lib.validation import check_types, require

IGNORED = -100  # of labels: no loss here


@dataclass(frozen=True)
class Masking:
    """``special``: ids that are never selected nor drawn, the mask token among them. Shares are of selected tokens.

    Raises ConfigError for ids outside the vocabulary, shares outside 0 to 1, and a vocabulary without ordinary tokens.
    """

    vocab_size: int
    mask_token: int
    special: tuple[int, ...]
    share: float = 0.15
    masked: float = 0.8
    drawn: float = 0.1

    def __post_init__(self):
        check_types(self)
        mask, special, masked, drawn = self.mask_token, self.special, self.masked, self.drawn
        for token in (mask, *special):
            require(0 <= token < self.vocab_size, f"token {token}: outside the vocabulary of {self.vocab_size}")
        require(mask in special, f"mask_token = {mask}: must be among special = {special}")
        require(len(set(special)) < self.vocab_size, f"special = {special}: no ordinary token is left")
        require(0 < self.share < 1, f"share = {self.share}: must be between 0 and 1, the share of tokens to be found")
        shares = min(masked, drawn) >= 0 and masked + drawn <= 1
        require(shares, f"masked = {masked}, drawn = {drawn}: must be shares with a sum of at most 1")

    def ordinary(self) -> Tensor:
        """The ids that may be drawn, in order."""
        special = set(self.special)
        return torch.tensor([token for token in range(self.vocab_size) if token not in special])


@dataclass(frozen=True)
class MaskedBatch:
    """``labels_BT``: the selected tokens as they were, ``IGNORED`` elsewhere. ``visible_BT``: False for padding."""

    inputs_BT: Tensor
    labels_BT: Tensor
    visible_BT: Tensor

    @property
    def selected_BT(self) -> Tensor:
        return self.labels_BT != IGNORED


def mask_tokens(
    tokens_BT: Tensor, masking: Masking, generator: torch.Generator, padding: int | None = None
) -> MaskedBatch:
    """A batch from texts (B, T), ``padding`` the id that fills them up, which should be among the special ones.

    Draws in the order of ``transformers``' collator, so that both select and mask the same tokens from one generator.
    Raises ConfigError for ids outside the vocabulary and padding that is not special.
    """
    require(tokens_BT.numel() > 0, f"tokens of shape {tuple(tokens_BT.shape)}: the batch is empty")
    check_ids("token id", tokens_BT, masking.vocab_size)
    known = padding is None or padding in masking.special
    require(known, f"padding = {padding}: must be among special = {masking.special}")

    def chosen(share: float, among: Tensor | bool = True) -> Tensor:
        """True with probability ``share``; False outside ``among``, for which nothing less is drawn."""
        probability = torch.where(torch.as_tensor(among), min(share, 1.0), 0.0).expand(tokens_BT.shape)
        return torch.bernoulli(probability, generator=generator).bool()

    special_BT = torch.isin(tokens_BT, torch.tensor(masking.special))
    selected_BT = chosen(masking.share, ~special_BT)
    masked_BT = chosen(masking.masked) & selected_BT
    rest = 1 - masking.masked
    other_BT = chosen(masking.drawn / rest if rest > 0 else 0.0) & selected_BT & ~masked_BT
    ordinary = masking.ordinary()
    random_BT = ordinary[torch.randint(len(ordinary), tokens_BT.shape, generator=generator)]
    inputs_BT = torch.where(masked_BT, masking.mask_token, torch.where(other_BT, random_BT, tokens_BT))
    visible_BT = torch.ones_like(special_BT) if padding is None else tokens_BT != padding
    return MaskedBatch(inputs_BT, tokens_BT.masked_fill(~selected_BT, IGNORED), visible_BT)


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """ConfigError for an id outside the vocabulary."""
    for token in (int(ids.min()), int(ids.max())):
        require(0 <= token < vocab_size, f"{name} {token}: outside the vocabulary of {vocab_size}")


def check_labels(labels: Tensor, vocab_size: int) -> Tensor:
    """Boolean, where labels count. ConfigError where none does, or one is outside the vocabulary."""
    counted = labels != IGNORED
    require(
        bool(counted.any()),
        f"labels: all {labels.numel()} are {IGNORED}, so none counts and the loss is no number; "
        "select at least one token, or leave the batch out",
    )
    check_ids("label", labels[counted], vocab_size)
    return counted


def shifted(labels_BT: Tensor) -> Tensor:
    """The token that each position of a causal model is to predict, (B, S): the next. ConfigError for one token."""
    require(labels_BT.shape[1] >= 2, f"texts of {labels_BT.shape[1]} token: a next token needs at least 2")
    return labels_BT[:, 1:]


def causal_loss(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Mean loss of the next token from logits at every token of the *same* text: the shift is made here, once."""
    targets_BS = shifted(labels_BT)
    counted_BS = check_labels(targets_BS, logits_BTV.shape[-1])
    return F.cross_entropy(logits_BTV[:, :-1][counted_BS], targets_BS[counted_BS])


def entp_loss(model: Transformer, labels_BT: Tensor) -> Tensor:
    """Mean over prefixes of -log p(x_{t+1} | the unmasked stack read at the end of x_1..x_t): one run per prefix.

    Of a decoder it is the causal loss. Ignored labels are read as token 0, which a counted one behind them then sees.
    """
    targets_BS = shifted(labels_BT)
    counted_BS = check_labels(targets_BS, model.cfg.vocab_size)
    return prefix_loss(model, labels_BT.clamp_min(0)[:, :-1], targets_BS, counted_BS)


def prefix_loss(model: Transformer, inputs_BT: Tensor, targets_BT: Tensor, wanted: Tensor | Part) -> Tensor:
    """Mean loss of the targets after the wanted positions, by any architecture of the library."""
    wanted_BT = wanted.wanted_BT if isinstance(wanted, Part) else wanted
    return F.cross_entropy(model(inputs_BT, wanted), targets_BT[wanted_BT])


def masked_loss(model: Transformer, batch: MaskedBatch) -> Tensor:
    """Mean loss of the selected tokens, each read at its own place with full attention; no shift."""
    selected_BT = check_labels(batch.labels_BT, model.cfg.vocab_size)
    states_BTD = full_states(model, batch.inputs_BT)
    return F.cross_entropy(model.head(states_BTD[selected_BT]), batch.labels_BT[selected_BT])


def full_states(model: Transformer, tokens_BT: Tensor, causal: bool = False) -> Tensor:
    """Final states (B, T, D) at every token, in one pass in which all tokens see each other, or all earlier ones."""
    x_BTD = model.embed(tokens_BT)
    ids_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
    relations = relations_of(model.positions, ids_BT, None, x_BTD.dtype) or Relations()
    if causal:
        x_BTD = causal_pass(model.blocks, x_BTD, relations)
    else:
        for block in model.blocks:
            x_BTD = block(x_BTD, relations.bias_BHTT, rotation=relations.rotation)
    return model.ln_f(x_BTD)


def appended_mask(model: Transformer, tokens_BT: Tensor, mask_token: int) -> Tensor:
    """Log-probabilities (B, V) of the next token by a masked model: its mask token is appended and read."""
    mask_B1 = torch.full_like(tokens_BT[:, :1], mask_token)
    states_BTD = full_states(model, torch.cat([tokens_BT, mask_B1], 1))
    return F.log_softmax(model.head(states_BTD[:, -1]), -1)
