"""The empirical capacity model (§3.1.3, equation 10): capacity from width B, heads H and length N.

    C = min(f(H, N) B, α H + β),    f(H, N) = a / (N^(b H + c) + d) + e

The paper prints max in place of min. With max and the printed numbers no capacity would lie below the saturation value,
12,504 for one head, while its figure 13 reads 1600 and 3300 for models of 2 M parameters; both forms are here.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np

from entp_lib.validation import one_of, require

Form = Literal["min", "max"]
FORMS = {"min": np.minimum, "max": np.maximum}


@dataclass(frozen=True)
class Parameters:
    """The seven numbers of the model, named as in table 2."""

    a: float
    b: float
    c: float
    d: float
    e: float
    alpha: float
    beta: float


# Table 2, by number of layers. The second row is rounded too far to be used: f(1, 64) is negative.
PUBLISHED = {
    1: Parameters(145.27, -0.13, 1.29, 0.13, 0.20, 3762.70, 8741.00),
    2: Parameters(2.45, -0.002, 0.02, -0.99, -29.08, 4413.10, 14787.00),
}


# Figure 13 as §3.1.3 reads it: sequences of 64 tokens that two million parameters hold, by heads.
READ_OFF = {2: 1600.0, 4: 3300.0}


@dataclass(frozen=True)
class Point:
    """One measured model: width B, heads H, length N, and the capacity C that was found."""

    width: int
    n_heads: int
    length: int
    capacity: float


@dataclass(frozen=True)
class Quality:
    """R², root mean square error, and mean absolute error relative to the measured capacity."""

    r2: float
    rmse: float
    mape: float


def slope(p: Parameters, n_heads, length):
    """f(H, N), sequences per unit of width; numbers or arrays. Equation 11 with its lost fraction restored."""
    return p.a / (np.asarray(length, float) ** (p.b * np.asarray(n_heads, float) + p.c) + p.d) + p.e


def saturation(p: Parameters, n_heads):
    """α H + β."""
    return p.alpha * np.asarray(n_heads, float) + p.beta


def contradicted(form: Form) -> bool:
    """Whether this form of the model, with the one-layer row of table 2, cannot give what figure 13 has.

    The larger of the two branches is nowhere below either of them, the smaller nowhere above.
    """
    p = PUBLISHED[1]
    bounds = ((float(saturation(p, n_heads)), found) for n_heads, found in READ_OFF.items())
    return any(bound > found if form == "max" else bound < found for bound, found in bounds)


def capacity(p: Parameters, width, n_heads, length, form: Form = "min"):
    """Sequences the model predicts can be memorised; numbers or arrays. Raises ConfigError for another form."""
    one_of("form", form, FORMS)
    return FORMS[form](slope(p, n_heads, length) * np.asarray(width, float), saturation(p, n_heads))


def memories_per_parameter(sequences: float, parameters: int) -> float:
    """Sequences memorised per trained parameter (equation 12)."""
    require(parameters >= 1, f"parameters = {parameters}: must be at least 1")
    return sequences / parameters


def columns(points: Sequence[Point]) -> tuple[np.ndarray, ...]:
    """Widths, heads, lengths and capacities of the points."""
    return tuple(
        np.array([getattr(x, name) for x in points], float) for name in ("width", "n_heads", "length", "capacity")
    )


def quality(measured: np.ndarray, predicted: np.ndarray) -> Quality:
    """How close a prediction comes."""
    error = predicted - measured
    spread = ((measured - measured.mean()) ** 2).sum()
    return Quality(
        float(1 - (error**2).sum() / spread), float(np.sqrt((error**2).mean())), float(np.abs(error / measured).mean())
    )


def fit(
    points: Sequence[Point], form: Form = "min", starts: int = 6, seed: int = 0, near: Parameters | None = None
) -> Parameters:
    """Least squares from random starting points, and from ``near``. ConfigError for fewer points than parameters.

    Saturation and slope are fitted together, so that a point belongs to whichever branch it lies on.
    """
    from scipy import optimize

    one_of("form", form, FORMS)
    require(len(points) >= 8, f"{len(points)} points: seven parameters need at least 8")
    widths, heads, lengths, measured = columns(points)
    top, per_width = measured.max(), (measured / widths).mean()

    def residuals(x: np.ndarray) -> np.ndarray:
        predicted = capacity(Parameters(*x), widths, heads, lengths, form)
        return np.nan_to_num((predicted - measured) / top, nan=1e3, posinf=1e3, neginf=-1e3)

    generator = np.random.default_rng(seed)
    drawn = [astuple(near)] if near else []
    for _ in range(starts):
        start = [
            per_width * 10 ** generator.uniform(-0.5, 1.0),
            generator.uniform(-0.3, 0.1),
            generator.uniform(0.1, 1.5),
            generator.uniform(-0.5, 1.0),
            per_width * generator.uniform(-0.5, 0.5),
            top * generator.uniform(0.0, 0.5),
            top * generator.uniform(0.2, 1.0),
        ]
        drawn.append(start)
    scale = [per_width, 0.1, 0.5, 0.5, per_width, top, top]
    best = None
    for start in drawn:
        found = optimize.least_squares(residuals, start, x_scale=scale, max_nfev=150)
        if best is None or found.cost < best.cost:
            best = found
    return Parameters(*map(float, best.x))


def cubic_terms(widths: np.ndarray, heads: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All products of width, heads and length up to degree 3, each scaled to at most 1: (points, 20)."""
    x = [widths / widths.max(), heads / heads.max(), lengths / lengths.max()]
    terms = [x[0] ** i * x[1] ** j * x[2] ** k for i in range(4) for j in range(4 - i) for k in range(4 - i - j)]
    return np.stack(terms, 1)


def cross_validated(points: Sequence[Point], folds: int = 8, form: Form = "min", seed: int = 0) -> dict[str, Quality]:
    """Quality on points left out of the fit, for the capacity model and for a cubic polynomial; as ``left_out``."""
    measured = columns(points)[3]
    return {name: quality(measured, values) for name, values in left_out(points, folds, form, seed).items()}


def left_out(points: Sequence[Point], folds: int = 8, form: Form = "min", seed: int = 0) -> dict[str, np.ndarray]:
    """What the capacity model and a cubic polynomial predict of every point, fitted to the other folds' points.

    Raises ConfigError where the folds leave fewer than 21 points to fit the polynomial's 20 terms.
    """
    require(2 <= folds <= len(points), f"folds = {folds}: must be from 2 to {len(points)}, the number of points")
    left = len(points) - -(-len(points) // folds)
    require(left >= 21, f"{len(points)} points in {folds} folds: a cubic needs 21 to be fitted to, this leaves {left}")
    widths, heads, lengths, measured = columns(points)
    terms = cubic_terms(widths, heads, lengths)
    predicted = {"capacity_model": np.zeros(len(points)), "cubic": np.zeros(len(points))}
    whole = fit(points, form, seed=seed)  # where the search begins; what is left out has no part in a fit
    for held in np.array_split(np.random.default_rng(seed).permutation(len(points)), folds):
        kept = np.setdiff1d(np.arange(len(points)), held)
        found = fit([points[i] for i in kept], form, starts=1, seed=seed, near=whole)
        predicted["capacity_model"][held] = capacity(found, widths[held], heads[held], lengths[held], form)
        weights = np.linalg.lstsq(terms[kept], measured[kept], rcond=None)[0]
        predicted["cubic"][held] = terms[held] @ weights
    return predicted
