"""FLEQ programs: calculator, Newton's inverse, power iteration and gradient descent (§7 to §9).

The supplied text has the calculator (Algorithm 3) and the pseudocode of Newton's method (Algorithm
4); the other programs are ours. mul(P, Q) is P^T Q, so that a matrix on the left of a product is
kept transposed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from entp_lib.validation import one_of, require
from entp_papers.looped import blocks
from entp_papers.looped.fleq_machine import Functions, Maker
from entp_papers.looped.fleq_programs import FleqProgram, fleq

SUMS = {"add": blocks.linear_block(1.0, 1.0), "sub": blocks.linear_block(1.0, -1.0)}
COUNT = "count = add(count, one); if count <= 0 goto loop"  # count starts at 1 - rounds


def linear_functions(product: Maker = blocks.PRODUCT) -> Functions:
    """Make add, sub, mul, which is ``product``, and transp."""
    return SUMS | {"mul": product, "transp": blocks.transpose_block}


def calculator_functions(m: int) -> Functions:
    """Make the six operations of Theorem 4: 1/x on [0.1, 10] and √x on [0, 10] with m + 1 heads."""
    return SUMS | {
        "mul": blocks.PRECISE_PRODUCT,
        "inv": blocks.sigmoid_block(blocks.inverse_sum(m), 1, torch.reciprocal),
        "sqrt": blocks.sigmoid_block(blocks.sqrt_sum(m, 10.0), 1, torch.sqrt),
        "perc": blocks.linear_block(0.01),
    }


def calculator(values: Sequence[float], functions: Functions) -> FleqProgram:
    """Write Algorithm 3 on values a, b, c and d: t = √(1 / ((a + b - c) d)) / 100."""
    text = "t = add(p, q)\nt = sub(t, r)\nt = mul(t, s)\nt = inv(t)\nt = sqrt(t)\nt = perc(t)"
    return fleq(text, 1, dict(zip("pqrs", values, strict=True)), functions)


def one_operation(name: str, x: float, y: float, functions: Functions) -> FleqProgram:
    """Write t = name(x, y); ``div`` is mul(x, inv(y))."""
    text = "u = inv(y)\nt = mul(x, u)" if name == "div" else f"t = {name}(x, y)"
    return fleq(text, 1, {"x": x, "y": y}, functions)


def newton_inverse(a_dd: Tensor, rounds: int, start: str) -> FleqProgram:
    """Iterate X ← X (2 I - A X) from ε A^T ("transposed") or from ε A ("printed", Algorithm 4).

    ε is 1 / (‖A‖_1 ‖A‖_∞), for which the iteration from A^T converges if A has an inverse. The
    iteration from A converges if the eigenvalues of A² have positive real parts.
    """
    one_of("start", start, ("transposed", "printed"))
    d = len(a_dd)
    require(a_dd.shape == (d, d), f"A of shape {tuple(a_dd.shape)}: must be square")
    scale = 1 / float(a_dd.abs().sum(0).max() * a_dd.abs().sum(1).max())
    text = f"""
        At = transp(A)
        X = mul({"A" if start == "transposed" else "At"}, scaled)
    loop:
        T = mul(At, X)
        T = sub(two, T)
        Xt = transp(X)
        X = mul(Xt, T)
        {COUNT}
    """
    items = {
        "A": a_dd,
        "scaled": scale * torch.eye(d),
        "two": 2 * torch.eye(d),
        "count": 1.0 - rounds,
    }
    return fleq(text, d, items, linear_functions())


def power_iteration(a_dd: Tensor, b_d: Tensor, rounds: int, terms: int) -> FleqProgram:
    """Iterate b ← A b / ‖A b‖; ‖A b‖² must stay in the ranges of inv and sqrt."""
    text = f"""
        At = transp(A)
    loop:
        y = mul(At, b)
        r = mul(y, y)
        r = sqrt(r) [1x1]
        r = inv(r) [1x1]
        yt = transp(y)
        b = mul(yt, r)
        {COUNT}
    """
    items = {"A": a_dd, "b": b_d, "count": 1.0 - rounds}
    return fleq(text, len(a_dd), items, power_functions(terms))


def power_functions(m: int) -> Functions:
    """Make the functions of power iteration: the root of [0, 2], the inverse of [√0.05, √2]."""
    return linear_functions() | {
        "sqrt": blocks.sigmoid_block(blocks.sqrt_sum(m, 2.0), 1, torch.sqrt),
        "inv": blocks.sigmoid_block(
            blocks.inverse_sum(m, 0.05**0.5, 2.0**0.5), 1, torch.reciprocal
        ),
    }


def power_iteration_by_products(a_dd: Tensor, b_d: Tensor, rounds: int, inner: int) -> FleqProgram:
    """Iterate b ← A b / ‖A b‖ without roots: s → 1 / ‖A b‖ by ``inner`` rounds of Newton's method.

    s ← s (3 - r s²) / 2 with r = ‖A b‖² converges from s = 1 for r < 3.
    """
    text = f"""
        At = transp(A)
    loop:
        y = mul(At, b)
        r = mul(y, y)
        s = add(one, zero)
        left = add(inner, zero)
    newton:
        q = mul(s, s)
        q = mul(r, q)
        q = sub(three, q)
        s = mul(s, q)
        s = mul(half, s)
        left = add(left, one); if left <= 0 goto newton
        yt = transp(y)
        b = mul(yt, s)
        {COUNT}
    """
    items = {
        "A": a_dd,
        "b": b_d,
        "count": 1.0 - rounds,
        "inner": 1.0 - inner,
        "three": 3.0,
        "half": 0.5,
    }
    return fleq(text, len(a_dd), items, linear_functions())


def linear_regression(x_kn: Tensor, y_n: Tensor, rate: float, steps: int) -> FleqProgram:
    """Descend the gradient of ‖X^T w - y‖² / 2 from w = 0; the columns of X are the examples."""
    d = max(x_kn.shape)
    text = f"""
        Xt = transp(X)
    loop:
        e = mul(X, w)
        e = sub(e, y)
        g = mul(Xt, e)
        g = mul(rate, g)
        w = sub(w, g)
        {COUNT}
    """
    items = {"X": x_kn, "y": y_n, "rate": rate * torch.eye(d), "count": 1.0 - steps}
    return fleq(text, d, items, linear_functions())


def least_squares(x_kn: Tensor, y_n: Tensor, rounds: int, ridge: float) -> FleqProgram:
    """Solve w = (X X^T + ridge I)^-1 X y by Newton's iteration; examples enter k at a time."""
    k, n = x_kn.shape
    items = {
        "G": ridge * torch.eye(k),
        "two": 2 * torch.eye(k),
        "count": 1.0 - rounds,
    }
    lines = []
    for i, start in enumerate(range(0, n, k)):
        items[f"X{i}"] = x_kn[:, start : start + k]
        items[f"y{i}"] = y_n[start : start + k]
        lines += [
            f"Xt = transp(X{i})",
            "P = mul(Xt, Xt)",
            "G = add(G, P)",
            f"u = mul(Xt, y{i})",
            "v = add(v, u)",
        ]
    gram = x_kn @ x_kn.T + items["G"]
    items["scaled"] = 1 / float(gram.abs().sum(0).max()) ** 2 * torch.eye(k)
    lines.append(f"""
        W = mul(G, scaled)
    loop:
        T = mul(G, W)
        T = sub(two, T)
        Wt = transp(W)
        W = mul(Wt, T)
        {COUNT}
        Wt = transp(W)
        w = mul(Wt, v)""")
    return fleq("\n".join(lines), k, items, linear_functions(blocks.PRECISE_PRODUCT))


