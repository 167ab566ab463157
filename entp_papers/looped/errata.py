"""What the paper prints and what holds, side by side (E1 to E12): each function returns counts that tell them apart."""

import math

import numpy as np
import torch
from numpy import ndarray

from entp_papers.looped.circuits import add_words, branch, flag_of_word
from entp_papers.looped.fleq.algorithms import linear_functions
from entp_papers.looped.fleq.program import fleq
from entp_papers.looped.fleq.sigmoids import inverse_sum
from entp_papers.looped.plan import LayerPlan, Rows
from entp_papers.looped.program import Program
from entp_papers.looped.programs import multiply, random_program
from entp_papers.looped.run import compare
from entp_papers.looped.subleq import Shape, SubleqMachine, machine_rows
from entp_papers.looped.words import pointer_bits, to_bits, to_unsigned, wrap


def flags(bits: int = 8) -> dict[str, int]:
    """E1: words whose flag is wrong by equation (4) as printed, 1 + N, and corrected, 1 - N; of 2^bits words."""
    values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    state = torch.cat([to_bits(values, bits), torch.zeros(len(values), 1)], 1)
    wrong = {}
    for name in ("printed", "corrected"):
        plan = LayerPlan(name)
        flag_of_word(plan, bits, range(bits), printed=name == "printed")
        found = plan.build_feed_forward(bits + 1, torch.float64)(state)[:, -1]
        wrong[name] = int((found != (values <= 0)).sum())
    return {**wrong, "of": len(values)}


def machine_with(formula: str, programs: int = 50, steps: int = 20) -> dict[str, int]:
    """E2 and E4: programs that go wrong on a machine with a formula (``write``, ``branch``) as printed, and without."""
    shape = Shape(8, 8, 8)
    made = [random_program(shape, seed) for seed in range(programs)]
    printed = compare(SubleqMachine(shape, printed=[formula]), made, steps, exact=False)
    corrected = compare(SubleqMachine(shape), made, steps, exact=False)
    return {"printed": printed.wrong_programs, "corrected": corrected.wrong_programs, "of": programs}


def branch_elsewhere(bits: int = 4) -> dict[str, float]:
    """E4: what the branch leaves in the counter rows of a token that is not the scratchpad, which should be 0."""
    left = {}
    for name in ("printed", "corrected"):
        rows, plan = Rows(), LayerPlan(name)
        for part, size in (("counter", bits), ("following", bits), ("target", bits), ("flag", 1), ("bit", 1)):
            rows.add(part, size)
        branch(
            plan, rows["counter"], rows["following"], rows["target"], rows["flag"][0], rows["bit"][0], name == "printed"
        )
        ff = plan.build_feed_forward(rows.width, torch.float64)
        left[name] = float(ff(torch.zeros(1, rows.width, dtype=torch.float64)).abs().max())
    return left


def pointers(tokens: int = 1024) -> dict[str, int]:
    """E3: the largest p_i · p_j for i ≠ j, beside the printed bound and the right one."""
    L = pointer_bits(tokens)
    p = to_bits(torch.arange(tokens), L)
    products = (p @ p.T).fill_diagonal_(-L)
    return {"largest": int(products.max()), "printed": L - 1, "corrected": L - 2}


