"""Memorising knowledge graphs (§3.2): the runs of every tier, their tables and their claims.

``compact_graph``: triplets by wiring and size, by width and depth, and walks;
``compact_real_graph``: real graphs. ``compact_activations``: triplets with four activations of the
feed-forward layer by depth (§3.2.2), and walks with two (``compact_walk_activations``, §3.2.4). In
both of the paper's setups the width is divided among the layers, so that deeper models are
narrower. The paper's numbers on triplets come from the published wiring, in which no model sees the
relation; here the described wiring is measured, too. The paper's script for walks feeds every
prefix through unmasked attention, as ENTP does. RReLU draws its slopes in training.
"""

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.configs import Json
from entp_lab.experiment import Closed, Experiment, PlannedRun, PlannedRuns, planned_study
from entp_lab.frames import select
from entp_lab.measurements import (
    Check,
    Findings,
    Level,
    Measurement,
    Observation,
    checked,
    measured,
    observed,
)
from entp_lab.statistics import exceeds, first_at, mean_interval
from entp_lab.store import Records
from entp_papers.compact.capacity import table

NOTEBOOK = "12_compact_transformers"
DETAILS = "12b_compact_details"
NAME = "compact_graph"
WIRINGS = ("described", "published", "concept")
DEPTHS = (1, 2, 4)
ACTIVATIONS = ("relu", "gelu", "rrelu", "softmax")
WALKED = ("rrelu", "softmax")  # activations of the models of walks
END = 0.2  # the last share of the counts, whose mean is the end of a run
ARRIVED = 0.9  # share of the reachable recall at which epochs are counted

