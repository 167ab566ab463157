"""Errors of function blocks: products by δ, sums of sigmoids by m, the contract, x² by depth.

Letters: B batch, S tokens of a block, D width, d size of matrices, L pointer bits.
"""

import numpy as np
import pandas as pd
import torch
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import pad

from entp_lab.studies import Study, columns, gaussians, largest, seeded
from entp_papers.looped import blocks
from entp_papers.looped.circuits import pointer_bits, temperature, to_bits
from entp_papers.looped.fleq_machine import Frame, Maker
from entp_papers.looped.layers import LayerPlan, Rows, Stack, paired

TARGETS = {"sin": np.sin, "x²": np.square, "exp": np.exp, "tanh": np.tanh}
MAKERS: dict[str, Maker] = {
    "A + B": blocks.linear_block(1.0, 1.0),
    "A - B": blocks.linear_block(1.0, -1.0),
    "A / 100": blocks.linear_block(0.01),
    "A^T": blocks.transpose_block,
    "A^T B": blocks.PRODUCT,
    "B^T A": blocks.product_block("b", "a"),
    "A^T A": blocks.product_block("a", "a"),
    "B^T B": blocks.product_block("b", "b"),
    "A^T B, two heads": blocks.PRECISE_PRODUCT,
    "σ(A)": blocks.SIGMOID_BLOCK,
    "√A": blocks.sigmoid_block(blocks.sqrt_sum(50), 1),
    "diagonal": blocks.diagonal_block,
}
FILLING = ("σ(A)", "√A")  # functions of 0 that are not 0 fill the padding of a matrix


class BlockStack(Stack):
    """One block as a separate Transformer."""

    def __init__(self, maker: Maker, d: int, dtype: torch.dtype = torch.float64):
        frame = Frame(d)
        block = maker(frame)
        super().__init__(block.plans, frame.rows.width, dtype)
        self.block = block
        self.frame = frame

    def encode(self, *matrices_Bdd: Tensor) -> Tensor:
        """Make the state (B, S, D) of A, B and, if given, the former contents of C's tokens."""
        columns = torch.cat([matrix.mT for matrix in matrices_Bdd], 1)
        x_BSD = torch.zeros(len(columns), self.frame.tokens, self.width, dtype=self.dtype)
        for t, i in (*self.frame.constants, *self.block.constants):
            x_BSD[:, t, i] = 1.0
        x_BSD[:, : columns.shape[1], self.block.data] = columns.to(self.dtype)
        return x_BSD

    def matrices(self, x_BSD: Tensor) -> tuple[Tensor, ...]:
        """Read A, B and C (B, d, d) from a state."""
        d = self.frame.d
        return x_BSD[:, : 3 * d, self.block.data].unflatten(1, (3, d)).mT.unbind(1)

    @torch.inference_mode()
    def apply(self, a_Bdd: Tensor, b_Bdd: Tensor) -> Tensor:
        """Return f(A, B), (B, d, d)."""
        return self.matrices(self(self.encode(a_Bdd, b_Bdd)))[2]

    def of_numbers(self, x_B: ndarray) -> ndarray:
        """Return f(x) of numbers, which enter as matrices A of one entry."""
        a_B11 = torch.from_numpy(x_B).view(-1, 1, 1)
        return self.apply(a_B11, torch.zeros_like(a_B11))[:, 0, 0].numpy()


def shape_of(stack: Stack) -> dict[str, int]:
    """Return layers, heads and width."""
    size = stack.size()
    return {name: size[name] for name in ("layers", "heads", "width")}


def slope(rows: pd.DataFrame, x: str) -> float:
    """Return the slope of the log error against log x, by least squares; 0 for under two points."""
    if len(rows) < 2:
        return 0.0
    return float(np.polyfit(np.log(rows[x]), np.log(rows["error"]), 1)[0])


def product_study(d: int, deltas: list[float], sinks: list[float], pairs: int = 20) -> Study:
    """Measure the largest error of A^T B by δ, precision and heads, then by C at δ = 10^-4.

    Curves have ``by``: delta or sink. ``predicted`` is δ s² / 2 + u / δ for one head, s the largest
    entry of A^T B.
    """
    a, b = torch.rand(2, pairs, d, d, generator=seeded(0), dtype=torch.float64).mul(2).sub(1)
    exact = a.mT @ b
    top = largest(exact)
    dtypes = {"fp64": torch.float64, "fp32": torch.float32}
    cases = [
        ("delta", delta, 50.0, kind, heads)
        for kind in dtypes
        for heads in (1, 2)
        for delta in deltas
    ]
    cases += [("sink", 1e-4, sink, "fp64", 1) for sink in sinks]
    rows = []
    for by, delta, sink, kind, heads in cases:
        stack = BlockStack(
            blocks.product_block(delta=delta, sink=sink, symmetric=heads == 2), d, dtypes[kind]
        )
        rows.append(
            {
                "by": by,
                "delta": delta,
                "sink": sink,
                "precision": kind,
                "heads": heads,
                "error": largest(stack.apply(a, b), exact),
                "predicted": delta * top**2 / 2 + torch.finfo(dtypes[kind]).eps / 2 / delta,
            }
        )
    by_delta = pd.DataFrame(rows).query("by == 'delta'")
    best = by_delta.groupby(["precision", "heads"], sort=False)["error"].min()
    one = by_delta.query("precision == 'fp64' and heads == 1")
    return {
        "best": {f"{kind}, {heads} heads": error for (kind, heads), error in best.items()},
        "largest_product": top,
        "slope_above": slope(one.query("delta >= 1e-6"), "delta"),
        "slope_below": slope(one.query("delta <= 1e-10"), "delta"),
    }, columns(rows)


