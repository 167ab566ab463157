"""Two laws of memorised random sequences: capacity (§3.1.3), and the epochs needed (§3.1.1).

Capacity C from width B, heads H and length N (equation 10):

    C = min(f(H, N) B, α H + β),    f(H, N) = a / (N^(b H + c) + d) + e

The paper prints max in place of min. With max and the printed numbers no capacity would lie below
the saturation value, 12,504 for one head, while its figure 13 reads 1600 and 3300 for models of 2 M
parameters; both forms are here.

Epochs until a whole library is recalled (figure 8): a negative binomial,

    P(X = k) = C(k + r - 1, k) (1 - p)^k p^r    for k = 0, 1, 2, …,  r > 0,  0 < p ≤ 1.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from entp_lab.frames import published

FORMS = {"min": np.minimum, "max": np.maximum}


class Parameters(NamedTuple):
    """The seven numbers of the capacity model, named as in table 2."""

    a: float
    b: float
    c: float
    d: float
    e: float
    alpha: float
    beta: float


# Figure 13 as §3.1.3 reads it: sequences of 64 tokens that two million parameters hold, by heads.
READ_OFF = {2: 1600.0, 4: 3300.0}


def of_table_2(layers: int) -> Parameters:
    """Return the published numbers for 1 or 2 layers.

    Those for 2 layers are rounded too far: f(1, 64) is negative.
    """
    row = published("compact", "capacity_model").set_index("layers").loc[layers]
    return Parameters(*row[list(Parameters._fields)].tolist())


def slope(p: Parameters, n_heads, length):
    """Return f(H, N), sequences per unit of width (equation 11 with its lost fraction restored)."""
    return p.a / (length ** (p.b * n_heads + p.c) + p.d) + p.e


def saturation(p: Parameters, n_heads):
    """Return α H + β."""
    return p.alpha * n_heads + p.beta


def capacity(p: Parameters, width, n_heads, length, form: str = "min"):
    """Return the sequences that the model predicts can be memorised; numbers or arrays.

    ``form``: one of ``FORMS``.
    """
    return FORMS[form](slope(p, n_heads, length) * width, saturation(p, n_heads))


def quality(measured: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return R², root mean square error, and mean absolute error over the measured capacity."""
    error = predicted - measured
    spread = ((measured - measured.mean()) ** 2).sum()
    return {
        "r2": float(1 - (error**2).sum() / spread),
        "rmse": float(np.sqrt((error**2).mean())),
        "mape": float(np.abs(error / measured).mean()),
    }


def fit(
    points_P4: np.ndarray, form: str = "min", starts: int = 6, near: Parameters | None = None
) -> Parameters:
    """Fit the capacity model by least squares from random starting points, and from ``near``.

    Columns of ``points_P4``: width, heads, length, measured capacity. Saturation and slope are
    fitted together, so that a point belongs to whichever branch it lies on.
    """
    from scipy import optimize

    widths, heads, lengths, measured = points_P4.T
    top = measured.max()
    per_width = (measured / widths).mean()

    def residuals(x: np.ndarray) -> np.ndarray:
        predicted = capacity(Parameters(*x), widths, heads, lengths, form)
        return np.nan_to_num((predicted - measured) / top, nan=1e3, posinf=1e3, neginf=-1e3)

    # range and scale of the random starts, parameter by parameter
    ranges = ((-0.3, 0.1), (0.1, 1.5), (-0.5, 1.0), (-0.5, 0.5), (0.0, 0.5), (0.2, 1.0))
    units = np.array([per_width, 1, 1, 1, per_width, top, top])
    scale = [per_width, 0.1, 0.5, 0.5, per_width, top, top]
    generator = np.random.default_rng(0)
    drawn = [near] if near else []
    for _ in range(starts):
        first = 10 ** generator.uniform(-0.5, 1.0)
        drawn.append(units * [first, *generator.uniform(*np.transpose(ranges))])
    tried = [
        optimize.least_squares(residuals, start, x_scale=scale, max_nfev=150) for start in drawn
    ]
    return Parameters(*map(float, min(tried, key=lambda found: found.cost).x))


