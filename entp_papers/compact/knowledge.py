"""Memorising knowledge graphs (§3.2): the runs of every tier, tables of them, and their part in the claims.

``compact_graph``: triplets by wiring and size, by width and depth, and walks; ``compact_real_graph``: real graphs.
``compact_activations``: triplets with four activations of the feed-forward layer by depth (§3.2.2), and walks with two
(``compact_walk_activations``, §3.2.4). In both of the paper's setups the width is divided among the layers, so that
deeper models are narrower. Its figures of triplets come from the published wiring, in which no model sees the relation;
here the described one is measured, too. Its script for walks feeds every prefix through unmasked attention, as ENTP
does. RReLU draws its slopes in training.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.experiment import Experiment, no_claims
from entp_lab.frames import select
from entp_lab.measurements import Check, Level, Measurement, Observation
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.statistics import exceeds, first_at, mean_interval, to_figures
from entp_lab.store import Record
from entp_lab.studies import names_of
from entp_papers.compact.capacity import table

NOTEBOOK, DETAILS = "12_compact_transformers", "12b_compact_details"
NAME, REAL_NAME = "compact_graph", "compact_real_graph"
ACTIVATIONS_NAME, WALKS_NAME = "compact_activations", "compact_walk_activations"
WIRINGS = ("described", "published", "concept")
DEPTHS = (1, 2, 4)
ACTIVATIONS = ("relu", "gelu", "rrelu", "softmax")
WALKED = ("rrelu", "softmax")  # activations of the models of walks
END = 0.2  # share of the counts that say where a run ends
ARRIVED = 0.9  # of the share that can be recalled

# By tier: traits of the synthetic graph; triplets in three sizes by wiring; widths by depth; walks.
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        traits=dict(concepts=60, relations=6), sizes=(20, 40), width=16, n_heads=2, epochs=3, batch_size=16, seeds=1,
        widths=(8, 16), shape_size=40, walk_epochs=2,
    ),
    "quick": dict(
        traits=dict(concepts=2400, relations=30), sizes=(300, 500, 700), width=64, n_heads=4, epochs=60, batch_size=64,
        seeds=5, widths=(16, 32, 64), shape_size=500, walk_epochs=60,
    ),
    "paper": dict(
        traits=dict(concepts=360_000, relations=30), sizes=(50_000, 70_000, 100_000), width=128, n_heads=4, epochs=500,
        batch_size=64, seeds=10, widths=(16, 32, 64, 128), shape_size=100_000, walk_epochs=400,
    ),
}  # fmt: skip
# Of runs by activation and depth: the width of one layer is divided by their number; ``sizes`` of triplets or walks.
ACTIVATION_TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(TIERS["smoke"], sizes=(40,), width=32, epochs=4),
    "overnight": dict(
        traits=dict(concepts=600, relations=30), sizes=(1000,), width=64, n_heads=4, epochs=250, batch_size=128, seeds=5
    ),
    "paper": dict(TIERS["paper"], epochs=1000, batch_size=128),
}
WALK_TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(ACTIVATION_TIERS["smoke"], sizes=(20,), width=64),
    "overnight": dict(ACTIVATION_TIERS["overnight"], traits=TIERS["quick"]["traits"], epochs=200, batch_size=64),
    "paper": dict(ACTIVATION_TIERS["paper"], sizes=(20_000, 50_000, 100_000), width=64, epochs=400, seeds=3),
}
REAL_EPOCHS = {"smoke": 1, "quick": 80}  # by tier, of the real graphs


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Triplets by wiring and size, triplets by width and depth, and walks by architecture and depth."""
    t, found = TIERS[tier], []

    def add(study: str, part: str, seed: int, params: dict[str, Any], epochs: int = t["epochs"], **labels) -> None:
        graph = dict(source="synthetic", traits=t["traits"], seed=seed, epochs=epochs, batch_size=t["batch_size"])
        found.append(planned_study(NAME, tier, study, graph | params, seed, part=part, **labels))

    for seed, size, wiring in itertools.product(range(seeds or t["seeds"]), t["sizes"], WIRINGS):
        params = dict(size=size, model=dict(wiring=wiring, width=t["width"], n_heads=t["n_heads"]))
        add("compact_triplets", "wirings", seed, params, size=size, wiring=wiring)
    for width, n_layers in itertools.product(t["widths"], (1, 2)):
        model = dict(width=width, n_heads=t["n_heads"], n_layers=n_layers, activation="softmax")
        params = dict(size=t["shape_size"], model=model)
        add("compact_triplets", "shape", 0, params, width=width, n_layers=n_layers)
    for architecture, n_layers in (("decoder", 1), ("decoder", 2), ("entp", 2)):
        arm = dict(architecture=architecture, n_layers=n_layers)
        params = dict(walks=t["sizes"][-1], width=t["width"], n_heads=t["n_heads"], **arm)
        add("compact_walks", "walks", 0, params, t["walk_epochs"], **arm)
    return found


