"""Activations of the feed-forward layer by depth: triplets with four of them (§3.2.2), walks with two (§3.2.4).

In both of the paper's setups the width is divided among the layers, so that deeper models are narrower. Its figures of
triplets come from the published wiring, in which no model sees the relation; here the described one is measured, too.
Its script for walks feeds every prefix through unmasked attention, as ENTP does. RReLU draws its slopes in training.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import select
from entp_lib.experiments.measurements import Level, Measurement
from entp_lib.experiments.plans import PlannedRun, planned_study
from entp_lib.experiments.studies import names_of
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval
from entp_papers.compact.graph_studies import ACTIVATIONS

NAME, WALKS_NAME = "compact_activations", "compact_walk_activations"
NOTEBOOK = "12_compact_transformers"
DEPTHS, WIRINGS = (1, 2, 4), ("published", "described")
WALKED = ("rrelu", "softmax")  # activations of the models of walks
LABELS = ("wiring", "size", "n_layers", "activation", "seed")
END = 0.2  # share of the counts that say where a run ends
ARRIVED = 0.9  # of the share that can be recalled

# By tier: traits of the graph, triplets or walks, width of one layer (divided by their number), and the schedule.
SMOKE, LARGE = dict(concepts=60, relations=6), dict(concepts=360_000, relations=30)
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(traits=SMOKE, sizes=(40,), width=32, n_heads=2, epochs=4, batch_size=16, seeds=1),
    "overnight": dict(
        traits=dict(concepts=600, relations=30), sizes=(1000,), width=64, n_heads=4, epochs=250, batch_size=128, seeds=5
    ),
    "paper": dict(
        traits=LARGE, sizes=(50_000, 70_000, 100_000), width=128, n_heads=4, epochs=1000, batch_size=128, seeds=10
    ),
}
WALK_TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(traits=SMOKE, sizes=(20,), width=64, n_heads=2, epochs=4, batch_size=16, seeds=1),
    "overnight": dict(
        traits=dict(concepts=2400, relations=30), sizes=(1000,), width=64, n_heads=4, epochs=200, batch_size=64, seeds=5
    ),
    "paper": dict(
        traits=LARGE, sizes=(20_000, 50_000, 100_000), width=64, n_heads=4, epochs=400, batch_size=128, seeds=3
    ),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Triplets with every activation, depth, wiring and number of triplets, seeds outermost."""
    return planned(tier, TIERS.get(tier), seeds, WIRINGS, ACTIVATIONS)


