"""Training against the theorems, the checks on random models, and how the claims are judged by them."""

import dataclasses

import pytest
import torch

from entp_lib.experiments.frames import select
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.store import Store
from entp_lib.validation import ConfigError
from entp_papers.entp.expressivity import checks, imitation
from entp_papers.entp.expressivity import experiment as study
from entp_papers.entp.expressivity.attention import AttentionStack, causal_model, refute_encoder
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


def test_positions_are_trained_unless_they_are_given(records):
    fixed, trained = (select(records, direction="encoder", positions=kind) for kind in ("fixed", "trained"))
    assert [r.metrics["distance"] for r in fixed] == study.DISTANCES["smoke"]
    assert all(r.metrics["positions"] != imitation.Candidate(False, None, 0).positions_TD.tolist() for r in trained)
    assert all(len(r.to_json()) < 150_000 for r in records)


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


def test_a_population_counts_what_is_refuted():
    """Of a model that the proof does not cover nothing is claimed: here the theorem's own decoder."""
    kinds = {"own": checks.theorem_4_1_decoder, "no positions": checks.ENCODERS["no positions"]}
    own, without = checks.population(refute_encoder, {k: lambda s, f=f: f(s + 1) for k, f in kinds.items()}, 4)
    assert (own["refuted"], without["refuted"]) == (0, 4) and without["ratio"] >= 1


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


def test_dimensions_of_the_record(records):
    m, c = (getattr(study.checks_of(records), name) for name in ("metrics", "curves"))
    assert 1.1 < m["exponent_random"] < 1.6 and m["exponent_geometric"] == 0
    assert m["exponent_exact"] == pytest.approx(1, abs=0.1)
    assert c["dimensions_exact"] == [n - 1 for n in c["dimensions_n"]] and set(c["dimensions_geometric"]) == {1}
    assert c["dimensions_random"][-1] > c["dimensions_dyadic"][-1] > c["dimensions_exact"][-1]
    assert max(c["mask_exact"]) == 0 and min(c["mask_random"]) > 0.5


def test_attention_patterns_are_the_models_masks():
    found = study.attention_patterns(5, 3)
    for name, matrix in found.items():
        assert matrix.shape == (5, 5), name
    assert (found["decoder"] == torch.ones(5, 5).tril().numpy()).all()
    prefix = found["prefix decoder"] > 0
    assert prefix[:3].tolist() == [[True] * 3 + [False] * 2] * 3
    assert prefix[3:].tolist() == (found["decoder"][3:] > 0).tolist()
    assert (found["encoder–decoder"] > 0).tolist() == prefix.tolist()
    assert [int((found[f"ENTP, {t}"] > 0).sum()) for t in range(1, 6)] == [1, 4, 9, 16, 25]


def test_forced_errors_end_where_the_line_leaves_the_box():
    assert study.forced("encoder", [0.0, -1.0, 1.9, 2.1]) == pytest.approx([0, 9 / 8, 9 / 8 * 1.9, 0])
    assert study.forced("decoder", [0.0, 2.5]).tolist() == [0, 0]
