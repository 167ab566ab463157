"""Costs of hybrids, whose last layers run afresh on every prefix, and the ways to attend among packed prefixes."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from entp_lib.config import ModelConfig
from entp_lib.models import build_model, costs, entp, kernels, packed_attention
from entp_lib.models.packed_attention import WAYS, attend, choice_study
from entp_lib.validation import ConfigError


def test_token_forwards_count_every_layer_by_itself():
    """24 tokens once for causal layers, 3 · 36 for full ones; the authors' hybrid is counted as ENTP is."""
    everywhere_BT, shape = torch.ones(3, 8, dtype=torch.bool), (5, 2, 16, 11, 12)
    cfg = ModelConfig("entp", *shape)
    found = [entp.token_forwards(cfg.with_full_layers(k), everywhere_BT) for k in (0, 2, 3, 4, 5)]
    assert found == [24, round((3 * 24 + 2 * 108) / 5), round((2 * 24 + 3 * 108) / 5), round((24 + 4 * 108) / 5), 108]
    assert entp.token_forwards(ModelConfig("hybrid", *shape), everywhere_BT) == 108
    assert entp.token_forwards("hybrid", everywhere_BT) == 108


@pytest.mark.parametrize("full", [0, 2, 3, 4, 5])
def test_counted_costs_are_what_is_computed(full, monkeypatch):
    """PyTorch's own count of the matrix products, in a batch of one and with attention in plain products."""
    monkeypatch.setattr(kernels, "usable", lambda x, dropout: False)
    cfg = ModelConfig("entp", 5, 2, 32, 11, 12).with_full_layers(full)
    model, x_BT = build_model(cfg), torch.zeros(1, 12, dtype=torch.long)
    lengths = (3, 7, 12)
    wanted_BT = torch.zeros(1, 12, dtype=torch.bool)
    wanted_BT[0, [n - 1 for n in lengths]] = True
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(x_BT, wanted_BT)
    assert counter.get_total_flops() // 2 == costs.training_pass(cfg, lengths, 12)


# Three ways of attending among packed prefixes: one function.


def packed(rows=3, tokens=9, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, rows, 2, tokens, 4, generator=generator, dtype=dtype).unbind(0)
    lengths = torch.tensor([[4, 9], [9, 9], [1, 7]])[:rows]  # the ends of two segments; padding behind
    place = torch.arange(tokens)
    return q, k, v, (place >= lengths[:, :1]).long() + (place >= lengths[:, 1:]).long()


def by_hand(q, k, v, segment_RC):
    out = torch.empty_like(q)
    for r, segments in enumerate(segment_RC):
        for i, mine in enumerate(segments):
            seen = segments == mine
            scores = (k[r][:, seen] * q[r][:, i : i + 1]).sum(-1) / q.shape[-1] ** 0.5
            out[r, :, i] = (scores.softmax(-1)[..., None] * v[r][:, seen]).sum(1)
    return out


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_the_formula(way):
    dtype = torch.float32 if way == "flex" else torch.float64
    q, k, v, segment_RC = packed(dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v, segment_RC, way), by_hand(q, k, v, segment_RC))


def test_packed_entp_is_the_same_in_values_and_gradients(small_model, monkeypatch):
    """By variable-length attention, whose gradient a CPU has; flexible attention has none there."""
    model = small_model(n_layers=3).train()
    tokens_BT = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(0))
    wanted_BT = torch.rand(3, 12, generator=torch.Generator().manual_seed(1)) < 0.7
    found = {}
    for method, way in (("grouped", "masked"), ("packed", "masked"), ("packed", "variable")):
        monkeypatch.setenv(packed_attention.VARIABLE, way)
        model.entp_method = method
        model.zero_grad()
        logits_NV = model(tokens_BT, wanted_BT)
        logits_NV.square().sum().backward()
        found[method, way] = logits_NV.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])
    right = found.pop(("grouped", "masked"))
    for values in found.values():
        for mine, theirs in zip(values, right, strict=True):
            assert (mine - theirs).abs().max() <= 1e-10 * theirs.abs().max()


def test_a_way_that_does_not_work_here_is_not_chosen(monkeypatch):
    monkeypatch.setattr(packed_attention, "SHAPES", {"tiny": (2, 8, 6)})
    real = packed_attention.variable
    monkeypatch.setattr(packed_attention, "variable", lambda *x: real(*x) * 1.5)
    metrics, _ = choice_study("cpu", "fp32", 2, 1)
    assert metrics["choice"] == "masked" and "off by" in metrics["left_out"]["variable"]
    assert metrics["seconds"]["masked"]["tiny"] > 0


def test_an_unknown_way_or_type_is_refused(monkeypatch):
    monkeypatch.setenv(packed_attention.VARIABLE, "flexx")
    for call, field in (
        (lambda: packed_attention.use("flexible"), "packed attention"),
        (packed_attention.in_use, "ENTP_PACKED_ATTENTION"),
        (lambda: choice_study("cpu", "fp16", 1, 1), "dtype"),
    ):
        with pytest.raises(ConfigError, match=field):
            call()
    packed_attention.use("flex")
    assert packed_attention.in_use() == "flex"
