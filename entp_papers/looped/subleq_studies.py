"""Studies of the SUBLEQ machine against its interpreter, of its circuits and of its attention."""

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from entp_lab.configs import Json
from entp_lab.studies import Study, columns, gaussians, largest, seeded
from entp_lib.validation import require
from entp_papers.looped import circuits, programs
from entp_papers.looped.assembler import assemble
from entp_papers.looped.circuits import pointer_bits, temperature, to_bits, to_unsigned
from entp_papers.looped.layers import LayerPlan, Rows, transcribe
from entp_papers.looped.programs import (
    COLLATZ,
    DOUBLE,
    THIRD,
    arithmetic,
    compile_counters,
    random_programs,
)
from entp_papers.looped.running import PLACES, compare, interpret, masked_run
from entp_papers.looped.subleq import Program, Shape, SubleqMachine, largest_error, states

PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def totals(curves: dict[str, list]) -> Json:
    """Sum counts over rows and take the largest deviation."""
    sums = {name: sum(curves[name]) for name in ("programs", "passes", "wrong")}
    return sums | {"deviation": max(curves["deviation"])}


def random_programs_study(shapes: list[list[int]], steps: int, precisions: list[str]) -> Study:
    """Run random programs of every shape [bits, cells, commands, programs] beside the interpreter.

    Curves: a row per shape and precision. Metrics: totals, and whether the weights were the same
    afterwards.
    """
    rows = []
    same_weights = True
    for s, (*sizes, count) in enumerate(shapes):
        shape = Shape(*sizes)
        made = random_programs(shape, count, 10**6 * s)
        for name in precisions:
            machine = SubleqMachine(shape, PRECISIONS[name])
            before = machine.weights_hash()
            found = [compare(machine, made[i : i + 50], steps) for i in range(0, count, 50)]
            same_weights &= machine.weights_hash() == before
            rows.append(
                {
                    **shape._asdict(),
                    "tokens": shape.tokens,
                    "precision": name,
                    "programs": count,
                    "passes": sum(f.passes for f in found),
                    "wrong": sum(f.wrong for f in found),
                    "deviation": max(f.deviation for f in found),
                }
            )
    curves = columns(rows)
    return totals(curves) | {"same_weights": same_weights}, curves


def named_programs(count3_length: int) -> dict[str, list[Program]]:
    """Return all programs of the library with a few inputs each."""
    lists = ([5, -3, 8, 0, 2], [1, 2], [9, 9, -9])
    values = np.random.default_rng(0).integers(0, 20, (2, count3_length)).tolist()
    return {
        "add": [arithmetic("add", x=x, y=y) for x, y in ((3, 4), (-20, 7), (30_000, 2_767))],
        "multiply": [arithmetic("multiply", x=x, y=y) for x, y in ((7, 9), (12, 20), (127, 5))],
        "divide": [arithmetic("divide", x=x, y=y) for x, y in ((47, 5), (45, 5), (3, 10))],
        "factorial": [arithmetic("factorial", n=n) for n in (0, 4, 7)],
        "fibonacci": [arithmetic("fibonacci", n=n) for n in (1, 10, 20)],
        "gcd": [arithmetic("gcd", x=x, y=y) for x, y in ((48, 36), (17, 5), (9, 9))],
        "reverse": [programs.reverse(v) for v in lists],
        "search": [programs.search(lists[0], key) for key in (8, 4)],
        "sort": [programs.sort(v) for v in lists],
        "doubling (counters)": [compile_counters(DOUBLE, {"x": x, "y": 0}) for x in (0, 9)],
        "division by 3 (counters)": [compile_counters(THIRD, {"x": x, "q": 0}) for x in (7, 20)],
        "Collatz step (counters)": [
            compile_counters(COLLATZ, {"x": x, "half": 0, "triple": 0}) for x in (1, 6, 7)
        ],
        "Count3": [programs.count3(v) for v in values],
    }


