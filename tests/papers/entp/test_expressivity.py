"""The proofs of theorems 4.1 and 4.2 as programs, and the small facts of appendix A around them."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_papers.entp.expressivity.attention import (
    AttentionStack,
    causal_model,
    refute_decoder,
    refute_encoder,
    theorem_4_1_decoder,
    theorem_4_1_outputs,
    theorem_4_2_encoder,
    two_layer_example,
)
from entp_papers.entp.expressivity.checks import equality_errors

rationals = st.fractions(min_value=-100, max_value=100, max_denominator=50)
seeds, widths = st.integers(0, 999), st.integers(1, 6)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_positions(width, same, seed=0, scale=1.0):
    p_TD = scale * normal(5, width, seed=seed)
    if same:
        p_TD[1] = p_TD[0]
    return p_TD


def check(refutation, model, function):
    """What is reported happens, and is at least what the proof promises."""
    theirs_D = causal_model(model, refutation.inputs_TD)[refutation.position - 1]
    ours_D = causal_model(function, refutation.inputs_TD)[refutation.position - 1]
    torch.testing.assert_close(theirs_D, refutation.theirs_D)
    torch.testing.assert_close(ours_D, refutation.ours_D)
    assert refutation.difference == pytest.approx((theirs_D - ours_D).abs().max().item())
    rounding = 1e-9 * (1 + theirs_D.abs().max().item())
    assert refutation.difference >= refutation.guaranteed - rounding
    assert refutation.guaranteed > 0


@given(st.lists(rationals, min_size=1, max_size=6))
def test_the_constructed_decoder_computes_the_rational_outputs(x):
    outputs = theorem_4_1_outputs(x)
    y_TD = theorem_4_1_decoder(1).encode(torch.tensor([[float(v)] for v in x], dtype=torch.float64))
    expected = torch.tensor([[float(v)] for v in outputs.values], dtype=torch.float64)
    torch.testing.assert_close(y_TD, expected, atol=1e-12, rtol=1e-12)
    assert all(sum(row) == 4 for row in outputs.rows)


@given(x1=rationals, x2=rationals, x3=rationals)
def test_the_first_three_rational_outputs(x1, x2, x3):
    outputs = theorem_4_1_outputs([x1, x2, x3])
    assert outputs.values == [4 * x1, (7 * x1 + 9 * x2) / 4, (23 * x1 + 17 * x2 + 32 * x3) / 18]
    assert outputs.rows[2] == [Fraction(23, 18), Fraction(17, 18), Fraction(32, 18)]


@given(width=widths, layers=st.integers(1, 4), mlp=st.sampled_from([0, 7]), seed=seeds)
def test_encoders_without_positions_are_refuted_by_a_swap(width, layers, mlp, seed):
    encoder = AttentionStack(width, layers, causal=False, mlp_width=mlp, seed=seed)
    refutation = refute_encoder(encoder)
    check(refutation, encoder, theorem_4_1_decoder(width))
    assert refutation.position == 3 and refutation.case.startswith("p1 = p2")
    assert refutation.guaranteed == pytest.approx(1 / 3)


@given(width=widths, mlp=st.sampled_from([0, 7]), same=st.booleans(), seed=seeds, scale=st.sampled_from([0.1, 1, 5]))
def test_encoders_with_positions_are_refuted(width, mlp, same, seed, scale):
    p_TD = some_positions(width, same, seed, scale)
    encoder = AttentionStack(width, 3, causal=False, positions_TD=p_TD, mlp_width=mlp, seed=seed)
    refutation = refute_encoder(encoder)
    check(refutation, encoder, theorem_4_1_decoder(width))
    expected = 1 / 3 if same else 9 / 8 * (p_TD[1] - p_TD[0]).abs().max().item()
    assert refutation.guaranteed == pytest.approx(expected)
    assert (refutation.position == 3) == same


def test_the_same_weights_without_the_mask_are_refuted():
    encoder = theorem_4_1_decoder(4)
    encoder.causal = False
    refutation = refute_encoder(encoder)
    check(refutation, encoder, theorem_4_1_decoder(4))
    # theirs is x1 + x2 + 2 x3, ours (23 x1 + 17 x2 + 32 x3)/18, and x3 = -x2 = x1 or x3 = -x1 = x2, of size 1
    assert refutation.difference == pytest.approx(5 / 9) and refutation.guaranteed == pytest.approx(1 / 3)


@given(width=widths, layers=st.integers(1, 4), mlp=st.sampled_from([0, 7]), seed=seeds)
def test_decoders_with_positions_are_refuted(width, layers, mlp, seed):
    p_TD = some_positions(width, same=False, seed=seed)
    decoder = AttentionStack(width, layers, causal=True, positions_TD=p_TD, mlp_width=mlp, seed=seed)
    refutation = refute_decoder(decoder)
    check(refutation, decoder, theorem_4_2_encoder(width))
    assert refutation.guaranteed >= 0.75 * (p_TD[1] - p_TD[0]).abs().max().item()  # beta is at least 3/2


def test_single_precision_is_refuted_too():
    p_TD = some_positions(4, same=False).float()
    encoder = AttentionStack(4, 2, causal=False, positions_TD=p_TD, dtype=torch.float32)
    decoder = AttentionStack(4, 2, causal=True, positions_TD=p_TD, dtype=torch.float32)
    for refutation in (refute_encoder(encoder), refute_decoder(decoder)):
        assert refutation.difference >= refutation.guaranteed * (1 - 1e-4) > 0.1


def test_models_that_a_proof_does_not_cover_are_refused():
    p_TD = some_positions(3, same=False)
    short = AttentionStack(3, 2, causal=False, positions_TD=p_TD[:2])
    rotary = AttentionStack(3, 2, causal=False, positions_TD=p_TD)
    rotary.position_scheme = "rotary"
    for refute, model, named in (
        (refute_encoder, theorem_4_1_decoder(3), "p1 = p2"),
        (refute_decoder, theorem_4_2_encoder(3), "no positions"),
        (refute_decoder, AttentionStack(3, 2, causal=True, positions_TD=some_positions(3, same=True)), "p1 = p2"),
        (refute_encoder, Spoiled(3, 2, causal=False, positions_TD=p_TD), "does not cover"),
        (refute_decoder, Spoiled(3, 2, causal=True, positions_TD=p_TD), "does not cover"),
        (refute_encoder, build_model(ModelConfig("entp", 2, 2, 16, 1, 8, input_dim=3, output_dim=3)), "no encode"),
        (refute_encoder, short, r"positions_TD .* \(2, 3\)"),
        (refute_encoder, rotary, "rotary"),
        (refute_decoder, rotary, "rotary"),
    ):
        with pytest.raises(ValueError, match=named):
            refute(model)


class Spoiled(AttentionStack):
    """Adds to token t something that is no function of x + p."""

    def encode(self, x_TD):
        return super().encode(x_TD) + torch.arange(len(x_TD), dtype=x_TD.dtype)[:, None]


def test_without_positions_the_width_must_be_known():
    class Sum:
        positions_TD = None

        def encode(self, x_TD):
            return x_TD + x_TD.sum(0)

    with pytest.raises(ValueError, match="neither positions nor a width"):
        refute_encoder(Sum())
    check(refute_encoder(Sum(), width=2), Sum(), theorem_4_1_decoder(2))


@given(seed=seeds)
def test_appendices_a2_to_a5_hold_on_random_models(seed):
    """Equal are a decoder and its causal model, one layer under either mask, formulas and matrices, and exact rows."""
    errors = equality_errors(seed)
    assert errors.pop("a3_two_layers") > 1e-6 and max(errors.values()) < 1e-10 and len(errors) == 5


def test_bad_shapes_are_named():
    stack = AttentionStack(3, 2, causal=True, positions_TD=some_positions(3, False))
    for named, call in {
        r"\(2, 4\)": lambda: stack.encode(normal(2, 4)),
        "6 tokens": lambda: stack.encode(normal(6, 3)),
        r"positions of shape \(5, 3\)": lambda: AttentionStack(
            4, 2, causal=True, positions_TD=some_positions(3, False)
        ),
        "n_layers = ": lambda: theorem_4_1_decoder(3, n_layers=1),
        "w_q, w_k, w_v and x": lambda: two_layer_example(*(normal(2, 3, 3) for _ in range(3)), normal(3, 3)),
    }.items():
        with pytest.raises(ValueError, match=named):
            call()


def test_further_layers_change_nothing():
    x_TD = normal(4, 3)
    torch.testing.assert_close(theorem_4_1_decoder(3, n_layers=5).encode(x_TD), theorem_4_1_decoder(3).encode(x_TD))
