"""Errata E1 to E12, counted for the printed and the corrected form; sizes of machines; one run."""

import math

import numpy as np
import torch
from numpy import ndarray
from scipy.special import softmax

from entp_lab.studies import Study, columns, largest
from entp_papers.looped import algorithms
from entp_papers.looped.blocks import inverse_sum
from entp_papers.looped.circuits import (
    add_in_a_layer,
    branch_in_a_layer,
    flag_in_a_layer,
    pointer_bits,
    to_bits,
)
from entp_papers.looped.fleq_programs import fleq
from entp_papers.looped.programs import arithmetic, random_programs
from entp_papers.looped.running import compare, interpret, run
from entp_papers.looped.subleq import Shape, SubleqMachine

FORMS = ("printed", "corrected")


def flags() -> dict[str, int]:
    """Count words of 8 bits with a wrong flag: 1 + N as printed, 1 - N corrected (E1)."""
    values = torch.arange(-128, 128)
    wrong = {}
    for name in FORMS:
        found, _ = flag_in_a_layer(values, 8, printed=name == "printed")
        wrong[name] = int((found != (values <= 0)).sum())
    return {**wrong, "of": len(values)}


def machine_with(formula: str) -> dict[str, int]:
    """Count programs that go wrong with the formula "write" (E2) or "branch" (E4)."""
    shape = Shape(8, 8, 8)
    made = random_programs(shape, 50)
    machines = {"printed": SubleqMachine(shape, printed=formula), "corrected": SubleqMachine(shape)}
    return {
        name: compare(machine, made, 20, exact=False, fast=False).wrong_programs
        for name, machine in machines.items()
    } | {"of": 50}


def branch_elsewhere() -> dict[str, float]:
    """Measure what the branch adds to a token that is not the scratchpad; it should be 0 (E4)."""
    plans = {name: branch_in_a_layer(4, name == "printed") for name in FORMS}
    return {name: largest(plan.apply_to(torch.zeros(1, 14))) for name, plan in plans.items()}


def linear_softmax() -> dict[str, float]:
    """Measure the error of softmax([x, C]) and of e^C / δ softmax([δ x, C]) - 1 / δ (E7)."""
    x = np.linspace(-1, 1, 9)
    delta = 1e-6
    sink = 40.0
    printed = softmax(np.append(x, sink))[:-1]
    scaled = softmax(np.append(delta * x, sink))[:-1] * math.exp(sink) / delta - 1 / delta
    return {"printed": largest(printed - x), "corrected": largest(scaled - x)}


def newton_starts() -> dict[str, int]:
    """Count Gaussian matrices that Newton's exact iteration inverts from ε A and from ε A^T (E8).

    ``tame`` counts the matrices for which all eigenvalues of A² have positive real parts, so that
    ε A works.
    """

    def inverted(a: ndarray, start: ndarray) -> int:
        norms = np.linalg.norm(a, 1, (1, 2)) * np.linalg.norm(a, np.inf, (1, 2))
        x = start / norms[:, None, None]
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(60):
                x = x @ (2 * np.eye(5) - a @ x)
            return int((np.abs(a @ x - np.eye(5)).max((1, 2)) < 1e-6).sum())

    a = np.random.default_rng(0).normal(size=(200, 5, 5))
    return {
        "printed": inverted(a, a),
        "corrected": inverted(a, a.mT),
        "tame": int((np.linalg.eigvals(a @ a).real > 0).all(1).sum()),
        "printed, symmetric": inverted(a + a.mT, a + a.mT),
        "of": len(a),
    }


def adder_outputs() -> dict[str, int]:
    """Count wrong sums of numbers with d = 6 bits, with d outputs and with d + 1 (E9)."""
    x, y = torch.cartesian_prod(torch.arange(64), torch.arange(64)).T
    wrong = {}
    for name, width in zip(FORMS, (6, 7), strict=True):
        total, _ = add_in_a_layer(x, y, width)
        wrong[name] = int((total != x + y).sum())
    return {**wrong, "of": len(x)}


def sigmoids_needed() -> dict[str, float]:
    """Count sigmoids for 1/x on [0.1, 10] up to 0.02, and compute the lemma's scale (E10).

    The lemma prints its condition on d, the dimension, which is 1 here whatever the error.
    """
    error = 0.02
    low = 0.1
    m = 2
    x = np.geomspace(low, 10.0, 4001)
    while largest(inverse_sum(m)(x), 1 / x) > error:
        m = math.ceil(m * 1.1)
    return {"sigmoids": m, "scale": math.log(1 / (error * low)) / (error * low), "dimension": 1}


def branch_rule() -> dict[str, int]:
    """Multiply by Algorithm 2, which branches at 0 too, and by the prose, below 0 only (E12)."""
    program = arithmetic("multiply", x=6, y=4)
    found = {"product": 24}
    for name, at_zero in (("corrected", True), ("printed", False)):
        found[name] = interpret(program, 1000, at_zero=at_zero).memories[-1][
            program.cell("product")
        ]
    return found


