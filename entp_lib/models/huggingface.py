"""GPT-2's weights of ``transformers`` in a model of this library; nothing here imports that library."""

import torch
from torch import nn

from entp_lib.models.transformer import Transformer
from entp_lib.validation import require


@torch.no_grad()
def copy_gpt2(source: nn.Module, model: Transformer) -> None:
    """Fill ``model`` with the weights of a ``GPT2Model``; ConfigError where it is another function of them."""
    theirs, ours, kind = source.config, model.cfg, source.config.activation_function
    pairs = {
        "n_layers": (theirs.n_layer, ours.n_layers),
        "n_heads": (theirs.n_head, ours.n_heads),
        "width": (theirs.n_embd, ours.width),
        "max_length": (theirs.n_positions, ours.max_length),
        "vocab_size": (theirs.vocab_size, ours.vocab_size),
        "width of the MLP": (theirs.n_inner or 4 * theirs.n_embd, 4 * ours.width),
        "positions": ("learned", ours.positions),
        "epsilon of the norms": (theirs.layer_norm_epsilon, model.ln_f.eps),
        "activation_function": ("gelu_new" if kind == "gelu_pytorch_tanh" else kind, "gelu_new"),  # two names of one
    }
    for name, (expected, found) in pairs.items():
        require(expected == found, f"{name}: the GPT-2 has {expected}, this model {found}")
    model.embedding.weight.copy_(source.wte.weight)
    model.positions.weight.copy_(source.wpe.weight)
    copies = [(source.ln_f, model.ln_f)]
    for theirs, ours in zip(source.h, model.blocks, strict=True):
        copies += [(theirs.ln_1, ours.ln_1), (theirs.ln_2, ours.ln_2)]
        copies += [(theirs.attn.c_attn, ours.attention.qkv), (theirs.attn.c_proj, ours.attention.out)]
        copies += [(theirs.mlp.c_fc, ours.fc_in), (theirs.mlp.c_proj, ours.fc_out)]
    for theirs, ours in copies:
        ours.weight.copy_(theirs.weight.T if isinstance(ours, nn.Linear) else theirs.weight)
        ours.bias.copy_(theirs.bias)
