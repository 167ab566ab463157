"""GPT-2's weights of ``transformers`` in a model of this library; nothing here imports that library."""

import torch
from torch import nn

from entp_lib.models.transformer import Transformer


@torch.no_grad()
def copy_gpt2(source: nn.Module, model: Transformer) -> None:
    """Fill ``model`` with the weights of ``source``, a ``GPT2Model`` of its shape, whose linear maps are transposed."""
    model.embedding.weight.copy_(source.wte.weight)
    model.positions.weight.copy_(source.wpe.weight)
    pairs = [(source.ln_f, model.ln_f)]
    for theirs, ours in zip(source.h, model.blocks, strict=True):
        pairs += [(theirs.ln_1, ours.ln_1), (theirs.ln_2, ours.ln_2)]
        for conv, linear in (
            (theirs.attn.c_attn, ours.attention.qkv),
            (theirs.attn.c_proj, ours.attention.out),
            (theirs.mlp.c_fc, ours.fc_in),
            (theirs.mlp.c_proj, ours.fc_out),
        ):
            linear.weight.copy_(conv.weight.T)
            linear.bias.copy_(conv.bias)
    for theirs, ours in pairs:
        ours.weight.copy_(theirs.weight)
        ours.bias.copy_(theirs.bias)
