"""Errata E1 to E12 as counts for the printed and the corrected form; size, speed and one run of the machine."""

import math
import time

import numpy as np
import torch
from numpy import ndarray

from entp_lib.experiments.studies import Study, columns, largest
from entp_lib.validation import require
from entp_papers.looped.circuits import add_words, branch, flag_of_word, pointer_bits, to_bits, to_unsigned
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.blocks import inverse_sum
from entp_papers.looped.fleq.programs import fleq
from entp_papers.looped.layers import transcribe
from entp_papers.looped.programs import multiply, random_programs
from entp_papers.looped.running import compare, interpret, run
from entp_papers.looped.studies import precision
from entp_papers.looped.subleq import Shape, SubleqMachine, machine_rows, states
from entp_papers.looped.weights import LayerPlan, Rows

FORMS = ("printed", "corrected")


def flags(bits: int = 8) -> dict[str, int]:
    """E1: words whose flag is wrong by equation (4) as printed, 1 + N, and corrected, 1 - N; of 2^bits words."""
    values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    wrong = {}
    for name in FORMS:
        plan = LayerPlan(name)
        flag_of_word(plan, bits, range(bits), printed=name == "printed")
        found = plan.on(to_bits(values, bits), torch.zeros(len(values), 1))[:, -1]
        wrong[name] = int((found != (values <= 0)).sum())
    return {**wrong, "of": len(values)}


def machine_with(formula: str, programs: int = 50, steps: int = 20) -> dict[str, int]:
    """E2 and E4: programs that go wrong on a machine with a formula (``write``, ``branch``) as printed, and without."""
    shape = Shape(8, 8, 8)
    made = random_programs(shape, programs)
    printed = compare(SubleqMachine(shape, printed=[formula]), made, steps, exact=False)
    corrected = compare(SubleqMachine(shape), made, steps, exact=False)
    return {"printed": printed.wrong_programs, "corrected": corrected.wrong_programs, "of": programs}


def branch_elsewhere(bits: int = 4) -> dict[str, float]:
    """E4: the largest value that the branch leaves in a token that is not the scratchpad, which should be 0."""
    left = {}
    for name in FORMS:
        rows, plan = Rows(counter=bits, following=bits, target=bits, flag=1, bit=1), LayerPlan(name)
        branch(plan, rows, rows["target"], rows["bit"][0], name == "printed")
        left[name] = largest(plan.on(torch.zeros(1, rows.width)))
    return left


def pointers(tokens: int = 1024) -> dict[str, int]:
    """E3: the largest p_i · p_j for i ≠ j, the printed bound and the right one."""
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
    others = 1 + 1 + 1 + (1 + 2) + 1  # of steps 1, 2, 4, 5 (flag, counter) and 6
    return {"step 3 as 3": others + 3, "step 3 as 0": others, "built": len(SubleqMachine(Shape(4, 3, 2)).layers)}


def linear_softmax(delta: float = 1e-6, sink: float = 40.0) -> dict[str, float]:
    """E7: the largest error of softmax([x, C]) taken for x, and of e^C / δ softmax([δ x, C]) - 1 / δ."""
    x = np.linspace(-1, 1, 9)

    def softmax(z: ndarray) -> ndarray:
        e = np.exp(z - z.max())
        return e / e.sum()

    printed = softmax(np.append(x, sink))[:-1]
    scaled = softmax(np.append(delta * x, sink))[:-1] * math.exp(sink) / delta - 1 / delta
    return {"printed": largest(printed - x), "corrected": largest(scaled - x)}


def newton_starts(matrices: int = 200, d: int = 5, rounds: int = 60, seed: int = 0) -> dict[str, int]:
    """E8: Gaussian matrices whose inverse Newton's exact iteration finds from ε A, and from ε A^T; and symmetric ones.

    ``tame`` counts those of which all eigenvalues of A² have positive real parts, for which ε A does work.
    """
    draw = np.random.default_rng(seed)
    found = {"printed": 0, "corrected": 0, "tame": 0, "printed, symmetric": 0, "of": matrices}
    for _ in range(matrices):
        a = draw.normal(size=(d, d))
        found["tame"] += bool((np.linalg.eigvals(a @ a).real > 0).all())
        found["printed"] += converges(a, a, rounds)
        found["corrected"] += converges(a, a.T, rounds)
        found["printed, symmetric"] += converges(a + a.T, a + a.T, rounds)
    return found


