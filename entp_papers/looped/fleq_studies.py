"""FLEQ programs that compute and learn, compared with exact results."""

import itertools
import math

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from entp_lab.studies import Study, columns, gaussians, largest
from entp_papers.looped import algorithms
from entp_papers.looped.block_studies import slope
from entp_papers.looped.fleq_machine import FleqMachine, FleqShape
from entp_papers.looped.fleq_programs import interpret, random_fleq, run, run_together

ALONE = 25  # inputs of each operation by itself
RIDGE = 0.1


def fleq_study(programs: int, commands: int) -> Study:
    """Run random FLEQ programs over add, sub, mul and transp beside the exact interpreter.

    A row per program: commands executed, the largest error of any item after any of them, relative
    to the largest entry of that item or to 1, and whether all branches were the same. Metrics:
    counts, the machine's size, the ``widths`` of machines (rows: d, bits of a pointer, width), and
    how far the final items of a tenth of the programs are from those of the same programs with
    calls and branches as separate commands (Corollary 1).
    """
    functions = algorithms.linear_functions()
    rows = []
    apart = 0.0
    made = [random_fleq(3, commands, i, functions) for i in range(programs)]
    machine = made[0].machine()
    for i, program in enumerate(made):
        expected = interpret(program)
        found = run(program, machine)
        if i < max(1, programs // 10):
            split = run(random_fleq(3, commands, i, functions, apart=True))
            apart = max(apart, *(largest(split[name] - found[name]) for name in program.items))
        error = max(
            largest(held[name] - value) / max(1.0, largest(value))
            for right, held in zip(expected.items, found.items, strict=False)
            for name, value in right.items()
        )
        same = found.lines == expected.lines
        rows.append({"steps": len(expected.lines) - 1, "error": error, "same_lines": same})
    curves = columns(rows)
    return {
        "programs": programs,
        "steps": sum(curves["steps"]),
        "largest_error": max(curves["error"]),
        "wrong_branches": curves["same_lines"].count(False),
        "apart": apart,
        "size": machine.size(),
        "widths": [
            [shape.d, shape.pointer, FleqMachine(shape, functions).size()["width"]]
            for shape in (FleqShape(d, n, n) for d in (1, 2, 5) for n in (2, 8, 80))
        ],
        "tokens": machine.tokens,
    }, curves


def calculator_study(terms: list[int], inputs: int) -> Study:
    """Run Algorithm 3 on random inputs, and each operation alone; a row per m and operation.

    ``error`` is the largest error and ``mean`` the mean one; ``relative`` is the largest over the
    exact result, which Algorithm 3 divides by 100. Beyond [0.1, 10] the inverse fails: rows "inv,
    beyond" take x in [0.01, 0.1].
    """
    draw = np.random.default_rng(0)
    inside = np.exp(draw.uniform(np.log(0.1), np.log(10), inputs))  # values of ((a + b) - c) d
    d = np.exp(draw.uniform(np.log(0.5), np.log(2), inputs))
    c, a = draw.uniform(-2, 2, (2, inputs))
    b = inside / d - a + c
    x = draw.uniform(-3, 3, inputs)
    y = np.exp(draw.uniform(np.log(0.1), np.log(10), inputs))
    beyond = draw.uniform(0.01, 0.1, inputs)
    exact = {  # both arguments and the result
        "add": (x, y, x + y),
        "sub": (x, y, x - y),
        "mul": (x, y, x * y),
        "perc": (x, y, x / 100),
        "inv": (y, x, 1 / y),
        "sqrt": (y, x, np.sqrt(y)),
        "div": (x, y, x / y),
        "inv, beyond": (beyond, x, 1 / beyond),
    }
    rows = []
    for m in terms:
        functions = algorithms.calculator_functions(m)
        made = [algorithms.calculator(v, functions) for v in zip(a, b, c, d, strict=True)]
        machine = made[0].machine()
        cases = {"all six": (made, np.sqrt(1 / inside) / 100)}
        for name, (left, right, value) in exact.items():
            operation = name.split(",")[0]
            if operation in ("add", "sub", "mul", "perc") and m != terms[0]:
                continue  # these have no sigmoids
            few = zip(left[:ALONE], right[:ALONE], strict=True)
            cases[name] = (
                [algorithms.one_operation(operation, u, v, functions) for u, v in few],
                value[:ALONE],
            )
        for name, (programs, value) in cases.items():
            error = np.abs(run_together(programs, machine, "t")[:, 0, 0].numpy() - value)
            rows.append(
                {
                    "operation": name,
                    "m": m,
                    "error": float(error.max()),
                    "mean": float(error.mean()),
                    "relative": largest(error / value),
                }
            )
    whole = pd.DataFrame(rows).query("operation == 'all six'")
    scaled = whole["error"] * np.sqrt(whole["m"])
    return {
        "slope": slope(whole, "m"),
        "within_root_m": bool(scaled.max() <= scaled.iloc[0] * 1.0001),
        "size": machine.size(),
        "inputs": inputs,
    }, columns(rows)


def newton_study(d: int, rounds: int, matrices: int) -> Study:
    """Measure ‖A X - I‖_F by round: machine and exact iteration, from both starts.

    Matrices are Gaussian with a condition number of at most 20, their largest singular value 1. A
    row per matrix and round. Errors that are beyond 10^6 or not a number are written as 10^6.
    Metrics: the largest residual at the end.
    """
    rows = []
    end = {}
    for i in range(matrices):
        drawn = (gaussians(1000 * i + attempt, d, d) for attempt in itertools.count())
        a = next(a for a in drawn if float(torch.linalg.cond(a)) <= 20)
        a = a / torch.linalg.matrix_norm(a, 2)
        for start in ("transposed", "printed"):
            program = algorithms.newton_inverse(a, rounds, start)
            machine = program.machine()
            for by, history in (
                ("exact", interpret(program)),
                ("machine", run(program, machine, must_halt=False)),
            ):
                found = history.written(program, "X")
                norms = [float(torch.linalg.matrix_norm(a @ x - torch.eye(d))) for x in found]
                norms += [1e6] * (rounds + 1 - len(norms))
                for k, value in enumerate(np.fmin(norms, 1e6).tolist()):
                    rows.append(
                        {"matrix": i, "start": start, "by": by, "round": k, "residual": value}
                    )
                name = f"{start}, {by}"
                end[name] = max(value, end.get(name, 0.0))
    size = machine.size() | {"tokens": machine.tokens}
    return {"largest_residual": end, "size": size, "matrices": matrices}, columns(rows)


def power_study(d: int, rounds: int, terms: int, gap: float) -> Study:
    """Run power iteration on eigenvalues 1, gap, …: the angle to the eigenvector by round.

    ``sine`` is that of the same angle, for cosines too near to 1 for the six digits of a record.
    ``rayleigh`` is b^T A b / b^T b, which tends to 1. ``by`` is "exact" for the interpreter.
    """
    q, _ = torch.linalg.qr(gaussians(0, d, d))
    a = q @ torch.diag(gap ** torch.arange(d).double()) @ q.T
    start = q.sum(1) / d**0.5  # the same weight on every eigenvector
    program = algorithms.power_iteration(a, start, rounds, terms)
    machine = program.machine()
    rows = []
    for by, history in (("exact", interpret(program)), ("machine", run(program, machine))):
        for k, item in enumerate(history.written(program, "b"), 1):
            b = item[:, 0]
            along, *across = (q.T @ b / b.norm()).tolist()
            rows.append(
                {
                    "by": by,
                    "round": k,
                    "cosine": abs(along),
                    "sine": math.hypot(*across),
                    "rayleigh": float(b @ a @ b / (b @ b)),
                    "norm": float(b.norm()),
                }
            )
    return {
        **{k: rows[-1][k] for k in ("cosine", "sine", "rayleigh", "norm")},
        "size": machine.size(),
    }, columns(rows)


def regression_study(features: int, examples: int, steps: int, rate: float) -> Study:
    """Compare gradient descent on linear regression with torch's autograd, step by step."""
    x = gaussians(0, features, examples)
    truth = gaussians(1, features)
    y = x.T @ truth + 0.1 * gaussians(2, examples)
    program = algorithms.linear_regression(x, y, rate, steps)
    machine = program.machine()
    history = run(program, machine)

    def loss(w: Tensor) -> Tensor:
        return ((x.T @ w - y) ** 2).sum() / 2

    w = torch.zeros(features, dtype=torch.float64)
    rows = []
    for step, item in enumerate(history.written(program, "w"), 1):
        w.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(w), w)
        w = (w - rate * gradient).detach()
        mine = item[:features, 0]
        rows.append(
            {
                "step": step,
                "loss": float(loss(mine)),
                "loss_torch": float(loss(w)),
                "difference": largest(mine - w),
            }
        )
    curves = columns(rows)
    return {
        "largest_difference": max(curves["difference"]),
        "loss_first": float((y**2).sum() / 2),
        "loss_last": curves["loss"][-1],
        "size": machine.size() | {"tokens": machine.tokens},
    }, curves


