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


def test_the_functions_themselves_are_not_refuted():
    with pytest.raises(ValueError, match="though p1 = p2: it is not an encoder"):
        refute_encoder(theorem_4_1_decoder(3))
    with pytest.raises(ValueError, match="no positions: theorem 4.2 assumes p1 != p2"):
        refute_decoder(theorem_4_2_encoder(3))


def test_decoders_with_equal_first_positions_are_refused():
    decoder = AttentionStack(3, 2, causal=True, positions_TD=some_positions(3, same=True))
    with pytest.raises(ValueError, match="p1 = "):
        refute_decoder(decoder)


class Spoiled(AttentionStack):
    """Adds to token t something that is no function of x + p."""

    def encode(self, x_TD):
        return super().encode(x_TD) + torch.arange(len(x_TD), dtype=x_TD.dtype)[:, None]


@pytest.mark.parametrize("refute, causal", [(refute_encoder, False), (refute_decoder, True)])
def test_models_that_are_no_function_of_x_plus_p_are_refused(refute, causal):
    model = Spoiled(3, 2, causal=causal, positions_TD=some_positions(3, same=False))
    with pytest.raises(ValueError, match="the proof does not cover this model: its output"):
        refute(model)


def test_models_of_another_kind_are_refused_by_name():
    transformer = build_model(ModelConfig("entp", 2, 2, 16, 1, 8, input_dim=3, output_dim=3))
    with pytest.raises(ValueError, match="Transformer has no encode and no positions_TD: theorem 4.1 needs"):
        refute_encoder(transformer)
    stack = AttentionStack(3, 2, causal=False, positions_TD=some_positions(3, same=False)[:2])
    with pytest.raises(ValueError, match=r"positions_TD of AttentionStack is \(2, 3\): must be .* at least 3"):
        refute_encoder(stack)
    stack.position_scheme = "rotary"
    with pytest.raises(ValueError, match="AttentionStack has rotary positions: theorem 4.1 needs positions added"):
        refute_encoder(stack)
    with pytest.raises(ValueError, match="AttentionStack has rotary positions: theorem 4.2 needs positions added"):
        refute_decoder(stack)


def test_without_positions_the_width_must_be_known():
    class Sum:
        positions_TD = None

        def encode(self, x_TD):
            return x_TD + x_TD.sum(0)

    with pytest.raises(ValueError, match="neither positions nor a width"):
        refute_encoder(Sum())
    check(refute_encoder(Sum(), width=2), Sum(), theorem_4_1_decoder(2))


@given(width=widths, layers=st.integers(1, 3), seed=seeds)
def test_a_decoder_is_its_own_causal_model(width, layers, seed):
    """Appendix A.2."""
    decoder = AttentionStack(
        width, layers, causal=True, positions_TD=some_positions(width, False), mlp_width=5, seed=seed
    )
    x_TD = normal(5, width, seed=seed)
    torch.testing.assert_close(causal_model(decoder, x_TD), decoder.encode(x_TD))


@given(width=widths, seed=seeds)
def test_one_layer_makes_them_equal(width, seed):
    """Appendix A.3."""
    decoder, encoder = (
        AttentionStack(width, 1, causal=causal, positions_TD=some_positions(width, False), mlp_width=5, seed=seed)
        for causal in (True, False)
    )
    x_TD = normal(5, width, seed=seed)
    torch.testing.assert_close(causal_model(encoder, x_TD), decoder.encode(x_TD))


def test_two_layers_make_them_differ():
    decoder, encoder = (AttentionStack(4, 2, causal=causal, seed=1) for causal in (True, False))
    x_TD = normal(5, 4)
    difference_T = (causal_model(encoder, x_TD) - decoder.encode(x_TD)).abs().amax(1)
    assert difference_T[0] < 1e-12 and (difference_T[1:] > 1e-3).all()


@given(width=widths, seed=seeds, scale=st.sampled_from([1.0, 40.0]))
def test_the_printed_formulas_are_attention(width, seed, scale):
    """Appendix A.4, large scores included."""
    x_TD = scale * normal(2, width, seed=seed)
    for kind, causal in (("decoder", True), ("encoder", False)):
        stack = AttentionStack(width, 2, causal=causal, skip=False, seed=seed)
        found = two_layer_example(stack.w_q_LDD, stack.w_k_LDD, stack.w_v_LDD, x_TD)[kind]
        first_TD = stack.attend(0, x_TD)
        for layer, y_TD in ((1, first_TD), (2, stack.attend(1, first_TD))):
            torch.testing.assert_close(torch.stack([found[layer, 1], found[layer, 2]]), y_TD)
        torch.testing.assert_close(stack.encode(x_TD)[1], found[2, 2])


def test_bad_shapes_are_told():
    stack = AttentionStack(3, 2, causal=True, positions_TD=some_positions(3, False))
    with pytest.raises(ValueError, match=r"x of shape \(2, 4\): must be \(T, 3\)"):
        stack.encode(normal(2, 4))
    with pytest.raises(ValueError, match="6 tokens: there are 5 positions"):
        stack.encode(normal(6, 3))
    with pytest.raises(ValueError, match=r"positions of shape \(5, 3\): must be \(T, 4\)"):
        AttentionStack(4, 2, causal=True, positions_TD=some_positions(3, False))
    with pytest.raises(ValueError, match="n_layers = "):
        theorem_4_1_decoder(3, n_layers=1)
    with pytest.raises(ValueError, match="must be three times"):
        two_layer_example(*(normal(2, 3, 3) for _ in range(3)), normal(3, 3))
    torch.testing.assert_close(
        theorem_4_1_decoder(3, n_layers=5).encode(normal(4, 3)), theorem_4_1_decoder(3).encode(normal(4, 3))
    )