def plan_walks(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Walks with RReLU and Softmax at every depth and number of walks, seeds outermost."""
    return planned(tier, WALK_TIERS.get(tier), seeds, ("",), WALKED)


def planned(
    tier: str, t: dict[str, Any] | None, seeds: int, wirings: Sequence[str], activations: Sequence[str]
) -> list[PlannedRun]:
    """The runs of a tier's row ``t``, none where there is no row; of walks where the wiring is empty."""
    found = []
    for seed in range(seeds or t["seeds"]) if t else ():
        for size, wiring, n_layers, activation in itertools.product(t["sizes"], wirings, DEPTHS, activations):
            arm = dict(n_layers=n_layers, activation=activation)
            shape = dict(width=t["width"] // n_layers, n_heads=t["n_heads"], **arm)
            params = {k: t[k] for k in ("traits", "epochs", "batch_size")} | dict(source="synthetic", seed=seed)
            if wiring:
                params |= dict(size=size, model=dict(wiring=wiring, **shape))
                config = StudyConfig(NAME, tier, "compact_triplets", params, seed, seed)
                found.append(planned_study(config, size=size, wiring=wiring, **arm))
            else:
                params |= dict(walks=size, architecture="entp", **shape)
                config = StudyConfig(WALKS_NAME, tier, "compact_walks", params, seed, seed)
                found.append(planned_study(config, size=size, **arm))
    return found


def reachable(record: Record) -> float:
    """The share that a run can recall: of walks their ceiling, of triplets all or, as published, the concept's."""
    if record.config.study == "compact_walks":
        return record.metrics["ceiling"]
    return record.metrics["concept_ceiling"] if record.labels["wiring"] == "published" else 1.0


def table(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: its labels and how its curve of the share recalled ends.

    ``reachable``, the share that can be recalled; ``end`` and ``spread``, mean and standard deviation over the last
    fifth of the counts; ``final``, the last of them; ``epochs`` to nine tenths of ``reachable``, NaN if never.
    """
    rows = []
    for r in records:
        counts, most = r.curves["accuracy"], reachable(r)
        last = np.array(counts[-max(1, math.ceil(END * len(counts))) :])
        there = (e for e, a in zip(r.curves["epoch"], counts, strict=True) if a >= ARRIVED * most)
        ends = dict(reachable=most, end=last.mean(), spread=last.std(), final=counts[-1], epochs=next(there, math.nan))
        rows.append({k: r.labels[k] for k in LABELS if k in r.labels} | ends)
    return pd.DataFrame(rows)


def overview(records: Sequence[Record]) -> pd.DataFrame:
    """Means over seeds and sizes by wiring, if there are several, and layers (rows) and activation, by measure."""
    rows = table(records)
    measures = ["epochs", "end", "spread"] if "wiring" in rows else ["epochs", "reachable", "end", "spread"]
    by = [k for k in ("wiring", "n_layers", "activation") if k in rows]
    means = rows.groupby(by)[measures].mean(skipna=False).unstack("activation")
    if "wiring" in rows:
        return means.reindex(columns=pd.MultiIndex.from_product([measures, ACTIVATIONS]))
    return means


def lead(records: Sequence[Record], measure: str, first: str, *others: str) -> list[float]:
    """A measure of ``table`` with the ``first`` activation less its mean with the others, a value per seed.

    Of epochs the natural logarithm; a mean over sizes and depths.
    """
    rows = table(records)
    values = rows[measure].map(math.log) if measure == "epochs" else rows[measure]
    wide = rows.assign(value=values).groupby(["seed", "activation"])["value"].mean(skipna=False).unstack("activation")
    return (wide[first] - wide[list(others)].mean(axis=1)).tolist()


def deepest_less_one(records: Sequence[Record], measure: str = "end") -> list[float]:
    """Share recalled with four layers less with one, mean over ReLU and RReLU, by seed."""
    wide = table(select(records, activation=("relu", "rrelu")))
    wide = wide.pivot_table(index="seed", columns="n_layers", values=measure)
    return (wide[max(DEPTHS)] - wide[min(DEPTHS)]).tolist()


def recalled(rows: pd.DataFrame, sides: pd.Series | str) -> tuple[Level, ...]:
    """A ``Level`` for each side of a comparison at its end: mean share recalled, of what can be recalled."""
    means = rows.groupby(sides)[["end", "reachable"]].mean()
    return tuple(Level(end, 0.0, most, 0.0) for end, most in means.itertuples(index=False))


def late(records: Sequence[Record]) -> str:
    """Sentence on the runs that never recall nine tenths of what they can, whose epochs are unknown; empty if none."""
    epochs = table(records)["epochs"]
    missing = f"{int(epochs.isna().sum())} of {len(epochs)} runs"
    return f"{missing} never recall nine tenths of what they can" if epochs.isna().any() else ""


def measure(records: Sequence[Record]) -> list[Measurement]:
    """The paper's statements on triplets, in its own wiring."""
    published = select(records, wiring="published")
    if not published:
        return []
    tier, names = records[0].config.tier, names_of(published)
    final, low, high = mean_interval(deepest_less_one(published, "final"))
    remark = f"in the last epoch alone {final:+.4f}, {low:+.4f} to {high:+.4f}"
    softmax = {measure: lead(published, measure, "softmax", "gelu", "relu", "rrelu") for measure in ("end", "spread")}
    speed, barred = lead(published, "epochs", *WALKED), late(select(published, activation=WALKED))
    rows = table(published)
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
    if not records:
        return []
    tier, names = records[0].config.tier, names_of(records)
    found = [
        Measurement("CT-walks-speed", lead(records, "epochs", *WALKED), tier, names, excluded_because=late(records))
    ]
    for claim, layers in (("CT-walks-level", (1, 2)), ("CT-walks-depth", 4)):
        chosen = select(records, n_layers=layers)
        levels, values = recalled(table(chosen), "activation"), lead(chosen, "end", *WALKED)
        found.append(Measurement(claim, values, tier, names_of(chosen), levels=levels))
    return found


ACTIVATION_RUNS = Experiment(
    NAME, version=1, title="Triplets by heart, by activation and depth", notebook=NOTEBOOK, plan=plan, measure=measure
)
WALKS_TITLE = "Walks by heart, by activation and depth"
WALK_ACTIVATIONS = Experiment(
    WALKS_NAME, version=1, title=WALKS_TITLE, notebook=NOTEBOOK, plan=plan_walks, measure=measure_walks
)
