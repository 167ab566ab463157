"""Three losses on one text: masked, causal and ENTP's, each the mean of -log p over what counts, in nats (§2.2, §3.2).

Labels are looked at before any compute: a mean over nothing is no number, and the printed loss would be NaN.

Letters: B batch, T tokens, N counted positions, V vocabulary, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from entp_lib.models import Transformer
from entp_lib.models.entp import Part
from entp_lib.models.relations import Relations, relations_of
from entp_lib.models.transformer import causal_pass
from entp_lib.validation import require
from entp_papers.encoder_decoder.masked_language import IGNORED, MaskedBatch


def check_labels(labels: Tensor, vocab_size: int) -> Tensor:
    """Boolean, where labels count. ConfigError where none does, or one lies outside the vocabulary."""
    counted = labels != IGNORED
    require(
        bool(counted.any()),
        f"labels: all {labels.numel()} are {IGNORED}, so none counts and the loss is no number; "
        "select at least one token, or leave the batch out",
    )
    low, high = int(labels[counted].min()), int(labels[counted].max())
    require(low >= 0 and high < vocab_size, f"label {low if low < 0 else high}: outside the vocabulary of {vocab_size}")
    return counted


def shifted(labels_BT: Tensor) -> Tensor:
    """What each position of a causal model is to predict, (B, T - 1): the next token. ConfigError for one token."""
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
    asked = torch.full_like(tokens_BT[:, :1], mask_token)
    states_BTD = full_states(model, torch.cat([tokens_BT, asked], 1))
    return F.log_softmax(model.head(states_BTD[:, -1]), -1)
