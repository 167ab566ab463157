"""The proof by test: programs on the machine beside the interpreter, and circuits on every input."""

from typing import Any

import numpy as np
import torch

from entp_lib.validation import one_of, require
from entp_papers.looped import programs
from entp_papers.looped.assembler import assemble
from entp_papers.looped.circuits import add_words, branch, correct_errors, flag_of_word
from entp_papers.looped.copying import Copying
from entp_papers.looped.interpreter import interpret, step
from entp_papers.looped.minsky import COLLATZ, DOUBLE, THIRD, compile_counters
from entp_papers.looped.plan import LayerPlan, Rows
from entp_papers.looped.program import Program, states
from entp_papers.looped.programs import random_program
from entp_papers.looped.run import compare, machine
from entp_papers.looped.subleq import Shape, SubleqMachine
from entp_papers.looped.words import to_bits, to_unsigned

Study = tuple[dict[str, Any], dict[str, list]]
PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def precision(name: str) -> torch.dtype:
    one_of("precision", name, PRECISIONS)
    return PRECISIONS[name]


def random_programs_study(
    shapes: list[list[int]], steps: int, precisions: list[str], chunk: int = 50, data_seed: int = 0
) -> Study:
    """Random programs of every shape [bits, cells, commands, programs], whole states compared after every pass.

    Curves: a row per shape and precision. Metrics: totals, and whether the weights were the same afterwards.
    """
    require(steps >= 1 and len(shapes) >= 1, f"steps = {steps}, shapes = {shapes}: must be at least 1, and one shape")
    rows: list[dict] = []
    same_weights = True
    for s, (bits, cells, commands, count) in enumerate(shapes):
        require(count >= 1, f"programs = {count}: must be at least 1")
        shape = Shape(bits, cells, commands)
        made = [random_program(shape, 10**6 * (data_seed * 1000 + s) + i) for i in range(count)]
        for name in precisions:
            on = SubleqMachine(shape, precision(name))
            before = on.weights_hash()
            found = [compare(on, made[i : i + chunk], steps, fast=True) for i in range(0, count, chunk)]
            same_weights &= on.weights_hash() == before
            rows.append(
                {
                    "bits": bits,
                    "cells": cells,
                    "commands": commands,
                    "tokens": shape.tokens,
                    "precision": name,
                    "programs": count,
                    "passes": sum(f.passes for f in found),
                    "wrong": sum(f.wrong_passes for f in found),
                    "deviation": max(f.deviation for f in found),
                }
            )
    return totals(rows) | {"same_weights": same_weights}, columns(rows)