def rows_of_state(tokens: int = 20, bits: int = 8) -> dict[str, int]:
    """E5: rows by the printed count, 8 L + 3 N + 1, and in a machine that has all that its lemmas use."""
    shape = Shape(bits, tokens // 2, tokens - 1 - tokens // 2)
    return {"printed": 8 * shape.pointer + 3 * bits + 1, "corrected": machine_rows(shape).width}


def layers_of_steps() -> dict[str, int]:
    """E6: layers by the steps of the proof, step 3 counted as 3 layers or as none, and in the machine."""
    others = {"1": 1, "2": 1, "4": 1, "5, flag": 1, "5, counter": 2, "6": 1}
    total = sum(others.values())
    return {"step 3 as 3": total + 3, "step 3 as 0": total, "built": len(SubleqMachine(Shape(4, 3, 2)).layers)}


def linear_softmax(delta: float = 1e-6, sink: float = 40.0) -> dict[str, float]:
    """E7: the largest error of softmax([x, C]) taken for x, and of e^C / δ softmax([δ x, C]) - 1 / δ."""
    x = np.linspace(-1, 1, 9)

    def softmax(z: ndarray) -> ndarray:
        e = np.exp(z - z.max())
        return e / e.sum()

    printed = softmax(np.append(x, sink))[:-1]
    scaled = softmax(np.append(delta * x, sink))[:-1] * math.exp(sink) / delta - 1 / delta
    return {"printed": float(abs(printed - x).max()), "corrected": float(abs(scaled - x).max())}


def newton_starts(matrices: int = 200, d: int = 5, rounds: int = 60, seed: int = 0) -> dict[str, int]:
    """E8: Gaussian matrices whose inverse Newton's exact iteration finds from ε A, and from ε A^T; and symmetric ones.

    ``tame`` counts those of which all eigenvalues of A² have positive real parts, for which ε A does work.
    """
    draw = np.random.default_rng(seed)
    found = {"printed": 0, "corrected": 0, "tame": 0, "printed, symmetric": 0, "of": matrices}
    for _ in range(matrices):
        a = draw.normal(size=(d, d))
        found["tame"] += bool((np.linalg.eigvals(a @ a).real > 0).all())
        scale = 1 / (np.abs(a).sum(0).max() * np.abs(a).sum(1).max())
        found["printed"] += converges(a, scale * a, rounds)
        found["corrected"] += converges(a, scale * a.T, rounds)
        s = a + a.T
        scale = 1 / (np.abs(s).sum(0).max() * np.abs(s).sum(1).max())
        found["printed, symmetric"] += converges(s, scale * s, rounds)
    return found


def converges(a: ndarray, x: ndarray, rounds: int) -> bool:
    """Whether Newton's iteration from x reaches the inverse of a."""
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds):
            x = x @ (2 * np.eye(len(a)) - a @ x)
        return bool(np.isfinite(x).all() and np.abs(a @ x - np.eye(len(a))).max() < 1e-6)


def adder_outputs(bits: int = 6) -> dict[str, int]:
    """E9: pairs of numbers of ``bits`` bits whose sum, below 2^(bits + 1), is wrong with d outputs and with d + 1."""
    x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
    wrong = {}
    for name, width in (("printed", bits), ("corrected", bits + 1)):
        plan = LayerPlan(name)
        add_words(plan, range(width), range(width), range(width, 2 * width), 2 * width)
        state = torch.cat([to_bits(x, width), to_bits(y, width), torch.ones(len(x), 1)], 1)
        total = to_unsigned(plan.build_feed_forward(2 * width + 1, torch.float64)(state)[:, :width])
        wrong[name] = int((total != x + y).sum())
    return {**wrong, "of": len(x)}


def sigmoids_needed(error: float = 0.02, low: float = 0.1, high: float = 10.0) -> dict[str, float]:
    """E10: sigmoids for 1/x with an error of at most ``error``, beside the lemma's scale log(1/(ε δ)) / (ε δ).

    The lemma prints its condition on d, the dimension, which is 1 here whatever the error.
    """
    x = np.geomspace(low, high, 4001)
    m = 2
    while np.abs(inverse_sum(m, low, high)(x) - 1 / x).max() > error:
        m = math.ceil(m * 1.1)
    return {"sigmoids": m, "scale": math.log(1 / (error * low)) / (error * low), "dimension": 1}


def heads_of_inverse() -> dict[str, int]:
    """E11: heads of the machine that inverts matrices: Table 1's, Theorem 2's sum over its blocks, and those built."""
    machine = fleq("", 3, {}, linear_functions()).machine()
    return {"table 1": 1, "theorem 2": sum(block.heads for block in machine.blocks), "built": machine.most_heads}


def branch_rule(x: int = 6, y: int = 4) -> dict[str, int]:
    """E12: multiply by Algorithm 2, which branches at 0 as well, and by the prose, which does below 0 only."""
    program = multiply(x, y)
    return {"product": x * y, "corrected": by_rule(program, True), "printed": by_rule(program, False)}


def by_rule(program: Program, at_zero: bool, steps: int = 1000) -> int:
    """The product that multiply leaves when a branch is taken at 0, or only below it."""
    memory, line = list(program.memory), 0
    for _ in range(steps):
        if line == program.last:
            break
        a, b, c = program.code[line]
        memory[b] = wrap(memory[b] - memory[a], program.bits)
        line = c if memory[b] < 0 or (at_zero and memory[b] == 0) else line + 1
    return memory[program.cell("product")]
