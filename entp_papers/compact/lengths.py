"""Addition beyond the trained length (§3.4): the runs of every tier, their tables and their claims.

``compact_lengths``: the quick tier trains on sums of up to two digits, the most that nearly every
scheme learns in its time. In padded text the schemes that a claim compares have five seeds, the
others three; in the other formats learned positions have three.

``compact_length_seeds``: more seeds of the schemes that have a single seed at five digits in
``compact_lengths``. With T5, ALiBi and FIRE, ENTP learned the sums on that seed and the decoder did
not. Five other seeds, which had no part in forming the question, test whether this holds. With T5
and ALiBi, where ENTP learned on most of them, decoders with 5.8 times the steps (1.6 times ENTP's
multiply-adds) are planned and stored, but not shown.
"""

import itertools
from functools import partial
from typing import Any

import pandas as pd

from entp_lab.experiment import (
    TRIAL_SEED,
    TWINS,
    Closed,
    Experiment,
    PlannedRuns,
    by_seed,
    planned_study,
)
from entp_lab.frames import select
from entp_lab.measurements import Findings, levels, measured
from entp_lab.statistics import reaches
from entp_lab.store import Records
from entp_papers.compact.addition import FORMATS
from entp_papers.compact.algorithms import ALGORITHMS
from entp_papers.compact.positions import SCHEMES

NAME = "compact_lengths"
NOTEBOOK = "12_compact_transformers"
LABELS = ("positions", "format", "architecture", "arm", "seed")
# Share of right sums at the trained length; below it, a scheme is not tested beyond that length.
LEARNED = 0.05
BEYOND = 1.3  # times the trained length and more is beyond it

# Claims, the labels that both sides share, and the label in which they differ, with its two values.
DECODERS = dict(format="padded", architecture="decoder")
COMPARED = (
    ("CT-coupling", DECODERS, "positions", "coupled", "learned"),
    ("CT-relative", DECODERS, "positions", "t5", "learned"),
    ("CT-none", DECODERS, "positions", "none", "learned"),
    ("CT-fire", {**DECODERS, "format": "hinted"}, "positions", "fire", "learned"),
    ("CT-symmetric", DECODERS, "positions", "symmetric", "coupled"),
    (
        "CT-entp-length",
        dict(format="padded", positions="coupled"),
        "architecture",
        "entp",
        "decoder",
    ),
)

# By tier: the parameters that all runs share, the seeds of every scheme in padded text (``more``
# for single schemes, if there is no time for five of all), and the seeds of the other formats,
# which have the schemes ``others``. At ``quick`` the schemes that a claim compares have five seeds.
# At ``overnight`` those have more that learned sums of five or three digits in a trial run; one
# seed of each other scheme shows that it does not learn them in this time. ``decoders``: formats
# and schemes for which only decoders are trained, with their steps.
TIERS = {
    "smoke": dict(
        shared=dict(
            trained_digits=2,
            tested_digits=[2, 3],
            n_layers=1,
            n_heads=2,
            width=16,
            steps=4,
            batch_size=8,
            tested=10,
        ),
        seeds=1,
        other_seeds=1,
        others=("learned", "fire"),
    ),
    "quick": dict(
        shared=dict(
            trained_digits=2,
            tested_digits=[2, 3, 4, 6],
            width=32,
            steps=2000,
            batch_size=32,
            rate=3e-3,
            tested=200,
        ),
        seeds=3,
        more={"learned": 5, "coupled": 5, "t5": 5, "none": 5, "symmetric": 0},
        other_seeds=3,
        others=("learned",),
    ),
    "overnight": dict(
        shared=dict(
            trained_digits=5,
            tested_digits=[5, 7, 10, 15],
            width=64,
            steps=6000,
            batch_size=32,
            rate=3e-3,
            tested=500,
        ),
        seeds=1,
        more={"learned": 5, "coupled": 5, "symmetric": 5, "rope": 5},
        other_seeds=5,
        others=(),
        decoders={("hinted", "fire"): 9000, ("hinted", "learned"): 9000},
    ),
    "gpu": dict(
        shared=dict(
            trained_digits=5,
            tested_digits=[5, 7, 10, 15],
            width=128,
            steps=8000,
            batch_size=64,
            tested=500,
        ),
        seeds=5,
        other_seeds=5,
        others=tuple(name for name, scheme in SCHEMES.items() if scheme.ids != "coupled"),
    ),
}

