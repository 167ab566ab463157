"""Masked-language batches (§2.2.1): which tokens are selected, what stands in their place, and what is to be found.

Of the ordinary tokens a share is selected; of these 80 % become the mask token, 10 % another token, 10 % stay. The
printed arithmetic is right. What it lacks: special tokens that are never selected nor drawn, padding told to the model,
and an answer where nothing was selected (``losses``).

Letters: B batch, T tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

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
        for token in (self.mask_token, *self.special):
            require(0 <= token < self.vocab_size, f"token {token}: outside the vocabulary of {self.vocab_size}")
        require(
            self.mask_token in self.special, f"mask_token = {self.mask_token}: must be among special = {self.special}"
        )
        require(len(set(self.special)) < self.vocab_size, f"special = {self.special}: no ordinary token is left")
        require(0 < self.share < 1, f"share = {self.share}: must be between 0 and 1, the share of tokens to be found")
        require(
            min(self.masked, self.drawn) >= 0 and self.masked + self.drawn <= 1,
            f"masked = {self.masked}, drawn = {self.drawn}: must be shares with a sum of at most 1",
        )

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
    low, high = int(tokens_BT.min()), int(tokens_BT.max())
    require(
        low >= 0 and high < masking.vocab_size,
        f"token id {low if low < 0 else high}: outside the vocabulary of {masking.vocab_size}",
    )
    require(
        padding is None or padding in masking.special, f"padding = {padding}: must be among special = {masking.special}"
    )
    special_BT = torch.isin(tokens_BT, torch.tensor(masking.special))
    selected_BT = drawn(masking.share, tokens_BT, generator, special_BT)
    masked_BT = drawn(masking.masked, tokens_BT, generator) & selected_BT
    rest = 1 - masking.masked
    other_BT = drawn(masking.drawn / rest if rest > 0 else 0.0, tokens_BT, generator) & selected_BT & ~masked_BT
    ordinary = masking.ordinary()
    random_BT = ordinary[torch.randint(len(ordinary), tokens_BT.shape, generator=generator)]
    inputs_BT = torch.where(masked_BT, masking.mask_token, torch.where(other_BT, random_BT, tokens_BT))
    visible_BT = torch.ones_like(special_BT) if padding is None else tokens_BT != padding
    return MaskedBatch(inputs_BT, tokens_BT.masked_fill(~selected_BT, IGNORED), visible_BT)


def drawn(share: float, like: Tensor, generator: torch.Generator, never: Tensor | None = None) -> Tensor:
    """True with probability ``share``, of the shape of ``like``; False where ``never``."""
    probability = torch.full(like.shape, min(share, 1.0))
    return torch.bernoulli(
        probability if never is None else probability.masked_fill(never, 0), generator=generator
    ).bool()


def rates(tokens_BT: Tensor, batch: MaskedBatch, masking: Masking) -> dict[str, dict[str, float]]:
    """By share: how many of how many, what it should be, and by how many standard deviations it differs.

    A drawn token equals the old one once in as many as may be drawn, so that kept ones are a little more.
    """
    special_BT = torch.isin(tokens_BT, torch.tensor(masking.special))
    selected_BT, ordinary = batch.selected_BT, len(masking.ordinary())
    same = masking.drawn / ordinary
    wanted = {
        "selected": (selected_BT[~special_BT], masking.share),
        "masked": ((batch.inputs_BT == masking.mask_token)[selected_BT], masking.masked),
        "drawn": (
            ((batch.inputs_BT != masking.mask_token) & (batch.inputs_BT != tokens_BT))[selected_BT],
            masking.drawn - same,
        ),
        "kept": ((batch.inputs_BT == tokens_BT)[selected_BT], 1 - masking.masked - masking.drawn + same),
    }
    found = {}
    for name, (hits, share) in wanted.items():
        trials, count = hits.numel(), int(hits.sum())
        spread = (trials * share * (1 - share)) ** 0.5
        sigmas = (count - trials * share) / spread if spread else 0.0
        found[name] = {
            "count": count,
            "of": trials,
            "share": count / max(1, trials),
            "nominal": share,
            "sigmas": sigmas,
        }
    return found