def library_study(
    precisions: list[str], count3_length: int = 6, only: list[str] | None = None
) -> Study:
    """Run every program of the library until it halts, and 3 passes more.

    The inputs of a program run in one batch, each as long as the longest. ``only`` names some of
    the programs.
    """
    rows = []
    library = named_programs(count3_length)
    for name in only or library:
        made = library[name]
        lines = [interpret(p, 10_000).lines for p in made]
        halted = [found[-1] == p.last for found, p in zip(lines, made, strict=True)]
        require(all(halted), f"{name}: no halt within 10,000 steps")
        steps = max(map(len, lines)) - 1
        shape = Shape(*map(max, zip(*(p.shape for p in made), strict=True)))
        for kind in precisions:
            found = compare(SubleqMachine(shape, PRECISIONS[kind]), made, steps + 3)
            rows.append(
                {
                    "program": name,
                    "precision": kind,
                    "programs": len(made),
                    "tokens": shape.tokens,
                    "longest": steps,
                    "passes": found.passes,
                    "wrong": found.wrong,
                    "deviation": found.deviation,
                }
            )
    curves = columns(rows)
    return totals(curves), curves


def circuits_study(
    most_bits: int = 8, random_pairs: int = 100_000, flag_bits: int = 10, pointer: int = 6
) -> Study:
    """Try adders, flags, branches and error correction on every input, or many, in fp32."""
    rows = []

    def add_row(circuit: str, right: Tensor, plan: LayerPlan) -> None:
        wrong = int((~right).sum())
        rows.append(
            {"circuit": circuit, "tried": right.numel(), "wrong": wrong, "hidden": len(plan.units)}
        )

    for bits in [*range(2, most_bits + 1), 16]:
        if bits <= most_bits:
            x, y = torch.cartesian_prod(torch.arange(2**bits), torch.arange(2**bits)).T
        else:
            x, y = torch.randint(2**bits, (2, random_pairs), generator=seeded(0))
        total, plan = circuits.add_in_a_layer(x, y, bits)
        add_row(f"adder, {bits} bits", total == (x + y) % 2**bits, plan)
    for bits in range(2, flag_bits + 1):
        values = torch.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
        flags, plan = circuits.flag_in_a_layer(values, bits)
        add_row(f"flag, {bits} bits", flags == (values <= 0).float(), plan)
    plan = circuits.branch_in_a_layer(pointer)
    lines = torch.arange(2**pointer)
    stay, jump, flag = torch.cartesian_prod(lines, lines, torch.arange(2)).T
    pointers = [to_bits(line, pointer) for line in (stay - 1, stay, jump)]
    state = plan.apply_to(*pointers, flag[:, None], torch.ones(len(flag), 1))
    chosen = to_unsigned(state[:, :pointer])
    add_row(f"branch, {pointer} bits", chosen == torch.where(flag == 1, jump, stay), plan)
    plan = LayerPlan("correct")
    circuits.correct_errors(plan, [0])
    noise = torch.linspace(-0.249, 0.249, 1001)
    for level in (-1.0, 0.0, 1.0):
        found = plan.apply_to((level + noise)[:, None])[:, 0]
        add_row(f"error correction of {level:g} ± 0.249", (found - level).abs() < 1e-6, plan)
    curves = columns(rows)
    return {name: sum(curves[name]) for name in ("tried", "wrong")}, curves


def copying(
    operation: str,
    memory_BTd: Tensor,
    held_Bd: Tensor,
    pointers_B: Tensor,
    bound: float,
    printed: bool,
) -> tuple[float, float]:
    """Measure the errors of one layer that copies between the scratchpad and the token pointed to.

    Lemma 2 is "read", Lemma 3 "write", which may be as ``printed``. ``bound`` is their C: above
    twice the largest difference of two values. Returns the largest deviation of any coordinate from
    what it should be, and how much the same layer changes when it is applied once more.
    """
    B, tokens, d = memory_BTd.shape
    L = pointer_bits(tokens)
    pointed = (torch.arange(B)[:, None], pointers_B[:, None])
    rows = Rows(memory=d, held=d, pointer=L, position=L, new=d, scratchpad=1)
    plan = LayerPlan(operation)
    heat = temperature(tokens, 1e-3)
    to_memory = operation == "write"
    circuits.copy_pointed(
        plan, rows, rows["pointer"], "memory", "held", "new", heat, to_memory, bound, printed
    )
    layer = plan.build(rows.width)
    memory = rows["memory"]
    held = rows["held"]
    x_BTD = torch.zeros(B, tokens, rows.width, dtype=torch.float64)
    x_BTD[:, 1:, memory] = memory_BTd[:, 1:]
    x_BTD[:, 0, held] = held_Bd
    x_BTD[:, 0, rows["pointer"]] = to_bits(pointers_B, L)
    x_BTD[:, 1:, rows["position"]] = to_bits(torch.arange(1, tokens), L)
    x_BTD[:, 0, rows["scratchpad"]] = 1.0
    after = layer(x_BTD)
    expected = x_BTD.clone()
    if to_memory:
        expected[*pointed, memory] = x_BTD[:, 0, held]
    else:
        expected[:, 0, held] = x_BTD[*pointed, memory]
    return largest(after, expected), largest(layer(after), after)