RELATIVE = ("t5", "alibi", "fire")
LEARNING = ("t5", "alibi")  # with which ENTP learned five-digit sums on most random seeds


def planned(
    tier: str, form: str, positions: str, seeds: int, architectures=TWINS, **own: Any
) -> PlannedRuns:
    """Plan runs of a format and scheme by architecture and seed.

    ``own``: parameters in place of the tier's.
    """
    for architecture, seed in itertools.product(architectures, range(seeds)):
        cell = dict(format=form, positions=positions, architecture=architecture)
        params = {**cell, "seed": seed, **TIERS[tier]["shared"], **own}
        yield planned_study(NAME, tier, "compact_addition", params, seed, **cell, arm=architecture)


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan every scheme in padded text and some schemes in the other formats, decoder and ENTP."""
    setting = TIERS[tier]
    more = setting.get("more", {})
    runs = []
    for name in SCHEMES:
        runs += planned(tier, "padded", name, seeds or more.get(name, setting["seeds"]))
    for form, name in itertools.product(FORMATS, setting["others"]):
        if form != "padded":
            runs += planned(tier, form, name, seeds or setting["other_seeds"])
    for (form, name), steps in setting.get("decoders", {}).items():
        count = seeds or setting["other_seeds"]
        runs += planned(tier, form, name, count, ("decoder",), steps=steps)
    return by_seed(runs)


def table(records: Records) -> pd.DataFrame:
    """Return a row per run and tested length: both accuracies, and the factor over the trained."""
    rows = [
        {
            **{k: r.labels[k] for k in LABELS},
            "digits": int(digits),
            "factor": int(digits) / r.config.params["trained_digits"],
            "accuracy": accuracy,
            "token_accuracy": r.metrics["token_accuracy"][digits],
        }
        for r in records
        for digits, accuracy in r.metrics["accuracy"].items()
    ]
    return pd.DataFrame(rows, columns=[*LABELS, "digits", "factor", "accuracy", "token_accuracy"])


def trained_length(records: Records) -> pd.DataFrame:
    """Return the share of padded sums right at the trained length.

    Rows are schemes and arms, columns are seeds.
    """
    rows = table(select(records, format="padded", positions=RELATIVE)).query("factor == 1")
    wide = rows.pivot_table(
        index=["positions", "arm"], columns="seed", values="accuracy", sort=False
    )
    return wide.sort_index(axis=1)


def measure(records: Records) -> Findings:
    """Measure token accuracy beyond the trained length, one side less the other (``COMPARED``).

    A side that has not learned its sums is not compared; a side with all sums right is.
    """
    for claim, shared, by, first, second in COMPARED:
        pool = select(records, **shared)
        rows = table(pool)
        beyond = rows[rows["factor"] >= BEYOND]
        wide = beyond.pivot_table(index="seed", columns=by, values="token_accuracy")
        if not {first, second} <= set(wide):  # not every tier has them
            continue
        values = (wide[first] - wide[second]).dropna()
        named = beyond.assign(arm=beyond[by])
        sides = levels(
            named, "token_accuracy", (first, second), floor=0.0, ceiling=1.0, distance=0.0
        )
        trained = rows.query("factor == 1").groupby(by)["accuracy"].mean()
        missing = [
            "{positions} ({architecture})".format(**shared, **{by: side})
            for side in (first, second)
            if not reaches(trained[side], LEARNED)
        ]
        barred = f"trained length not learned: {', '.join(missing)}" if missing else ""
        chosen = select(pool, **{by: (first, second)})
        yield measured(claim, values, chosen, levels=sides, excluded_because=barred)


def measure_lead(claim: str, schemes: tuple[str, ...], records: Records) -> Findings:
    """Measure ENTP less decoder at the trained length, at equal steps, as the mean of ``schemes``.

    Trial runs do not count.
    """
    pairs = [record for record in records if record.labels["seed"] < TRIAL_SEED]
    chosen = select(pairs, positions=schemes, arm=TWINS)
    if {r.labels["arm"] for r in chosen} != set(TWINS):
        return
    rows = table(chosen).query("factor == 1")
    sides = levels(rows, "accuracy", TWINS, floor=0.0, ceiling=1.0, distance=LEARNED)
    wide = trained_length(chosen).T.dropna()  # seeds that have all runs
    decoder, entp = (wide.xs(arm, axis=1, level="arm").mean(axis=1) for arm in TWINS)
    values = entp - decoder if wide.shape[1] == 2 * len(schemes) else []
    yield measured(claim, values, chosen, levels=sides)


# --- The other tasks of Table 1 -------------------------------------------------------------------

ALGORITHM_TIERS = {
    "smoke": dict(
        trained=2, tested=[2, 3], n_layers=1, n_heads=2, width=16, steps=4, batch_size=8, texts=10
    ),
    "quick": dict(trained=4, tested=[4, 5, 6, 8]),
}


def plan_algorithms(tier: str, seeds: int) -> PlannedRuns:
    """Plan every task of Table 1 but addition, with T5's positions, as decoder and as ENTP."""
    for seed, task, architecture in itertools.product(range(seeds or 1), ALGORITHMS, TWINS):
        labels = dict(task=task, architecture=architecture)
        params = dict(labels, positions="t5", seed=seed, **ALGORITHM_TIERS[tier])
        yield planned_study(
            "compact_algorithms", tier, "compact_algorithms", params, seed, **labels
        )


