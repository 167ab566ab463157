"""Intervals, paired tests and look-ups on curves: the only place where they are computed.

Logarithms, fits and matrix products differ in their last digits between processors. Intervals are therefore rounded to
fewer digits, displayed values by ``to_figures``, and a value that equals a threshold does not exceed it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

DISPLAY_DIGITS = 4  # significant figures of what is shown
PORTABLE_DIGITS = 10  # significant figures that are the same on every processor
CONFIDENCE = 0.95  # of every interval
TOLERANCE = 1e-9  # within which a value counts as equal to a threshold
ZERO_BELOW = 1e-12  # differences of means below this are rounding noise and set to 0


def to_figures(value: Any, figures: int = DISPLAY_DIGITS, decimals: int = 400) -> Any:
    """Round a float, or a copy of a float array, to ``figures`` significant digits; return everything else as it is.

    Rounds to ``PORTABLE_DIGITS`` first, so that ties are rounded alike on every processor. ``decimals``: the most
    digits after the decimal point.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.vectorize(to_figures, otypes=[value.dtype])(value, figures, decimals)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    digits, exponent = f"{value:.{PORTABLE_DIGITS - 1}e}".split("e")
    return round(float(f"{digits}e{exponent}"), min(decimals, figures - 1 - int(exponent)))


def portable(*values: float) -> Any:
    """Round values to ``PORTABLE_DIGITS``; tiny ones become 0, since their sign depends on the processor."""
    return tuple(
        0.0 if abs(value) < ZERO_BELOW else to_figures(float(value), PORTABLE_DIGITS)
        for value in values
    )


def exceeds(value: Any, bar: Any) -> Any:
    """Say whether a value (or each of an array) is above a bar by more than ``TOLERANCE``; if closer, it is on it."""
    return value - bar > TOLERANCE


def reaches(value: Any, bar: Any) -> Any:
    """Say whether a value (or each of an array) is above a bar or on it, as ``exceeds`` has it; NaN reaches none."""
    return value - bar >= -TOLERANCE


def t_quantile(freedom: float) -> float:
    """Return half the width, in standard errors, of a two-sided 95 % interval by Student's t."""
    # imported here because it takes a third as long as torch, and a run needs no interval
    from scipy.special import stdtrit

    return stdtrit(freedom, (1 + CONFIDENCE) / 2)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) of the mean, by Student's t; low and high are NaN for fewer than two values.

    For differences of paired runs this is the paired t interval.
    """
    found = np.asarray(values, dtype=float)
    mean = float(found.mean()) if len(found) else math.nan
    if len(found) < 2:
        return portable(mean, math.nan, math.nan)
    half = t_quantile(len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return portable(mean, mean - half, mean + half)


def welch_interval(
    first: tuple[float, float, int], second: tuple[float, float, int]
) -> tuple[float, float, float]:
    """Return (difference of means, low, high) of two samples that are not paired, by Welch's t.

    Each sample is given as in published tables: mean, standard deviation (n − 1) and number of values. low and high are
    NaN if either has fewer than two values, and the difference itself if neither varies.
    """
    mean, sd, n = first
    other, other_sd, m = second
    gap = mean - other
    if min(n, m) < 2:
        return portable(gap, math.nan, math.nan)
    parts = np.array([sd**2 / n, other_sd**2 / m])
    if not parts.any():
        return portable(gap, gap, gap)
    freedom = parts.sum() ** 2 / (parts**2 / [n - 1, m - 1]).sum()
    half = t_quantile(freedom) * np.sqrt(parts.sum())
    return portable(gap, gap - half, gap + half)


def p_value(mean: float, low: float, high: float, pairs: int) -> float:
    """Return the two-sided p of no difference from a ``mean_interval`` of ``pairs`` values; NaN for fewer than two.

    If the interval has no width, p is 0, or 1 if the mean is zero.
    """
    if pairs < 2 or not np.isfinite([mean, low, high]).all():
        return math.nan
    from scipy.special import stdtr

    half = (high - low) / 2
    if half == 0:
        return float(mean == 0)
    t = mean / half * t_quantile(pairs - 1)
    return to_figures(2 * stdtr(pairs - 1, -abs(t)), PORTABLE_DIGITS)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return which differences remain if all are tested together, (n,): Holm's step-down, at 5 % for any error.

    NaN never remains and is not counted among those tested.
    """
    p = np.asarray(p_values, dtype=float)
    kept = np.zeros(len(p), dtype=bool)
    tested = np.isfinite(p).sum()
    for rank, index in enumerate(np.argsort(p, kind="stable")[:tested]):  # NaN last
        if exceeds(p[index], (1 - CONFIDENCE) / (tested - rank)):
            break
        kept[index] = True
    return kept


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return (low, high) of a proportion over test items, by Wilson: the noise of the test, not of the training."""
    # imported here because it takes a second, and most notebooks do not need it
    from scipy import stats

    interval = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def first_at(
    curves: dict[str, list], metric: str, threshold: float, axis: str = "step"
) -> float | None:
    """Return where on ``axis`` a curve first reaches ``threshold``; None if it never does."""
    for x, y in zip(curves[axis], curves[metric], strict=True):
        if y is not None and y >= threshold:
            return x
    return None
