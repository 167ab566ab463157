"""Counted costs against PyTorch's counter and against live tensors."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.config import ModelConfig
from entp_lib.models import build_model, kernels
from entp_lib.models import costs as complexity
from entp_lib.models.decoding import Cache, cached_logits
from entp_papers.entp.complexity.measurements import printed_attention, streaming_attention


def config(architecture="entp", layers=3, width=32, heads=4):
    return ModelConfig(architecture, layers, heads, width, 7, 24)


def counted(call):
    """Multiply-adds that PyTorch's counter sees, on a CPU."""
    with torch.no_grad():
        return complexity.counted(call)


def test_while_counting_no_kernel_hides_a_product():
    model, x = build_model(config()), torch.zeros(1, 12, dtype=torch.long)
    with kernels.left_out():
        assert not kernels.usable(torch.zeros(2), 0.0)
    assert kernels.usable(torch.zeros(2), 0.0)
    with pytest.raises(ZeroDivisionError):
        complexity.counted(lambda: model(x).sum() / 0 if kernels.usable(torch.zeros(2), 0.0) else 1 / 0)
    assert kernels.usable(torch.zeros(2), 0.0)  # also after an error


@settings(max_examples=25)
@given(
    layers=st.integers(1, 4),
    heads=st.sampled_from([1, 2, 4]),
    lengths=st.sets(st.integers(1, 12), min_size=1).map(sorted),
    positions=st.sampled_from(["learned", "rotary"]),
)
def test_counts_agree_with_the_counter(layers, heads, lengths, positions):
    cfg = replace(config(layers=layers, heads=heads), positions=positions)
    model = build_model(cfg)
    x, wanted = torch.zeros(1, 12, dtype=torch.long), torch.zeros(1, 12, dtype=torch.bool)
    wanted[0, [n - 1 for n in lengths]] = True
    assert counted(lambda: model(x, wanted)) == complexity.entp_fast(cfg, lengths, 12)
    model.entp_method = "reference"
    assert counted(lambda: model(x, wanted)) == complexity.entp_loop(cfg, lengths)
    decoder = build_model(config("decoder", layers, heads=heads))
    everything = torch.ones_like(wanted)
    assert counted(lambda: decoder(x, everything)) == complexity.decoder_pass(cfg, 12)


def test_a_cached_step_costs_what_is_counted():
    cfg = config("decoder")
    model, x = build_model(cfg), torch.zeros(1, 9, dtype=torch.long)
    cache = Cache(model, 1)
    cached_logits(model, x[:, :8], cache)
    assert counted(lambda: cached_logits(model, x[:, 8:], cache)) == complexity.decoder_token(cfg, 9)


def test_persistent_memory_is_the_cache():
    cfg = config("decoder")
    assert Cache(build_model(cfg), 1, 20).kv.numel() == complexity.persistent_entries(cfg, 20)
    assert complexity.persistent_entries(config("entp"), 20) == 0
    assert complexity.persistent_entries(config("entp", layers=1), 20) == 2 * 20 * 32


def test_attention_outweighs_the_linear_maps_from_six_widths_on():
    cfg, n = config(), complexity.crossover(config())
    assert 2 * n * n * cfg.width == n * complexity.linear_maps(cfg)
    assert n == 6 * cfg.width


def test_the_engine_saves_what_the_design_says():
    """36 to 21 units of D² per pair with three layers, 72 to 57 with six, when sequences are long and wide."""
    for layers, bound in ((3, 36 / 21), (6, 72 / 57)):
        cfg = ModelConfig("entp", layers, 8, 8192, 1, 64)
        lengths = range(1, 65)
        ratio = complexity.entp_loop(cfg, lengths) / complexity.entp_fast(cfg, lengths, 64)
        assert ratio == pytest.approx(bound, rel=0.05)


@given(
    n=st.integers(1, 20), width=st.integers(1, 6), scale=st.sampled_from([1.0, 30.0, 3000.0]), seed=st.integers(0, 99)
)
def test_algorithm_1_is_attention(n, width, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    q = scale * torch.randn(width, generator=generator, dtype=torch.float64)
    k = torch.randn(n, width, generator=generator, dtype=torch.float64)
    v = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    expected = F.softmax(k @ q / width**0.5, 0) @ v
    torch.testing.assert_close(streaming_attention(q, k, v), expected)


def test_algorithm_1_as_printed_is_attention_until_it_overflows():
    q, k = torch.tensor([2.0], dtype=torch.float64), torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    torch.testing.assert_close(printed_attention(q, k, k), streaming_attention(q, k, k))
    assert printed_attention(1000 * q, k, k).isnan().all()
    assert streaming_attention(1000 * q, k, k).item() == 1.0
