"""What guessing recalls: the paper's printed probabilities, and untrained models against them."""

import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.compact import chance, side_by_side
from entp_papers.compact.memory_model import MemoryConfig


def test_printed_probabilities():
    # 0.96 is printed beside r < 25; it belongs to r < 24
    assert chance.chance_below(2048, 128, 24) == pytest.approx(0.964, abs=5e-4)
    assert chance.chance_below(2048, 128, 25) == pytest.approx(0.978, abs=5e-4)
    assert chance.chance_from(2048, 128, 40) == pytest.approx(2.85e-7, rel=0.01)
    assert chance.chance_offset(32_000, 128) == 250


def test_the_two_tails_are_the_whole():
    for right in (0, 5, 16, 30):
        assert chance.chance_below(2048, 128, right) + chance.chance_from(2048, 128, right) == pytest.approx(1)


def test_untrained_models_recall_what_guessing_does():
    cfg = MemoryConfig(symbols=32, length=8, width=16, head_width=8)
    seeds = list(range(50))
    libraries = torch.stack([side_by_side.random_library(cfg, 1024, seed) for seed in seeds])
    right_R = side_by_side.recalled(cfg, *side_by_side.stacked(cfg, seeds), libraries).double()
    error = (1024 / 32 * (1 - 1 / 32) / len(seeds)) ** 0.5
    assert abs(float(right_R.mean()) - chance.chance_offset(1024, 32)) < 3 * error


@pytest.mark.parametrize("library, symbols, named", [(0, 8, "library = 0"), (8, 1, "symbols = 1")])
def test_bad_input(library, symbols, named):
    with pytest.raises(ConfigError, match=named):
        chance.chance_offset(library, symbols)
