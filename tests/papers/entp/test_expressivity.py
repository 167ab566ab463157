"""The proofs of theorems 4.1 and 4.2 as programs, and the small facts of appendix A around them."""

import copy

import pytest
import torch
from conftest import seeded
from hypothesis import given
from hypothesis import strategies as st
from mistakes import named

from entp_lab.frames import select
from entp_lab.studies import gaussians, largest
from entp_papers.entp.expressivity import imitation
from entp_papers.entp.expressivity.attention import (
    AttentionStack,
    causal_model,
    refute_decoder,
    refute_encoder,
    theorem_4_1_decoder,
    theorem_4_2_encoder,
)
from entp_papers.entp.expressivity.checks import expressivity_study
from entp_papers.entp.expressivity.experiment import EXPRESSIVITY
from entp_papers.entp.expressivity.imitation import imitation_study

models = dict(
    width=st.integers(1, 6),
    layers=st.integers(1, 4),
    mlp=st.sampled_from([0, 7]),
    seed=st.integers(0, 999),
)


def some_positions(width, same, seed=0, scale=1.0):
    p_TD = scale * gaussians(seed, 5, width)
    if same:
        p_TD[1] = p_TD[0]
    return p_TD


def check(refutation, model, function):
    """Check that what is reported happens, and is at least what the proof promises."""
    theirs_D = causal_model(model, refutation.inputs_TD)[-1]
    ours_D = causal_model(function, refutation.inputs_TD)[-1]
    assert refutation.difference == pytest.approx(largest(theirs_D, ours_D))
    rounding = 1e-9 * (1 + largest(theirs_D))
    assert refutation.difference >= refutation.guaranteed - rounding
    assert refutation.guaranteed > 0


@given(
    **models,
    kind=st.sampled_from(["none", "same", "apart"]),
    scale=st.sampled_from([0.1, 1, 5]),
)
def test_encoders_are_refuted(width, layers, mlp, kind, seed, scale):
    """By a swap of two tokens where the first positions are none or the same, else by an output
    with two values.
    """
    p_TD = None if kind == "none" else some_positions(width, kind == "same", seed, scale)
    encoder = AttentionStack(
        width, layers, causal=False, positions_TD=p_TD, mlp_width=mlp, seed=seed
    )
    refutation = refute_encoder(encoder)
    check(refutation, encoder, theorem_4_1_decoder(width))
    expected = 9 / 8 * largest(p_TD[1], p_TD[0]) if kind == "apart" else 1 / 3
    assert refutation.guaranteed == pytest.approx(expected)
    assert refutation.case.startswith("p1 = p2") == (kind != "apart")
    assert (len(refutation.inputs_TD) == 3) == (kind != "apart")
    assert largest(encoder.encode(refutation.inputs_TD)) > 0  # by its weights, not for want of bias


@given(**models)
def test_decoders_with_positions_are_refuted(width, layers, mlp, seed):
    p_TD = some_positions(width, same=False, seed=seed)
    decoder = AttentionStack(
        width, layers, causal=True, positions_TD=p_TD, mlp_width=mlp, seed=seed
    )
    refutation = refute_decoder(decoder)
    check(refutation, decoder, theorem_4_2_encoder(width))
    apart = largest(p_TD[1], p_TD[0])
    assert refutation.guaranteed >= 0.75 * apart  # beta is at least 3/2


class Spoiled(AttentionStack):
    """Adds to token t something that is no function of x + p."""

    def encode(self, x_TD):
        places = torch.arange(len(x_TD), dtype=x_TD.dtype)
        return super().encode(x_TD) + places[:, None]


APART = some_positions(3, same=False)
SAME = some_positions(3, same=True)

test_mistakes_are_named = named(
    (lambda: refute_encoder(theorem_4_1_decoder(3)), "p1 = p2"),
    (lambda: refute_decoder(theorem_4_2_encoder(3)), "no positions"),
    (lambda: refute_decoder(AttentionStack(3, 2, causal=True, positions_TD=SAME)), "p1 = p2"),
    (lambda: refute_encoder(Spoiled(3, 2, causal=False, positions_TD=APART)), "does not cover"),
    (lambda: refute_decoder(Spoiled(3, 2, causal=True, positions_TD=APART)), "does not cover"),
    (
        lambda: refute_encoder(AttentionStack(3, 2, causal=False, positions_TD=APART[:2])),
        r"positions_TD .* \(2, 3\)",
    ),
    (lambda: imitation_study("ENTP", length=2, steps=1), "direction = "),
    (lambda: imitation_study("encoder", length=4, steps=1), "length = "),
    (lambda: imitation_study("encoder", length=2, steps=0), "steps = "),
    (lambda: expressivity_study(0, [4], [4], [8, 16]), "models = "),
)


# Training against the theorems, and how the claims are judged by it.


@pytest.mark.parametrize("distance", [1.0, 3.0])
def test_training_imitates_off_the_line_and_the_line_holds_its_error(distance):
    """Fixed positions by their distance: at 1 the line crosses the box of inputs, at 3 it misses
    it.
    """
    forced = 9 / 8 * distance
    metrics, curves = imitation_study("encoder", 2, 120, distance=distance)
    assert len(curves["line_error"]) > 10
    assert min(curves["line_error"]) >= forced - 1e-9
    assert curves["line_forced"] == pytest.approx([forced] * len(curves["line_error"]))
    refutation = metrics["refutation"]
    assert refutation["refuted"]
    assert refutation["guaranteed"] == pytest.approx(forced)
    if distance == 3.0:
        assert metrics["forced_in_box"] == 0
        assert metrics["box_error"] < metrics["box_before"] / 4
        assert curves["loss"][-1] < curves["loss"][0] / 20
    else:
        assert metrics["forced_in_box"] == pytest.approx(forced)
        assert metrics["box_error"] > forced * 0.9  # drawn points come near the line, not onto it


def test_batches_are_the_definition():
    model = AttentionStack(1, 2, causal=False, mlp_width=4, seed=3)
    x_BT = imitation.boxes(5, 3, seeded(0))
    expected = torch.stack([causal_model(model, x_T[:, None])[:, 0] for x_T in x_BT])
    torch.testing.assert_close(imitation.causal_outputs(model, x_BT), expected)


@pytest.mark.parametrize(
    ("direction", "distance", "claim", "expected"),
    [
        ("encoder", 1.0, "4.1", "refuted"),
        ("encoder", 0.0, "4.1", "refuted"),
        ("decoder", 1.0, "4.2", "refuted"),
        ("decoder", 0.0, "4.2", "verified"),  # which says nothing of p1 = p2
    ],
)
def test_one_trained_model_that_escapes_refutes_a_theorem(direction, distance, claim, expected):
    records = copy.deepcopy(EXPRESSIVITY.committed())
    escaped = select(records, direction=direction)[-1]
    escaped.metrics.update(refutation={"refuted": False}, distance=distance)
    verdicts = {check.claim: check.verdict for check in EXPRESSIVITY.measure(records)}
    assert verdicts[claim] == expected
