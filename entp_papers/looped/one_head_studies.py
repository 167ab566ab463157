"""Lemmas 12, 13 and 15 on a single head, and Corollary 6: sums of sigmoids in the width."""

import math

import numpy as np
import torch
from numpy import ndarray

from entp_lab.studies import Study, columns, gaussians, largest
from entp_papers.looped import algorithms, blocks
from entp_papers.looped.block_studies import BlockStack, shape_of
from entp_papers.looped.blocks import SigmoidSum
from entp_papers.looped.fleq_machine import FAR, HEAT, FleqMachine, FleqShape
from entp_papers.looped.fleq_programs import FleqProgram, interpret, run
from entp_papers.looped.layers import LayerPlan, Rows, Stack


def compare_on_one_head(name: str, program: FleqProgram, results: list[str]) -> dict:
    """Run a program on the machine with one head; compare its results with the exact functions."""
    machine = program.machine(one_head=True)
    expected = interpret(program)
    found = run(program, machine)
    return {
        "program": name,
        **shape_of(machine),
        "d": program.d,
        "passes": len(found.lines) - 1,
        "same_branches": found.lines == expected.lines,
        "error": max(largest(found[item], expected[item]) for item in results),
    }


def one_head_study(
    d: int, newton_rounds: int, power_rounds: int, root_rounds: int, learning_rounds: int
) -> Study:
    """Run Newton's inverse, power iteration and back-propagation on 13 layers with one head.

    All blocks share the head: their scores are added, and a block that was not chosen scores 0.
    Power iteration takes roots by products, and the sigmoid is applied entry by entry, since the
    blocks of the other studies need a head for every sigmoid. A row per program: the machine's
    size, passes, and the largest error of its results against the exact functions.
    """
    a = gaussians(0, d, d)
    a = a @ a.T + torch.eye(d)
    a = a / torch.linalg.matrix_norm(a, 2)
    inverse = algorithms.newton_inverse(a, newton_rounds, "transposed")

    eigenvectors, _ = torch.linalg.qr(gaussians(1, d, d))
    symmetric = eigenvectors @ torch.diag(0.7 ** torch.arange(d).double()) @ eigenvectors.T
    start = eigenvectors.sum(1) / d**0.5
    power = algorithms.power_iteration_by_products(symmetric, start, power_rounds, root_rounds)

    samples = [(x, float(x.sum().tanh())) for x in gaussians(2, d, d)]
    functions = algorithms.learning_functions(blocks.entrywise_sigmoid_block)
    network = algorithms.back_propagation(
        gaussians(3, d, d), gaussians(4, d), samples, 0.5, learning_rounds, functions
    )
    rows = [
        compare_on_one_head("inverse", inverse, ["X"]),
        compare_on_one_head("power iteration", power, ["b"]),
        compare_on_one_head("back-propagation", network, ["Wt", "v"]),
    ]
    widths = [FleqMachine(FleqShape(n, 8, 8), functions, one_head=True).width for n in (1, 2, 3, 5)]
    steps = np.diff(widths) / (1, 1, 2)
    curves = columns(rows)
    return {
        "largest_error": max(curves["error"]),
        "width_is_linear": bool((steps == steps[0]).all()),
    }, curves


def sum_in_one_head(f: SigmoidSum, x_B: ndarray) -> tuple[ndarray, Stack]:
    """Compute a sum of m sigmoids in two layers with one head; return the sums and the layers.

    A token holds one term: its weight and bias, and a code with a coordinate for every term. Every
    token queries the token of x with its own weight and bias, so that one head computes all
    sigmoids. The codes select the coefficients, and the second layer adds up the terms.
    """
    m = len(f.c)
    rows = Rows(code=m)
    x, asked, rest, term, weight, bias, sigmoid, product, total = rows.take(9)[0]
    squash = LayerPlan("every term asks for x and takes a softmax over its score and 0")
    scores = [(weight, x), (bias, asked), ({term: -FAR}, term)]
    squash.head(scores, [(asked, sigmoid)], 1.0)
    for c, own in zip(f.c, rows["code"], strict=True):
        squash.add({sigmoid: c}, product, [own], abs(c))
    squash.clear([sigmoid])
    add_up = LayerPlan("the token of x adds up what the terms hold")
    add_up.head([(asked, term)], [({product: m}, total)], HEAT)
    stack = Stack([squash, add_up], rows.width)

    x_BTD = torch.zeros(len(x_B), m + 2, rows.width, dtype=torch.float64)
    x_BTD[:, 0, x] = torch.from_numpy(x_B)
    x_BTD[:, 0, asked] = 1.0
    x_BTD[:, 1, rest] = 1.0
    x_BTD[:, 2:, term] = 1.0
    x_BTD[:, 2:, weight] = torch.from_numpy(f.w)
    x_BTD[:, 2:, bias] = torch.from_numpy(f.b)
    x_BTD[:, 2:, rows["code"]] = torch.eye(m).double()
    return stack(x_BTD)[:, 0, total].numpy(), stack


def one_head_sums_study(terms: list[int], points: int) -> Study:
    """Compute random sums of m sigmoids, and the root on [0, m²], in one head (Corollary 6)."""
    rows = []
    for m in terms:
        draw = np.random.default_rng(m)
        random = SigmoidSum(draw.normal(size=m), draw.normal(size=m), draw.normal(size=m))
        cases = {
            "random": (random, draw.normal(size=points)),
            "√x": (blocks.graded_sqrt_sum(m, float(m * m)), np.linspace(0, m * m, points)),
        }
        for name, (f, x) in cases.items():
            found, stack = sum_in_one_head(f, x)
            error = largest(found, f(x))
            rows.append({"function": name, "m": m, **shape_of(stack), "error": error})
    curves = columns(rows)
    return {"largest_error": max(curves["error"])}, curves


def ranges_study(terms: list[int], points: int) -> Study:
    """Measure 1/x and √x with m heads on the ranges that the paper prints, which grow with m.

    Corollary 4: 1/x on [1/√m, e^m] up to O(1/√m); with the negative numbers of Theorem 4 as well.
    Corollary 5: √x on [0, m²] up to O(1/m). ``scaled`` is the error times √m, or times m.
    """
    rows = []
    for m in terms:
        low = m**-0.5
        wide = np.concatenate(
            [np.geomspace(low, 1 / low, points), np.geomspace(1 / low, np.exp(m))]
        )
        roots = m * m * np.concatenate([np.linspace(0, 1, points), np.geomspace(m**-4.0 / 10, 1)])
        inverse = blocks.inverse_sum(m - 1, low, 1 / low)
        signed = blocks.signed_inverse_sum(m, low, 1 / low)
        cases = (
            ("1/x", inverse, np.reciprocal, wide, m**0.5),
            ("1/x, negative too", signed, np.reciprocal, np.concatenate([wide, -wide]), m**0.5),
            ("√x", blocks.graded_sqrt_sum(m, float(m * m)), np.sqrt, roots, m),
        )
        for name, f, exact, x, scale in cases:
            stack = BlockStack(blocks.sigmoid_block(f, 1), 1)
            error = largest(stack.of_numbers(x) - exact(x))
            size = stack.size()
            rows.append(
                {
                    "function": name,
                    "m": m,
                    "layers": size["layers"],
                    "heads": size["heads"],
                    "log_of_largest": math.log(largest(x)),
                    "error": error,
                    "scaled": error * scale,
                }
            )
    return {}, columns(rows)