def converges(a: ndarray, start: ndarray, rounds: int) -> bool:
    """Whether Newton's iteration from ε start reaches the inverse of a, for the paper's ε."""
    x = 1 / (np.abs(a).sum(0).max() * np.abs(a).sum(1).max()) * start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds):
            x = x @ (2 * np.eye(len(a)) - a @ x)
        return bool(np.isfinite(x).all() and np.abs(a @ x - np.eye(len(a))).max() < 1e-6)


def adder_outputs(bits: int = 6) -> dict[str, int]:
    """E9: pairs of numbers of ``bits`` bits whose sum, below 2^(bits + 1), is wrong with d outputs and with d + 1."""
    x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
    wrong = {}
    for name, width in zip(FORMS, (bits, bits + 1), strict=True):
        plan = LayerPlan(name)
        add_words(plan, range(width), range(width), range(width, 2 * width), 2 * width)
        total = plan.on(to_bits(x, width), to_bits(y, width), torch.ones(len(x), 1))[:, :width]
        wrong[name] = int((to_unsigned(total) != x + y).sum())
    return {**wrong, "of": len(x)}


def sigmoids_needed(error: float = 0.02, low: float = 0.1, high: float = 10.0) -> dict[str, float]:
    """E10: sigmoids for 1/x with an error of at most ``error``, and the lemma's scale log(1/(ε δ)) / (ε δ).

    The lemma prints its condition on d, the dimension, which is 1 here whatever the error.
    """
    x = np.geomspace(low, high, 4001)
    m = 2
    while np.abs(inverse_sum(m, low, high)(x) - 1 / x).max() > error:
        m = math.ceil(m * 1.1)
    return {"sigmoids": m, "scale": math.log(1 / (error * low)) / (error * low), "dimension": 1}


def heads_of_inverse() -> dict[str, int]:
    """E11: heads of the machine that inverts matrices: Table 1's, Theorem 2's sum over its blocks, and those built."""
    machine = fleq("", 3, {}, algorithms.linear_functions()).machine()
    return {"table 1": 1, "theorem 2": sum(block.heads for block in machine.blocks), "built": machine.size()["heads"]}


def branch_rule(x: int = 6, y: int = 4) -> dict[str, int]:
    """E12: multiply by Algorithm 2, which branches at 0 as well, and by the prose, which does below 0 only."""
    program, found = multiply(x, y), {"product": x * y}
    for name, at_zero in (("corrected", True), ("printed", False)):
        found[name] = interpret(program, 1000, at_zero=at_zero).memories[-1][program.cell("product")]
    return found


def errata_study(seed: int = 0) -> Study:
    """Every erratum, the printed and the corrected form; the functions above explain the numbers."""
    return {
        "E1": flags(),
        "E2": machine_with("write"),
        "E3": pointers(),
        "E4": {**machine_with("branch"), "left_elsewhere": branch_elsewhere()},
        "E5": rows_of_state(),
        "E6": layers_of_steps(),
        "E7": linear_softmax(),
        "E8": newton_starts(seed=seed),
        "E9": adder_outputs(),
        "E10": sigmoids_needed(),
        "E11": heads_of_inverse(),
        "E12": branch_rule(),
    }, {}