def copying_study(cases: int, most_tokens: int = 256, most_numbers: int = 32) -> Study:
    """Copy standard normal vectors both ways (Lemmas 2 and 3), by setting of C.

    Every case draws n from 8 on, d, all vectors and four pointers. ``error`` and ``again`` are
    those of ``copying``. Settings: C above twice the largest difference, C of a hundredth of that,
    and Lemma 3 as printed.
    """
    settings = [
        *itertools.product(("read", "write"), ("C large", "C small")),
        ("write", "as printed"),
    ]
    rows = []
    generator = seeded(0)
    for _ in range(cases):
        n = int(torch.randint(8, most_tokens + 1, (), generator=generator))
        d = int(torch.randint(1, most_numbers + 1, (), generator=generator))
        memory = gaussians(generator, 4, n, d)
        held = gaussians(generator, 4, d)
        pointers = torch.randint(1, n, (4,), generator=generator)
        enough = 4 * max(largest(memory), largest(held))
        for operation, setting in settings:
            bound = enough / 100 if setting == "C small" else enough
            error, again = copying(
                operation, memory, held, pointers, bound, printed=setting == "as printed"
            )
            rows.append(
                {"operation": operation, "setting": setting, "error": error, "again": again}
            )
    by_setting = pd.DataFrame(rows).groupby(["operation", "setting"], sort=False, as_index=False)
    worst = by_setting.max()
    error = float(worst.query("setting == 'C large'")["error"].max())
    return {"cases": 4 * cases, "largest_error": error}, worst.to_dict("list")


