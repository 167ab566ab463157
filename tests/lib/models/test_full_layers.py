"""Costs of hybrids, whose last layers run afresh on every prefix."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from entp_lab.budgets import token_forwards
from entp_lib import costs, kernels
from entp_lib.config import ModelConfig
from entp_lib.model import build_model


def test_token_forwards_count_every_layer_by_itself():
    """24 tokens once for causal layers, 3 · 36 for full ones; the authors' hybrid is counted as ENTP is."""
    everywhere_BT = torch.ones(3, 8, dtype=torch.bool)
    shape = (5, 2, 16, 11, 12)
    cfg = ModelConfig("entp", *shape)
    found = [token_forwards(cfg.with_full_layers(k), everywhere_BT) for k in (0, 2, 3, 4, 5)]
    assert found == [24, round((3 * 24 + 2 * 108) / 5), round((2 * 24 + 3 * 108) / 5), round((24 + 4 * 108) / 5), 108]
    assert token_forwards(ModelConfig("hybrid", *shape), everywhere_BT) == 108
    assert token_forwards("hybrid", everywhere_BT) == 108


@pytest.mark.parametrize("full", [0, 2, 3, 4, 5])
def test_counted_costs_are_what_is_computed(full, monkeypatch):
    """PyTorch's own count of the matrix products, in a batch of one and with attention in plain products."""
    monkeypatch.setattr(kernels, "usable", lambda x: False)
    cfg = ModelConfig("entp", 5, 2, 32, 11, 12).with_full_layers(full)
    model = build_model(cfg)
    x_BT = torch.zeros(1, 12, dtype=torch.long)
    lengths = (3, 7, 12)
    scored_BT = torch.zeros(1, 12, dtype=torch.bool)
    scored_BT[0, [n - 1 for n in lengths]] = True
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(x_BT, scored_BT)
    assert counter.get_total_flops() // 2 == costs.training_pass(cfg, lengths, 12)
