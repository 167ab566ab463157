"""Sums of sigmoids by attention (Lemma 5): a softmax over two scores, z and 0, is σ(z).

``sigmoid_block`` applies f(x) = Σ_i c_i σ(w_i x + b_i) to entries of A, a head per term and row. ``selected_block`` is
the lemma itself: A holds the unit vector e_j that selects one of several functions, B holds x.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.fleq.frame import BOUND, FAR, Block, Frame, Maker
from entp_papers.looped.plan import LayerPlan


@dataclass(frozen=True)
class SigmoidSum:
    """f(x) = Σ_i c_i σ(w_i x + b_i), arrays (m,)."""

    c: ndarray
    w: ndarray
    b: ndarray

    def __call__(self, x: ndarray) -> ndarray:
        z = np.multiply.outer(np.asarray(x), self.w) + self.b
        return (1 / (1 + np.exp(-np.clip(z, -700, 700)))) @ self.c

    def on_tensor(self, x: Tensor) -> Tensor:
        c, w, b = map(torch.from_numpy, (self.c, self.w, self.b))
        return torch.sigmoid(x.double()[..., None] * w + b) @ c


SIGMOID = SigmoidSum(np.ones(1), np.ones(1), np.zeros(1))


def staircase(
    f: Callable[[ndarray], ndarray], inverse: Callable[[ndarray], ndarray], low: float, high: float, m: int
) -> SigmoidSum:
    """A monotone f on [low, high] as m equal steps, each a sigmoid as wide as its step is long (Lemmas 10, 11).

    One term more is the constant f(low). ``inverse`` is the inverse of f.
    """
    require(m >= 2, f"m = {m}: must be at least 2")
    height = (f(np.array(high)) - f(np.array(low))) / m
    levels = f(np.array(low)) + height * (np.arange(m) + 0.5)
    places = inverse(levels)
    edges = inverse(f(np.array(low)) + height * np.arange(m + 1))
    w = 4 / np.abs(np.diff(edges))
    constant = float(f(np.array(low)))
    return SigmoidSum(np.append(np.full(m, height), constant), np.append(w, 0.0), np.append(-w * places, 40.0))


def sqrt_sum(m: int, high: float = 100.0) -> SigmoidSum:
    """The square root on [0, high] (Lemma 11)."""
    return staircase(np.sqrt, np.square, 0.0, high, m)


def inverse_sum(m: int, low: float = 0.1, high: float = 10.0, both_signs: bool = False) -> SigmoidSum:
    """1/x on [low, high] (Lemma 10); ``both_signs`` adds the branch on [-high, -low], of as many terms again."""
    one = staircase(lambda x: 1 / x, lambda y: 1 / y, low, high, m)
    if not both_signs:
        return one
    # s(x) is 1/low for all x < 0, so that s(x) - s(-x) is 1/x less 1/low times the sign of x: a steep sigmoid adds that
    sign = (np.array([2 / low, -1 / low]), np.array([40 / low, 0.0]), np.array([0.0, 40.0]))
    return SigmoidSum(
        np.concatenate([one.c, -one.c, sign[0]]),
        np.concatenate([one.w, -one.w, sign[1]]),
        np.concatenate([one.b, one.b, sign[2]]),
    )


def sigmoid_block(f: SigmoidSum, rows: int = 0, exact: Callable[[Tensor], Tensor] | None = None) -> Maker:
    """f of every entry in the first ``rows`` rows of A (0: all): 2 layers of the 3, a head per term and row.

    The sum has f(0) where A is 0. ``exact`` is what it stands for, by default the sum of sigmoids itself.
    """
    function = exact or f.on_tensor

    def make(frame: Frame, name: str) -> Block:
        height = rows or frame.d
        require(height <= frame.d, f"rows = {rows}: must be at most d = {frame.d}")
        data, x = frame.rows.add(f"{name}.data", frame.d), frame.rows.add(f"{name}.x", height)
        (marker,) = frame.rows.add(f"{name}.marker")
        first, second = LayerPlan(f"{name}: copy A to C"), LayerPlan(f"{name}: a head per sigmoid")
        frame.gather(first, ("a",), [({d: 1.0}, {i: 1.0}) for d, i in zip(data, x, strict=False)])
        frame.clear_c(first, data)
        c = frame.role["c"]
        # C's tokens see the marker, with score z, and the rest token, with score 0; all others see the rest token only
        unseen = ({frame.inside: -FAR}, {frame.inside: 1.0, marker: -1.0, frame.rest: -1.0})
        others = ({frame.inside: -FAR, c: FAR}, {marker: 1.0})
        for i in range(height):
            for c_i, w_i, b_i in zip(f.c, f.w, f.b, strict=True):
                z = ({x[i]: float(w_i), c: float(b_i)}, {marker: 1.0})
                frame.head(second, [z, unseen, others], [({marker: float(c_i)}, {data[i]: 1.0})], 1.0)
        second.clear(x)

        def of_matrix(a: Tensor, b: Tensor) -> Tensor:
            result = torch.zeros_like(a)
            result[..., :height, :] = function(a[..., :height, :])
            return result

        block = Block(name, frame, data, [x], [first, second], of_matrix, frame.d + height + 1)
        block.constants = [(2 * frame.d, marker, 1.0)]
        return block

    return make


def selected_block(coefficients_NM: ndarray, weights_NMk: ndarray) -> Maker:
    """Lemma 5: C[0, 0] = Σ_i c_ji σ(x · a_ji) for the j that e = A's first column selects, x = B's first column.

    ``coefficients_NM`` are c_ji, ``weights_NMk`` are a_ji: N functions, m terms, k entries of x. 3 layers, m heads.
    """
    N, m, k = weights_NMk.shape
    c_NM, w_NMk = torch.from_numpy(coefficients_NM), torch.from_numpy(weights_NMk)

    def exact(a: Tensor, b: Tensor) -> Tensor:
        e, x = a[..., :N, 0].double(), b[..., :k, 0].double()
        z = torch.einsum("...k,...n,nmk->...m", x, e, w_NMk)
        result = torch.zeros_like(a)
        result[..., 0, 0] = (torch.sigmoid(z) * (e @ c_NM)).sum(-1)
        return result

    def make(frame: Frame, name: str) -> Block:
        require(max(N, k) <= frame.d, f"d = {frame.d}: {N} functions of {k} numbers need {max(N, k)}")
        rows, d = frame.rows, frame.d
        data, e, x = rows.add(f"{name}.data", d), rows.add(f"{name}.e", N), rows.add(f"{name}.x", k)
        (total,), (first_a,), (first_b,), (first_c,) = (
            rows.add(f"{name}.{part}") for part in ("total", "first_a", "first_b", "first_c")
        )
        split, sum_up, move = (
            LayerPlan(f"{name}: {says}") for says in ("e and x apart", "a head per sigmoid", "move the sum to C")
        )
        for i, row in enumerate(e):
            split.add_where({data[i]: 1.0}, {row: 1.0}, [first_a], BOUND)
        for i, row in enumerate(x):
            split.add_where({data[i]: 1.0}, {row: 1.0}, [first_b], BOUND)
        frame.clear_c(split, data)
        unseen = ({first_b: -FAR}, {frame.inside: 1.0, first_a: -1.0, first_b: -1.0})
        for i in range(m):
            scores = [({row: 1.0}, {e[j]: float(weights_NMk[j, i, r]) for j in range(N)}) for r, row in enumerate(x)]
            value = {e[j]: float(coefficients_NM[j, i]) for j in range(N)}
            frame.head(sum_up, [*scores, unseen], [(value, {total: 1.0})], 1.0)
        frame.head(
            move,
            [({first_c: 1.0}, {first_b: 1.0}), frame.others_rest({first_c: 1.0})],
            [({total: 1.0}, {data[0]: 1.0})],
        )
        for clear in (e, x):
            sum_up.clear(clear)
        move.clear([total])
        # every token but B's first has summed what it saw: that is not to be read
        sum_up.add_where({total: -1.0}, {total: 1.0}, [frame.rest], BOUND)
        temporary = [e, x, range(total, total + 1)]
        block = Block(name, frame, data, temporary, [split, sum_up, move], exact, d + N + k + 4)
        block.constants = [(0, first_a, 1.0), (d, first_b, 1.0), (2 * d, first_c, 1.0)]
        return block

    return make
