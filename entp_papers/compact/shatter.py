"""How many epochs a model needs to recall its whole library: a negative binomial? (§3.1.1, figure 8)

P(X = k) = C(k + r - 1, k) (1 - p)^k p^r for k = 0, 1, 2, … epochs, r > 0 and 0 < p ≤ 1. Runs that did not get there in
time count as later than the last epoch, unless they are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from entp_lib.validation import require


@dataclass(frozen=True)
class Fit:
    """The negative binomial (r, p), and how well it describes the numbers of epochs."""

    r: float
    p: float
    chi_square: float
    degrees: int
    p_value: float
    log_likelihood: float
    poisson_log_likelihood: float
    mean: float
    variance: float


def spreads(epochs: Sequence[float]) -> bool:
    """Whether the variance is above the mean, as a negative binomial's is."""
    return float(np.var(epochs, ddof=1)) > float(np.mean(epochs))


def by_moments(epochs: Sequence[float]) -> tuple[float, float]:
    """(r, p) with the sample's mean and variance. Raises ConfigError where the variance is not above the mean."""
    values = np.asarray(epochs, dtype=float)
    require(len(values) >= 2, f"{len(values)} runs: a fit needs at least 2")
    mean, variance = values.mean(), values.var(ddof=1)
    require(spreads(values), f"variance {variance:.3g} ≤ mean {mean:.3g}: no negative binomial has that")
    return float(mean**2 / (variance - mean)), float(mean / variance)


def fit(epochs: Sequence[int], bins: int = 10, unfinished: int = 0, limit: int | None = None) -> Fit:
    """Maximum likelihood over runs that took ``epochs`` each, with a chi-square test of the fit.

    The test has ``bins`` intervals of about equal probability; two degrees of freedom go to r and p. ``unfinished``
    runs took more than ``limit`` epochs: they enter the likelihood as that and are an interval of their own. Raises
    ConfigError where there is too little to fit, and for unfinished runs without a limit.
    """
    from scipy import optimize, stats  # takes a second to import

    require(len(epochs) >= 5 * bins, f"{len(epochs)} runs: {bins} bins need {5 * bins} at least")
    values = np.asarray(epochs, dtype=float)
    require(not unfinished or limit is not None, f"{unfinished} unfinished runs: after which epoch were they stopped?")
    start = by_moments(values)

    def minus(x: np.ndarray) -> float:
        shape = np.exp(x[0]), 1 / (1 + np.exp(-x[1]))
        later = unfinished * stats.nbinom.logsf(limit, *shape) if unfinished else 0.0
        return -float(stats.nbinom.logpmf(values, *shape).sum() + later)

    begin = [np.log(start[0]), np.log(start[1] / (1 - start[1]))]
    best = optimize.minimize(minus, begin, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    r, p = float(np.exp(best.x[0])), float(1 / (1 + np.exp(-best.x[1])))
    mean = float(values.mean())
    return Fit(
        r,
        p,
        *goodness(stats.nbinom(r, p), values, bins, unfinished, limit),
        log_likelihood=-float(best.fun),
        poisson_log_likelihood=float(stats.poisson(mean).logpmf(values).sum()),
        mean=mean,
        variance=float(values.var(ddof=1)),
    )


def goodness(
    distribution, values: np.ndarray, bins: int, unfinished: int = 0, limit: int | None = None
) -> tuple[float, int, float]:
    """(chi-square, degrees of freedom, p-value) over bins of about equal probability, the last beyond ``limit``."""
    from scipy import stats

    within = float(distribution.cdf(limit)) if unfinished else 1.0
    edges = np.unique(distribution.ppf(within * np.linspace(0, 1, bins + 1)[1:-1]))
    beyond = (1 - within) * (len(values) + unfinished)
    if beyond >= 1:  # fewer expected runs would make a square of any that is there
        edges = np.unique([*edges, limit])
    cumulative = np.concatenate([[0.0], distribution.cdf(edges), [1.0]])
    expected = np.diff(cumulative) * (len(values) + unfinished)
    observed = np.bincount(np.searchsorted(edges, values), minlength=len(expected))
    observed[-1] += unfinished
    degrees = len(expected) - 3
    require(degrees >= 1, f"bins = {bins}: too few different numbers of epochs to test a fit")
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    return chi_square, degrees, float(stats.chi2.sf(chi_square, degrees))


def density(epochs: Sequence[int], r: float, p: float) -> np.ndarray:
    """P(X = k) of the negative binomial at each number of epochs."""
    from scipy import stats

    return stats.nbinom.pmf(np.asarray(epochs), r, p)
