"""The errors of function blocks: products by δ, sums of sigmoids by m, transposes, the contract, x² by depth."""

from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray

from entp_papers.looped.depth import attention_square, sawtooth_square
from entp_papers.looped.fleq.arithmetic import diagonal_block, multiple_block, sum_block, transpose_block
from entp_papers.looped.fleq.contract import padding_error, violations
from entp_papers.looped.fleq.frame import BlockStack, Maker
from entp_papers.looped.fleq.product import product_block
from entp_papers.looped.fleq.sigmoids import SIGMOID, inverse_sum, selected_block, sigmoid_block, sqrt_sum
from entp_papers.looped.permutation import transpose, transposer
from entp_papers.looped.studies.exact import Study, columns, precision


def product_study(d: int, deltas: list[float], sinks: list[float], pairs: int = 20, data_seed: int = 0) -> Study:
    """The largest error of A^T B over ``pairs`` in [-1, 1], by δ, precision and heads; then by C at δ = 10^-4.

    Curves have ``by``: delta or sink. ``predicted`` is δ s² / 2 + u / δ for one head, s the largest entry of A^T B.
    """
    generator = torch.Generator().manual_seed(data_seed)
    a, b = torch.rand(2, pairs, d, d, generator=generator, dtype=torch.float64).mul(2).sub(1)
    exact = a.transpose(1, 2) @ b
    largest = float(exact.abs().max())
    rows: list[dict] = []

    def note(by: str, delta: float, sink: float, kind: str, symmetric: bool) -> None:
        stack = BlockStack(product_block(delta=delta, sink=sink, symmetric=symmetric), d, dtype=precision(kind))
        error = float((stack.apply(a, b).double() - exact).abs().max())
        u = torch.finfo(precision(kind)).eps / 2
        rows.append(
            {
                "by": by,
                "delta": delta,
                "sink": sink,
                "precision": kind,
                "heads": 2 if symmetric else 1,
                "error": error,
                "predicted": delta * largest**2 / 2 + u / delta,
            }
        )

    for kind in ("fp64", "fp32"):
        for symmetric in (False, True):
            for delta in deltas:
                note("delta", delta, 50.0, kind, symmetric)
    for sink in sinks:
        note("sink", 1e-4, sink, "fp64", False)
    best = {}
    for kind in ("fp64", "fp32"):
        for heads in (1, 2):
            best[f"{kind}, {heads} heads"] = min(
                r["error"] for r in rows if r["by"] == "delta" and (r["precision"], r["heads"]) == (kind, heads)
            )
    one = [r for r in rows if r["by"] == "delta" and r["precision"] == "fp64" and r["heads"] == 1]
    rising = [r for r in one if r["delta"] >= 1e-6]
    falling = [r for r in one if r["delta"] <= 1e-10]
    metrics = {"best": best, "largest_product": largest, "slope_above": slope(rising), "slope_below": slope(falling)}
    return metrics, columns(rows)


def slope(rows: list[dict], x: str = "delta", y: str = "error") -> float:
    """Of log y against log x, by least squares; 0 for fewer than two points."""
    if len(rows) < 2:
        return 0.0
    return float(np.polyfit(np.log([r[x] for r in rows]), np.log([r[y] for r in rows]), 1)[0])


TARGETS: dict[str, Callable[[ndarray], ndarray]] = {
    "sin": np.sin,
    "x²": np.square,
    "exp": np.exp,
    "tanh": np.tanh,
}


def sigmoids_study(terms: list[int], data_seed: int = 0) -> Study:
    """The largest error of sums of m sigmoids: √x and 1/x as staircases, four functions on [-1, 1] by least squares.

    Staircases are run as blocks and compared with the function; ``block`` is how far the block is from its own sum. For
    the fits, m - 1 sigmoids with evenly spaced centres, steeper than Barron's τ = √m ln m asks for, and a constant get
    their coefficients by least squares. Metrics: slopes of log error against log m; Lemma 5's block against its sum.
    """
    rows: list[dict] = []
    x_root, x_inverse = np.linspace(0, 100, 2001), np.geomspace(0.1, 10, 2001)
    cases = (("√x on [0, 100]", sqrt_sum, np.sqrt, x_root), ("1/x on [0.1, 10]", inverse_sum, np.reciprocal, x_inverse))
    for m in terms:
        for name, make, exact, x in cases:
            f = make(m)
            stack = BlockStack(sigmoid_block(f, 1), 1)
            found = stack.apply(torch.from_numpy(x).view(-1, 1, 1), torch.zeros(len(x), 1, 1))[:, 0, 0].numpy()
            rows.append({"function": name, "m": m, "error": largest(found - exact(x)), "block": largest(found - f(x))})
        x, centres = np.linspace(-1, 1, 2001), np.linspace(-1, 1, m - 1)
        steps = 1 / (1 + np.exp(-np.clip(2 * m * (x[:, None] - centres), -700, 700)))
        features = np.column_stack([steps, np.ones(len(x))])
        for name, f in TARGETS.items():
            fit = features @ np.linalg.lstsq(features, f(x), rcond=None)[0]
            rows.append({"function": f"{name} on [-1, 1]", "m": m, "error": largest(fit - f(x)), "block": 0.0})
    names = list(dict.fromkeys(r["function"] for r in rows))
    slopes = {name: slope([r for r in rows if r["function"] == name], "m") for name in names}
    return {"slopes": slopes, "lemma_5": lemma_5_errors(terms, data_seed)}, columns(rows)


