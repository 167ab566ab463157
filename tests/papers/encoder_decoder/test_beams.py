"""Beam search where all continuations fit, and with and without a cache."""

import pytest
import torch
from conftest import model_of
from mistakes import named

from entp_papers.encoder_decoder.beams import beam_search

PROMPT = torch.tensor([3, 1])


@pytest.mark.parametrize("architecture", ["prefix_decoder", "entp"])
def test_beams_are_sorted_different_and_the_same_without_a_cache(architecture):
    """A claim says of decoders and ENTP that one beam is greedy and enough find the best."""
    model = model_of(architecture, vocab_size=4)
    everything, scores = beam_search(model, PROMPT, 3, 1000)
    assert len(everything.unique(dim=0)) == 4**3
    assert scores.exp().sum().item() == pytest.approx(1, abs=1e-9)
    assert (scores.diff() <= 0).all()
    cached = beam_search(model, PROMPT, 4, 3)
    torch.testing.assert_close(cached, beam_search(model, PROMPT, 4, 3, False))


test_mistakes_are_named = named(
    (lambda: beam_search(model_of("decoder"), PROMPT, 2, 0), "beams"),
    (lambda: beam_search(model_of("decoder"), PROMPT[None], 2, 2), "prompt"),
)