def plan_real(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """All pairs of three real graphs in each wiring; needs the package that holds their files."""
    found = []
    for source, wiring in itertools.product(("nations", "umls", "kinships"), WIRINGS):
        schedule = dict(epochs=REAL_EPOCHS[tier], batch_size=64)
        params = dict(source=source, size=0, model=dict(wiring=wiring, width=64), **schedule)
        labels = dict(part="real", source=source, wiring=wiring)
        found.append(planned_study(REAL_NAME, tier, "compact_triplets", params, **labels))
    return found


def planned(
    name: str, tiers: dict[str, dict[str, Any]], arms: Sequence[Sequence], tier: str, seeds: int = 0
) -> list[PlannedRun]:
    """Runs by seed, number of items, and ``arms``: wirings (None for walks), depths and activations."""
    t, found = tiers[tier], []
    cells = itertools.product(range(seeds or t["seeds"]), t["sizes"], *arms)
    for seed, size, wiring, n_layers, activation in cells:
        arm = dict(n_layers=n_layers, activation=activation)
        shape = dict(width=t["width"] // n_layers, n_heads=t["n_heads"], **arm)
        params = {k: t[k] for k in ("traits", "epochs", "batch_size")} | dict(source="synthetic", seed=seed)
        if wiring is None:
            study, labels, own = "compact_walks", arm, dict(walks=size, architecture="entp", **shape)
        else:
            labels, own = dict(wiring=wiring, **arm), dict(size=size, model=dict(wiring=wiring, **shape))
            study = "compact_triplets"
        found.append(planned_study(name, tier, study, params | own, seed, size=size, **labels))
    return found


def epochs_needed(records: Sequence[Record]) -> pd.DataFrame:
    """Epochs to 99 % of what can be recalled: as many walks as triplets, in the largest size, one layer."""
    triplets = table(records, "wirings")
    triplets = triplets[(triplets["wiring"] == "described") & (triplets["size"] == triplets["size"].max())]
    walks = table(records, "walks")
    rows = {"triplets": triplets.iloc[0], "walks": walks.iloc[0]}
    return pd.DataFrame({name: row[["epochs_to_99", "best"]] for name, row in rows.items()}).T.map(to_figures)


def width_and_depth(records: Sequence[Record]) -> pd.DataFrame:
    """Epochs to 99 % of all triplets by width (rows) and layers; a model that never got there counts all epochs."""
    rows = table(records, "shape")
    most = max(r.curves["epoch"][-1] for r in select(records, part="shape"))
    rows["epochs_to_99"] = rows["epochs_to_99"].astype(float).fillna(most)
    return rows.pivot(index="width", columns="n_layers", values="epochs_to_99")


def measure(records: Sequence[Record]) -> list[Measurement | Check | Observation]:
    """The gradient that is exactly zero, the ceiling, and that memory falls with size in one wiring alone."""
    if not {"wirings", "shape", "walks"} <= {r.labels["part"] for r in records}:
        return []
    tier = records[0].config.tier
    ids, shape_ids, walk_ids = (names_of(records, part=part) for part in ("wirings", "shape", "walks"))
    found, epochs = table(records, "wirings"), epochs_needed(records)["epochs_to_99"].astype(float)
    published, described = (found[found["wiring"] == name] for name in ("published", "described"))
    # of a model that sees the concept alone; a value per seed, a mean over sizes
    above = (published["accuracy"] - published["concept_ceiling"]).groupby(published["seed"]).mean().tolist()
    grid, arrived = width_and_depth(records), table(records, "shape")["epochs_to_99"]
    by_width, by_depth = (grid.std(axis=axis).mean() for axis in (0, 1))
    spreads = f"epochs spread by {by_width:.0f} with width and by {by_depth:.0f} with depth"
    missing = f"{int(arrived.isna().sum())} of {len(arrived)} runs had not got there and count the last epoch"
    # whether the recalled share falls with every larger set; where each is recalled whole, nothing could fall
    shares, seeds = described.groupby("size")["best"].mean(), described["seed"].nunique()
    sizes = ", ".join(f"{size:,}" for size in shares.index)
    seen = f"{', '.join(f'{share:.3f}' for share in shares)} of {sizes} triplets"
    falls, why = "same direction" if exceeds(0, shares.diff().dropna()).all() else "not reproduced", ""
    if exceeds(shares.min(), 0.999):
        falls, why = "uninformative", "every set is recalled whole"
    walks = f"{epochs['walks']:.0f} epochs against {epochs['triplets']:.0f} of triplets"
    return [
        Check("CT-wiring", bool(published["relation_gradient"].eq(0).all()), tier, records=ids),
        Measurement("CT-ceiling", above, tier, ids),
        Observation("CT-width", "inconclusive", tier, "one run each", f"{spreads}; {missing}", records=shape_ids),
        Observation("CT-walks", "inconclusive", tier, "one run each", walks, records=walk_ids),
        Observation("CT-table-3", falls, tier, why, seen, seeds, ids),
    ]


def ends(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: its labels and how its curve of the share recalled ends.

    ``reachable``, the share that can be recalled: of walks their ceiling, of triplets all or, as published, the
    concept's; ``end`` and ``spread``, mean and standard deviation over the last fifth of the counts; ``final``, the
    last of them; ``epochs`` to nine tenths of ``reachable``, NaN if never.
    """
    rows = []
    for r in records:
        ceiling = r.metrics.get("ceiling", r.metrics.get("concept_ceiling"))
        counts, most = r.curves["accuracy"], 1.0 if r.labels.get("wiring") == "described" else ceiling
        last = np.array(counts[-max(1, math.ceil(END * len(counts))) :])
        epochs = first_at(r.curves, "accuracy", ARRIVED * most, "epoch")
        found = dict(reachable=most, end=last.mean(), spread=last.std(), final=counts[-1], epochs=epochs)
        rows.append(r.labels | found)
    return pd.DataFrame(rows).astype({"epochs": float})


def lead(records: Sequence[Record], measure: str, first: str, *others: str) -> list[float]:
    """A measure of ``ends`` with the ``first`` activation less its mean with the others, a value per seed.

    Of epochs the natural logarithm; a mean over sizes and depths.
    """
    rows = ends(records)
    values = rows[measure].map(math.log) if measure == "epochs" else rows[measure]
    wide = rows.assign(value=values).groupby(["seed", "activation"])["value"].mean(skipna=False).unstack("activation")
    return (wide[first] - wide[list(others)].mean(axis=1)).tolist()


def deepest_less_one(records: Sequence[Record], measure: str = "end") -> list[float]:
    """Share recalled with four layers less with one, mean over ReLU and RReLU, by seed."""
    wide = ends(select(records, activation=("relu", "rrelu")))
    wide = wide.pivot_table(index="seed", columns="n_layers", values=measure)
    return (wide[max(DEPTHS)] - wide[min(DEPTHS)]).tolist()


def recalled(rows: pd.DataFrame, sides: pd.Series | str) -> tuple[Level, ...]:
    """A ``Level`` for each side of a comparison at its end: mean share recalled, of what can be recalled."""
    means = rows.groupby(sides)[["end", "reachable"]].mean()
    return tuple(Level(end, 0.0, most, 0.0) for end, most in means.itertuples(index=False))


def late(records: Sequence[Record]) -> str:
    """Sentence on the runs that never recall nine tenths of what they can, whose epochs are unknown; empty if none."""
    epochs = ends(records)["epochs"]
    missing = f"{int(epochs.isna().sum())} of {len(epochs)} runs"
    return f"{missing} never recall nine tenths of what they can" if epochs.isna().any() else ""


def measure_activations(records: Sequence[Record]) -> list[Measurement]:
    """The paper's statements on triplets, in its own wiring."""
    published = select(records, wiring="published")
    if not published:
        return []
    tier, names = records[0].config.tier, names_of(published)
    final, low, high = mean_interval(deepest_less_one(published, "final"))
    remark = f"in the last epoch alone {final:+.4f}, {low:+.4f} to {high:+.4f}"
    softmax = {measure: lead(published, measure, "softmax", "gelu", "relu", "rrelu") for measure in ("end", "spread")}
    speed, barred = lead(published, "epochs", *WALKED), late(select(published, activation=WALKED))
    rows = ends(published)
    deep = rows[rows["activation"].isin(("relu", "rrelu")) & rows["n_layers"].isin((min(DEPTHS), max(DEPTHS)))]
    sides, depths = recalled(rows, rows["activation"] == "softmax"), recalled(deep, "n_layers")
    return [
        Measurement("CT-activation", softmax["end"], tier, names, levels=sides),
        Measurement("CT-activation-steady", softmax["spread"], tier, names),
        Measurement("CT-activation-speed", speed, tier, names, excluded_because=barred),
        Measurement("CT-activation-depth", deepest_less_one(published), tier, names, levels=depths, remark=remark),
    ]


def measure_walks(records: Sequence[Record]) -> list[Measurement]:
    """Speed of RReLU and Softmax on walks, their ends with one and two layers, and the cost of four layers."""
    tier, speed = records[0].config.tier, lead(records, "epochs", *WALKED)
    found = [Measurement("CT-walks-speed", speed, tier, names_of(records), excluded_because=late(records))]
    for claim, layers in (("CT-walks-level", (1, 2)), ("CT-walks-depth", 4)):
        chosen = select(records, n_layers=layers)
        levels, values = recalled(ends(chosen), "activation"), lead(chosen, "end", *WALKED)
        found.append(Measurement(claim, values, tier, names_of(chosen), levels=levels))
    return found


GRAPH = Experiment(NAME, 1, "Knowledge graphs by heart, in three wirings", NOTEBOOK, plan, measure, tiers=TIERS)
REAL_GRAPH = Experiment(REAL_NAME, 1, "Three real graphs by heart", NOTEBOOK, plan_real, no_claims, tiers=REAL_EPOCHS)
TITLE, ARMS = "Triplets by heart, by activation and depth", (("published", "described"), DEPTHS, ACTIVATIONS)
plan_triplets = partial(planned, ACTIVATIONS_NAME, ACTIVATION_TIERS, ARMS)
ACTIVATION_RUNS = Experiment(
    ACTIVATIONS_NAME, 1, TITLE, DETAILS, plan_triplets, measure_activations, tiers=ACTIVATION_TIERS
)
TITLE, ARMS = "Walks by heart, by activation and depth", ((None,), DEPTHS, WALKED)
plan_walks = partial(planned, WALKS_NAME, WALK_TIERS, ARMS)
WALK_ACTIVATIONS = Experiment(WALKS_NAME, 1, TITLE, DETAILS, plan_walks, measure_walks, tiers=WALK_TIERS)
