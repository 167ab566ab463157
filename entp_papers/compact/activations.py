"""Activations of the feed-forward layer: triplets recalled with ReLU, GELU, RReLU and Softmax, by depth (§3.2.2).

The paper's second setup: the width is shared out among the layers, so that deeper models are narrower. Its figures
come from the published wiring, in which no model sees the relation; the described one stands beside it.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, name_of, planned_study, select
from entp_lib.experiments.measurements import Level, Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval
from entp_papers.compact.wirings import ACTIVATIONS

NAME = "compact_activations"
SOFTMAX, DEPTHS, WIRINGS = "softmax", (1, 2, 4), ("published", "described")
END = 0.2  # share of the counts that say where a run ends
ARRIVED = 0.9  # of what can be recalled

# By tier: traits of the graph, triplets, width of one layer (divided by their number), and the schedule.
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        traits=dict(concepts=60, relations=6), sizes=(40,), width=32, n_heads=2, epochs=4, batch_size=16, seeds=1
    ),
    "overnight": dict(
        traits=dict(concepts=600, relations=30), sizes=(1000,), width=64, n_heads=4, epochs=250, batch_size=128, seeds=5
    ),
    "paper": dict(
        traits=dict(concepts=360_000, relations=30), sizes=(50_000, 70_000, 100_000), width=128, n_heads=4,
        epochs=1000, batch_size=128, seeds=10,
    ),
}  # fmt: skip


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every activation, depth, wiring and number of triplets, seeds outermost."""
    if tier not in TIERS:
        return []
    t, found = TIERS[tier], []
    arms = itertools.product(range(seeds or t["seeds"]), t["sizes"], WIRINGS, DEPTHS, ACTIVATIONS)
    for seed, size, wiring, n_layers, activation in arms:
        shape = dict(width=t["width"] // n_layers, n_heads=t["n_heads"], n_layers=n_layers)
        model = dict(wiring=wiring, **shape, activation=activation)
        schedule = dict(epochs=t["epochs"], batch_size=t["batch_size"])
        params = dict(source="synthetic", traits=t["traits"], size=size, model=model, **schedule, seed=seed)
        labels = dict(size=size, wiring=wiring, n_layers=n_layers, activation=activation)
        found.append(planned_study(StudyConfig(NAME, tier, "compact_triplets", params, seed, seed), **labels))
    return found


def reachable(record: Record) -> float:
    """The share of triplets that a model of this wiring can recall: all, or what the concept alone determines."""
    return record.metrics["concept_ceiling"] if record.labels["wiring"] == "published" else 1.0


def ending(record: Record, most: float) -> dict[str, float]:
    """How a run ends that can recall the share ``most``, from its curve of the share recalled.

    ``reachable``, which is ``most``; ``end`` and ``spread``, mean and standard deviation over the last fifth of the
    counts; ``final``, the last of them; ``epochs`` to nine tenths of ``most``, NaN if it never gets there.
    """
    counts = record.curves["accuracy"]
    last = np.array(counts[-max(1, math.ceil(END * len(counts))) :])
    there = (e for e, a in zip(record.curves["epoch"], counts, strict=True) if a >= ARRIVED * most)
    ends = {"end": last.mean(), "spread": last.std(), "final": counts[-1]}
    return {"reachable": most, **ends, "epochs": next(there, math.nan)}


def table(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: its labels and how it ends."""
    labels = ("wiring", "size", "n_layers", "activation", "seed")
    return pd.DataFrame({**{k: r.labels[k] for k in labels}, **ending(r, reachable(r))} for r in records)


def overview(records: Sequence[Record]) -> pd.DataFrame:
    """Means over seeds and sizes by wiring and layers (rows) and activation, under each measure of ``table``."""
    rows = table(records).pivot_table(
        index=["wiring", "n_layers"],
        columns="activation",
        values=["end", "spread", "epochs"],
        aggfunc=lambda values: values.mean(skipna=False),
        dropna=False,
    )
    order = [(measure, name) for measure in ("epochs", "end", "spread") for name in ACTIVATIONS]
    return rows.reindex(columns=pd.MultiIndex.from_tuples(order))


def by_activation(records: Sequence[Record], wiring: str, measure: str, logarithm: bool = False) -> pd.DataFrame:
    """A measure of ``table`` or its logarithm, mean over sizes and depths, seeds in rows, activations in columns."""
    rows = table(select(records, wiring=wiring))
    values = rows[measure].map(math.log) if logarithm else rows[measure]
    return rows.assign(value=values).groupby(["seed", "activation"])["value"].mean().unstack("activation")


def softmax_less_others(wide: pd.DataFrame) -> list[float]:
    """Softmax less the mean of the other activations, a value per seed."""
    return (wide[SOFTMAX] - wide.drop(columns=SOFTMAX).mean(axis=1)).tolist()


def deepest_less_one(records: Sequence[Record], at: str = "end") -> list[float]:
    """Share recalled with four layers less with one, mean over ReLU and RReLU, by seed; ``at``: its column."""
    rows = table(select(records, wiring="published", activation=("relu", "rrelu")))
    wide = rows.pivot_table(index="seed", columns="n_layers", values=at)
    return (wide[max(DEPTHS)] - wide[min(DEPTHS)]).tolist()


def recalled(rows: pd.DataFrame, sides: pd.Series | str) -> tuple[Level, ...]:
    """Where sides of a comparison end, a ``Level`` each: mean share recalled, of what can be recalled."""
    means = rows.groupby(sides)[["end", "reachable"]].mean()
    return tuple(Level(end, 0.0, most, 0.0) for end, most in means.itertuples(index=False))


def late(rows: pd.DataFrame) -> str:
    """How many runs never recall nine tenths of what they can, in words; empty if all do. Their epochs are unknown."""
    missing = int(rows["epochs"].isna().sum())
    return f"{missing} of {len(rows)} runs never recall nine tenths of what they can" if missing else ""


def measure(records: Sequence[Record]) -> list[Measurement]:
    """The paper's statements in its own wiring."""
    if not records:
        return []
    published = select(records, wiring="published")
    tier, names = records[0].config.tier, tuple(map(name_of, published))
    final, low, high = mean_interval(deepest_less_one(records, "final"))
    remark = f"in the last epoch alone {final:+.4f}, {low:+.4f} to {high:+.4f}"
    speed, rows = by_activation(records, "published", "epochs", logarithm=True), table(published)
    ends = softmax_less_others(by_activation(records, "published", "end"))
    depths = rows[rows["activation"].isin(("relu", "rrelu")) & rows["n_layers"].isin((min(DEPTHS), max(DEPTHS)))]
    deep = dict(levels=recalled(depths, "n_layers"), remark=remark)
    return [
        Measurement("CT-activation", ends, tier, names, levels=recalled(rows, rows["activation"] == SOFTMAX)),
        Measurement(
            "CT-activation-steady", softmax_less_others(by_activation(records, "published", "spread")), tier, names
        ),
        Measurement(
            "CT-activation-speed",
            (speed["rrelu"] - speed[SOFTMAX]).tolist(),
            tier,
            names,
            barred=late(table(select(published, activation=("rrelu", SOFTMAX)))),
        ),
        Measurement("CT-activation-depth", deepest_less_one(records), tier, names, **deep),
    ]


ACTIVATION_RUNS = Experiment(
    name=NAME,
    version=1,
    title="Triplets by heart, by activation and depth",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
