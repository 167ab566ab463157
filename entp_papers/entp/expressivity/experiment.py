"""Expressive power of encoders and decoders (§3, §4, appendices A and B): checks, refutations,
imitation.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from entp_lab.experiment import Experiment
from entp_lab.frames import select
from entp_lab.measurements import Check
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.statistics import exceeds, to_figures
from entp_lab.store import Record
from entp_lab.studies import by_study
from entp_lib.model import prefix_mask
from entp_papers.entp.expressivity.imitation import forced_at, function_of, line

EXACT = 1e-10  # relative error in fp64 up to which two results count as equal
POLYNOMIAL = 0.8  # exponent of n from which on dimensions do not grow like log n
ROWS = [
    ["4"],
    ["7/4", "9/4"],
    ["23/18", "17/18", "16/9"],
]  # coefficients of x_1 ... x_t, appendix A.5
SEEDS = 3

ALL_LENGTHS = dict(simulated_lengths=[4, 8, 16, 32, 64], mask_lengths=[4, 16, 64, 256])
CHECKS: dict[str, dict] = {
    "smoke": dict(
        models=10, simulated_lengths=[4, 8], mask_lengths=[4, 16], dimension_lengths=[16, 32, 64]
    ),
    "quick": dict(models=200, **ALL_LENGTHS, dimension_lengths=[16, 32, 64, 128, 256]),
}
# Positions that stay where they are, on pairs: the line crosses the box below a distance of 2.
# Trained ones, on triples: with pairs alone p1 = p2 would cost nothing.
STEPS = {"smoke": 10, "quick": 1000}
DISTANCES = {"smoke": [1.0, 3.0], "quick": [0.0, 0.5, 1.0, 1.75, 3.0]}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan the checks, then per direction the candidates with fixed positions and, per seed, with
    trained ones.
    """
    found = [planned_study("expressivity", tier, "expressivity", CHECKS[tier])]
    for direction in ("encoder", "decoder"):
        fixed = [dict(length=2, distance=distance, seed=0) for distance in DISTANCES[tier]]
        trained = [
            dict(length=3, seed=seed) for seed in range(seeds or (1 if tier == "smoke" else SEEDS))
        ]
        for params in fixed + trained:
            params = dict(direction=direction, steps=STEPS[tier], **params)
            labels = dict(
                direction=direction, positions="fixed" if "distance" in params else "trained"
            )
            found.append(
                planned_study("expressivity", tier, "imitation", params, params["seed"], **labels)
            )
    return found


def measure(records: Sequence[Record]) -> list[Check]:
    """Return the statements of §4 and appendix A, judged by what was found of them.

    - A.2, A.3, A.4: verified if equal within ``EXACT``; A.3 also needs that two layers differ.
    - 4.1, 4.2: verified if every model tried, trained ones included, is refuted by at least what
      the proof guarantees, while the theorem's own function is not; 4.1 also needs its rows in
      exact arithmetic.
    - F1-approximation: verified if a whole decoder and single attentions are simulated within
      ``EXACT``.
    - F1-logarithmic: refuted if the dimensions that random vectors need grow at least like
      n^``POLYNOMIAL``, else unproved. The remark says what does work, where it does: one dimension
      at every length tried, and a dyadic tree whose dimensions grow slower, between the two
      longest, than n and than what random vectors need.
    """
    record = by_study(records).get("expressivity")
    trained = {d: select(records, study="imitation", direction=d) for d in ("encoder", "decoder")}
    if record is None or not all(trained.values()):
        return []  # models that were trained against the theorems are part of it
    trained["decoder"] = [
        r for r in trained["decoder"] if r.metrics["distance"] != 0
    ]  # 4.2 says nothing of p1 = p2
    m = record.metrics
    c = record.curves
    tier = record.config.tier

    def check(
        claim: str, holds: bool | None, used: Sequence[Record] = (), **corrected: Any
    ) -> Check:
        return Check(
            claim, holds, tier, records=(record.name, *(r.name for r in used)), **corrected
        )

    refuted = {
        direction: c[f"{direction}s_refuted"] == c[f"{direction}s_models"]
        and m["control_refuted"] == 0
        and all(r.metrics["refutation"]["refuted"] for r in runs)
        for direction, runs in trained.items()
    }
    one_layer = (
        max(m["a3_output_error"], m["a3_gradient_error"]) <= EXACT and m["a3_two_layers"] > EXACT
    )
    rational = m["rational_rows"] == ROWS and m["rational_error"] <= EXACT
    simulated = max(*c["simulated_error"], *c["mask_exact"]) <= EXACT
    within = m["tolerance"] * (1 + 1e-6)
    one_dimension = (
        set(c["dimensions_geometric"]) == {1} and max(c["geometric_score_error"]) <= within
    )
    slower = exceeds(min(1.0, last_exponent(record, "random")), last_exponent(record, "dyadic"))
    instead = (
        "random vectors need dimensions like n log n, a dyadic tree (log n)³; one dimension suffices if hidden scores "
        "may fall without bound, at the price of numeric range"
    )
    as_printed = False if m["exponent_random"] >= POLYNOMIAL else None
    return [
        check("A.2", m["a2_error"] <= EXACT),
        check("A.3", one_layer),
        check("A.4", m["a4_error"] <= EXACT),
        check("4.1", refuted["encoder"] and rational, trained["encoder"]),
        check("4.2", refuted["decoder"], trained["decoder"]),
        check("F1-approximation", simulated),
        check("F1-logarithmic", as_printed, remark=instead if one_dimension and slower else ""),
    ]


