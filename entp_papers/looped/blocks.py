"""Function blocks of FLEQ: sums, transposes, products (Lemmas 6 to 9), sigmoids (Lemmas 5, 10, 11).

The supplied text has the proofs of Lemma 8 only; the others are our constructions within the stated
numbers of layers.

Products come from a softmax that is nearly linear (Lemma 7). For scores δ s_i, small, and one score
of C, large, softmax weighs token i with about e^-C (1 + δ s_i). With values (e^C / δ) e_i the mean
is s_i + 1/δ: 1/δ is subtracted, which the paper's [x + ε, *] leaves out. The error is

    δ s² / 2 (the softmax is not linear) + u / δ (rounding, u the machine epsilon) + n s e^-C

so that it is least near δ = √u. Two heads, δ and -δ, cancel the first term and leave δ² s³ / 6.

A softmax over two scores, z and 0, is σ(z): ``sigmoid_block`` applies f(x) = Σ_i c_i σ(w_i x + b_i)
to entries of A, a head per term and row. ``selected_block`` is Lemma 5 itself: A holds the unit
vector e_j that selects one of several functions, B holds x.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from entp_lab.studies import at_least
from entp_lib.validation import require
from entp_papers.looped.fleq_machine import FAR, Block, Frame, Maker
from entp_papers.looped.layers import BOUND, LayerPlan, paired


def linear_block(factor: float, sign: float = 0.0) -> Maker:
    """Compute factor · A + sign · B, with a sign of -1, 0 or 1: 2 layers, 1 head.

    Sums and differences have 3 layers in Lemmas 8 and 9, a hundredth 2 in Corollary 3.
    """

    def make(frame: Frame) -> Block:
        data, scaled = frame.rows.take(frame.d, frame.d)
        first = LayerPlan("give A and B their factors")
        second = LayerPlan("add their columns")
        frame.clear_c(first, data)
        for x, y in zip(data, scaled, strict=True):
            first.add({x: factor}, y)
            if sign not in (0.0, factor):
                first.add({x: sign - factor}, y, [frame.role["b"]], 2 * BOUND)
        sources = "ab" if sign else "a"
        frame.read_columns(second, sources, paired(scaled, data, len(sources)))
        second.clear(scaled)
        return Block(data, scaled, [first, second], lambda a, b: factor * a + sign * b)

    return make


def diagonal_block(frame: Frame) -> Block:
    """Make a diagonal matrix of A's first column: 2 layers, 1 head."""
    data, read, (start,) = frame.rows.take(frame.d, frame.d, 1)
    first = LayerPlan("forget C")
    second = LayerPlan("read the column, keep a row per token")
    frame.clear_c(first, data)
    c = frame.role["c"]
    frame.head(second, [(c, start), frame.others_rest(c)], paired(data, read))
    for x, y, slot in zip(data, read, frame.slot, strict=True):
        second.add(y, x, [c, slot])
    second.clear(read)
    return Block(data, read, [first, second], lambda a, b: a[..., 0].diag_embed(), [(0, start)])


def transpose_block(frame: Frame) -> Block:
    """Transpose A in 4 layers with 1 head (Lemma 6): exchange the entries (k, j) and (j, k)."""

    def turn(grid: Grid) -> LayerPlan:
        plan = LayerPlan("exchange (k, j) and (j, k)")
        swapped = paired((*grid.across, *grid.down), (*grid.down, *grid.across))
        frame.head(plan, swapped, paired([grid.entry], [grid.moved]))
        return plan

    return grid_block(frame, turn, lambda a, b: a.mT)


def entrywise_sigmoid_block(frame: Frame) -> Block:
    """Apply σ to all entries of A in 4 layers, 1 head; ``sigmoid_block`` takes a head per row."""

    def squash(grid: Grid) -> LayerPlan:
        plan = LayerPlan("a softmax over the entry and 0")
        score = (grid.entry, grid.marker)
        unseen = ({frame.inside: -FAR}, {frame.inside: 1.0, grid.marker: -1.0, frame.rest: -1.0})
        frame.head(plan, [score, unseen], paired([grid.marker], [grid.moved]), 1.0)
        return plan

    return grid_block(frame, squash, lambda a, b: torch.sigmoid(a))


class Grid(NamedTuple):
    """Rows of a block that works on d² tokens; ``marker`` is 1 at one token alone."""

    across: range  # codes of the column
    down: range  # codes of the row
    entry: int
    moved: int  # the new entry
    marker: int