def errata_study() -> Study:
    """Count every erratum as printed and as corrected."""
    L = pointer_bits(1024)
    codes = to_bits(torch.arange(1024), L)
    shape = Shape(8, 10, 9)  # of 20 tokens
    inverse = fleq("", 3, {}, algorithms.linear_functions()).machine()
    steps = 1 + 1 + 1 + (1 + 2) + 1  # layers of steps 1, 2, 4, 5 (flag, counter) and 6
    return {
        "E1": flags(),
        "E2": machine_with("write"),
        # the largest p_i · p_j for i ≠ j, the printed bound and the right one
        "E3": {
            "largest": int((codes @ codes.T).fill_diagonal_(-L).max()),
            "printed": L - 1,
            "corrected": L - 2,
        },
        "E4": {**machine_with("branch"), "left_elsewhere": branch_elsewhere()},
        # rows by the printed count, 8 L + 3 N + 1, and in a machine that has all that its lemmas
        # use
        "E5": {
            "printed": 8 * shape.pointer + 3 * shape.bits + 1,
            "corrected": SubleqMachine(shape).width,
        },
        # layers by the steps of the proof, step 3 counted as 3 layers or as none, and in the
        # machine
        "E6": {
            "step 3 as 3": steps + 3,
            "step 3 as 0": steps,
            "built": len(SubleqMachine(shape).layers),
        },
        "E7": linear_softmax(),
        "E8": newton_starts(),
        "E9": adder_outputs(),
        "E10": sigmoids_needed(),
        # heads of the machine that inverts matrices: Table 1's, Theorem 2's sum over its blocks,
        # and those built
        "E11": {
            "table 1": 1,
            "theorem 2": sum(b.heads for b in inverse.blocks.values()),
            "built": inverse.size()["heads"],
        },
        "E12": branch_rule(),
    }, {}


def sizes_study(tokens: list[int], bits: int) -> Study:
    """Count layers, heads, width and hidden units of built weights: SUBLEQ by n, FLEQ machines.

    Metrics: by name, layers and heads by the paper and as built; for FLEQ machines also the heads
    of each block, whose sum Theorem 2 allows.
    """
    rows = []
    for n in tokens:
        shape = Shape.of_tokens(bits, n)
        size = SubleqMachine(shape).size()
        size.pop("weights")
        rows.append({"tokens": n, "pointer": shape.pointer, **size})
    built = {
        "SUBLEQ (Lemma 4)": {
            "paper_layers": 9,
            "paper_heads": 2,
            **SubleqMachine(Shape(bits, 10, 10)).size(),
        }
    }
    machines = {
        "matrix inverse (Lemma 12)": (13, 1, 5, algorithms.linear_functions()),
        "power iteration (Lemma 13)": (13, 1, 5, algorithms.power_functions(100)),
        "SGD (Lemma 15)": (13, 1, 4, algorithms.learning_functions()),
        "calculator (Theorem 4), m = 100": (12, 100, 1, algorithms.calculator_functions(100)),
    }
    for name, (layers, heads, d, functions) in machines.items():
        machine = fleq("", d, {}, functions).machine()
        built[name] = {
            "paper_layers": layers,
            "paper_heads": heads,
            **machine.size(),
            "blocks": {function: block.heads for function, block in machine.blocks.items()},
        }
    return {"machines": built}, columns(rows)


def multiply_study(x: int, y: int) -> Study:
    """Multiply step by step: words, counter, and the tokens that the scratchpad attends to.

    Metrics: the names of cells, the commands, the product, and for the state before the first pass
    all of its entries. Curves: ``line`` and ``memory``, a list of words, by pass; ``attends``, by
    pass and head that attends, the token.
    """
    program = arithmetic("multiply", 8, x=x, y=y)
    trace = run(program)
    names = {place: name for name, place in program.cells.items()}
    heads = [
        f"{purpose}, head {h}"
        for purpose, ws in trace.attention(1).items()
        for h in range(1, len(ws) + 1)
    ]
    attends = [[]]
    for step in range(1, trace.steps + 1):
        # the scratchpad sees itself and its target, half and half: the target is the other one
        attends.append(
            [int(w[0, 1:].argmax()) + 1 for ws in trace.attention(step).values() for w in ws]
        )
    return {
        "product": trace["product"],
        "cells": [names.get(i, str(i)) for i in range(len(program.memory))],
        "code": [list(c) for c in program.code],
        "heads": heads,
        "rows": {name: [r.start, r.stop] for name, r in trace.machine.rows.items()},
        "state": trace.states[0][0].tolist(),
        "last_state": trace.states[-1][0].tolist(),
        "steps": trace.steps,
    }, {
        "line": trace.lines,
        "memory": [list(m) for m in trace.memories],
        "attends": attends,
    }
