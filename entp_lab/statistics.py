"""Intervals, paired tests and look-ups on curves: the only place where they are computed.

Logarithms, fits and products of matrices differ in their last digits from one processor's instructions to another's.
So intervals come without these digits, what is shown goes ``to_figures``, and a value on a bar does not exceed it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

SHOWN, SURE = 4, 10  # significant figures of what is shown, and of what is the same on every processor
CONFIDENCE = 0.95  # of every interval
EDGE = 1e-9  # closer to a bar, a value is on it
NOTHING = 1e-12  # a difference of means that is smaller is none


def to_figures(value: Any, figures: int = SHOWN, decimals: int = 400) -> Any:
    """A float, or each of an array (as a new one), to so many significant figures; everything else as it is.

    By way of ``SURE`` figures, so that half a unit of the last place, too, is rounded alike on every processor.
    ``decimals``: at most so many behind the point.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.vectorize(to_figures, otypes=[value.dtype])(value, figures, decimals)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    digits, exponent = f"{value:.{SURE - 1}e}".split("e")
    return round(float(f"{digits}e{exponent}"), min(decimals, figures - 1 - int(exponent)))


def sure(*values: float) -> tuple[float, ...]:
    """The values to ``SURE`` figures; what is next to nothing is 0, whose sign would be the processor's."""
    return tuple(0.0 if abs(value) < NOTHING else to_figures(float(value), SURE) for value in values)


def exceeds(value: Any, bar: Any) -> Any:
    """Whether a value (or each of an array) is above a bar by more than ``EDGE``: closer, it is on the bar."""
    return value - bar > EDGE


def reaches(value: Any, bar: Any) -> Any:
    """Whether a value (or each of an array) is above a bar or on it, as ``exceeds`` has it; NaN reaches none."""
    return value - bar >= -EDGE


def t_quantile(freedom: float) -> float:
    """Half the width, in standard errors, of a two-sided 95 % interval by Student's t."""
    from scipy.special import stdtrit  # whose import takes as long as a third of torch's, and a run needs no interval

    return stdtrit(freedom, (1 + CONFIDENCE) / 2)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of the mean, by Student's t; low and high are NaN for fewer than two values.

    For differences of paired runs this is the paired t interval.
    """
    values = np.asarray(values, dtype=float)
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) < 2:
        return sure(mean, math.nan, math.nan)
    error = values.std(ddof=1) / np.sqrt(len(values))
    half = t_quantile(len(values) - 1) * error
    return sure(mean, mean - half, mean + half)


def welch_interval(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, float]:
    """(difference of means, low, high) of two samples that are not paired, by Welch's t.

    Each sample as published tables have it: mean, standard deviation (n − 1) and number of values. low and high are NaN
    where either has fewer than two values, and the difference itself where neither varies.
    """
    (mean, sd, n), (other, other_sd, m) = first, second
    gap = mean - other
    if min(n, m) < 2:
        return sure(gap, math.nan, math.nan)
    parts = np.array([sd**2 / n, other_sd**2 / m])
    if not parts.any():
        return sure(gap, gap, gap)
    freedom = parts.sum() ** 2 / (parts**2 / [n - 1, m - 1]).sum()
    half = t_quantile(freedom) * np.sqrt(parts.sum())
    return sure(gap, gap - half, gap + half)


def p_value(mean: float, low: float, high: float, pairs: int) -> float:
    """The two-sided p of no difference that a ``mean_interval`` of so many values tells; NaN for fewer than two.

    An interval without width excludes every other value: 0, or 1 where the mean is zero.
    """
    if pairs < 2 or not np.isfinite([mean, low, high]).all():
        return math.nan
    from scipy.special import stdtr

    half = (high - low) / 2
    if half == 0:
        return float(mean == 0)
    t = mean / half * t_quantile(pairs - 1)
    return to_figures(float(2 * stdtr(pairs - 1, -abs(t))), SURE)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Which differences remain if all are tested together, (n,) bool: Holm's step-down, at 5 % for any error.

    NaN never remains and is not counted among those tested.
    """
    p = np.asarray(p_values, dtype=float)
    kept, tested = np.zeros(len(p), dtype=bool), int(np.isfinite(p).sum())
    for rank, index in enumerate(np.argsort(p, kind="stable")[:tested]):  # NaN last
        if exceeds(p[index], (1 - CONFIDENCE) / (tested - rank)):
            break
        kept[index] = True
    return kept


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """(ratio, low, high) of the means of two paired sets of values, by Fieller's theorem.

    Low and high are NaN for fewer than two pairs, and where the interval of the mean of ``below`` includes zero: no
    bounded interval exists then. All three are where that mean is zero.
    """
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    if not len(above) or below.mean() == 0:
        return math.nan, math.nan, math.nan
    top, bottom = above.mean(), below.mean()
    ratio = top / bottom
    if len(above) < 2:
        return sure(ratio, math.nan, math.nan)
    t2 = t_quantile(len(above) - 1) ** 2
    (of_top, of_both), (_, of_bottom) = t2 * np.cov(above, below, ddof=1) / len(above)
    lead, half, last = bottom**2 - of_bottom, top * bottom - of_both, top**2 - of_top
    if lead <= 0:
        return sure(ratio, math.nan, math.nan)
    root = np.sqrt(max(half**2 - lead * last, 0.0))
    return sure(ratio, (half - root) / lead, (half + root) / lead)


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """(low, high) of a proportion over test items, by Wilson: the noise of the test, not of the training."""
    from scipy import stats  # takes a second to import, which a notebook that has no need of it should not pay

    interval = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(first_only: int, second_only: int) -> float:
    """Two-sided p-value of McNemar's exact test for a pair on the same items, from how often only one was wrong."""
    from scipy import stats

    discordant = first_only + second_only
    return float(stats.binomtest(first_only, discordant).pvalue) if discordant else 1.0


def first_at(curves: dict[str, list], metric: str, threshold: float, axis: str = "step") -> float | None:
    """Where on ``axis`` a curve first reaches ``threshold``; None if it never does."""
    for x, y in zip(curves[axis], curves[metric], strict=True):
        if y is not None and y >= threshold:
            return x
    return None


def value_at(curves: dict[str, list], metric: str, x: float, axis: str) -> float | None:
    """The last value of a curve at or before ``x`` on ``axis``; None if the curve starts later."""
    before = [y for at, y in zip(curves[axis], curves[metric], strict=True) if at <= x]
    return before[-1] if before else None
