"""The errors of function blocks: products by δ, sums of sigmoids by m, transposes, the contract, x² by depth."""

import numpy as np
import torch
from numpy import ndarray

from entp_lib.experiments.studies import Study, at_least, columns, largest
from entp_papers.looped.circuits import transpose, transposer
from entp_papers.looped.fleq import blocks
from entp_papers.looped.fleq.frame import BlockStack, Maker, padding_error, violations
from entp_papers.looped.studies import PRECISIONS, slope


def product_study(d: int, deltas: list[float], sinks: list[float], pairs: int = 20, data_seed: int = 0) -> Study:
    """The largest error of A^T B over ``pairs`` in [-1, 1], by δ, precision and heads; then by C at δ = 10^-4.

    Curves have ``by``: delta or sink. ``predicted`` is δ s² / 2 + u / δ for one head, s the largest entry of A^T B.
    """
    generator = torch.Generator().manual_seed(data_seed)
    a, b = torch.rand(2, pairs, d, d, generator=generator, dtype=torch.float64).mul(2).sub(1)
    exact = a.transpose(1, 2) @ b
    top = largest(exact)
    cases = [("delta", delta, 50.0, kind, heads) for kind in ("fp64", "fp32") for heads in (1, 2) for delta in deltas]
    cases += [("sink", 1e-4, sink, "fp64", 1) for sink in sinks]
    rows: list[dict] = []
    for by, delta, sink, kind, heads in cases:
        dtype = PRECISIONS[kind]
        stack = BlockStack(blocks.product_block(delta=delta, sink=sink, symmetric=heads == 2), d, dtype)
        row = {"by": by, "delta": delta, "sink": sink, "precision": kind, "heads": heads}
        row["error"] = largest(stack.apply(a, b).double(), exact)
        rows.append(row | {"predicted": delta * top**2 / 2 + torch.finfo(dtype).eps / 2 / delta})

    def by_delta(kind: str, heads: int) -> list[dict]:
        return [r for r in rows if (r["by"], r["precision"], r["heads"]) == ("delta", kind, heads)]

    one = by_delta("fp64", 1)
    best = {f"{k}, {h} heads": min(r["error"] for r in by_delta(k, h)) for k in ("fp64", "fp32") for h in (1, 2)}
    metrics = {
        "best": best,
        "largest_product": top,
        "slope_above": slope([r for r in one if r["delta"] >= 1e-6]),
        "slope_below": slope([r for r in one if r["delta"] <= 1e-10]),
    }
    return metrics, columns(rows)


TARGETS = {"sin": np.sin, "x²": np.square, "exp": np.exp, "tanh": np.tanh}


def sigmoids_study(terms: list[int], data_seed: int = 0) -> Study:
    """The largest error of sums of m sigmoids: √x and 1/x as staircases, four functions on [-1, 1] by least squares.

    Staircases are run as blocks and compared with the function; ``block`` is how far the block is from its own sum. For
    the fits, m - 1 sigmoids with evenly spaced centres, steeper than Barron's τ = √m ln m asks for, and a constant get
    their coefficients by least squares. Metrics: slopes of log error against log m; Lemma 5's block against its sum.
    """
    rows: list[dict] = []
    x_root, x_inverse = np.linspace(0, 100, 2001), np.geomspace(0.1, 10, 2001)
    cases = (
        ("√x on [0, 100]", blocks.sqrt_sum, np.sqrt, x_root),
        ("1/x on [0.1, 10]", blocks.inverse_sum, np.reciprocal, x_inverse),
    )
    for m in terms:
        for name, make, exact, x in cases:
            f = make(m)
            stack = BlockStack(blocks.sigmoid_block(f, 1), 1)
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


def lemma_5_errors(terms: list[int], seed: int) -> dict[str, float]:
    """Error of Lemma 5's block, three functions of two numbers, against its sum; by the number of terms up to 200."""
    found = {}
    for m in (m for m in terms if m <= 200):
        draw = np.random.default_rng(seed)
        stack = BlockStack(blocks.selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2))), 3)
        e = torch.eye(3, dtype=torch.float64)[:, :, None].expand(3, 3, 3) * torch.tensor([1.0, 0, 0]).double()
        x = torch.from_numpy(draw.normal(size=(3, 3, 3)))
        y = stack.apply(e, x)[:, 0, 0] - stack.block.exact(e, x)[:, 0, 0]
        found[str(m)] = largest(y)
    return found


