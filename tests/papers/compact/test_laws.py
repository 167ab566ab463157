"""Chance, the capacity model and the negative binomial: printed values as read, and fits to points of a known law."""

import numpy as np
import pytest
from mistakes import named
from scipy import stats

from entp_papers.compact import laws
from entp_papers.compact.laws import PUBLISHED, Parameters


def test_printed_probabilities():
    # 0.96 is printed for r < 25; it belongs to r < 24
    assert laws.chance_below(2048, 128, 24) == pytest.approx(0.964, abs=5e-4)
    assert laws.chance_below(2048, 128, 25) == pytest.approx(0.978, abs=5e-4)
    assert laws.chance_from(2048, 128, 40) == pytest.approx(2.85e-7, rel=0.01)
    assert laws.chance_below(2048, 128, 16) + laws.chance_from(2048, 128, 16) == pytest.approx(1)


def test_the_printed_form_never_falls_below_saturation_which_figure_13_does():
    heads = np.array([1, 2, 4, 8])
    assert laws.saturation(PUBLISHED[1], heads) == pytest.approx([12_504, 16_266, 23_792, 38_843], abs=1)
    printed = laws.capacity(PUBLISHED[1], 512, heads, 64, "max")
    assert (printed >= laws.saturation(PUBLISHED[1], heads)).all() and printed.min() > laws.READ_OFF[4]
    assert laws.capacity(PUBLISHED[1], 512, 4, 64, "min") == pytest.approx(3113, rel=0.01)
    assert laws.contradicted("max") and not laws.contradicted("min")


def points(noise=0.0):
    law, generator = Parameters(60.0, -0.1, 0.6, 0.2, 4.0, 150.0, 900.0), np.random.default_rng(0)
    shapes = np.array([(b, h, n) for b in (8, 16, 32, 64) for h in (1, 2, 4) for n in (8, 16, 32)], float)
    capacity = laws.capacity(law, *shapes.T) * (1 + noise * generator.standard_normal(len(shapes)))
    return np.column_stack([shapes, capacity])


def test_fit_recovers_a_law_and_min_beats_max():
    *shapes, measured = points().T
    fits = {form: laws.capacity(laws.fit(points(), form), *shapes, form) for form in laws.FORMS}
    r2 = {form: laws.quality(measured, predicted)["r2"] for form, predicted in fits.items()}
    assert r2["min"] > 0.999 and r2["min"] > r2["max"]
    assert laws.quality(measured, measured) == {"r2": 1.0, "rmse": 0.0, "mape": 0.0}


def test_the_negative_binomial_is_found_again_and_another_law_is_rejected():
    epochs = stats.nbinom(6, 0.1).rvs(4000, random_state=0)
    found = laws.fit_epochs(epochs.tolist())
    assert found["r"] == pytest.approx(6, rel=0.1) and found["p"] == pytest.approx(0.1, rel=0.1)
    assert found["p_value"] > 0.01 and found["log_likelihood"] > found["poisson_log_likelihood"]
    assert laws.by_moments(epochs) == pytest.approx((6, 0.1), rel=0.2)
    two_humps = np.concatenate([np.full(300, 10), np.full(300, 100)]) + np.arange(600) % 3
    assert laws.fit_epochs(two_humps.tolist())["p_value"] < 1e-6


test_mistakes_are_named = named(
    (lambda: laws.capacity(PUBLISHED[1], 1, 1, 1, "mean"), "form"),
    (lambda: laws.fit(points()[:5]), "5 points"),
    (lambda: laws.left_out(points()[:22], folds=6), "folds"),
    (lambda: laws.fit_epochs(list(range(60)), unfinished=3), "unfinished"),
)