def columns(rows: list[dict]) -> dict[str, list]:
    """A list per name, from a dictionary per row."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def totals(rows: list[dict]) -> dict[str, Any]:
    return {
        "programs": sum(row["programs"] for row in rows),
        "passes": sum(row["passes"] for row in rows),
        "wrong": sum(row["wrong"] for row in rows),
        "deviation": max(row["deviation"] for row in rows),
    }


def named_programs(count3_length: int) -> dict[str, list[Program]]:
    """All programs of the library with a few inputs each."""
    lists = ([5, -3, 8, 0, 2], [1, 2], [9, 9, -9])
    starts = [{"x": x, "half": 0, "triple": 0} for x in (1, 6, 7)]
    draw = np.random.default_rng(0)
    values = draw.integers(0, 20, (2, count3_length)).tolist()
    return {
        "add": [programs.add(3, 4), programs.add(-20, 7), programs.add(30_000, 2_767)],
        "multiply": [programs.multiply(*pair) for pair in ((7, 9), (12, 20), (127, 5))],
        "divide": [programs.divide(*pair) for pair in ((47, 5), (45, 5), (3, 10))],
        "factorial": [programs.factorial(n) for n in (0, 4, 7)],
        "fibonacci": [programs.fibonacci(n) for n in (1, 10, 20)],
        "gcd": [programs.gcd(*pair) for pair in ((48, 36), (17, 5), (9, 9))],
        "reverse": [programs.reverse(v) for v in lists],
        "search": [programs.search(lists[0], key) for key in (8, 4)],
        "sort": [programs.sort(v) for v in lists],
        "doubling (counters)": [compile_counters(DOUBLE, {"x": x, "y": 0}) for x in (0, 9)],
        "division by 3 (counters)": [compile_counters(THIRD, {"x": x, "q": 0}) for x in (7, 20)],
        "Collatz step (counters)": [compile_counters(COLLATZ, start) for start in starts],
        "Count3": [programs.count3(v) for v in values],
    }


def library_study(
    precisions: list[str], count3_length: int = 6, only: list[str] | None = None, longest: int = 10_000
) -> Study:
    """Every program of the library until it halts, and 3 passes more; a row per program and precision.

    The inputs of a program run side by side, each as long as the longest. ``only`` names some of the programs.
    """
    rows: list[dict] = []
    library = named_programs(count3_length)
    for name in only or ():
        one_of("only", name, library)
    for name, made in library.items():
        if only and name not in only:
            continue
        steps = max(interpret(p, longest).steps for p in made)
        shapes = [p.shape for p in made]
        shape = Shape(made[0].bits, max(s.cells for s in shapes), max(s.commands for s in shapes))
        for kind in precisions:
            found = compare(SubleqMachine(shape, precision(kind)), made, steps + 3, fast=True)
            rows.append(
                {
                    "program": name,
                    "precision": kind,
                    "programs": len(made),
                    "tokens": shape.tokens,
                    "longest": steps,
                    "passes": found.passes,
                    "wrong": found.wrong_passes,
                    "deviation": found.deviation,
                }
            )
    return totals(rows), columns(rows)


def tried(right: torch.Tensor) -> dict[str, int]:
    return {"tried": right.numel(), "wrong": int((~right).sum())}


def circuits_study(most_bits: int = 8, random_pairs: int = 100_000, flag_bits: int = 10, pointer: int = 6) -> Study:
    """Adders, flags, branches and error correction on every input there is, or many; a row per circuit, in fp32."""
    rows = []

    def built(plan: LayerPlan, width: int):
        return plan.build_feed_forward(width, torch.float32)

    def state(*parts: torch.Tensor) -> torch.Tensor:
        return torch.cat([p.float() for p in parts], 1)

    def note(circuit: str, right: torch.Tensor, units: int) -> None:
        rows.append({"circuit": circuit, **tried(right), "hidden": units})

    for bits in [*range(2, most_bits + 1), 16]:
        if bits <= most_bits:
            x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
        else:
            x, y = torch.randint(2**bits, (2, random_pairs), generator=torch.Generator().manual_seed(0))
        plan = LayerPlan("add")
        add_words(plan, range(bits), range(bits), range(bits, 2 * bits), 2 * bits)
        ff = built(plan, 2 * bits + 1)
        total = to_unsigned(ff(state(to_bits(x, bits), to_bits(y, bits), torch.ones(len(x), 1)))[:, :bits])
        note(f"adder, {bits} bits", total == (x + y) % 2**bits, len(plan.units))
    for bits in range(2, flag_bits + 1):
        plan, values = LayerPlan("flag"), torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
        flag_of_word(plan, bits, range(bits))
        found = built(plan, bits + 1)(state(to_bits(values, bits), torch.zeros(len(values), 1)))[:, -1]
        note(f"flag, {bits} bits", found == (values <= 0).float(), len(plan.units))
    rows_, plan = Rows(), LayerPlan("branch")
    for part, size in (("counter", pointer), ("following", pointer), ("target", pointer), ("flag", 1), ("bit", 1)):
        rows_.add(part, size)
    branch(plan, rows_["counter"], rows_["following"], rows_["target"], rows_["flag"][0], rows_["bit"][0])
    stay, jump, flag = torch.cartesian_prod(torch.arange(2**pointer), torch.arange(2**pointer), torch.arange(2)).T
    x = state(*(to_bits(v, pointer) for v in (stay - 1, stay, jump)), flag[:, None], torch.ones(len(flag), 1))
    chosen = to_unsigned(built(plan, rows_.width)(x)[:, :pointer])
    note(f"branch, {pointer} bits", chosen == torch.where(flag == 1, jump, stay), len(plan.units))
    plan = LayerPlan("correct")
    correct_errors(plan, [0])
    noise = torch.linspace(-0.249, 0.249, 1001)
    for level in (-1.0, 0.0, 1.0):
        found = built(plan, 1)((level + noise)[:, None])[:, 0]
        note(f"error correction of {level:g} ± 0.249", (found - level).abs() < 1e-6, len(plan.units))
    metrics = {"tried": sum(r["tried"] for r in rows), "wrong": sum(r["wrong"] for r in rows)}
    return metrics, columns(rows)


def copying_study(cases: int, most_tokens: int = 256, most_numbers: int = 32, data_seed: int = 0) -> Study:
    """``read`` and ``write`` of standard normal vectors (Lemmas 2 and 3): a row per operation and setting of C.

    Every case draws n from 8 on, d, all vectors and four pointers. ``error`` is the largest deviation of any coordinate
    of any token from what it should be; ``again`` how much the same layer changes when it is applied once more.
    Settings: C above twice the largest difference, C of a hundredth of that, and Lemma 3 as printed.
    """
    require(cases >= 1, f"cases = {cases}: must be at least 1")
    require(most_tokens >= 8, f"most_tokens = {most_tokens}: must be at least 8")
    settings = [("read", "C large", False), ("read", "C small", False)]
    settings += [("write", "C large", False), ("write", "C small", False), ("write", "as printed", True)]
    found = {setting: [0.0, 0.0] for setting in settings}
    generator = torch.Generator().manual_seed(data_seed)
    for _ in range(cases):
        n = int(torch.randint(8, most_tokens + 1, (), generator=generator))
        d = int(torch.randint(1, most_numbers + 1, (), generator=generator))
        memory = torch.randn(4, n, d, generator=generator, dtype=torch.float64)
        held = torch.randn(4, d, generator=generator, dtype=torch.float64)
        pointers = torch.randint(1, n, (4,), generator=generator)
        largest = 4 * float(torch.maximum(memory.abs().max(), held.abs().max()))
        for setting in settings:
            operation, size, printed = setting
            stack = Copying(operation, n, d, largest / 100 if size == "C small" else largest, printed=printed)
            x = stack.encode(memory, held, pointers)
            after = stack(x)
            error = float((after - stack.expected(x, pointers)).abs().max())
            again = float((stack(after) - after).abs().max())
            found[setting] = [max(found[setting][0], error), max(found[setting][1], again)]
    rows = [
        {"operation": operation, "setting": size, "error": error, "again": again}
        for (operation, size, _), (error, again) in found.items()
    ]
    largest = max(r["error"] for r in rows if r["setting"] == "C large")
    return {"cases": 4 * cases, "largest_error": largest}, columns(rows)


def drift_study(steps: int, heats: list[float], cold_steps: int = 200, bits: int = 8, data_seed: int = 0) -> Study:
    """One program for ``steps`` passes beside the interpreter in fp32; and what errors do without correction, by λ.

    Curves, by λ and with or without layer 9: the first pass at which words or counters are wrong, 0 for none in
    ``cold_steps``; and the largest deviation of a coordinate after the first pass.
    """
    program = counting_program(bits)
    on = machine(program, torch.float32)
    wrong = follow(on, program, steps)
    rows = []
    shape = Shape(bits, 10, 10)
    made = [random_program(shape, 10**6 * data_seed + i) for i in range(20)]
    for heat in heats:
        for corrected in (True, False):
            cold = SubleqMachine(shape, heat=heat, corrected=corrected)
            found = compare(cold, made, cold_steps, exact=False, fast=True)
            first = [f for f in found.first_wrong if f]
            one = compare(cold, made, 1, fast=True)
            rows.append(
                {
                    "heat": heat,
                    "corrected": corrected,
                    "wrong": found.wrong_programs,
                    "programs": found.programs,
                    "first_wrong": min(first, default=0),
                    "deviation": one.deviation,
                }
            )
    return {"steps": steps, "wrong": wrong, "tokens": program.shape.tokens}, columns(rows)


def counting_program(bits: int) -> Program:
    """A program that never halts: it counts down, wraps around, and counts how often it passed 0."""
    return assemble(
        f"""bits {bits}
        cell x = 3
        cell rounds
        loop:
            subleq #1 x low
            goto loop
        low:
            subleq MINUS_ONE rounds
            subleq #7 x loop
            goto loop
        """
    )


@torch.inference_mode()
def follow(on: SubleqMachine, program: Program, steps: int) -> int:
    """Passes after which the whole state differs from the interpreter's, which goes one step per pass."""
    shape, x, wrong = on.shape, states(on, [program]), 0
    expected, word, counter = x.clone(), on.rows.slice("word"), on.rows.slice("counter")
    words = to_bits(torch.arange(2**shape.bits), shape.bits, on.dtype)
    lines = to_bits(1 + shape.cells + torch.arange(shape.commands), shape.pointer, on.dtype)
    memory, line = list(program.memory), 0
    for _ in range(steps):
        b = program.code[line][1]
        line = step(program, memory, line)
        expected[0, 1 + b, word] = words[memory[b] % 2**shape.bits]
        expected[0, 0, counter] = lines[line]
        x = on(x)
        wrong += not torch.equal(x, expected)
    return wrong