def transpose_study(sizes: list[int], one_layer: list[int], data_seed: int = 0) -> Study:
    """The error of the 4-layer block, and of the one-layer transposition of a vectorised matrix, by d."""
    generator, rows = torch.Generator().manual_seed(data_seed), []
    for d in sizes:
        stack = BlockStack(blocks.transpose_block(), d)
        a = torch.randn(4, d, d, generator=generator, dtype=torch.float64)
        row = {"d": d, "construction": "Lemma 6", **shape_of(stack), "tokens": stack.frame.tokens}
        rows.append(row | {"error": largest(stack.apply(a, a) - a.mT)})
    for d in one_layer:
        a = torch.randn(1, d, d, generator=generator, dtype=torch.float64)
        row = {"d": d, "construction": "one layer", **shape_of(transposer(d)[0]), "tokens": d * d}
        rows.append(row | {"error": largest(transpose(a) - a.mT)})
    return {"largest_error": max(r["error"] for r in rows)}, columns(rows)


def shape_of(stack) -> dict[str, int]:
    size = stack.size()
    return {name: size[name] for name in ("layers", "heads", "width")}


MAKERS: dict[str, Maker] = {
    "A + B": blocks.linear_block(1.0, 1.0),
    "A - B": blocks.linear_block(1.0, -1.0),
    "A / 100": blocks.linear_block(0.01),
    "A^T": blocks.transpose_block(),
    "A^T B": blocks.product_block(),
    "B^T A": blocks.product_block("b", "a"),
    "A^T A": blocks.product_block("a", "a"),
    "B^T B": blocks.product_block("b", "b"),
    "A^T B, two heads": blocks.product_block(symmetric=True, delta=1e-5),
    "σ(A)": blocks.sigmoid_block(blocks.SIGMOID),
    "√A": blocks.sigmoid_block(blocks.sqrt_sum(50), 1),
    "diagonal": blocks.diagonal_block(),
}


def contract_study(sizes: list[int], data_seed: int = 0) -> Study:
    """Definition 1 for every block and d: the largest deviation from each term, with layers, heads and width."""
    rows: list[dict] = []
    for name, maker in MAKERS.items():
        for d in sizes:
            found = violations(maker, d, data_seed)
            # a function of 0 that is not 0 fills the padding: those are not asked for it
            padding = 0.0 if name in ("σ(A)", "√A") else padding_error(maker, d, d + 2, data_seed)
            rows.append({"block": name, "d": d, **shape_of(BlockStack(maker, d)), **found, "padding": padding})
    terms = ("inputs", "left_behind", "together")
    return {"kept": all(r[t] < 1e-9 for r in rows for t in terms)}, columns(rows)


def sawtooth_square(x: ndarray, levels: int) -> ndarray:
    """x² on [0, 1] as x - Σ_k g_k(x) / 4^k with g_k the tooth function applied k times: a ReLU network of that depth.

    The error is 4^-(levels + 1) at most: at the middle of the finest teeth.
    """
    at_least(0, levels=levels)
    result, tooth = x.copy(), x
    for k in range(1, levels + 1):
        tooth = 2 * np.maximum(tooth, 0) - 4 * np.maximum(tooth - 0.5, 0) + 2 * np.maximum(tooth - 1, 0)
        result = result - tooth / 4**k
    return result


def attention_square(x: ndarray, delta: float, symmetric: bool = True) -> ndarray:
    """x² as the product of x with itself (§6.3): two layers, one head or two."""
    stack = BlockStack(blocks.product_block("a", "a", delta=delta, symmetric=symmetric), 1)
    a = torch.from_numpy(x).view(-1, 1, 1)
    return stack.apply(a, torch.zeros_like(a))[:, 0, 0].numpy()


def depth_study(levels: list[int], deltas: list[float], points: int, units: int = 1024) -> Study:
    """The largest error of x² on [0, 1] by ReLU networks of growing depth, and by attention with 2 layers, by δ.

    ``points``: how many x are tried. Multiples of a power of 1/2 are knots of the networks, where they do not err.
    ``units``: of the one hidden layer whose ReLUs join as many points of x² by lines, ``one_wide_layer`` its error.
    """
    x = np.linspace(0, 1, points)
    relu = {k: largest(sawtooth_square(x, k), x**2) for k in levels}
    attention = {delta: largest(attention_square(x, delta), x**2) for delta in deltas}
    rows = [{"kind": "ReLU network", "layers": k, "delta": 0.0, "error": error} for k, error in relu.items()]
    rows += [{"kind": "attention", "layers": 2, "delta": delta, "error": e} for delta, e in attention.items()]
    knots, best = np.linspace(0, 1, units + 1), min(attention.values())
    metrics = {
        "best_attention": best,
        "levels_for_the_same": next((k for k, error in relu.items() if error <= best), None),
        "factor_of_a_level": (relu[levels[0]] / relu[levels[-1]]) ** (1 / (levels[-1] - levels[0])),
        "one_wide_layer": largest(np.interp(x, knots, knots**2), x**2),
    }
    return metrics, columns(rows)