def grid_block(
    frame: Frame, change: Callable[[Grid], LayerPlan], exact: Callable[[Tensor, Tensor], Tensor]
) -> Block:
    """Spread A over d² tokens, one entry each, ``change`` the entries in a layer, collect them.

    Token k d + j has the entry in row k and column j.
    """
    d = frame.d
    data, column, spread, (entry, moved) = frame.rows.take(d, d, d, 2)
    across, down, of_a, of_c = frame.rows.take(d, d, d, d)

    scatter = LayerPlan("read column j of A at (k, j), keep its row k")
    frame.head(scatter, paired(across, of_a), paired(data, column))
    frame.clear_c(scatter, data)
    for y, gate in zip(column, down, strict=True):
        scatter.add(y, entry, [gate])
    scatter.clear(column)

    turn = change(Grid(across, down, entry, moved, of_c[0]))
    turn.clear([entry])

    place = LayerPlan("put the entry into row k")
    for y, gate in zip(spread, down, strict=True):
        place.add(moved, y, [gate])
    place.clear([moved])

    collect = LayerPlan("read the tokens (·, j) into column j of C")
    scores = [*paired(of_c, across), frame.others_rest(frame.role["c"])]
    frame.head(collect, scores, paired(spread, data, d))
    collect.clear(spread)

    temporary = [*column, *spread, entry, moved]
    block = Block(data, temporary, [scatter, turn, place, collect], exact)
    for j in range(d):
        block.constants += [(j, of_a[j]), (2 * d + j, of_c[j])]
        for k in range(d):
            block.constants += [(k * d + j, across[j]), (k * d + j, down[k])]
    return block


def product_block(
    left: str = "a",
    right: str = "b",
    delta: float = 1e-7,
    sink: float = 50.0,
    symmetric: bool = False,
) -> Maker:
    """Multiply left^T right, each of them ``a`` or ``b`` (Lemma 7): 2 layers, 1 head.

    ``delta`` is δ > 0, ``sink`` is C; ``symmetric`` takes two heads.
    """

    def exact(a: Tensor, b: Tensor) -> Tensor:
        sides = {"a": a, "b": b}
        return sides[left].mT @ sides[right]

    def make(frame: Frame) -> Block:
        d = frame.d
        c = frame.role["c"]
        data, found, got, unit = frame.rows.take(d, d, d, d)
        first = LayerPlan("products of columns")
        second = LayerPlan("copy them to C")
        # the rest token holds no data: its score is C exactly
        to_sink = ({frame.inside: sink}, frame.rest)
        for sign in (1.0, -1.0) if symmetric else (1.0,):
            weight = sign * math.exp(sink) / delta / (2 if symmetric else 1)
            frame.head(
                first,
                [*paired(data, data, sign * delta), to_sink],
                paired(unit, found, weight),
                1.0,
            )
        if not symmetric:
            first.unit(frame.inside, dict.fromkeys(found, -1 / delta))
        frame.clear_c(first, data)

        frame.read_columns(second, right, paired(found, got))
        for x, g in zip(data, got, strict=True):
            second.add(g, x, [c])
        second.clear(found)
        second.clear(got)
        start = "ab".index(left) * d
        return Block(
            data,
            [*found, *got],
            [first, second],
            exact,
            list(enumerate(unit, start)),
        )

    return make


PRODUCT = product_block()
PRECISE_PRODUCT = product_block(symmetric=True, delta=1e-5)


class SigmoidSum(NamedTuple):
    """f(x) = Σ_i c_i σ(w_i x + b_i), arrays (m,)."""

    c: ndarray
    w: ndarray
    b: ndarray

    def __call__(self, x: ndarray) -> ndarray:
        z = np.multiply.outer(x, self.w) + self.b
        return (1 / (1 + np.exp(-np.clip(z, -700, 700)))) @ self.c

    def on_tensor(self, x: Tensor) -> Tensor:
        c, w, b = map(torch.from_numpy, self)
        return torch.sigmoid(x[..., None] * w + b) @ c


def staircase(
    f: Callable[[ndarray], ndarray],
    inverse: Callable[[ndarray], ndarray],
    low: float,
    high: float,
    m: int,
) -> SigmoidSum:
    """Write a monotone f on [low, high] as m equal steps, each a sigmoid as wide as its step.

    One term more is the constant f(low). ``inverse`` is the inverse of f.
    """
    at_least(1, m=m)
    require(0 <= low < high, f"low = {low}, high = {high}: must be from 0 up, the lower first")
    bottom = f(np.array(low))
    height = (f(np.array(high)) - bottom) / m
    places = inverse(bottom + height * (np.arange(m) + 0.5))
    w = 4 / np.abs(np.diff(inverse(bottom + height * np.arange(m + 1))))
    return SigmoidSum(
        np.append(np.full(m, height), float(bottom)),
        np.append(w, 0.0),
        np.append(-w * places, 40.0),
    )


def sqrt_sum(m: int, high: float = 100.0) -> SigmoidSum:
    """Approximate the square root on [0, high] (Lemma 11)."""
    return staircase(np.sqrt, np.square, 0.0, high, m)


def inverse_sum(m: int, low: float = 0.1, high: float = 10.0) -> SigmoidSum:
    """Approximate 1/x on [low, high] (Lemma 10)."""
    return staircase(lambda x: 1 / x, lambda y: 1 / y, low, high, m)