def largest(x: ndarray) -> float:
    return float(np.abs(x).max())


def lemma_5_errors(terms: list[int], seed: int) -> dict[str, float]:
    """How far Lemma 5's block, three functions of two numbers, is from its sum; by the number of terms up to 200."""
    found = {}
    for m in (m for m in terms if m <= 200):
        draw = np.random.default_rng(seed)
        stack = BlockStack(selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2))), 3)
        e = torch.eye(3, dtype=torch.float64)[:, :, None].expand(3, 3, 3) * torch.tensor([1.0, 0, 0]).double()
        x = torch.from_numpy(draw.normal(size=(3, 3, 3)))
        y = stack.apply(e, x)[:, 0, 0] - stack.block.exact(e, x)[:, 0, 0]
        found[str(m)] = float(y.abs().max())
    return found


def transpose_study(sizes: list[int], one_layer: list[int], data_seed: int = 0) -> Study:
    """The error of the 4-layer block, and of the one-layer transposition of a vectorised matrix, by d."""
    generator, rows = torch.Generator().manual_seed(data_seed), []
    for d in sizes:
        stack, a = BlockStack(transpose_block(), d), torch.randn(4, d, d, generator=generator, dtype=torch.float64)
        error = float((stack.apply(a, a) - a.transpose(1, 2)).abs().max())
        rows.append(
            {"d": d, "construction": "Lemma 6", **shape_of(stack), "tokens": stack.frame.tokens, "error": error}
        )
    for d in one_layer:
        a = torch.randn(1, d, d, generator=generator, dtype=torch.float64)
        error = float((transpose(a) - a.transpose(1, 2)).abs().max())
        stack = transposer(d)[0]
        rows.append({"d": d, "construction": "one layer", **shape_of(stack), "tokens": d * d, "error": error})
    return {"largest_error": max(r["error"] for r in rows)}, columns(rows)


def shape_of(stack) -> dict[str, int]:
    size = stack.size()
    return {name: size[name] for name in ("layers", "heads", "width")}


def makers() -> dict[str, Maker]:
    """Every block, under the name of what it computes."""
    return {
        "A + B": sum_block(),
        "A - B": sum_block(-1.0),
        "A / 100": multiple_block(0.01),
        "A^T": transpose_block(),
        "A^T B": product_block(),
        "B^T A": product_block("b", "a"),
        "A^T A": product_block("a", "a"),
        "B^T B": product_block("b", "b"),
        "A^T B, two heads": product_block(symmetric=True, delta=1e-5),
        "σ(A)": sigmoid_block(SIGMOID),
        "√A": sigmoid_block(sqrt_sum(50), 1),
        "diagonal": diagonal_block(),
    }


def contract_study(sizes: list[int], data_seed: int = 0) -> Study:
    """Definition 1 for every block and d: the largest deviation from each term, with layers, heads and width."""
    rows: list[dict] = []
    for name, maker in makers().items():
        for d in sizes:
            stack = BlockStack(maker, d)
            # a function of 0 that is not 0 fills the padding: those are not asked for it
            pads = name not in ("σ(A)", "√A")
            padding = padding_error(maker, d, d + 2, data_seed) if pads else 0.0
            found = violations(maker, d, data_seed)
            rows.append({"block": name, "d": d, **shape_of(stack), **found, "padding": padding})
    terms = ("inputs", "left_behind", "together")
    return {"kept": all(r[t] < 1e-9 for r in rows for t in terms)}, columns(rows)


def depth_study(levels: list[int], deltas: list[float], points: int, units: int = 1024) -> Study:
    """The largest error of x² on [0, 1] by ReLU networks of growing depth, and by attention with 2 layers, by δ.

    ``points``: how many x are tried. Multiples of a power of 1/2 are knots of the networks, where they do not err.
    ``units``: of the one hidden layer whose ReLUs join as many points of x² by lines, ``one_wide_layer`` its error.
    """
    x = np.linspace(0, 1, points)
    rows = [
        {"kind": "ReLU network", "layers": k, "delta": 0.0, "error": largest(sawtooth_square(x, k) - x**2)}
        for k in levels
    ]
    for delta in deltas:
        error = largest(attention_square(x, delta) - x**2)
        rows.append({"kind": "attention", "layers": 2, "delta": delta, "error": error})
    best = min(r["error"] for r in rows if r["kind"] == "attention")
    deep = next((r["layers"] for r in rows if r["kind"] == "ReLU network" and r["error"] <= best), None)
    relu = [r["error"] for r in rows if r["kind"] == "ReLU network"]
    factor = (relu[0] / relu[-1]) ** (1 / (levels[-1] - levels[0]))
    knots = np.linspace(0, 1, units + 1)
    metrics = {
        "best_attention": best,
        "levels_for_the_same": deep,
        "factor_of_a_level": factor,
        "one_wide_layer": largest(np.interp(x, knots, knots**2) - x**2),
    }
    return metrics, columns(rows)
