"""The capacity model: the printed table as read, and fits to points of a known law."""

import numpy as np
import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import capacity_model as model
from entp_papers.compact.capacity_model import PUBLISHED, Parameters, Point


@pytest.mark.parametrize(
    "heads, slopes",
    [
        (1, [13.07, 6.00, 2.80, 1.37, 0.72]),
        (2, [17.0, 8.49, 4.28, 2.20, 1.18]),
        (4, [28.7, 17.1, 10.2, 6.08, 3.65]),
        (8, [80.4, 68.4, 58.1, 49.3, 41.8]),
    ],
)
def test_slopes_of_table_2(heads, slopes):
    assert model.slope(PUBLISHED[1], heads, [8, 16, 32, 64, 128]) == pytest.approx(slopes, rel=5e-3)


def test_saturation_of_table_2():
    assert model.saturation(PUBLISHED[1], [1, 2, 4, 8]) == pytest.approx([12_504, 16_266, 23_792, 38_843], abs=1)


def test_the_printed_form_never_falls_below_saturation():
    heads = np.array([1, 2, 4])
    printed = model.capacity(PUBLISHED[1], 512, heads, 64, "max")
    assert (printed >= model.saturation(PUBLISHED[1], heads)).all() and (printed > 3300).all()
    assert model.capacity(PUBLISHED[1], 512, 4, 64, "min") == pytest.approx(3113, rel=0.01)


def test_what_figure_13_has_is_below_the_larger_and_above_neither_branch():
    assert model.contradicted("max") and not model.contradicted("min")


def test_the_second_row_is_rounded_too_far():
    assert model.slope(PUBLISHED[2], 1, 64) < 0 and model.slope(PUBLISHED[2], 2, 128) < 0


def points(noise=0.0, seed=0):
    law = Parameters(60.0, -0.1, 0.6, 0.2, 4.0, 150.0, 900.0)
    generator = np.random.default_rng(seed)
    return [
        Point(b, h, n, float(model.capacity(law, b, h, n)) * (1 + noise * generator.standard_normal()))
        for b in (8, 16, 32, 64)
        for h in (1, 2, 4)
        for n in (8, 16, 32)
    ]


def test_fit_recovers_a_law_and_min_beats_max():
    widths, heads, lengths, measured = model.columns(points())
    scores = {
        form: model.quality(measured, model.capacity(model.fit(points(), form), widths, heads, lengths, form))
        for form in model.FORMS
    }
    assert scores["min"].r2 > 0.999 and scores["min"].r2 > scores["max"].r2


def test_cross_validation_prefers_the_law_that_made_the_points():
    found = model.cross_validated(points(noise=0.03))
    assert found["capacity_model"].rmse < found["cubic"].rmse


def test_cubic_has_every_product_up_to_degree_three():
    x = np.arange(1, 31, dtype=float)
    assert model.cubic_terms(x, x, x).shape == (30, 20)


def test_quality_of_a_perfect_and_of_a_constant_prediction():
    measured = np.array([1.0, 2.0, 3.0])
    assert vars(model.quality(measured, measured)) == {"r2": 1.0, "rmse": 0.0, "mape": 0.0}
    assert model.quality(measured, np.full(3, 2.0)).r2 == pytest.approx(0)


def test_bad_input():
    with pytest.raises(ConfigError, match="form = 'mean'"):
        model.capacity(PUBLISHED[1], 1, 1, 1, "mean")
    with pytest.raises(ConfigError, match="5 points"):
        model.fit(points()[:5])
    with pytest.raises(ConfigError, match="a cubic needs 21"):
        model.cross_validated(points()[:22], folds=6)
    with pytest.raises(ConfigError, match="parameters = 0"):
        model.memories_per_parameter(5, 0)
