"""Tokens that a pass sends through the stack, a unit of work that records have in their curves."""

import torch
from torch import Tensor

from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.validation import one_of


def token_forwards(model: ModelConfig | str, scored_BT: Tensor) -> int:
    """Count the tokens of one pass: B·T, or the prefixes' total length.

    ``model`` is a configuration, or an architecture's name. ENTP is counted as it is defined, one full pass per prefix,
    and so is the authors' hybrid. Where a configuration says how many layers are full, each layer is counted by itself:
    their mean, to the nearest token.
    """
    name = model if isinstance(model, str) else model.architecture
    one_of("architecture", name, ARCHITECTURES)
    once = scored_BT.numel()
    if ARCHITECTURES[name].causal_layers is None:
        return once
    lengths_T = torch.arange(1, scored_BT.shape[1] + 1, device=scored_BT.device)
    anew = int((scored_BT * lengths_T).sum())
    if isinstance(model, str) or model.full_layers is None:
        return anew
    causal = model.n_layers - model.full_layers
    return round((causal * once + model.full_layers * anew) / model.n_layers)
