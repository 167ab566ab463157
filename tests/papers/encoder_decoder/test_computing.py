"""Losses, sampling and caches as studies: all right, and each able to be wrong."""

import pytest
import torch
import torch.nn.functional as F

from entp_lib.models.decoding import beam_search, filtered
from entp_papers.encoder_decoder import computing
from entp_papers.encoder_decoder.computing import (
    brute_force,
    caches_study,
    last_logits,
    losses_study,
    masked_alone,
    model_of,
    sampling_study,
)


def test_losses_equal_their_definitions():
    metrics, rows = losses_study(3)
    assert metrics["largest"] == max(rows["apart"]) < 1e-12 and len(rows["loss"]) == 7
    assert metrics["shifted_twice"] > 1e-4
    assert metrics["all_ignored"].startswith("labels: all 21 are -100, so none counts")


@torch.no_grad()
def test_a_token_alone_is_read_at_its_place():
    model, tokens = model_of("entp"), torch.tensor([[3, 1, 4]])
    last = F.cross_entropy(last_logits(model, tokens), torch.tensor([2]))
    assert masked_alone(model, tokens, 2, 2) == pytest.approx(float(last))
    assert masked_alone(model, tokens, 1, 2) != pytest.approx(float(last))


def test_every_way_of_choosing_is_right_for_both_architectures():
    metrics, rows = sampling_study(5000, 2)
    assert all(rows["right"]) and set(rows["architecture"]) == {"decoder", "entp"}
    assert 1e-3 < metrics["p_value"] <= 1


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


def test_a_cache_is_right_where_it_can_be():
    _, rows = caches_study([1, 2], 6, 2)
    apart = dict(zip(zip(rows["architecture"], rows["n_layers"], strict=True), rows["apart"], strict=True))
    assert max(apart["decoder", 1], apart["decoder", 2], apart["entp", 1]) < 1e-12 < 1e-3 < apart["entp", 2]