def back_propagation_study(
    inputs: int, hidden: int, samples: int, rounds: int, rate: float
) -> Study:
    """Compare back-propagation of a two-layer network with torch's autograd (Lemma 15).

    A row per step: the largest difference of any weight of W and of v, and the mean loss over all
    samples, with the program's weights and with torch's.
    """
    w = gaussians(0, hidden, inputs)
    v = gaussians(1, hidden)
    x = gaussians(2, samples, inputs)
    target_w = gaussians(3, hidden, inputs)
    target_v = gaussians(4, hidden)
    y = torch.sigmoid(x @ target_w.T) @ target_v
    pairs = list(zip(x, y.tolist(), strict=True))
    functions = algorithms.learning_functions()
    program = algorithms.back_propagation(w, v, pairs, rate, rounds, functions)
    machine = program.machine()
    history = run(program, machine)

    def loss(w: Tensor, v: Tensor) -> float:
        return float(((torch.sigmoid(x @ w.T) @ v - y) ** 2).mean() / 2)

    first = loss(w, v)
    rows = []
    found = zip(history.written(program, "Wt"), history.written(program, "v"), strict=True)
    for step, (item_w, item_v) in enumerate(found, 1):
        w.requires_grad_()
        v.requires_grad_()
        one_x, one_y = pairs[(step - 1) % samples]
        dw, dv = torch.autograd.grad((v @ torch.sigmoid(w @ one_x) - one_y) ** 2 / 2, (w, v))
        w = (w - rate * dw).detach()
        v = (v - rate * dv).detach()
        mine_w = item_w[:inputs, :hidden].T
        mine_v = item_v[:hidden, 0]
        rows.append(
            {
                "step": step,
                "difference_w": largest(mine_w - w),
                "difference_v": largest(mine_v - v),
                "loss": loss(mine_w, mine_v),
                "loss_torch": loss(w, v),
            }
        )
    curves = columns(rows)
    return {
        "largest_difference": max(curves["difference_w"] + curves["difference_v"]),
        "loss_first": first,
        "loss_last": curves["loss"][-1],
        "passes": len(history.lines) - 1,
        "size": machine.size() | {"tokens": machine.tokens},
    }, curves


