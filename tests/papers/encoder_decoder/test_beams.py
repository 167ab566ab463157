"""Beam search where all continuations fit, and with and without a cache."""

import pytest
import torch
from conftest import spread

from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_papers.encoder_decoder.beams import beam_search


def model_of(architecture):
    model = build_model(ModelConfig(architecture, 2, 2, 16, 4, 14)).double()
    spread(model)
    return model


@pytest.mark.parametrize("architecture", ["prefix_decoder", "entp"])
def test_beams_are_sorted_different_and_the_same_without_a_cache(architecture):
    """A claim says of decoders and ENTP that one beam is greedy and enough find the best."""
    model, prompt = model_of(architecture), torch.tensor([3, 1])
    everything, scores = beam_search(model, prompt, 3, 1000)
    assert len({tuple(row.tolist()) for row in everything}) == 4**3
    assert scores.exp().sum().item() == pytest.approx(1, abs=1e-9)
    assert (scores.diff() <= 0).all()
    for cached, plain in zip(
        beam_search(model, prompt, 4, 3), beam_search(model, prompt, 4, 3, False), strict=True
    ):
        torch.testing.assert_close(cached, plain)


@pytest.mark.parametrize(
    ("prompt", "beams", "named"), [([3, 1], 0, "beams"), ([[3, 1]], 2, "prompt")]
)
def test_bad_beams_are_named(prompt, beams, named):
    with pytest.raises(ValueError, match=named):
        beam_search(model_of("decoder"), torch.tensor(prompt), 2, beams)
