"""Expressive power of encoders and decoders (§3, §4, appendices A and B): checks, refutations,
imitation.
"""

from entp_lab.experiment import Experiment, PlannedRuns, planned_study
from entp_lab.frames import select
from entp_lab.measurements import Findings, checked
from entp_lab.statistics import exceeds
from entp_lab.store import Record, Records
from entp_lab.studies import by_study, exponent

EXACT = 1e-10  # relative error in fp64 up to which two results count as equal
POLYNOMIAL = 0.8  # exponent of n from which on dimensions do not grow like log n
ROWS = [
    ["4"],
    ["7/4", "9/4"],
    ["23/18", "17/18", "16/9"],
]  # coefficients of x_1 ... x_t, appendix A.5
SEEDS = 3

ALL_LENGTHS = dict(simulated_lengths=[4, 8, 16, 32, 64], mask_lengths=[4, 16, 64, 256])
CHECKS = {
    "smoke": dict(
        models=10, simulated_lengths=[4, 8], mask_lengths=[4, 16], dimension_lengths=[16, 32, 64]
    ),
    "quick": dict(models=200, **ALL_LENGTHS, dimension_lengths=[16, 32, 64, 128, 256]),
}
# Fixed positions are tried on pairs: below a distance of 2, the line of the proof crosses the box.
# Trained positions are tried on triples: on pairs only, p1 = p2 would cost nothing.
STEPS = {"smoke": 10, "quick": 1000}
DISTANCES = {"smoke": [1.0, 3.0], "quick": [0.0, 0.5, 1.0, 1.75, 3.0]}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan the checks, then per direction the candidates with fixed positions and, per seed, with
    trained ones.
    """
    yield planned_study("expressivity", tier, "expressivity", CHECKS[tier])
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
            yield planned_study("expressivity", tier, "imitation", params, params["seed"], **labels)


def measure(records: Records) -> Findings:
    """Check the statements of §4 and appendix A.

    - A.2, A.3, A.4: verified if equal within ``EXACT``; A.3 also needs that two layers differ.
    - 4.1, 4.2: verified if every model tried, trained ones included, is refuted by at least what
      the proof guarantees, while the theorem's own function is not; 4.1 also needs its rows in
      exact arithmetic.
    - 8-expressive: refuted by Theorem 4.1; corrected if 4.2 holds too.
    - F1-approximation: verified if a whole decoder and single attentions are simulated within
      ``EXACT``.
    - F1-logarithmic: refuted if the dimensions that random vectors need grow at least like
      n^``POLYNOMIAL``, else unproved. The remark names constructions that work, if they do: one
      dimension at every length tried, and a dyadic tree whose dimensions grow, between the two
      longest lengths, slower than n and slower than those of random vectors.
    """
    record = by_study(records).get("expressivity")
    trained = {d: select(records, study="imitation", direction=d) for d in ("encoder", "decoder")}
    if record is None or not all(trained.values()):
        return []  # the checks include models trained against the theorems
    # Theorem 4.2 says nothing about p1 = p2.
    trained["decoder"] = [r for r in trained["decoder"] if r.metrics["distance"] != 0]
    m = record.metrics
    c = record.curves
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
        "random vectors need dimensions like n log n, a dyadic tree (log n)³; one dimension "
        "suffices if hidden scores may fall without bound, at the price of numeric range"
    )
    as_printed = False if m["exponent_random"] >= POLYNOMIAL else None
    return [
        checked("A.2", m["a2_error"] <= EXACT, [record]),
        checked("A.3", one_layer, [record]),
        checked("A.4", m["a4_error"] <= EXACT, [record]),
        checked("4.1", refuted["encoder"] and rational, [record, *trained["encoder"]]),
        checked("4.2", refuted["decoder"], [record, *trained["decoder"]]),
        checked("F1-approximation", simulated, [record]),
        checked(
            "8-expressive",
            False if refuted["encoder"] else None,
            [record, *trained["encoder"], *trained["decoder"]],
            corrected=refuted["encoder"] and refuted["decoder"],
            correction="neither computes all that the other does (Theorems 4.1 and 4.2)",
        ),
        checked(
            "F1-logarithmic",
            as_printed,
            [record],
            remark=instead if one_dimension and slower else "",
        ),
    ]


def last_exponent(record: Record, kind: str) -> float:
    """Return the exponent of n in the dimensions of a kind of mask, at the two longest lengths."""
    n, d = (record.curves[f"dimensions_{name}"][-2:] for name in ("n", kind))
    return exponent(n, d)


EXPRESSIVITY = Experiment(
    "expressivity",
    2,
    "Expressive power of encoders and decoders",
    "01_expressivity",
    plan,
    measure,
    tiers=CHECKS,
)
