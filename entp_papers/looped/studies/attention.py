"""The machine's attention: how hot its softmax must be, causal masks, a multiplication step by step, speed."""

import math
import time
from typing import Any

import torch

from entp_lib.validation import require
from entp_papers.looped.circuits import pointer_bits, temperature, to_bits
from entp_papers.looped.layers import transcribe
from entp_papers.looped.programs import multiply, random_program, random_programs
from entp_papers.looped.running import PLACES, compare, masked_run, run
from entp_papers.looped.studies import Study, columns, precision
from entp_papers.looped.subleq import Shape, SubleqMachine, largest_error, states


def temperature_study(
    bits: list[int], heats: list[float], programs: int = 40, steps: int = 20, tokens: int = 21, data_seed: int = 0
) -> Study:
    """Share of random programs whose words and counters are right after every pass, by λ, word width and layer 9.

    Metrics: by width, the smallest λ tried from which on no program goes wrong, and ln(n³ / ε) for ε = 10^-3 and for
    the ε that the width needs (``largest_error``).
    """
    require(len(heats) > 0, "heats is empty: at least one temperature")
    rows: list[dict] = []
    metrics: dict[str, Any] = {"bound_at_1e-3": temperature(tokens, 1e-3), "enough": {}, "bound": {}}
    for width in bits:
        shape = Shape.of_tokens(width, tokens)
        made = random_programs(shape, programs, 10**6 * data_seed)
        for corrected in (True, False):
            for heat in heats:
                on = SubleqMachine(shape, heat=heat, corrected=corrected)
                right = 1 - compare(on, made, steps, exact=False, fast=True).wrong_programs / programs
                rows.append({"bits": width, "corrected": corrected, "heat": heat, "right": right})
        wrong = [r["heat"] for r in rows if r["bits"] == width and r["corrected"] and r["right"] < 1]
        above = [h for h in heats if h > max(wrong, default=-math.inf)]
        metrics["enough"][str(width)] = min(above, default=None)
        metrics["bound"][str(width)] = temperature(tokens, largest_error(width))
    return metrics, columns(rows)


def off_target_study(tokens: list[int], heats: list[float]) -> Study:
    """The largest attention weight off the targets over all pointers, and (n - 1) e^-2λ, by n and λ.

    Every token attends by its own code, as in ``read`` (Lemma 2). Metrics: whether the bound held everywhere, and by n
    the largest weight at the paper's λ for ε = 10^-3, which must be below ε.
    """
    rows: list[dict] = []
    for n in tokens:
        p = to_bits(torch.arange(n), pointer_bits(n))
        products = p @ p.T
        for heat in [*heats, temperature(n, 1e-3)]:
            shifted = (heat * (products - products.diagonal()[:, None])).exp()
            off = shifted.fill_diagonal_(0.0).sum(1)  # where the target has e^0
            bound = (n - 1) * math.exp(-2 * heat)
            rows.append({"tokens": n, "heat": heat, "off": float((off / (1 + off)).max()), "bound": bound})
    inside = all(r["off"] <= r["bound"] * (1 + 1e-9) for r in rows)
    at_bound = {str(n): next(r["off"] for r in reversed(rows) if r["tokens"] == n) for n in tokens}
    return {"within_bound": inside, "at_lemma_2": at_bound}, columns(rows)


def masks_study(programs: int = 50, steps: int = 20, bits: int = 8, tokens: int = 17, data_seed: int = 0) -> Study:
    """The same weights with full and with causal attention, the scratchpad first and last; a row each (X3)."""
    shape = Shape.of_tokens(bits, tokens)
    made, on = random_programs(shape, programs, 10**6 * data_seed), SubleqMachine(shape)
    rows = [
        {"pattern": pattern, "scratchpad": place, **masked_run(on, made, steps, pattern, place)}
        for pattern in ("full", "causal")
        for place in PLACES
    ]
    return {"programs": programs, "steps": steps}, columns(rows)


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
        found = [(f"{says}, head {h + 1}", w) for says, ws in trace.attention(step).items() for h, w in enumerate(ws)]
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
            apply, state = transcribe(on), states(on, [random_program(shape, 0)])[0].numpy().T
            note(n, 1, "fp64", "numpy", lambda apply=apply, state=state: apply(state))
    return {}, columns(rows)
