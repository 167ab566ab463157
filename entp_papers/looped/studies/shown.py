"""What the notebook shows beside errors: sizes, errata, a multiplication step by step, speed."""

import time

import torch

from entp_lib.validation import require
from entp_papers.looped import errata, programs
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.program import fleq
from entp_papers.looped.program import states
from entp_papers.looped.run import machine, run
from entp_papers.looped.studies.exact import Study, columns, precision
from entp_papers.looped.subleq import Shape, SubleqMachine
from entp_papers.looped.transcription import transcribe


def sizes_study(tokens: list[int], bits: int = 8) -> Study:
    """Layers, heads, width and hidden units counted from built weights: SUBLEQ by n, FLEQ machines by their functions.

    Metrics: by name, what the paper states (layers, heads) and what was built; for FLEQ machines also the heads of each
    block, whose sum Theorem 2 allows.
    """
    rows: list[dict] = []
    for n in tokens:
        cells = (n - 1) // 2
        shape = Shape(bits, cells, n - 1 - cells)
        size = SubleqMachine(shape).size()
        rows.append(
            {"tokens": n, "pointer": shape.pointer, **{k: size[k] for k in ("layers", "heads", "width", "hidden")}}
        )
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


def errata_study(seed: int = 0) -> Study:
    """Every erratum, the printed form beside the corrected one; what the numbers are is in ``errata``."""
    return {
        "E1": errata.flags(),
        "E2": errata.machine_with("write"),
        "E3": errata.pointers(),
        "E4": {**errata.machine_with("branch"), "left_elsewhere": errata.branch_elsewhere()},
        "E5": errata.rows_of_state(),
        "E6": errata.layers_of_steps(),
        "E7": errata.linear_softmax(),
        "E8": errata.newton_starts(seed=seed),
        "E9": errata.adder_outputs(),
        "E10": errata.sigmoids_needed(),
        "E11": errata.heads_of_inverse(),
        "E12": errata.branch_rule(),
    }, {}


def multiply_study(x: int, y: int, bits: int = 8) -> Study:
    """x · y step by step: words and counter after every pass, and to which token the scratchpad attends, by layer.

    Metrics: the names of cells, the commands, the product, and for the state before the first pass all of its entries.
    Curves: ``line`` and ``memory``, a list of words, by pass; ``attends``, by pass and head that attends, the token.
    """
    program = programs.multiply(x, y, bits)
    on = machine(program)
    trace = run(program, on)
    names = {place: name for name, place in program.cells.items()}
    attends = [[]]
    heads: list[str] = []
    for step in range(1, trace.steps + 1):
        heads = [f"{says}, head {h + 1}" for says, w in trace.attention(step).items() for h in range(len(w))]
        found = []
        for weights in trace.attention(step).values():
            # the scratchpad sees itself and its target, half and half: the target is the other one
            for row in weights[:, 0]:
                found.append(int(row[1:].argmax()) + 1)
        attends.append(found)
    metrics = {
        "product": trace["product"],
        "cells": [names.get(i, str(i)) for i in range(len(program.memory))],
        "code": [list(c) for c in program.code],
        "heads": heads,
        "rows": {name: [r.start, r.stop] for name, r in on.rows.places.items()},
        "state": trace.states[0][0].tolist(),
        "last_state": trace.states[-1][0].tolist(),
        "steps": trace.steps,
    }
    return metrics, {"line": trace.lines, "memory": [list(m) for m in trace.memories], "attends": attends}


def speed_study(tokens: list[int], batches: list[int], seconds: float = 0.3, bits: int = 8) -> Study:
    """Passes per second by n, batch, precision and form, beside the numpy transcription; wall-clock, one program each.

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
            cells = (n - 1) // 2
            shape = Shape(bits, cells, n - 1 - cells)
            for kind in ("fp32", "fp64"):
                on = SubleqMachine(shape, precision(kind))
                thin = on.sparse()
                for batch in batches:
                    x = states(on, [programs.random_program(shape, seed) for seed in range(batch)])
                    note(n, batch, kind, "dense", lambda on=on, x=x: on(x))
                    note(n, batch, kind, "sparse", lambda thin=thin, x=x: thin(x))
                    note(n, batch, kind, "sparse, restricted", lambda thin=thin, x=x: thin(x, "restricted"))
            apply, state = transcribe(on), states(on, [programs.random_program(shape, 0)])[0].numpy().T
            note(n, 1, "fp64", "numpy", lambda apply=apply, state=state: apply(state))
    return {}, columns(rows)
