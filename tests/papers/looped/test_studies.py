"""What studies of the looped computer show beyond the claims that rest on them."""

import numpy as np
import pandas as pd
import pytest

from entp_lab.registry import STUDIES
from entp_papers.looped.block_studies import attention_square, sawtooth_square
from entp_papers.looped.experiment import TIERS


def smoke(study):
    """Run a study at smoke scale; return its metrics and its rows."""
    metrics, curves = STUDIES[f"looped_{study}"](**TIERS["smoke"][study])
    return metrics, pd.DataFrame(curves)


def test_copies_are_exact_for_a_large_bound_only():
    rows = smoke("copying")[1].set_index(["operation", "setting"])
    wrong = rows.query("setting != 'C large'")
    assert (wrong["error"] > 0.01).all()
    assert rows.loc[("write", "C large"), "again"] < 1e-9  # writing twice is writing once


def test_cold_attention_breaks_programs():
    metrics, rows = smoke("temperature")
    assert rows.query("heat == 2")["right"].max() < 0.5
    assert metrics["enough"] == {"4": 12.0, "8": 12.0}


def test_products_err_by_curvature_above_the_best_delta_and_by_rounding_below():
    metrics, _ = smoke("product")
    assert metrics["slope_above"] == pytest.approx(1, abs=0.05)
    assert metrics["slope_below"] < -0.5


def test_least_squares_are_solved():
    assert smoke("least_squares")[0]["largest_difference"] < 1e-4


@pytest.mark.parametrize("levels", [0, 3, 6])
def test_a_network_of_k_levels_squares_with_an_error_of_a_quarter_to_the_k_plus_1(levels):
    x = np.linspace(0, 1, 4097)
    error = np.abs(sawtooth_square(x, levels) - x**2).max()
    assert error == pytest.approx(4.0 ** (-levels - 1), rel=1e-9)


def test_attention_squares_with_an_error_of_delta_by_one_head_and_of_its_square_by_two():
    x = np.linspace(-1, 1, 101)
    exact = x**2
    assert np.abs(attention_square(x, 1e-4) - exact).max() < 1e-7
    coarse = attention_square(x, 1e-3, symmetric=False) - exact
    fine = attention_square(x, 1e-4, symmetric=False) - exact
    assert np.abs(coarse).max() / np.abs(fine).max() == pytest.approx(10, rel=0.05)