def drift_study(steps: int, heats: list[float], cold_steps: int) -> Study:
    """Run one program for ``steps`` passes; then measure errors without correction, by λ.

    The program never halts: it counts down, wraps around, and counts how often it passed 0. Curves,
    by λ and with or without layer 9: the first pass at which words or counters are wrong, 0 for
    none in ``cold_steps``; and the largest deviation of a coordinate after the first pass.
    """
    program = assemble(
        """bits 8
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
    wrong = compare(SubleqMachine(program.shape, torch.float32), [program], steps, fast=False).wrong
    rows = []
    shape = Shape(8, 10, 10)
    made = random_programs(shape, 20)
    for heat in heats:
        for corrected in (True, False):
            cold = SubleqMachine(shape, heat=heat, corrected=corrected)
            found = compare(cold, made, cold_steps, exact=False)
            rows.append(
                {
                    "heat": heat,
                    "corrected": corrected,
                    "wrong": found.wrong_programs,
                    "programs": len(made),
                    "first_wrong": min(filter(None, found.first_wrong), default=0),
                    "deviation": compare(cold, made, 1).deviation,
                }
            )
    return {"steps": steps, "wrong": wrong, "tokens": program.shape.tokens}, columns(rows)


def restricted_study(programs: int, steps: int, sizes: list[int]) -> Study:
    """Count passes that restricted attention gets wrong, and scores computed, by n (§5.2).

    Scores are counted per head: n² with full attention, 3 n - 2 with the restricted one, n of the
    scratchpad and two of every other token.
    """
    rows = []
    for n in sizes:
        shape = Shape.of_tokens(8, n)
        made = random_programs(shape, programs)
        for name, dtype in PRECISIONS.items():
            found = compare(SubleqMachine(shape, dtype), made, steps, "restricted")
            rows.append(
                {
                    "tokens": n,
                    "precision": name,
                    "passes": found.passes,
                    "wrong": found.wrong,
                    "scores_full": n * n,
                    "scores_restricted": 3 * n - 2,
                }
            )
    curves = columns(rows)
    return {name: sum(curves[name]) for name in ("passes", "wrong")}, curves


def temperature_study(bits: list[int], heats: list[float], programs: int, steps: int) -> Study:
    """Measure the share of random programs that stay right, by λ, word width and layer 9.

    Metrics: by width, the smallest λ tried from which on no program goes wrong, and ln(n³ / ε) for
    ε = 10^-3 and for the ε that the width needs (``largest_error``).
    """
    rows = []
    metrics = {"bound_at_1e-3": temperature(21, 1e-3), "enough": {}, "bound": {}}
    for width in bits:
        shape = Shape.of_tokens(width, 21)
        made = random_programs(shape, programs)
        too_cold = []
        for corrected in (True, False):
            for heat in heats:
                machine = SubleqMachine(shape, heat=heat, corrected=corrected)
                found = compare(machine, made, steps, exact=False)
                right = 1 - found.wrong_programs / programs
                rows.append({"bits": width, "corrected": corrected, "heat": heat, "right": right})
                if corrected and right < 1:
                    too_cold.append(heat)
        above = [h for h in heats if h > max(too_cold, default=-math.inf)]
        metrics["enough"][str(width)] = min(above, default=None)
        metrics["bound"][str(width)] = temperature(21, largest_error(width))
    return metrics, columns(rows)


def off_target_study(tokens: list[int], heats: list[float]) -> Study:
    """Measure the largest attention weight off the targets, and (n - 1) e^-2λ, by n and λ.

    Every token attends by its own code, as in ``read`` (Lemma 2). Metrics: whether the bound held
    everywhere, and by n the largest weight at the paper's λ for ε = 10^-3, which must be below ε.
    """
    rows = []
    at_bound = {}
    for n in tokens:
        p = to_bits(torch.arange(n), pointer_bits(n))
        products = p @ p.T
        for heat in [*heats, temperature(n, 1e-3)]:
            shifted = (heat * (products - products.diagonal()[:, None])).exp()
            off = shifted.fill_diagonal_(0.0).sum(1)  # where the target has e^0
            bound = (n - 1) * math.exp(-2 * heat)
            rows.append(
                {"tokens": n, "heat": heat, "off": float((off / (1 + off)).max()), "bound": bound}
            )
        at_bound[str(n)] = rows[-1]["off"]
    inside = all(r["off"] <= r["bound"] * (1 + 1e-9) for r in rows)
    return {"within_bound": inside, "at_lemma_2": at_bound}, columns(rows)


def masks_study(programs: int, steps: int) -> Study:
    """Run the same weights with full and causal attention, the scratchpad first and last."""
    shape = Shape.of_tokens(8, 17)
    made = random_programs(shape, programs)
    machine = SubleqMachine(shape)
    rows = []
    for pattern, place in itertools.product(("full", "causal"), PLACES):
        found = masked_run(machine, made, steps, pattern, place)
        rows.append({"pattern": pattern, "scratchpad": place, **found})
    return {"programs": programs, "steps": steps}, columns(rows)


def speed_study(tokens: list[int], batches: list[int], seconds: float = 0.3) -> Study:
    """Measure passes per second by n, batch, precision and form.

    Forms: dense matrices, the sparse one, sparse with restricted attention, numpy (batch 1, fp64).
    """
    rows = []

    def add_row(n: int, batch: int, kind: str, form: str, step: Callable, *arguments) -> None:
        step(*arguments)
        count = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            step(*arguments)
            count += 1
        rows.append(
            {
                "tokens": n,
                "batch": batch,
                "precision": kind,
                "form": form,
                "passes_per_second": batch * count / (time.perf_counter() - start),
            }
        )

    with torch.inference_mode():
        for n in tokens:
            shape = Shape.of_tokens(8, n)
            for kind, dtype in PRECISIONS.items():
                machine = SubleqMachine(shape, dtype)
                sparse = machine.sparse()
                for batch in batches:
                    x = states(machine, random_programs(shape, batch))
                    add_row(n, batch, kind, "dense", machine, x)
                    add_row(n, batch, kind, "sparse", sparse, x)
                    add_row(n, batch, kind, "sparse, restricted", sparse, x, "restricted")
            state = states(machine, random_programs(shape, 1))[0].numpy().T
            add_row(n, 1, "fp64", "numpy", transcribe(machine), state)
    return {}, columns(rows)
