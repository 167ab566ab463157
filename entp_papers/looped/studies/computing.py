"""What FLEQ programs compute: random ones, the calculator, the inverse of a matrix, its first eigenvector."""

import math

import numpy as np
import torch

from entp_lib.validation import require
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.program import FleqProgram, FleqRun, interpret, run, run_together
from entp_papers.looped.fleq.random_programs import random_fleq
from entp_papers.looped.studies.exact import Study, columns

ALONE = 25  # inputs of each operation by itself


def fleq_study(programs: int, commands: int, d: int = 3, data_seed: int = 0) -> Study:
    """Random FLEQ programs over add, sub, mul and transp beside the interpreter that calls the exact functions.

    A row per program: commands executed, the largest error of any item after any of them, relative to the largest entry
    of that item or to 1, and whether all branches were the same. Metrics: counts, the machine's size, and how far the
    final items of a tenth of the programs are from those of the same with calls and branches apart (Corollary 1).
    """
    functions, rows = algorithms.linear_functions(), []
    machine = None
    apart = 0.0
    for i in range(programs):
        seed = 10_000 * data_seed + i
        program = random_fleq(d, commands, seed, functions)
        machine = machine or program.machine()
        expected, found = interpret(program), run(program, machine)
        if i < max(1, programs // 10):
            split = run(random_fleq(d, commands, seed, functions, apart=True))
            apart = max(apart, *(float((split[name] - found[name]).abs().max()) for name in program.items))
        error = 0.0
        for right, held in zip(expected.items, found.items, strict=False):
            for name, value in right.items():
                scale = max(1.0, float(value.abs().max()))
                error = max(error, float((held[name] - value).abs().max()) / scale)
        rows.append({"steps": len(expected.lines) - 1, "error": error, "same_lines": found.lines == expected.lines})
    require(machine is not None, f"programs = {programs}: must be at least 1")
    metrics = {
        "programs": programs,
        "steps": sum(r["steps"] for r in rows),
        "largest_error": max(r["error"] for r in rows),
        "wrong_branches": sum(not r["same_lines"] for r in rows),
        "apart": apart,
        "size": machine.size(),
        "tokens": machine.tokens,
    }
    return metrics, columns(rows)


def calculator_study(terms: list[int], inputs: int = 200, data_seed: int = 0) -> Study:
    """Algorithm 3 on random inputs whose product is in [0.1, 10], and each operation alone; a row per m and operation.

    ``error`` is the largest error and ``mean`` the mean one; ``relative`` is the largest over the exact result, which
    Algorithm 3 divides by 100. Beyond [0.1, 10] the inverse fails: rows
    "inv, beyond" take x in [0.01, 0.1].
    """
    draw = np.random.default_rng(data_seed)
    rows: list[dict] = []
    inside = np.exp(draw.uniform(np.log(0.1), np.log(10), inputs))  # of ((a + b) - c) d
    d = np.exp(draw.uniform(np.log(0.5), np.log(2), inputs))
    c, a = draw.uniform(-2, 2, (2, inputs))
    b = inside / d - a + c
    x, y = draw.uniform(-3, 3, inputs), np.exp(draw.uniform(np.log(0.1), np.log(10), inputs))
    beyond = draw.uniform(0.01, 0.1, inputs)
    alone = {
        "add": (x, y, x + y),
        "sub": (x, y, x - y),
        "mul": (x, y, x * y),
        "perc": (x, y, x / 100),
        "inv": (y, x, 1 / y),
        "sqrt": (y, x, np.sqrt(y)),
        "div": (x, y, x / y),
        "inv, beyond": (beyond, x, 1 / beyond),
    }
    size = {}
    for m in terms:
        functions = algorithms.calculator_functions(m)
        made = [algorithms.calculator(v, functions) for v in np.stack([a, b, c, d], 1).tolist()]
        machine = made[0].machine()
        size = machine.size()
        cases = {"all six": (run_together(made, machine, "t")[:, 0, 0].numpy(), np.sqrt(1 / inside) / 100)}
        for name, (left, right, exact) in alone.items():
            operation = name.split(",")[0]
            if operation in ("add", "sub", "mul", "perc") and m != terms[0]:
                continue  # these have no sigmoids
            few = zip(left[:ALONE].tolist(), right[:ALONE].tolist(), strict=True)
            programs = [algorithms.one_operation(operation, u, v, functions) for u, v in few]
            cases[name] = (run_together(programs, machine, "t")[:, 0, 0].numpy(), exact[:ALONE])
        for name, (found, exact) in cases.items():
            error = np.abs(found - exact)
            relative = float((error / np.abs(exact)).max())
            row = {"operation": name, "m": m, "error": float(error.max()), "mean": float(error.mean())}
            rows.append(row | {"relative": relative})
    whole = [r for r in rows if r["operation"] == "all six"]
    fit = (
        np.polyfit(np.log([r["m"] for r in whole]), np.log([r["error"] for r in whole]), 1) if len(whole) > 1 else [0.0]
    )
    within = all(r["error"] <= whole[0]["error"] * math.sqrt(terms[0] / r["m"]) * 1.0001 for r in whole)
    return {"slope": float(fit[0]), "within_root_m": within, "size": size, "inputs": inputs}, columns(rows)


def random_matrix(d: int, most_condition: float, seed: int) -> torch.Tensor:
    """A Gaussian matrix with a condition number of at most ``most_condition``, its largest singular value 1."""
    for attempt in range(1000):
        generator = torch.Generator().manual_seed(1000 * seed + attempt)
        a = torch.randn(d, d, generator=generator, dtype=torch.float64)
        if float(torch.linalg.cond(a)) <= most_condition:
            return a / torch.linalg.matrix_norm(a, 2)
    raise RuntimeError(f"no Gaussian {d} × {d} matrix with a condition number of {most_condition:g} was found")


def newton_study(d: int, rounds: int, matrices: int, most_condition: float = 20.0, data_seed: int = 0) -> Study:
    """‖A X - I‖_F by round: on the machine, by the exact iteration, and both from the printed start ε A.

    A row per matrix and round. Errors beyond 10^6 are written as that. Metrics: the largest residual at the end.
    """
    functions, rows = algorithms.linear_functions(), []
    size = {}
    for i in range(matrices):
        a = random_matrix(d, most_condition, data_seed * 1000 + i)
        found = {}
        for start in ("transposed", "printed"):
            program = algorithms.newton_inverse(a, rounds, functions, start)
            found[start, "exact"] = residuals(a, program, interpret(program), rounds)
            machine = program.machine()
            size = machine.size() | {"tokens": machine.tokens}
            found[start, "machine"] = residuals(a, program, run(program, machine, must_halt=False), rounds)
        for (start, by), values in found.items():
            for k, value in enumerate(values):
                rows.append({"matrix": i, "start": start, "by": by, "round": k, "residual": value})
    last = [r for r in rows if r["round"] == rounds]
    end = {
        f"{start}, {by}": max(r["residual"] for r in last if (r["start"], r["by"]) == (start, by))
        for start in ("transposed", "printed")
        for by in ("exact", "machine")
    }
    return {"largest_residual": end, "size": size, "matrices": matrices}, columns(rows)


def residuals(a: torch.Tensor, program: FleqProgram, history: FleqRun, rounds: int) -> list[float]:
    """‖A X - I‖_F before the first round and after every round; 10^6 for more than that, and for what is no number."""
    values = []
    for x in history.written(program, "X"):
        value = float(torch.linalg.matrix_norm(a @ x - torch.eye(len(a))))
        values.append(min(value, 1e6) if math.isfinite(value) else 1e6)
    return values + [1e6] * (rounds + 1 - len(values))


def power_study(d: int, rounds: int, terms: int, gap: float = 0.7, data_seed: int = 0) -> Study:
    """Power iteration on a symmetric matrix with eigenvalues 1, gap, …: |cos| to the first eigenvector by round.

    ``sine`` tells the same angle where the cosine is too near to 1 for a record's six digits.
    ``rayleigh`` is b^T A b / b^T b, which tends to 1. ``exact`` has the same without any error.
    """
    require(0 < gap < 1, f"gap = {gap}: must be between 0 and 1")
    generator = torch.Generator().manual_seed(data_seed)
    q, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    values = gap ** torch.arange(d, dtype=torch.float64)
    a = q @ torch.diag(values) @ q.T
    start = q.sum(1) / d**0.5  # the same weight on every eigenvector
    program = algorithms.power_iteration(a, start, rounds, algorithms.power_functions(terms))
    machine = program.machine()
    rows: list[dict] = []
    for by, history in (("exact", interpret(program)), ("machine", run(program, machine))):
        for k, item in enumerate(history.written(program, "b"), 1):
            b = item[:, 0]
            along, *across = (q.T @ b / b.norm()).tolist()
            cosine, sine = abs(along), math.hypot(*across)
            rayleigh = float(b @ a @ b / (b @ b))
            row = {"by": by, "round": k, "cosine": cosine, "sine": sine, "rayleigh": rayleigh}
            rows.append(row | {"norm": float(b.norm())})
    end = [r for r in rows if r["by"] == "machine"][-1]
    return {**{k: end[k] for k in ("cosine", "sine", "rayleigh", "norm")}, "size": machine.size()}, columns(rows)