def sigmoids_study(terms: list[int]) -> Study:
    """Measure the largest error of sums of m sigmoids: two staircases and four least-squares fits.

    Staircases are run as blocks and compared with the function; ``block`` is how far the block is
    from its own sum. For the fits, m - 1 sigmoids with evenly spaced centres, steeper than Barron's
    τ = √m ln m asks for, and a constant get their coefficients by least squares. Metrics: slopes of
    log error against log m; Lemma 5's block of three functions of two numbers against its sum, by
    the number of terms up to 200, and its layers and heads; the error of 100 terms for √x by the
    end of its range.
    """
    rows = []
    x_root = np.linspace(0, 100, 2001)
    x_inverse = np.geomspace(0.1, 10, 2001)
    cases = (
        ("√x on [0, 100]", blocks.sqrt_sum, np.sqrt, x_root),
        ("1/x on [0.1, 10]", blocks.inverse_sum, np.reciprocal, x_inverse),
    )
    for m in terms:
        for name, make, exact, x in cases:
            f = make(m)
            found = BlockStack(blocks.sigmoid_block(f, 1), 1).of_numbers(x)
            rows.append(
                {
                    "function": name,
                    "m": m,
                    "error": largest(found - exact(x)),
                    "block": largest(found - f(x)),
                }
            )
        x = np.linspace(-1, 1, 2001)
        centres = np.linspace(-1, 1, m - 1)
        steps = 1 / (1 + np.exp(-np.clip(2 * m * (x[:, None] - centres), -700, 700)))
        features = np.column_stack([steps, np.ones(len(x))])
        for name, f in TARGETS.items():
            fit = features @ np.linalg.lstsq(features, f(x), rcond=None)[0]
            rows.append(
                {
                    "function": f"{name} on [-1, 1]",
                    "m": m,
                    "error": largest(fit - f(x)),
                    "block": 0.0,
                }
            )
    by_function = pd.DataFrame(rows).groupby("function", sort=False)
    slopes = {name: slope(part, "m") for name, part in by_function}
    lemma_5 = {}
    sizes = {}
    for m in (m for m in terms if m <= 200):
        draw = np.random.default_rng(0)
        stack = BlockStack(
            blocks.selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2))), 3
        )
        size = stack.size()
        sizes[str(m)] = [size["layers"], size["heads"]]
        e = pad(torch.eye(3).double()[..., None], (0, 2))
        x = torch.from_numpy(draw.normal(size=(3, 3, 3)))
        lemma_5[str(m)] = largest((stack.apply(e, x) - stack.block.exact(e, x))[:, 0, 0])
    roots = {}
    for high in (1, 100, 10_000):
        x = np.linspace(0, high, 2001)
        roots[str(high)] = largest(blocks.sqrt_sum(100, high)(x) - np.sqrt(x))
    return {
        "slopes": slopes,
        "lemma_5": lemma_5,
        "lemma_5_sizes": sizes,
        "roots": roots,
    }, columns(rows)


