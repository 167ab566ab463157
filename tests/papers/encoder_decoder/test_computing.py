"""Losses, sampling, caches, costs, order and coordinates as studies: all right, and each able to be wrong."""

import pytest
import torch

from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.models.costs import counted
from entp_lib.models.decoding import beam_search, filtered
from entp_papers.encoder_decoder import computing
from entp_papers.encoder_decoder.computing import (
    brute_force,
    coordinates_study,
    costs_study,
    counted_total,
    last_logits,
    model_of,
    permutations_study,
    sampling_study,
    slope,
)


@pytest.mark.parametrize("ignored", ["top_k", "top_p"])
def test_a_way_of_choosing_that_does_nothing_is_told(monkeypatch, ignored):
    def without(logits, temperature=1.0, **options):
        return filtered(logits, temperature, **{name: value for name, value in options.items() if name != ignored})

    monkeypatch.setattr(computing, "filtered", without)
    _, rows = sampling_study(500, 2)
    wrong = {check for check, right in zip(rows["check"], rows["right"], strict=True) if not right}
    assert wrong and all(check.startswith(ignored.replace("_", "-")) for check in wrong)


@torch.no_grad()
def test_brute_force_is_a_distribution_and_beams_agree():
    model, prompt = model_of("entp", vocab=3), torch.tensor([[1, 2]])
    found = brute_force(model, prompt, 2)
    assert len(found) == 9 and sum(2.718281828459045**v for v in found.values()) == pytest.approx(1)
    beams, scores = beam_search(model, prompt[0], 2, 3)
    assert tuple(beams[0, 2:].tolist()) == max(found, key=found.get)
    assert float(scores[0]) == pytest.approx(max(found.values()))


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


def test_costs_are_counted_and_measured():
    metrics, rows = costs_study([4, 8], [2**12, 2**13], 2, 8, 1)
    assert metrics["slopes"]["ENTP"]["attention"] == pytest.approx(3, abs=0.01)
    assert metrics["slopes"]["decoder, cache"]["attention"] == pytest.approx(2, abs=0.01)
    assert 2.9 < metrics["slopes"]["decoder, no cache"]["counted"] <= 3
    assert metrics["crossover"] == 48 and slope([1, 10, 100], [5.0, 1.0, 1000.0]) == pytest.approx(3)
    ratios = [r for way, r in zip(rows["way"], rows["ratio"], strict=True) if way == "decoder, cache"]
    assert ratios == [1.0, 1.0] and min(rows["cpu_seconds"]) > 0


def test_entp_without_positions_does_not_know_the_order_of_the_past():
    _, rows = permutations_study([1, 2], 7, 4)
    keys = zip(rows["architecture"], rows["n_layers"], rows["positions"], strict=True)
    moved = dict(zip(keys, rows["moved"], strict=True))
    still = {("entp", 1, "none"), ("entp", 2, "none"), ("decoder", 1, "none")}
    for key, value in moved.items():
        assert value < 1e-12 if key in still else value > 1e-3, key
    model = model_of("entp", positions="none")  # the last token is not one of the past
    one, two = (last_logits(model, torch.tensor([[3, 1, *end]])) for end in ((4, 5), (5, 4)))
    assert (one - two).abs().max() > 1e-3


def test_a_whole_decoder_needs_no_mask_and_the_error_falls_with_the_constant():
    metrics, rows = coordinates_study([5.0, 10.0, 20.0], [6], 2)
    errors = [e for p, e in zip(rows["precision"], rows["apart"], strict=True) if p == "fp64"]
    assert errors[0] > errors[1] > errors[2] > 0
    assert metrics["coordinates"]["6"] < 1e-12 and metrics["coordinates"]["5"] < 1e-12
    assert metrics["coordinates"]["4"] > 1e-3
