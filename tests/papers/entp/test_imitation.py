"""Training against the theorems, the checks on random models, and how the claims are judged by them."""

import dataclasses

import pytest
import torch

from entp_lib.experiments.experiment import select
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.store import Store
from entp_lib.validation import ConfigError
from entp_papers.entp.expressivity import checks, imitation
from entp_papers.entp.expressivity.attention import AttentionStack, causal_model
from entp_papers.entp.expressivity.experiment import EXPRESSIVITY


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("expressivity"), read_only=False)
    runs = EXPRESSIVITY.plan("smoke", 0)
    return EXPRESSIVITY.compute(runs, NotebookParameters(tier="smoke"), store, fresh=False).records


@pytest.fixture(scope="module")
def trained():
    """Fixed positions by their distance: the line crosses the box, and misses it."""
    torch.set_num_threads(1)  # this runs before the fixture that sees to it
    return {d: imitation.imitation_study("encoder", 2, 120, distance=d) for d in (1.0, 3.0)}


def changed(records, study_name="expressivity", metrics=None, curves=None):
    """The records with other metrics or curves in those of one study."""
    return [
        dataclasses.replace(r, metrics={**r.metrics, **(metrics or {})}, curves={**r.curves, **(curves or {})})
        if r.config.study == study_name
        else r
        for r in records
    ]


def verdicts(records):
    return {c.claim: c.verdict for c in EXPRESSIVITY.measure(records)}


def test_training_imitates_inside_the_box_where_the_line_does_not_pass(trained):
    metrics, curves = trained[3.0]
    assert metrics["box_error"] < metrics["box_before"] / 4
    assert curves["loss"][-1] < curves["loss"][0] / 20
    assert metrics["forced_in_box"] == 0 and trained[1.0][0]["forced_in_box"] == pytest.approx(9 / 8)
    assert trained[1.0][0]["box_error"] > 9 / 8 * 0.9  # points drawn from the box come near the line, not onto it
    assert len(curves["loss"]) == len(curves["step"]) <= imitation.POINTS and curves["step"][-1] == 120


@pytest.mark.parametrize("distance", [1.0, 3.0])
def test_the_line_holds_its_error_whatever_training_does(trained, distance):
    metrics, curves = trained[distance]
    assert len(curves["line_error"]) == len(curves["line_forced"]) > 10
    assert all(e >= f - 1e-9 for e, f in zip(curves["line_error"], curves["line_forced"], strict=True))
    assert curves["line_forced"] == pytest.approx([9 / 8 * distance] * len(curves["line_forced"]))
    assert metrics["refutation"]["refuted"]
    assert metrics["refutation"]["difference"] >= metrics["refutation"]["guaranteed"] == pytest.approx(9 / 8 * distance)


def test_batches_are_the_definition():
    model = AttentionStack(1, 2, causal=False, mlp_width=4, seed=3)
    x_BT = imitation.boxes(5, 3, torch.Generator().manual_seed(0))
    expected = torch.stack([causal_model(model, x_T[:, None])[:, 0] for x_T in x_BT])
    torch.testing.assert_close(imitation.causal_outputs(model, x_BT), expected)


def test_bad_parameters_are_named():
    for change in ({"direction": "ENTP"}, {"length": 4}, {"steps": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(change))} = "):
            imitation.imitation_study(**dict(direction="encoder", length=2, steps=1) | change)
    with pytest.raises(ConfigError, match="models = "):
        checks.expressivity_study(0, [4], [4], [8, 16])


def test_verdicts(records):
    assert verdicts(records) == {
        **dict.fromkeys(("A.2", "A.3", "A.4", "4.1", "4.2", "F1-approximation"), "verified"),
        "F1-logarithmic": "verified with correction",
    }
    assert EXPRESSIVITY.measure([]) == []
    by_claim = {c.claim: c for c in EXPRESSIVITY.measure(records)}
    assert len(by_claim["4.1"].records) == 1 + len(select(records, direction="encoder"))


@pytest.mark.parametrize(
    ("claim", "metrics", "curves", "expected"),
    [
        ("A.2", {"a2_error": 1e-3}, {}, "refuted"),
        ("A.3", {"a3_gradient_error": 1e-3}, {}, "refuted"),
        ("A.3", {"a3_two_layers": 0.0}, {}, "refuted"),
        ("A.4", {"a4_error": 1e-3}, {}, "refuted"),
        ("4.1", {"rational_rows": [["4"], ["7/4", "9/4"], ["23", "17", "32"]]}, {}, "refuted"),
        ("4.1", {"control_refuted": 1}, {}, "refuted"),
        ("4.1", {}, {"encoders_refuted": [9] * len(checks.ENCODERS)}, "refuted"),
        ("4.2", {}, {"decoders_refuted": [9] * len(checks.DECODERS)}, "refuted"),
        ("F1-approximation", {}, {"simulated_error": [1e-3]}, "refuted"),
        ("F1-logarithmic", {"exponent_random": 0.3}, {}, "unproved"),
        ("F1-logarithmic", {}, {"dimensions_geometric": [1, 2, 3]}, "refuted"),
        ("F1-logarithmic", {}, {"geometric_score_error": [0.3]}, "refuted"),
        ("F1-logarithmic", {}, {"dimensions_dyadic": [16, 32, 64]}, "refuted"),
    ],
)
def test_verdicts_follow_what_was_found(records, claim, metrics, curves, expected):
    before, after = verdicts(records), verdicts(changed(records, metrics=metrics, curves=curves))
    assert after.pop(claim) == expected != before.pop(claim)
    if "control_refuted" not in metrics:
        assert after == before


@pytest.mark.parametrize(("direction", "claim"), [("encoder", "4.1"), ("decoder", "4.2")])
def test_one_trained_model_that_escapes_refutes_a_theorem(records, direction, claim):
    escaped = {"refutation": {"refuted": False, "case": "made up"}}
    after = [
        dataclasses.replace(r, metrics=r.metrics | escaped) if r is select(records, direction=direction)[-1] else r
        for r in records
    ]
    assert verdicts(after) == verdicts(records) | {claim: "refuted"}
    excused = changed(after, "imitation", {"distance": 0.0})  # theorem 4.2 says nothing of decoders with p1 = p2
    assert (verdicts(excused)[claim] == "verified") == (direction == "decoder")


def test_a_whole_decoder_is_simulated_by_an_encoder():
    decoder = AttentionStack(3, 4, causal=True, positions_TD=checks.normal(6, 3, seed=1), mlp_width=5, seed=2)
    encoder = checks.simulating_encoder(decoder, 6)
    assert not encoder.causal and encoder.width == 9
    x_TD = checks.normal(6, 3, seed=4)
    y_TD = causal_model(encoder, torch.cat([x_TD, torch.zeros(6, 6, dtype=torch.float64)], 1))[:, :3]
    torch.testing.assert_close(y_TD, decoder.encode(x_TD))
    without = checks.simulating_encoder(decoder, 6, constant=1e-9)
    assert not torch.allclose(without.encode(torch.cat([x_TD, torch.zeros(6, 6, dtype=torch.float64)], 1))[:, :3], y_TD)
    decoder.skip = False
    with pytest.raises(ValueError, match="no skip connections"):
        checks.simulating_encoder(decoder, 6)