# By tier: traits of the synthetic graph; triplets in three sizes by wiring; widths by depth; walks.
TIERS = {
    "smoke": dict(
        traits=dict(concepts=60, relations=6),
        sizes=(20, 40),
        width=16,
        n_heads=2,
        epochs=3,
        batch_size=16,
        seeds=1,
        widths=(8, 16),
        shape_size=40,
        walk_epochs=2,
    ),
    "quick": dict(
        traits=dict(concepts=2400, relations=30),
        sizes=(300, 500, 700),
        width=64,
        n_heads=4,
        epochs=60,
        batch_size=64,
        seeds=5,
        widths=(16, 32, 64),
        shape_size=500,
        walk_epochs=60,
    ),
    "paper": dict(
        traits=dict(concepts=360_000, relations=30),
        sizes=(50_000, 70_000, 100_000),
        width=128,
        n_heads=4,
        epochs=500,
        batch_size=64,
        seeds=10,
        widths=(16, 32, 64, 128),
        shape_size=100_000,
        walk_epochs=400,
    ),
}
# Runs by activation and depth: ``width`` is divided by the number of layers; ``sizes`` are numbers
# of triplets or of walks.
ACTIVATION_TIERS = {
    "smoke": dict(TIERS["smoke"], sizes=(40,), width=32, epochs=4),
    "overnight": dict(
        traits=dict(concepts=600, relations=30),
        sizes=(1000,),
        width=64,
        n_heads=4,
        epochs=250,
        batch_size=128,
        seeds=5,
    ),
    "paper": dict(TIERS["paper"], epochs=1000, batch_size=128),
}
WALK_TIERS = {
    "smoke": dict(ACTIVATION_TIERS["smoke"], sizes=(20,), width=64),
    "overnight": dict(
        ACTIVATION_TIERS["overnight"], traits=TIERS["quick"]["traits"], epochs=200, batch_size=64
    ),
    "paper": dict(
        ACTIVATION_TIERS["paper"], sizes=(20_000, 50_000, 100_000), width=64, epochs=400, seeds=3
    ),
}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan triplets by wiring and size, triplets by width and depth, and walks by architecture and
    depth.
    """
    setting = TIERS[tier]
    run = partial(on_graph, NAME, tier, setting)
    every_seed = range(seeds or setting["seeds"])
    for seed, size, wiring in itertools.product(every_seed, setting["sizes"], WIRINGS):
        params = dict(size=size, model=dict(wiring=wiring, **shape_of(setting, 1)))
        yield run("compact_triplets", seed, params, part="wirings", size=size, wiring=wiring)
    for width, n_layers in itertools.product(setting["widths"], (1, 2)):
        shape = dict(width=width, n_layers=n_layers)
        model = dict(n_heads=setting["n_heads"], activation="softmax", **shape)
        params = dict(size=setting["shape_size"], model=model)
        yield run("compact_triplets", 0, params, part="shape", **shape)
    for architecture, n_layers in (("decoder", 1), ("decoder", 2), ("entp", 2)):
        arm = dict(architecture=architecture, n_layers=n_layers)
        shape = arm | shape_of(setting, 1)
        params = dict(walks=setting["sizes"][-1], epochs=setting["walk_epochs"], **shape)
        yield run("compact_walks", 0, params, part="walks", **arm)


def plan_activations(tier: str, seeds: int) -> PlannedRuns:
    """Plan triplets by seed, size, wiring, depth and activation."""
    setting = ACTIVATION_TIERS[tier]
    name = "compact_activations"
    wirings = ("published", "described")
    for seed, size, wiring, n_layers, activation in itertools.product(
        range(seeds or setting["seeds"]), setting["sizes"], wirings, DEPTHS, ACTIVATIONS
    ):
        labels = dict(wiring=wiring, n_layers=n_layers, activation=activation)
        params = dict(size=size, model=labels | shape_of(setting, n_layers))
        yield on_graph(name, tier, setting, "compact_triplets", seed, params, size=size, **labels)


def plan_walks(tier: str, seeds: int) -> PlannedRuns:
    """Plan walks by seed, number, depth and activation."""
    setting = WALK_TIERS[tier]
    name = "compact_walk_activations"
    for seed, size, n_layers, activation in itertools.product(
        range(seeds or setting["seeds"]), setting["sizes"], DEPTHS, WALKED
    ):
        labels = dict(n_layers=n_layers, activation=activation)
        shape = labels | shape_of(setting, n_layers)
        params = dict(walks=size, architecture="entp", **shape)
        yield on_graph(name, tier, setting, "compact_walks", seed, params, size=size, **labels)


def on_graph(
    experiment: str, tier: str, setting: Json, study: str, seed: int, params: Json, **labels: Any
) -> PlannedRun:
    """Plan a study of the tier's synthetic graph, with its length of training."""
    chosen = {name: setting[name] for name in ("traits", "epochs", "batch_size")}
    whole = chosen | dict(source="synthetic", seed=seed) | params
    return planned_study(experiment, tier, study, whole, seed, **labels)


