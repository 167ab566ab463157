"""Costs of hybrids, whose last layers run afresh on every prefix."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lab.budgets import token_forwards
from entp_lib import costs
from entp_lib.architectures import POSITIONS
from entp_lib.config import ModelConfig
from entp_lib.model import build_model


def with_full_layers(cfg, full):
    """The same shape with that many full layers: a decoder, a hybrid or ENTP."""
    name = {0: "decoder", cfg.n_layers: "entp"}.get(full, "hybrid")
    return replace(cfg, architecture=name, full_layers=full)


def test_token_forwards_count_every_layer_by_itself():
    """24 tokens once for causal layers, 3 · 36 for full ones; the authors' hybrid is counted as
    ENTP is.
    """
    everywhere_BT = torch.ones(3, 8, dtype=torch.bool)
    shape = (5, 2, 16, 11, 12)
    cfg = ModelConfig("entp", *shape)
    for full in (0, 2, 3, 4, 5):
        expected = round(((5 - full) * 24 + full * 108) / 5)
        assert token_forwards(with_full_layers(cfg, full), everywhere_BT) == expected
    assert token_forwards(ModelConfig("hybrid", *shape), everywhere_BT) == 108


@settings(max_examples=25)
@given(
    full=st.sampled_from([0, 2, 3, 4, 5]),
    heads=st.sampled_from([1, 2, 4]),
    lengths=st.sets(st.integers(1, 12), min_size=1).map(sorted),
    positions=st.sampled_from(POSITIONS),
)
def test_counted_costs_are_what_is_computed(full, heads, lengths, positions):
    """PyTorch's own count of the matrix products, in a batch of one and with attention in plain
    products.
    """
    base = ModelConfig("entp", 5, heads, 32, 11, 12, positions=positions)
    cfg = with_full_layers(base, full)
    model = build_model(cfg)
    x_BT = torch.zeros(1, 12, dtype=torch.long)
    scored_BT = torch.tensor([[n in lengths for n in range(1, 13)]])
    with torch.no_grad():
        assert costs.counted(lambda: model(x_BT, scored_BT)) == costs.training_pass(
            cfg, lengths, 12
        )
        if cfg.architecture == "decoder":
            assert costs.counted(lambda: model(x_BT)) == costs.decoder_pass(cfg, 12)
        if cfg.architecture == "entp":
            model.entp_method = "reference"
            every_prefix = sum(costs.encoder_token(cfg, n) for n in lengths)
            assert costs.counted(lambda: model(x_BT, scored_BT)) == every_prefix