def transpose_in_one_layer(a_Bdd: Tensor) -> tuple[Tensor, Stack]:
    """Transpose vectorised matrices by one layer with one head (§8); return A^T and the layer.

    Every token holds two codes: its own place, and the place that it takes its entry from. The
    paper counts a value and two codes, 2 · 10 + 1 = 21 rows; ours has one more, for the entry that
    is read.
    """
    d = a_Bdd.shape[1]
    L = pointer_bits(d * d)
    own = torch.arange(d * d)
    plan = LayerPlan("take the entry of the token that the second code names")
    rows = Rows(value=1, taken=1, own=L, source=L)
    match = paired(rows["source"], rows["own"])
    plan.head(match, paired(rows["value"], rows["taken"]), temperature(d * d, 1e-9))
    stack = Stack([plan], rows.width)
    x_BTD = torch.zeros(len(a_Bdd), d * d, rows.width, dtype=torch.float64)
    x_BTD[..., rows["value"][0]] = a_Bdd.flatten(1)
    x_BTD[..., rows["own"]] = to_bits(own, L)
    x_BTD[..., rows["source"]] = to_bits(own % d * d + own // d, L)
    return stack(x_BTD)[..., rows["taken"][0]].view_as(a_Bdd), stack


def transpose_study(sizes: list[int], one_layer: list[int]) -> Study:
    """Measure the error of the 4-layer transpose and of the one-layer one."""
    generator = seeded(0)
    rows = []
    for d in sizes:
        stack = BlockStack(blocks.transpose_block, d)
        a = gaussians(generator, 4, d, d)
        rows.append(
            {
                "d": d,
                "construction": "Lemma 6",
                **shape_of(stack),
                "tokens": stack.frame.tokens,
                "error": largest(stack.apply(a, a) - a.mT),
            }
        )
    for d in one_layer:
        a = gaussians(generator, 1, d, d)
        found, stack = transpose_in_one_layer(a)
        rows.append(
            {
                "d": d,
                "construction": "one layer",
                **shape_of(stack),
                "tokens": d * d,
                "error": largest(found - a.mT),
            }
        )
    curves = columns(rows)
    return {"largest_error": max(curves["error"])}, curves


def violations(maker: Maker, d: int) -> dict[str, float]:
    """Measure the largest deviation from each term of Definition 1 over random matrices.

    error: C from the exact function · inputs: A and B afterwards · previous: C for another content
    of C before · left_behind: temporary rows afterwards · together: C of one pair alone and within
    the batch · padding: f of matrices in a corner of larger ones from f of themselves, zeros around
    them included.
    """
    stack = BlockStack(maker, d)
    a, b, before = gaussians(0, 3, 4, d, d)
    after = stack(stack.encode(a, b, before))
    a_after, b_after, c = stack.matrices(after)
    again = stack.apply(a, b)
    small_a, small_b = gaussians(0, 2, 3, d, d)
    wide = BlockStack(maker, d + 2).apply(pad(small_a, (0, 2, 0, 2)), pad(small_b, (0, 2, 0, 2)))
    return {
        "error": largest(c, stack.block.exact(a, b)),
        "inputs": max(largest(a_after, a), largest(b_after, b)),
        "previous": largest(again, c),
        "left_behind": largest(after[..., stack.block.temporary]),
        "together": largest(stack.apply(a[:1], b[:1])[0], again[0]),
        "padding": largest(wide, pad(stack.apply(small_a, small_b), (0, 2, 0, 2))),
    }


def contract_study(sizes: list[int]) -> Study:
    """Check Definition 1 for every block and d, with its layers, heads and width."""
    rows = []
    for name, maker in MAKERS.items():
        for d in sizes:
            row = {"block": name, "d": d, **shape_of(BlockStack(maker, d)), **violations(maker, d)}
            rows.append(row | ({"padding": 0.0} if name in FILLING else {}))
    terms = ("inputs", "left_behind", "together")
    return {"kept": all(r[t] < 1e-9 for r in rows for t in terms)}, columns(rows)


def sawtooth_square(x: ndarray, levels: int) -> ndarray:
    """Compute x² on [0, 1] as x - Σ_k g_k(x) / 4^k: a ReLU network with ``levels`` levels.

    The error is 4^-(levels + 1) at most: at the middle of the finest teeth.
    """
    result = x.copy()
    tooth = x
    for k in range(1, levels + 1):
        tooth = (
            2 * np.maximum(tooth, 0) - 4 * np.maximum(tooth - 0.5, 0) + 2 * np.maximum(tooth - 1, 0)
        )
        result = result - tooth / 4**k
    return result


def attention_square(x: ndarray, delta: float, symmetric: bool = True) -> ndarray:
    """Compute x² as the product of x with itself (§6.3): two layers, one head or two."""
    product = blocks.product_block("a", "a", delta=delta, symmetric=symmetric)
    return BlockStack(product, 1).of_numbers(x)


def depth_study(levels: list[int], deltas: list[float], points: int, units: int = 1024) -> Study:
    """Measure the largest error of x² on [0, 1]: ReLU networks by depth, 2-layer attention by δ.

    ``points``: how many x are tried; multiples of a power of 1/2 are knots of the networks, where
    their error is 0. ``units``: ReLUs of a single hidden layer, which joins as many points of x² by
    lines; ``one_wide_layer`` is its error.
    """
    x = np.linspace(0, 1, points)
    relu = {k: largest(sawtooth_square(x, k), x**2) for k in levels}
    attention = {delta: largest(attention_square(x, delta), x**2) for delta in deltas}
    rows = [
        {"kind": "ReLU network", "layers": k, "delta": 0.0, "error": error}
        for k, error in relu.items()
    ]
    rows += [
        {"kind": "attention", "layers": 2, "delta": delta, "error": e}
        for delta, e in attention.items()
    ]
    knots = np.linspace(0, 1, units + 1)
    best = min(attention.values())
    return {
        "best_attention": best,
        "levels_for_the_same": next((k for k, error in relu.items() if error <= best), None),
        "factor_of_a_level": (relu[levels[0]] / relu[levels[-1]]) ** (1 / (levels[-1] - levels[0])),
        "one_wide_layer": largest(np.interp(x, knots, knots**2), x**2),
    }, columns(rows)