def learning_functions(sigmoid: Maker = blocks.SIGMOID_BLOCK) -> Functions:
    """Make the functions of back-propagation: linear ones, the sigmoid, diagonal matrices."""
    return linear_functions() | {
        "sigmoid": sigmoid,
        "diag": blocks.diagonal_block,
    }


def back_propagation(
    w_hk: Tensor,
    v_h: Tensor,
    samples: Sequence[tuple[Tensor, float]],
    rate: float,
    rounds: int,
    functions: Functions,
) -> FleqProgram:
    """Descend the gradient of (v · σ(W x) - y)² / 2, sample by sample (Lemma 15).

    All gradients are computed by the program itself: there is no derivative outside the loop.
    """
    h = len(w_hk)
    d = max(w_hk.shape)
    items = {
        "Wt": w_hk.T,
        "v": v_h,
        "ones": torch.ones(h),
        "rate": rate * torch.eye(d),
        "count": 1.0 - rounds,
    }
    lines = []
    for i, (x, y) in enumerate(samples):
        items[f"x{i}"] = x
        items[f"y{i}"] = float(y)
        lines.append(f"""
            z = mul(Wt, x{i})           # W x
            h = sigmoid(z) [{h}x1]
            o = mul(v, h)
            e = sub(o, y{i})            # ŷ - y
            s = sub(ones, h)
            D = diag(h)
            s = mul(D, s)               # h (1 - h)
            D = diag(v)
            s = mul(D, s)               # v h (1 - h)
            st = transp(s)
            g = mul(e, st)              # the gradient of z, as a row
            xt = transp(x{i})
            dW = mul(xt, g)             # of W^T
            dW = mul(rate, dW)
            Wt = sub(Wt, dW)
            ht = transp(h)
            dv = mul(ht, e)             # of v
            dv = mul(rate, dv)
            v = sub(v, dv)""")
    text = "loop:" + "".join(lines) + f"\n{COUNT}\n"
    return fleq(text, d, items, functions)
