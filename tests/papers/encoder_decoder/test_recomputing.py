"""What recomputing costs and buys: counted costs, permuted pasts, masks made of coordinates."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.models.costs import counted
from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.computing import last_logits, model_of, tokens_of
from entp_papers.encoder_decoder.recomputing import (
    WAYS,
    attention_total,
    coordinates_study,
    costs_study,
    counted_total,
    longer,
    permutations_study,
    slope,
    unmasked_logits,
)


@pytest.mark.parametrize("way", ["decoder, no cache", "ENTP"])
def test_counted_work_is_what_pytorch_counts(way):
    """One token at a time, from nothing, by the definition: the whole stack and the last position's output."""
    cfg = ModelConfig("decoder", 2, 2, 8, 11, 6)
    model = build_model(cfg, device="meta").eval()

    def token(n):
        x = model.embed(torch.zeros(1, n, dtype=torch.long, device="meta"))
        for block in model.blocks:
            x = block(x)
        return model.head(model.ln_f(x[:, -1]))

    assert counted_total(cfg, way, 6) == sum(counted(lambda n=n: token(n)) for n in range(1, 7))


@given(n=st.integers(1, 40), width=st.sampled_from([4, 8]))
def test_attentions_share_is_a_sum_of_lengths_or_squares(n, width):
    cfg = ModelConfig("decoder", 3, 2, width, 5, 64)
    assert attention_total(cfg, "decoder, cache", n) == 6 * width * n * (n + 1) // 2
    assert attention_total(cfg, "ENTP", n) == 6 * width * n * (n + 1) * (2 * n + 1) // 6
    for way in WAYS:
        assert counted_total(cfg, way, n) > attention_total(cfg, way, n)


def test_costs_are_counted_and_measured():
    metrics, rows = costs_study([4, 8], [2**12, 2**13], 2, 8, 1)
    assert metrics["slopes"]["ENTP"]["attention"] == pytest.approx(3, abs=0.01)
    assert metrics["slopes"]["decoder, cache"]["attention"] == pytest.approx(2, abs=0.01)
    assert 2.9 < metrics["slopes"]["decoder, no cache"]["counted"] <= 3
    assert metrics["crossover"] == 48
    ratios = [r for way, r in zip(rows["way"], rows["ratio"], strict=True) if way == "decoder, cache"]
    assert ratios == [1.0, 1.0] and min(rows["cpu_seconds"]) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [(dict(lengths=[4]), "slopes need two of each"), (dict(rounds=0), "rounds = 0: must be at least 1")],
)
def test_costs_that_cannot_be_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        costs_study(**{**dict(lengths=[4, 8], far=[16, 32], n_layers=1, width=8, rounds=1), **change})


def test_a_slope_is_that_of_the_last_two_points():
    assert slope([1, 10, 100], [5.0, 1.0, 1000.0]) == pytest.approx(3)


def test_entp_without_positions_does_not_know_the_order_of_the_past():
    _, rows = permutations_study([1, 2], 7, 4)
    keys = zip(rows["architecture"], rows["n_layers"], rows["positions"], strict=True)
    moved = dict(zip(keys, rows["moved"], strict=True))
    still = {("entp", 1, "none"), ("entp", 2, "none"), ("decoder", 1, "none")}
    for key, value in moved.items():
        assert value < 1e-12 if key in still else value > 1e-3, key


def test_the_last_token_is_not_one_of_the_past():
    model = model_of("entp", positions="none")
    tokens = torch.tensor([[3, 1, 4, 5]])
    swapped = torch.tensor([[3, 1, 5, 4]])
    assert (last_logits(model, tokens) - last_logits(model, swapped)).abs().max() > 1e-3


@given(length=st.integers(2, 12), heads=st.sampled_from([1, 2, 4]), seed=st.integers(0, 999))
def test_longer_queries_and_keys_make_a_causal_mask(length, heads, seed):
    q, k, v = torch.randn(3, 2, heads, length, 4, generator=torch.Generator().manual_seed(seed)).double()
    causal = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    for coordinates in (length, length - 1):
        longer_q, longer_k = longer(q, k, 80.0, coordinates)
        assert longer_q.shape[-1] == longer_k.shape[-1] == 4 + coordinates
        found = torch.nn.functional.scaled_dot_product_attention(longer_q, longer_k, v)
        torch.testing.assert_close(found, causal, rtol=0, atol=1e-12)


def test_a_whole_decoder_needs_no_mask():
    model = model_of("decoder", 3)
    tokens = tokens_of(model, 2, 8)
    expected = model(tokens).view(2, 8, -1)
    assert (unmasked_logits(model, tokens, 60.0, 7) - expected).abs().max() < 1e-12
    assert (unmasked_logits(model, tokens, 60.0, 6) - expected).abs().max() > 1e-3
    assert (unmasked_logits(model, tokens, 1.0, 7) - expected).abs().max() > 1e-3


def test_the_error_falls_with_the_constant():
    metrics, rows = coordinates_study([5.0, 10.0, 20.0], [6], 2)
    errors = [e for p, e in zip(rows["precision"], rows["apart"], strict=True) if p == "fp64"]
    assert errors[0] > errors[1] > errors[2] > 0
    assert metrics["coordinates"]["6"] < 1e-12 and metrics["coordinates"]["5"] < 1e-12
    assert metrics["coordinates"]["4"] > 1e-3