ALGORITHM_RUNS = Experiment(
    "compact_algorithms",
    1,
    "Polynomials, sorting, sums, parity and LEGO beyond the trained size",
    "12b_compact_details",
    plan_algorithms,
    tiers=ALGORITHM_TIERS,
)
LENGTHS = Experiment(
    NAME,
    1,
    "Addition beyond the trained length, by format and positions",
    NOTEBOOK,
    plan,
    measure,
    tiers=TIERS,
)
# Seeds from 1 up in padded text (0 is that of ``compact_lengths``), and decoders with 5.8 times the
# steps, one for each prefix that ENTP is scored on.
LENGTH_SEEDS = Experiment(
    "compact_length_seeds",
    1,
    "Addition of five digits, more seeds of the positional schemes",
    NOTEBOOK,
    Closed("compact_length_seeds"),
    partial(measure_lead, "CT-relative-entp", RELATIVE),
)
LENGTH_RATES = Experiment(
    "compact_length_rates",
    1,
    "Addition of five digits with T5 and ALiBi, each model at its own learning rate",
    NOTEBOOK,
    Closed("compact_length_rates"),
    partial(measure_lead, "CT-relative-own", LEARNING),
)
LENGTH_OPERATIONS = Experiment(
    "compact_length_operations",
    1,
    "Addition of five digits with T5 and ALiBi, decoders with ENTP's compute",
    NOTEBOOK,
    Closed("compact_length_operations"),
    partial(measure_lead, "CT-relative-own-operations", LEARNING),
)
# One layer, as for the paper's 200 digits after 30.
ONE_LAYER_RUNS = Experiment(
    "compact_one_layer",
    1,
    "Addition of ten digits by one layer with coupled positions",
    "12b_compact_details",
    Closed("compact_one_layer"),
)