def left_out(points_P4: np.ndarray) -> dict[str, np.ndarray]:
    """Predict each point by the capacity model and by a cubic polynomial, in eight folds.

    Both are fitted to the other seven folds. The polynomial has 20 terms, so it takes 24 points.
    """
    count = len(points_P4)
    *shapes, measured = points_P4.T
    # the terms are products of these up to degree 3: (points, 20)
    x = [values / values.max() for values in shapes]
    powers = [power for power in itertools.product(range(4), repeat=3) if sum(power) <= 3]
    terms = np.stack([x[0] ** i * x[1] ** j * x[2] ** k for i, j, k in powers], 1)
    predicted = {"capacity_model": np.zeros(count), "cubic": np.zeros(count)}
    whole = fit(points_P4)  # only a starting point: held-out points have no part in a fold's fit
    for held in np.array_split(np.random.default_rng(0).permutation(count), 8):
        kept = np.setdiff1d(np.arange(count), held)
        law = fit(points_P4[kept], starts=1, near=whole)
        predicted["capacity_model"][held] = capacity(law, *(x[held] for x in shapes))
        weights = np.linalg.lstsq(terms[kept], measured[kept], rcond=None)[0]
        predicted["cubic"][held] = terms[held] @ weights
    return predicted


def by_moments(epochs: Sequence[float]) -> tuple[float, float] | None:
    """Return (r, p) with the sample's mean and variance, or None if these allow no such law.

    The variance must be above the mean.
    """
    mean = float(np.mean(epochs))
    variance = float(np.var(epochs, ddof=1))
    if variance <= mean:
        return None
    return mean**2 / (variance - mean), mean / variance


def most_likely(
    values: np.ndarray, unfinished: int, limit: int | None
) -> tuple[float, float, float] | None:
    """Return (r, p) of maximum likelihood, and the log-likelihood; None as in ``by_moments``.

    ``unfinished`` runs took more than ``limit`` epochs, and enter the likelihood as such.
    """
    from scipy import optimize, stats

    start = by_moments(values)
    if start is None:
        return None

    def shape(x: np.ndarray) -> tuple[float, float]:
        return np.exp(x[0]), 1 / (1 + np.exp(-x[1]))

    def minus_log_likelihood(x: np.ndarray) -> float:
        later = unfinished * stats.nbinom.logsf(limit, *shape(x)) if unfinished else 0.0
        return -float(stats.nbinom.logpmf(values, *shape(x)).sum() + later)

    begin = [np.log(start[0]), np.log(start[1] / (1 - start[1]))]
    options = {"xatol": 1e-6, "fatol": 1e-8}
    best = optimize.minimize(minus_log_likelihood, begin, method="Nelder-Mead", options=options)
    r, p = shape(best.x)
    return float(r), float(p), -float(best.fun)


def fit_epochs(
    epochs: Sequence[int],
    unfinished: int = 0,
    limit: int | None = None,
) -> dict[str, float] | None:
    """Fit a negative binomial (``r``, ``p``) to the epochs of runs, and test the fit.

    The fit is by maximum likelihood. The chi-square test has ten intervals of about equal
    probability; two degrees of freedom go to r and p. ``unfinished`` runs, which took more than
    ``limit`` epochs, are an interval of their own. None where the variance of ``epochs`` is not
    above their mean, or where there are too few different numbers to test a fit.
    """
    from scipy import stats

    values = np.asarray(epochs, dtype=float)
    found = most_likely(values, unfinished, limit)
    if found is None:
        return None
    r, p, log_likelihood = found
    law = stats.nbinom(r, p)
    runs = len(values) + unfinished

    within = float(law.cdf(limit)) if unfinished else 1.0
    edges = np.unique(law.ppf(within * np.linspace(0, 1, 11)[1:-1]))
    if (1 - within) * runs >= 1:  # with fewer expected runs, a single one would be a huge square
        edges = np.unique([*edges, limit])
    expected = runs * np.diff(law.cdf(edges), prepend=0.0, append=1.0)
    observed = np.bincount(np.searchsorted(edges, values), minlength=len(expected))
    observed[-1] += unfinished
    degrees = len(expected) - 3
    if degrees < 1:
        return None
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    mean = float(values.mean())
    return {
        "r": r,
        "p": p,
        "chi_square": chi_square,
        "degrees": degrees,
        "p_value": float(stats.chi2.sf(chi_square, degrees)),
        "log_likelihood": log_likelihood,
        "poisson_log_likelihood": float(stats.poisson(mean).logpmf(values).sum()),
        "mean": mean,
        "variance": float(values.var(ddof=1)),
    }
