"""What attention is for, and how hot its softmax must be: temperature, masks, restricted attention."""

import math
from typing import Any

import torch

from entp_lib.validation import require
from entp_papers.looped import programs as library
from entp_papers.looped.masks import PLACES, masked_run
from entp_papers.looped.run import compare
from entp_papers.looped.studies.exact import Study, columns, precision
from entp_papers.looped.subleq import Shape, SubleqMachine, largest_error, temperature
from entp_papers.looped.words import pointer_bits, to_bits


def temperature_study(
    bits: list[int], heats: list[float], programs: int = 40, steps: int = 20, tokens: int = 21, data_seed: int = 0
) -> Study:
    """Share of random programs whose words and counters are right after every pass, by λ, word width and layer 9.

    Metrics: by width, the smallest λ tried from which on no program goes wrong, beside ln(n³ / ε) for ε = 10^-3 and for
    the ε that the width needs (``largest_error``).
    """
    require(len(heats) > 0, "heats is empty: at least one temperature")
    rows: list[dict] = []
    cells = (tokens - 1) // 2
    for width in bits:
        shape = Shape(width, cells, tokens - 1 - cells)
        made = [library.random_program(shape, 10**6 * data_seed + i) for i in range(programs)]
        for corrected in (True, False):
            for heat in heats:
                on = SubleqMachine(shape, heat=heat, corrected=corrected)
                found = compare(on, made, steps, exact=False, fast=True)
                right = 1 - found.wrong_programs / programs
                rows.append({"bits": width, "corrected": corrected, "heat": heat, "right": right})
    metrics: dict[str, Any] = {"bound_at_1e-3": temperature(tokens, 1e-3), "enough": {}, "bound": {}}
    for width in bits:
        wrong = [r["heat"] for r in rows if r["bits"] == width and r["corrected"] and r["right"] < 1]
        above = [h for h in heats if h > max(wrong, default=-math.inf)]
        metrics["enough"][str(width)] = min(above, default=None)
        metrics["bound"][str(width)] = temperature(tokens, largest_error(width))
    return metrics, columns(rows)


def off_target_study(tokens: list[int], heats: list[float]) -> Study:
    """The largest attention weight off the targets over all pointers, by n and λ, beside (n - 1) e^-2λ.

    Every token attends by its own code, as in ``read`` (Lemma 2). Metrics: whether the bound held everywhere, and by n
    the largest weight at the paper's λ for ε = 10^-3, which must be below ε.
    """
    rows: list[dict] = []
    for n in tokens:
        p = to_bits(torch.arange(n), pointer_bits(n))
        products = p @ p.T
        for heat in [*heats, temperature(n, 1e-3)]:
            shifted = (heat * (products - products.diagonal()[:, None])).exp()
            off = shifted.fill_diagonal_(0.0).sum(1)  # beside the target's e^0
            rows.append(
                {
                    "tokens": n,
                    "heat": heat,
                    "off": float((off / (1 + off)).max()),
                    "bound": (n - 1) * math.exp(-2 * heat),
                }
            )
    inside = all(r["off"] <= r["bound"] * (1 + 1e-9) for r in rows)
    at_bound = {str(n): next(r["off"] for r in reversed(rows) if r["tokens"] == n) for n in tokens}
    return {"within_bound": inside, "at_lemma_2": at_bound}, columns(rows)


def masks_study(programs: int = 50, steps: int = 20, bits: int = 8, tokens: int = 17, data_seed: int = 0) -> Study:
    """The same weights with full and with causal attention, the scratchpad first and last; a row each (X3)."""
    cells = (tokens - 1) // 2
    shape = Shape(bits, cells, tokens - 1 - cells)
    made = [library.random_program(shape, 10**6 * data_seed + i) for i in range(programs)]
    on = SubleqMachine(shape)
    rows = [
        {"pattern": pattern, "scratchpad": place, **masked_run(on, made, steps, pattern, place)}
        for pattern in ("full", "causal")
        for place in PLACES
    ]
    return {"programs": programs, "steps": steps}, columns(rows)


def restricted_study(programs: int = 20, steps: int = 20, sizes: list[int] | None = None, data_seed: int = 0) -> Study:
    """Restricted attention beside full attention (§5.2): passes that differ in any bit, and scores computed, by n.

    Scores are counted per head: n² with full attention, 3 n - 2 with the restricted one, n of the scratchpad and two
    of every other token.
    """
    rows: list[dict] = []
    for n in sizes or [21, 65, 257]:
        cells = (n - 1) // 2
        shape = Shape(8, cells, n - 1 - cells)
        made = [library.random_program(shape, 10**6 * data_seed + i) for i in range(programs)]
        for name in ("fp32", "fp64"):
            found = compare(SubleqMachine(shape, precision(name)), made, steps, "restricted", fast=True)
            rows.append(
                {
                    "tokens": n,
                    "precision": name,
                    "passes": found.passes,
                    "wrong": found.wrong_passes,
                    "scores_full": n * n,
                    "scores_restricted": 3 * n - 2,
                }
            )
    return {"passes": sum(r["passes"] for r in rows), "wrong": sum(r["wrong"] for r in rows)}, columns(rows)
