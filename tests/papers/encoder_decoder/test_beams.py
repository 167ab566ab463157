"""Beam search against brute force."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import spread

from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_papers.encoder_decoder.beams import beam_search


def model_of(architecture):
    model = build_model(ModelConfig(architecture, 2, 2, 16, 4, 14)).double()
    spread(model)
    return model


@pytest.mark.parametrize("architecture", ["prefix_decoder", "entp"])
def test_enough_beams_are_exhaustive(architecture):
    """That one beam is greedy and the best is found, a claim says of decoders and ENTP."""
    model, prompt = model_of(architecture), torch.tensor([3, 1])
    scores = {}
    for tail in itertools.product(range(4), repeat=3):
        x = torch.tensor([[*prompt.tolist(), *tail]])
        scored = torch.zeros_like(x, dtype=torch.bool)
        scored[:, 1:4] = True
        log_p = F.log_softmax(model(x, scored, torch.tensor([2])), -1)
        scores[tail] = float(log_p[range(3), list(tail)].sum().detach())
    everything, found = beam_search(model, prompt, 3, 1000)
    assert [tuple(row[2:].tolist()) for row in everything] == sorted(scores, key=scores.get, reverse=True)
    assert found.tolist() == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-9)
    for cached, plain in zip(beam_search(model, prompt, 4, 3), beam_search(model, prompt, 4, 3, False), strict=True):
        torch.testing.assert_close(cached, plain)


@pytest.mark.parametrize(("prompt", "beams", "named"), [([3, 1], 0, "beams"), ([[3, 1]], 2, "prompt")])
def test_bad_beams_are_named(prompt, beams, named):
    with pytest.raises(ValueError, match=named):
        beam_search(model_of("decoder"), torch.tensor(prompt), 2, beams)
