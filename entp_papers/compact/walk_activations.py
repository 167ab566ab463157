"""Walks by heart with RReLU and Softmax in the feed-forward layer, by depth (§3.2.4).

The paper's fourth setup. Its public script feeds every prefix through unmasked attention, as ENTP does, and shares the
width out among the layers; RReLU draws its slopes in training, as in the triplets' models.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, name_of, planned_study, select
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_papers.compact.activations import DEPTHS, ending, late, recalled

NAME = "compact_walk_activations"
ACTIVATIONS = ("rrelu", "softmax")

# By tier: traits of the graph, walks, width of one layer (divided by their number), and the schedule.
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(traits=dict(concepts=60, relations=6), sizes=(20,), n_heads=2, epochs=4, batch_size=16, seeds=1),
    "overnight": dict(
        traits=dict(concepts=2400, relations=30), sizes=(1000,), n_heads=4, epochs=200, batch_size=64, seeds=5
    ),
    "paper": dict(
        traits=dict(concepts=360_000, relations=30), sizes=(20_000, 50_000, 100_000), n_heads=4, epochs=400,
        batch_size=128, seeds=3,
    ),
}  # fmt: skip
WIDTH = 64


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Both activations at every depth and number of walks, seeds outermost."""
    if tier not in TIERS:
        return []
    t, found = TIERS[tier], []
    arms = itertools.product(range(seeds or t["seeds"]), t["sizes"], DEPTHS, ACTIVATIONS)
    for seed, size, n_layers, activation in arms:
        shape = dict(width=WIDTH // n_layers, n_heads=t["n_heads"], n_layers=n_layers, activation=activation)
        schedule = dict(epochs=t["epochs"], batch_size=t["batch_size"])
        graph = dict(source="synthetic", traits=t["traits"], walks=size, seed=seed)
        config = StudyConfig(
            NAME, tier, "compact_walks", graph | shape | schedule | {"architecture": "entp"}, seed, seed
        )
        found.append(planned_study(config, size=size, n_layers=n_layers, activation=activation))
    return found


def table(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: its labels and how it ends (``activations.ending``)."""
    labels = ("size", "n_layers", "activation", "seed")
    return pd.DataFrame({**{k: r.labels[k] for k in labels}, **ending(r, r.metrics["ceiling"])} for r in records)


def overview(records: Sequence[Record]) -> pd.DataFrame:
    """Means over seeds and sizes by layers (rows) and activation, under each measure of ``table``."""
    means = table(records).groupby(["n_layers", "activation"])[["epochs", "reachable", "end", "spread"]]
    return means.agg(lambda values: values.mean(skipna=False)).unstack("activation")


def rrelu_less_softmax(records: Sequence[Record], measure: str, depths: Sequence[int] = DEPTHS) -> list[float]:
    """A measure of ``table`` (of epochs the natural logarithm), mean over sizes and depths, a difference per seed."""
    rows = table(select(records, n_layers=tuple(depths)))
    values = rows[measure].map(math.log) if measure == "epochs" else rows[measure]
    wide = rows.assign(value=values).pivot_table(
        index="seed", columns="activation", values="value", aggfunc=lambda found: found.mean(skipna=False), dropna=False
    )
    return (wide["rrelu"] - wide["softmax"]).tolist()


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Which is faster, whether one and two layers end level, and what four layers cost RReLU."""
    if not records:
        return []
    tier, names = records[0].config.tier, tuple(map(name_of, records))
    speed = rrelu_less_softmax(records, "epochs")
    found = [Measurement("CT-walks-speed", speed, tier, names, barred=late(table(records)))]
    for claim, depths in (("CT-walks-level", (1, 2)), ("CT-walks-depth", (4,))):
        chosen = select(records, n_layers=depths)
        values, used = rrelu_less_softmax(records, "end", depths), tuple(map(name_of, chosen))
        found.append(Measurement(claim, values, tier, used, levels=recalled(table(chosen), "activation")))
    return found


WALK_ACTIVATIONS = Experiment(
    name=NAME,
    version=1,
    title="Walks by heart, by activation and depth",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