def least_squares_study(dimension: int, most_examples: int, prompts: int, rounds: int) -> Study:
    """Measure in-context linear regression by the inverse program, by number of examples.

    x and w are standard normal and y = w · x without noise, as in the in-context task. The program
    computes (X X^T + ridge I)^-1 X y: with fewer than d examples there is no inverse without a
    ridge, and Newton doubles errors in directions that X does not have. A row per number of
    examples: the mean squared error over prompts by the program, by the same formula exactly, and
    by ordinary least squares (the shortest w); and the largest difference of the program's
    predictions from the formula's.
    """
    rows = []
    eye = torch.eye(dimension).double()
    for n in range(1, most_examples + 1):
        programs = []
        solved = []
        shortest = []
        news = []
        answers = []
        for p in range(prompts):
            x = gaussians(p, dimension, most_examples + 1)
            w = gaussians(p + 50_000, dimension)
            seen = x[:, :n]
            y = w @ seen
            # halved, so that X X^T stays small; with a quarter of the ridge, w is the same
            programs.append(algorithms.least_squares(seen / 2, y / 2, rounds, RIDGE / 4))
            solved.append(torch.linalg.solve(seen @ seen.T + RIDGE * eye, seen @ y))
            shortest.append(torch.linalg.lstsq(seen.T, y, driver="gelsd").solution)
            news.append(x[:, n])
            answers.append(w @ x[:, n])
        found = run_together(programs, programs[0].machine(), "w")[:, :, 0]
        new_Bd = torch.stack(news)
        answer_B = torch.stack(answers)
        by = {"program": found, "exact": torch.stack(solved), "shortest": torch.stack(shortest)}
        predicted = {name: (w_Bd * new_Bd).sum(1) for name, w_Bd in by.items()}
        errors = {
            name: float(((value - answer_B) ** 2).mean() / dimension)
            for name, value in predicted.items()
        }
        apart = largest(predicted["program"], predicted["exact"])
        rows.append({"examples": n, **errors, "difference": apart})
    curves = columns(rows)
    return {"largest_difference": max(curves["difference"]), "prompts": prompts}, curves
