"""Intervals against scipy; last digits, in which processors differ, decide nothing."""

import math
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from entp_lab.statistics import (
    exceeds,
    first_at,
    holm,
    mean_interval,
    p_value,
    proportion_interval,
    reaches,
    to_figures,
    welch_interval,
)


@pytest.mark.parametrize(
    "values", [[0.3, 0.1, 0.25, -0.02, 0.2], [-1.0, -1.2, -0.9], [0.01, -0.02, 0.015, 0.0]]
)
def test_means_and_p_values_are_those_of_the_paired_t_test(values):
    known = stats.ttest_1samp(values, 0)
    interval = known.confidence_interval(0.95)
    found = mean_interval(values)
    assert found == pytest.approx((statistics.mean(values), interval.low, interval.high))
    assert p_value(*found, len(values)) == pytest.approx(known.pvalue)


def test_equal_values_are_certain_and_one_or_none_tell_nothing():
    nan = pytest.approx(math.nan, nan_ok=True)
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0, 2.0)
    assert mean_interval([0.3]) == (0.3, nan, nan)
    assert mean_interval([])[0] == nan
    assert p_value(2.0, 2.0, 2.0, 2) == 0.0
    assert p_value(0.0, 0.0, 0.0, 5) == 1.0
    assert p_value(0.3, math.nan, math.nan, 1) == nan


def test_holm_steps_down_and_stops_at_the_first_that_fails():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == [True, False, False, True]  # 0.03 > 0.05 / 2
    assert holm([0.02, 0.02, 0.04]).tolist() == [False, False, False]  # 0.02 > 0.05 / 3 stops all
    assert holm([0.01, math.nan, 0.04]).tolist() == [True, False, True]  # two tested


def test_welch_interval_is_scipys():
    first = [0.3, 0.5, 0.1, 0.4]
    second = [0.9, 0.2, 0.7]
    known = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    about = ((statistics.mean(x), statistics.stdev(x), len(x)) for x in (first, second))
    assert welch_interval(*about) == pytest.approx((0.325 - 0.6, known.low, known.high))
    assert welch_interval((0.5, 0.0, 3), (0.2, 0.0, 3)) == (0.3, 0.3, 0.3)
    alone = welch_interval((0.5, math.nan, 1), (0.2, 0.1, 3))
    assert alone == pytest.approx((0.3, math.nan, math.nan), nan_ok=True)


def test_a_proportions_interval_is_wilsons():
    """Its ends lie z of their own standard errors from the share that was found."""
    z = stats.norm.ppf(0.975)
    for p in proportion_interval(38, 100):
        assert abs(0.38 - p) / math.sqrt(p * (1 - p) / 100) == pytest.approx(z)


def test_curves_are_read_at_a_threshold():
    curves = {"step": [10, 20, 30], "seconds": [1.0, 2.5, 4.0], "token_accuracy": [0.2, None, 0.9]}
    assert first_at(curves, "token_accuracy", 0.9) == 30
    assert first_at(curves, "token_accuracy", 0.15, "seconds") == 1.0
    assert first_at(curves, "token_accuracy", 0.95) is None
    # the first time counts
    assert first_at({"step": [1, 2, 3], "loss": [0.1, 0.7, 0.5]}, "loss", 0.5) == 2


shares = st.tuples(st.integers(1, 4096), st.sampled_from([7, 48, 500, 512, 2000, 4096])).map(
    lambda k: k[0] / k[1]
)
noise = st.integers(-450, 450).map(lambda ulps: 1 + ulps * 2.0**-52)  # to 1e-13


@given(shares, noise, st.integers(2, 6))
def test_what_is_shown_does_not_depend_on_last_digits(share, off, figures):
    """Shares of test items are often half a unit of the last place, 0.0125 of 2,000."""
    assert (
        to_figures(share * off, figures)
        == to_figures(share, figures)
        == pytest.approx(share, rel=10**-figures * 5)
    )


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.9987]), min_size=2, max_size=5), st.data())
def test_intervals_are_the_same_of_values_that_differ_in_last_digits(values, data):
    moved = [value * (1 + data.draw(st.integers(-4, 4)) * 2.0**-52) for value in values]
    mean, low, high = mean_interval([a - b for a, b in zip(values, reversed(values), strict=True)])
    other = mean_interval([a - b for a, b in zip(moved, reversed(moved), strict=True)])
    assert str(mean) == str(other[0]) == "0.0", "the sign of nothing"
    assert to_figures(low) == to_figures(other[1])
    assert to_figures(high) == to_figures(other[2])


@pytest.mark.parametrize("bar", [0.0, 0.02, -0.02, 0.95, 1.0])
def test_what_is_within_a_billionth_of_a_bar_is_on_it(bar):
    for off in (0.0, 1e-13, -1e-13, 9e-10, -9e-10):
        assert reaches(bar + off, bar)
        assert not exceeds(bar + off, bar)
        assert not exceeds(bar, bar + off)
    assert exceeds(bar + 2e-9, bar)
    assert not reaches(bar - 2e-9, bar)
    assert not exceeds(math.nan, bar)
    assert not reaches(math.nan, bar)
    assert exceeds(pd.Series([bar, bar + 1]), bar).tolist() == [False, True]