def sizes_study(tokens: list[int], bits: int = 8) -> Study:
    """Layers, heads, width and hidden units counted from built weights: SUBLEQ by n, FLEQ machines by their functions.

    Metrics: by name, layers and heads by the paper and as built; for FLEQ machines also the heads of each
    block, whose sum Theorem 2 allows.
    """
    rows: list[dict] = []
    for n in tokens:
        shape = Shape.of_tokens(bits, n)
        size = SubleqMachine(shape).size()
        size.pop("weights")
        rows.append({"tokens": n, "pointer": shape.pointer, **size})
    built = {"SUBLEQ (Lemma 4)": {"paper_layers": 9, "paper_heads": 2, **SubleqMachine(Shape(bits, 10, 10)).size()}}
    machines = {
        "matrix inverse (Lemma 12)": (13, 1, 5, algorithms.linear_functions()),
        "power iteration (Lemma 13)": (13, 1, 5, algorithms.power_functions(50)),
        "SGD (Lemma 15)": (13, 1, 4, algorithms.learning_functions()),
        "calculator (Theorem 4), m = 100": (12, 100, 1, algorithms.calculator_functions(100)),
    }
    for name, (layers, heads, d, functions) in machines.items():
        machine = fleq("", d, {}, functions).machine()
        by_block = {function: block.heads for function, block in zip(machine.functions, machine.blocks, strict=True)}
        built[name] = {"paper_layers": layers, "paper_heads": heads, **machine.size(), "blocks": by_block}
    return {"machines": built}, columns(rows)


def multiply_study(x: int, y: int, bits: int = 8) -> Study:
    """x · y step by step: words and counter after every pass, and to which token the scratchpad attends, by layer.

    Metrics: the names of cells, the commands, the product, and for the state before the first pass all of its entries.
    Curves: ``line`` and ``memory``, a list of words, by pass; ``attends``, by pass and head that attends, the token.
    """
    program = multiply(x, y, bits)
    trace = run(program)
    names = {place: name for name, place in program.cells.items()}
    attends: list[list[int]] = [[]]
    heads: list[str] = []
    for step in range(1, trace.steps + 1):
        found = [
            (f"{purpose}, head {h + 1}", w) for purpose, ws in trace.attention(step).items() for h, w in enumerate(ws)
        ]
        heads = [name for name, _ in found]
        # the scratchpad sees itself and its target, half and half: the target is the other one
        attends.append([int(w[0, 1:].argmax()) + 1 for _, w in found])
    metrics = {
        "product": trace["product"],
        "cells": [names.get(i, str(i)) for i in range(len(program.memory))],
        "code": [list(c) for c in program.code],
        "heads": heads,
        "rows": {name: [r.start, r.stop] for name, r in trace.machine.rows.places.items()},
        "state": trace.states[0][0].tolist(),
        "last_state": trace.states[-1][0].tolist(),
        "steps": trace.steps,
    }
    return metrics, {"line": trace.lines, "memory": [list(m) for m in trace.memories], "attends": attends}


def speed_study(tokens: list[int], batches: list[int], seconds: float = 0.3, bits: int = 8) -> Study:
    """Passes per second by n, batch, precision and form, and of the numpy transcription; wall-clock, one program each.

    Forms: dense matrices, the sparse one, sparse with restricted attention, numpy (batch 1, fp64).
    """
    require(seconds > 0, f"seconds = {seconds}: must be above 0")
    rows: list[dict] = []

    def note(n: int, batch: int, kind: str, form: str, step) -> None:
        step()
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            step()
            count += 1
        rate = batch * count / (time.perf_counter() - start)
        rows.append({"tokens": n, "batch": batch, "precision": kind, "form": form, "passes_per_second": rate})

    with torch.inference_mode():
        for n in tokens:
            shape = Shape.of_tokens(bits, n)
            for kind in ("fp32", "fp64"):
                on = SubleqMachine(shape, precision(kind))
                thin = on.sparse()
                for batch in batches:
                    x = states(on, random_programs(shape, batch))
                    note(n, batch, kind, "dense", lambda on=on, x=x: on(x))
                    note(n, batch, kind, "sparse", lambda thin=thin, x=x: thin(x))
                    note(n, batch, kind, "sparse, restricted", lambda thin=thin, x=x: thin(x, "restricted"))
            apply, state = transcribe(on), states(on, random_programs(shape, 1))[0].numpy().T
            note(n, 1, "fp64", "numpy", lambda apply=apply, state=state: apply(state))
    return {}, columns(rows)