def equalities(record: Record) -> pd.DataFrame:
    """Relative errors in fp64 of what appendices A.2 to A.4 say is equal, as text."""
    m = record.metrics
    rows = {
        "A.2: a decoder is its own causal model": m["a2_error"],
        "A.3: one layer, same weights: equal outputs": m["a3_output_error"],
        "A.3: one layer: equal gradients of all weights": m["a3_gradient_error"],
        "A.3: two layers: smallest difference": m["a3_two_layers"],
        "A.4: formulas against matrices": m["a4_error"],
    }
    errors = {name: f"{value:.0e}" for name, value in rows.items()}
    return pd.DataFrame(
        {"models": record.config.params["models"], "largest relative error": errors}
    )


def refutations(record: Record, kinds: str) -> pd.DataFrame:
    """Of "encoders" or "decoders" by kind: tried, refuted, smallest difference, and its ratio to
    what is guaranteed.
    """
    names = ("models", "refuted", "difference", "ratio")
    table = pd.DataFrame(
        {name: record.curves[f"{kinds}_{name}"] for name in names}, record.curves[f"{kinds}_kind"]
    )
    named = {"difference": "smallest difference", "ratio": "smallest difference / guaranteed"}
    return table.rename(columns=named).map(to_figures, decimals=3)


def learned(records: Sequence[Record]) -> pd.DataFrame:
    """One row per trained candidate: positions, errors inside the box, and what the proofs force
    there and anywhere.
    """
    rows = []
    for r in select(records, study="imitation"):
        m = r.metrics
        refuted = r.metrics["refutation"]
        row = {
            "model": r.labels["direction"],
            "positions": r.labels["positions"],
            "seed": r.labels["seed"],
        }
        row |= {"p2 − p1": round(m["distance"], 3) + 0.0, "error before": m["box_before"]}
        errors = [*m["box_error_by_position"], math.nan][:3]  # pairs have no third output
        row |= {f"output {t}": error for t, error in enumerate(errors, 1)} | {
            "forced in the box": m["forced_in_box"]
        }
        row |= {
            "refuted by": refuted.get("difference", math.nan),
            "guaranteed": refuted.get("guaranteed", math.nan),
        }
        rows.append(row)
    return pd.DataFrame(rows).map(to_figures, decimals=3).astype(object).fillna("")


def forced(direction: str, distances: Sequence[float]) -> list[float]:
    """Return the largest error that the line forces inside the box of pairs, by p2 - p1; 0 where it
    misses the box.
    """
    lines = {
        distance: points_BT for distance in distances if len(points_BT := line(distance, 1.0, 41))
    }
    errors_B = forced_at(function_of(direction), torch.cat([*lines.values()]))
    largest = dict(zip(lines, errors_B.view(len(lines), -1).amax(1).tolist(), strict=True))
    return [largest.get(distance, 0.0) for distance in distances]


def mask_errors(record: Record) -> pd.DataFrame:
    """Largest output errors of simulated causal attention by n and kind, as text; values lie in
    [-1, 1].
    """
    c = record.curves
    kinds = {"exact, n entries": "exact", "exact, n − 1": "one_less", "random vectors, n": "random"}
    found = {
        name: [format(e, ".2f" if kind == "random" else ".0e") for e in c[f"mask_{kind}"]]
        for name, kind in (kinds | {"geometric": "geometric"}).items()
    }
    found["entries of the geometric"] = c["mask_geometric_entries"]
    return pd.DataFrame(found, index=pd.Index(c["mask_n"], name="n"))


def last_exponent(record: Record, kind: str) -> float:
    """Exponent of n in the dimensions that a kind of mask needs, between the two longest
    lengths.
    """
    n, d = (record.curves[f"dimensions_{name}"][-2:] for name in ("n", kind))
    return math.log(d[1] / d[0]) / math.log(n[1] / n[0])


def attention_patterns(length: int, prompt: int) -> dict[str, np.ndarray]:
    """Figures 1 and 8 as matrices: who (row) attends to whom (column), 0 not, 1 causally, 2 within
    a prompt or prefix.

    "encoder–decoder" has 3 where the output attends to the encoded prompt. "ENTP, t" is the t-th
    prefix, computed from scratch, of which only the last row is read.
    """

    def mask(open_until: int) -> np.ndarray:
        return prefix_mask(torch.tensor([open_until]), length)[0, 0].numpy().astype(int)

    causal = mask(0)
    prefix = mask(prompt)
    prefix[:prompt, :prompt] *= 2
    crossed = prefix.copy()
    crossed[prompt:, :prompt] *= 3
    found = {"decoder": causal, "prefix decoder": prefix, "encoder–decoder": crossed}
    for t in range(1, length + 1):
        whole = np.zeros((length, length), int)
        whole[:t, :t] = 2 * mask(t)[:t, :t]
        found[f"ENTP, {t}"] = whole
    return found


TITLE = "Expressive power of encoders and decoders"
EXPRESSIVITY = Experiment("expressivity", 1, TITLE, "01_expressivity", plan, measure, tiers=CHECKS)
