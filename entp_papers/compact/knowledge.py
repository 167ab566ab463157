"""Memorising knowledge graphs (§3.2): the runs of every tier, tables of them, and their part in the claims."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.frames import select
from entp_lib.experiments.measurements import Check, Measurement, Observation
from entp_lib.experiments.plans import PlannedRun, planned_study
from entp_lib.experiments.studies import names_of
from entp_lib.records.store import Record
from entp_lib.statistics import exceeds, to_figures
from entp_papers.compact.capacity import table

NAME, REAL_NAME = "compact_graph", "compact_real_graph"
NOTEBOOK = "12_compact_transformers"
WIRINGS = ("described", "published", "concept")

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


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Triplets by wiring and size, triplets by width and depth, and walks by architecture and depth."""
    if tier not in TIERS:
        return []
    t, found = TIERS[tier], []

    def add(study: str, part: str, seed: int, params: dict[str, Any], epochs: int = t["epochs"], **labels) -> None:
        graph = dict(source="synthetic", traits=t["traits"], seed=seed, epochs=epochs, batch_size=t["batch_size"])
        config = StudyConfig(NAME, tier, study, graph | params, seed, seed)
        found.append(planned_study(config, part=part, **labels))

    for seed in range(seeds or t["seeds"]):
        for size in t["sizes"]:
            for wiring in WIRINGS:
                params = dict(size=size, model=dict(wiring=wiring, width=t["width"], n_heads=t["n_heads"]))
                add("compact_triplets", "wirings", seed, params, size=size, wiring=wiring)
    for width in t["widths"]:
        for n_layers in (1, 2):
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
    found, epochs = [], {"smoke": 1, "quick": 80}.get(tier)
    for source in ("nations", "umls", "kinships") if epochs else ():
        for wiring in WIRINGS:
            params = dict(source=source, size=0, model=dict(wiring=wiring, width=64), epochs=epochs, batch_size=64)
            config = StudyConfig(REAL_NAME, tier, "compact_triplets", params)
            found.append(planned_study(config, part="real", source=source, wiring=wiring))
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
    rows = select(records, part="wirings")
    if not rows:
        return []
    tier = rows[0].config.tier
    ids, shape_ids, walk_ids = (names_of(records, part=part) for part in ("wirings", "shape", "walks"))
    found, epochs = table(records, "wirings"), epochs_needed(records)["epochs_to_99"].astype(float)
    published, described = (found[found["wiring"] == name] for name in ("published", "described"))
    # of a model that sees the concept alone; a value per seed, a mean over sizes
    above = (published["accuracy"] - published["concept_ceiling"]).groupby(published["seed"]).mean().tolist()
    grid, arrived = width_and_depth(records), table(records, "shape")["epochs_to_99"]
    spreads = (
        f"epochs spread by {grid.std(axis=0).mean():.0f} with width and by {grid.std(axis=1).mean():.0f} with depth"
    )
    late = f"{int(arrived.isna().sum())} of {len(arrived)} runs had not got there and count the last epoch"
    walks = f"{epochs['walks']:.0f} epochs against {epochs['triplets']:.0f} of triplets"
    return [
        Check("CT-wiring", bool(published["relation_gradient"].eq(0).all()), tier, records=ids),
        Measurement("CT-ceiling", above, tier, ids),
        Observation("CT-width", "inconclusive", tier, "one run each", f"{spreads}; {late}", records=shape_ids),
        Observation("CT-walks", "inconclusive", tier, "one run each", walks, records=walk_ids),
        share_by_size(described, tier, ids),
    ]


def share_by_size(described: pd.DataFrame, tier: str, records: Sequence[str]) -> Observation:
    """Whether the recalled share falls with every larger set; where each is recalled whole, nothing could fall."""
    shares, seeds = described.groupby("size")["best"].mean(), described["seed"].nunique()
    sizes = ", ".join(f"{size:,}" for size in shares.index)
    seen = f"{', '.join(f'{share:.3f}' for share in shares)} of {sizes} triplets"
    if exceeds(shares.min(), 0.999):
        return Observation("CT-table-3", "uninformative", tier, "every set is recalled whole", seen, seeds, records)
    falls = "same direction" if exceeds(0, shares.diff().dropna()).all() else "not reproduced"
    return Observation("CT-table-3", falls, tier, "", seen, seeds, records)


GRAPH = Experiment(
    NAME, version=1, title="Knowledge graphs by heart, in three wirings", notebook=NOTEBOOK, plan=plan, measure=measure
)
REAL_GRAPH = Experiment(
    REAL_NAME, version=1, title="Three real graphs by heart", notebook=NOTEBOOK, plan=plan_real, measure=no_claims
)