def shape_of(setting: Json, n_layers: int) -> Json:
    """Return width and heads, the tier's width divided by the number of layers."""
    return dict(width=setting["width"] // n_layers, n_heads=setting["n_heads"])


# --- Triplets and walks ---------------------------------------------------------------------------


def hidden_relation(wired: Records) -> Check:
    """Check that in the published wiring no output has a gradient with respect to a relation."""
    published = select(wired, wiring="published")
    hidden = all(record.metrics["relation_gradient"] == 0 for record in published)
    return checked("CT-wiring", hidden, wired)


def above_the_ceiling(wired: Records) -> Measurement:
    """Measure the published wiring's recall above the ceiling of the concept alone.

    There is a value per seed, a mean over sizes.
    """
    published = table(select(wired, wiring="published"), "wirings")
    above = published["accuracy"] - published["concept_ceiling"]
    return measured("CT-ceiling", above.groupby(published["seed"]).mean(), wired)


def recall_by_size(wired: Records) -> Observation:
    """Ask whether the share recalled falls with every larger set.

    If every set is recalled whole, the question is uninformative.
    """
    described = table(select(wired, wiring="described"), "wirings")
    shares = described.groupby("size")["best"].mean()
    sizes = ", ".join(f"{size:,}" for size in shares.index)
    seen = f"{', '.join(f'{share:.3f}' for share in shares)} of {sizes} triplets"
    whole = exceeds(shares.min(), 0.999)
    falls = exceeds(0, shares.diff().dropna()).all()
    verdict = "uninformative" if whole else "same direction" if falls else "not reproduced"
    why = "every set is recalled whole" if whole else ""
    seeds = described["seed"].nunique()
    return observed("CT-table-3", verdict, wired, why, seen, seeds)


def width_or_depth(records: Records) -> Observation:
    """Compare the spread of epochs to 99 % of all triplets with width and with depth.

    A run that never gets there counts with its last epoch.
    """
    shape = select(records, part="shape")
    rows = table(shape, "shape").astype({"epochs_to_99": float})
    late = rows["epochs_to_99"].isna()
    last_epoch = max(record.curves["epoch"][-1] for record in shape)
    rows["epochs_to_99"] = rows["epochs_to_99"].fillna(last_epoch)
    grid = rows.pivot(index="width", columns="n_layers", values="epochs_to_99")
    by_width = grid.std(axis=0).mean()
    by_depth = grid.std(axis=1).mean()
    seen = (
        f"epochs spread by {by_width:.0f} with width and by {by_depth:.0f} with depth; "
        f"{late.sum()} of {len(rows)} runs had not got there and count the last epoch"
    )
    return observed("CT-width", "inconclusive", shape, "one run each", seen)


def walks_or_triplets(records: Records) -> Observation:
    """Compare epochs to 99 % of the reachable recall for as many walks as triplets.

    The models have one layer, the sets the largest size.
    """
    triplets = table(select(records, wiring="described"), "wirings")
    largest = triplets[triplets["size"] == triplets["size"].max()]
    walks = select(records, part="walks")
    needed = [
        float(runs["epochs_to_99"].astype(float).iloc[0])
        for runs in (table(walks, "walks"), largest)
    ]
    seen = "{:.0f} epochs against {:.0f} of triplets".format(*needed)
    return observed("CT-walks", "inconclusive", walks, "one run each", seen)


def measure(records: Records) -> Findings:
    """Measure every claim on triplets and walks, from records of all parts."""
    if not {"wirings", "shape", "walks"} <= {record.labels["part"] for record in records}:
        return []
    wired = select(records, part="wirings")
    by_wiring = [claim(wired) for claim in (hidden_relation, above_the_ceiling, recall_by_size)]
    return [*by_wiring, width_or_depth(records), walks_or_triplets(records)]


# --- Activations ----------------------------------------------------------------------------------


def ends(records: Records) -> pd.DataFrame:
    """Return one row per run: its labels and how its recall ends.

    ``reachable``, the share that can be recalled: the ceiling for walks, 1 for triplets or, in the
    published wiring, the concept's ceiling; ``end`` and ``spread``, mean and standard deviation of
    the recall over the last fifth of the counts; ``final``, the last count; ``epochs`` to nine
    tenths of ``reachable``, NaN if never.
    """
    rows = []
    for record in records:
        ceiling = record.metrics.get("ceiling", record.metrics.get("concept_ceiling"))
        reachable = 1.0 if record.labels.get("wiring") == "described" else ceiling
        counts = record.curves["accuracy"]
        last = np.array(counts[-math.ceil(END * len(counts)) :])
        row = dict(
            reachable=reachable,
            end=last.mean(),
            spread=last.std(),
            final=counts[-1],
            epochs=first_at(record.curves, "accuracy", ARRIVED * reachable, "epoch"),
        )
        rows.append(record.labels | row)
    return pd.DataFrame(rows).astype({"epochs": float})


def lead(records: Records, measure: str, first: str, *others: str) -> pd.Series:
    """Return by seed a measure of ``ends`` with the ``first`` activation less that with the others.

    It is a mean over sizes, depths and the other activations. Epochs are taken as natural
    logarithms.
    """
    rows = ends(records)
    values = rows[measure].map(math.log) if measure == "epochs" else rows[measure]
    means = rows.assign(value=values).groupby(["seed", "activation"])["value"].mean(skipna=False)
    wide = means.unstack("activation")
    return wide[first] - wide[list(others)].mean(axis=1)


def deepest_less_one(rows: pd.DataFrame, measure: str) -> pd.Series:
    """Return by seed the mean of a measure with the most layers less that with the fewest."""
    wide = rows.pivot_table(index="seed", columns="n_layers", values=measure)
    return wide[max(DEPTHS)] - wide[min(DEPTHS)]


def recalled(rows: pd.DataFrame, sides: pd.Series | str) -> tuple[Level, ...]:
    """Return a ``Level`` for each side of a comparison: mean recall, from 0 to the reachable."""
    means = rows.groupby(sides)[["end", "reachable"]].mean()
    return tuple(Level(end, 0.0, most, 0.0) for end, most in means.itertuples(index=False))


def late(records: Records) -> str:
    """Return a message on runs that never recall nine tenths of what they can, or "".

    Their epochs are unknown.
    """
    missing = ends(records)["epochs"].isna()
    message = f"{missing.sum()} of {len(missing)} runs never recall nine tenths of what they can"
    return message if missing.any() else ""


def measure_activations(records: Records) -> Findings:
    """Measure the paper's statements on triplets, in its own wiring."""
    published = select(records, wiring="published")
    if not published:
        return
    others = ("gelu", "relu", "rrelu")
    ahead = lead(published, "end", "softmax", *others)
    rows = ends(published)
    levels = recalled(rows, rows["activation"] == "softmax")
    yield measured("CT-activation", ahead, published, levels=levels)
    steadier = lead(published, "spread", "softmax", *others)
    yield measured("CT-activation-steady", steadier, published)
    faster = lead(published, "epochs", *WALKED)
    unknown = late(select(published, activation=WALKED))
    yield measured("CT-activation-speed", faster, published, excluded_because=unknown)
    both_ends = (min(DEPTHS), max(DEPTHS))
    rows = ends(select(published, activation=("relu", "rrelu"), n_layers=both_ends))
    final, low, high = mean_interval(deepest_less_one(rows, "final"))
    yield measured(
        "CT-activation-depth",
        deepest_less_one(rows, "end"),
        published,
        levels=recalled(rows, "n_layers"),
        remark=f"in the last epoch alone {final:+.4f}, {low:+.4f} to {high:+.4f}",
    )


def measure_walks(records: Records) -> Findings:
    """Measure RReLU against Softmax on walks.

    They are compared in speed, and in the recall at the end with one and two layers and with four.
    """
    speed = lead(records, "epochs", *WALKED)
    yield measured("CT-walks-speed", speed, records, excluded_because=late(records))
    for claim, layers in (("CT-walks-level", (1, 2)), ("CT-walks-depth", 4)):
        chosen = select(records, n_layers=layers)
        levels = recalled(ends(chosen), "activation")
        yield measured(claim, lead(chosen, "end", *WALKED), chosen, levels=levels)


GRAPH = Experiment(
    NAME,
    1,
    "Knowledge graphs by heart, in three wirings",
    NOTEBOOK,
    plan,
    measure,
    tiers=TIERS,
)
# These runs need the package pykeen, which has the files.
REAL_GRAPH = Experiment(
    "compact_real_graph",
    1,
    "Three real graphs by heart",
    NOTEBOOK,
    Closed("compact_real_graph"),
)
ACTIVATION_RUNS = Experiment(
    "compact_activations",
    1,
    "Triplets by heart, by activation and depth",
    DETAILS,
    plan_activations,
    measure_activations,
    tiers=ACTIVATION_TIERS,
)
WALK_ACTIVATIONS = Experiment(
    "compact_walk_activations",
    1,
    "Walks by heart, by activation and depth",
    DETAILS,
    plan_walks,
    measure_walks,
    tiers=WALK_TIERS,
)