def graded_sqrt_sum(m: int, high: float) -> SigmoidSum:
    """Approximate the square root on [0, high] up to O(√high / m²), with steps that grow as k^4.

    Equal steps of the root leave an error of order √high / m near 0. The sum goes on a little
    beyond ``high``, so that its end has no effect.
    """
    at_least(1, m=m)
    require(high > 0, f"high = {high}: must be above 0")
    ends = high * (np.arange(m + 1) / (0.8 * m)) ** 4
    middles = high * ((np.arange(m) + 0.5) / (0.8 * m)) ** 4
    w = 2.5 / np.diff(ends)
    return SigmoidSum(np.diff(np.sqrt(ends)), w, -w * middles)


def signed_inverse_sum(m: int, low: float, high: float) -> SigmoidSum:
    """Approximate 1/x on [-high, -low] and [low, high]: the positive sum, its mirror and a jump."""
    f = inverse_sum((m - 3) // 2 - 1, low, high)
    jump = 2 / low
    return SigmoidSum(
        np.concatenate([f.c, -f.c, [jump, -jump / 2]]),
        np.concatenate([f.w, -f.w, [40 / low, 0.0]]),
        np.concatenate([f.b, f.b, [0.0, 40.0]]),
    )


def sigmoid_block(
    f: SigmoidSum, rows: int = 0, exact: Callable[[Tensor], Tensor] | None = None
) -> Maker:
    """Apply f to every entry in the first ``rows`` rows of A (0: all): a head per term and row.

    Where A is 0 the result is f(0). ``exact`` is the function that f approximates, by default f
    itself.
    """
    function = exact or f.on_tensor

    def make(frame: Frame) -> Block:
        height = rows or frame.d
        c = frame.role["c"]
        data, x, (marker,) = frame.rows.take(frame.d, height, 1)
        first = LayerPlan("copy A to C")
        second = LayerPlan("a head per sigmoid")
        frame.read_columns(first, "a", paired(data[:height], x))
        frame.clear_c(first, data)
        # C's tokens see the marker, with score z, and the rest token, with score 0; all others see
        # the rest token only
        unseen = ({frame.inside: -FAR}, {frame.inside: 1.0, marker: -1.0, frame.rest: -1.0})
        others = ({frame.inside: -FAR, c: FAR}, marker)
        for i in range(height):
            for c_i, w_i, b_i in zip(*f, strict=True):
                z = ({x[i]: w_i, c: b_i}, marker)
                frame.head(second, [z, unseen, others], [({marker: c_i}, data[i])], 1.0)
        second.clear(x)

        def of_matrix(a: Tensor, b: Tensor) -> Tensor:
            result = torch.zeros_like(a)
            result[..., :height, :] = function(a[..., :height, :])
            return result

        return Block(data, x, [first, second], of_matrix, [(2 * frame.d, marker)])

    return make


SIGMOID_BLOCK = sigmoid_block(SigmoidSum(np.ones(1), np.ones(1), np.zeros(1)))


def selected_block(coefficients_NM: ndarray, weights_NMk: ndarray) -> Maker:
    """Compute C[0, 0] = Σ_i c_ji σ(x · a_ji) for the j that e selects (Lemma 5).

    ``coefficients_NM`` are c_ji, ``weights_NMk`` are a_ji: N functions, m terms, k entries of x. 3
    layers, m heads.
    """
    N, m, k = weights_NMk.shape
    c_NM = torch.from_numpy(coefficients_NM)
    w_NMk = torch.from_numpy(weights_NMk)

    def exact(a: Tensor, b: Tensor) -> Tensor:
        e = a[..., :N, 0]
        x = b[..., :k, 0]
        z = torch.einsum("...k,...n,nmk->...m", x, e, w_NMk)
        result = torch.zeros_like(a)
        result[..., 0, 0] = (torch.sigmoid(z) * (e @ c_NM)).sum(-1)
        return result

    def make(frame: Frame) -> Block:
        d = frame.d  # at least N and k
        data, e, x, (total, first_a, first_b, first_c) = frame.rows.take(d, N, k, 4)

        split = LayerPlan("e and x apart")
        for rows, first in ((e, first_a), (x, first_b)):
            for i, row in enumerate(rows):
                split.add(data[i], row, [first])
        frame.clear_c(split, data)

        sum_up = LayerPlan("a head per sigmoid")
        unseen = ({first_b: -FAR}, {frame.inside: 1.0, first_a: -1.0, first_b: -1.0})
        for i in range(m):
            scores = [
                (row, dict(zip(e, weights_NMk[:, i, r], strict=True))) for r, row in enumerate(x)
            ]
            value = dict(zip(e, coefficients_NM[:, i], strict=True))
            frame.head(sum_up, [*scores, unseen], [(value, total)], 1.0)
        sum_up.clear([*e, *x])
        # every token but B's first has summed what it attended to; its total must not be read
        sum_up.add({total: -1.0}, total, [frame.rest])

        move = LayerPlan("move the sum to C")
        scores = [(first_c, first_b), frame.others_rest(first_c)]
        frame.head(move, scores, [(total, data[0])])
        move.clear([total])

        constants = [(0, first_a), (d, first_b), (2 * d, first_c)]
        return Block(data, [*e, *x, total], [split, sum_up, move], exact, constants)

    return make
