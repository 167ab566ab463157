"""What a causal mask breaks, what the paper prints and what holds, and constructions that stand alone."""

import math

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped import Shape, SubleqMachine, errata
from entp_papers.looped.depth import attention_square, sawtooth_square
from entp_papers.looped.masks import masked_run, scratchpad_first, with_scratchpad
from entp_papers.looped.permutation import transpose, transposer
from entp_papers.looped.programs import random_program

SHAPE = Shape(6, 6, 6)
MACHINE = SubleqMachine(SHAPE)
MADE = [random_program(SHAPE, seed) for seed in range(12)]


@pytest.mark.parametrize("place", ["first", "last"])
def test_full_attention_does_not_mind_the_order_of_tokens(place):
    found = masked_run(MACHINE, MADE, 8, "full", place)
    assert found["memory"] == found["counter"] == pytest.approx(1.0)
    assert found["fetched"] == found["computed"] == 1.0 and found["changed"] > 0


def test_causal_with_the_scratchpad_first_fetches_nothing():
    found = masked_run(MACHINE, MADE, 8, "causal", "first")
    assert found["fetched"] == found["changed"] == 0.0 and found["memory"] < 0.5


def test_causal_with_the_scratchpad_last_computes_and_never_writes():
    found = masked_run(MACHINE, MADE, 8, "causal", "last")
    assert found["fetched"] == found["computed"] == 1.0
    assert found["changed"] == 0.0 and found["memory"] < 0.5


def test_moving_the_scratchpad_back_and_forth():
    x = torch.arange(12.0).view(1, 4, 3)
    assert torch.equal(scratchpad_first(with_scratchpad(x, "last"), "last"), x)
    assert torch.equal(with_scratchpad(x, "last")[0, -1], x[0, 0])
    with pytest.raises(ConfigError, match="did you mean 'last'"):
        with_scratchpad(x, "lasst")


def test_errata_of_the_machine():
    assert errata.flags(5) == {"printed": 32, "corrected": 0, "of": 32}
    for formula in ("write", "branch"):
        found = errata.machine_with(formula, 5, 5)
        assert found["printed"] == 5 and found["corrected"] == 0
    assert errata.branch_elsewhere() == {"printed": 1.0, "corrected": 0.0}
    assert errata.pointers(64) == {"largest": 4, "printed": 5, "corrected": 4}
    rows = errata.rows_of_state(20, 8)
    assert rows == {"printed": 65, "corrected": 102}
    assert errata.layers_of_steps() == {"step 3 as 3": 10, "step 3 as 0": 7, "built": 9}
    assert errata.adder_outputs(4) == {"printed": 120, "corrected": 0, "of": 256}  # half of all pairs but the diagonal
    assert errata.branch_rule() == {"product": 24, "corrected": 24, "printed": 30}


def test_errata_of_the_functions():
    softmax = errata.linear_softmax()
    assert softmax["printed"] > 0.9 and softmax["corrected"] < 1e-5
    newton = errata.newton_starts(30)
    assert newton["corrected"] == newton["printed, symmetric"] == 30
    assert newton["tame"] - 3 <= newton["printed"] <= newton["tame"] < 20
    heads = errata.heads_of_inverse()
    assert heads["table 1"] < heads["theorem 2"] == heads["built"]
    needed = errata.sigmoids_needed(0.1)
    assert 1 < needed["sigmoids"] <= needed["scale"]


@pytest.mark.parametrize("levels", range(7))
def test_sawtooth_has_the_error_of_its_depth(levels):
    x = np.linspace(0, 1, 4097)
    assert np.abs(sawtooth_square(x, levels) - x**2).max() == pytest.approx(2.0 ** (-2 * levels - 2), rel=1e-9)


def test_attention_squares_in_two_layers():
    x = np.linspace(-1, 1, 101)
    assert np.abs(attention_square(x, 1e-4) - x**2).max() < 1e-7
    one = [np.abs(attention_square(x, delta, symmetric=False) - x**2).max() for delta in (1e-3, 1e-4)]
    assert math.log10(one[0] / one[1]) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_one_layer_transposes_a_vectorised_matrix(d):
    a = torch.randn(2, d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(transpose(a), a.transpose(1, 2), rtol=0, atol=1e-9)


def test_the_example_of_30_by_30():
    size = transposer(30)[0].size()
    assert (size["layers"], size["heads"], size["width"]) == (1, 1, 22)
