"""Abstraction from templates: the runs of every tier, tables of them, and what they say of the claims (§3.3)."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, by_seed, name_of, planned_study, select
from entp_lib.experiments.measurements import Check, Level, Measurement
from entp_lib.records.store import Record
from entp_papers.compact.templates import Templates, all_templates, bayes_floor

NAME = "compact_abstraction"
GUESS, NEAR = 1 / 3, 0.05  # accuracy of a guess among three variables; closer to it, or to 1, counts as being there

# By tier: the task; every arm as (architecture, layers, heads, scored positions) with its seeds; what all share. ENTP
# runs a prefix for each scored position, so that it trains on some of them, drawn at random, and has a twin that does.
ALL_SHAPES = {
    (architecture, n_layers, n_heads, scored): 5
    for architecture, scored in (("decoder", "all"), ("decoder", "sampled"), ("entp", "sampled"))
    for n_layers, n_heads in ((1, 8), (2, 4), (3, 2))
}
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        task=dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3, sample=4),
        shapes={
            ("decoder", 1, 2, "all"): 1,
            ("decoder", 2, 2, "all"): 1,
            ("decoder", 2, 2, "sampled"): 1,
            ("entp", 2, 2, "sampled"): 1,
        },
        shared=dict(width=16, steps=4, batch_size=8, evaluations=2, sequences=16),
    ),
    "quick": dict(
        task=dict(template_length=6),
        shapes={
            ("decoder", 1, 8, "all"): 5,
            ("decoder", 2, 4, "all"): 5,
            ("decoder", 3, 2, "all"): 5,
            ("decoder", 2, 4, "sampled"): 5,
            ("entp", 2, 4, "sampled"): 5,
        },
        shared=dict(width=48, steps=1200, evaluations=12, sequences=128),
    ),
    # The paper's width and a fifth of its steps, for the question that five pairs can answer in a night.
    "overnight": dict(
        task=dict(),
        shapes={("decoder", 1, 8, "all"): 5, ("decoder", 2, 4, "all"): 5},
        shared=dict(width=128, steps=20_000, evaluations=40),
    ),
    "gpu": dict(task=dict(), shapes=ALL_SHAPES, shared=dict(width=128, steps=20_000)),
    "paper": dict(task=dict(), shapes=ALL_SHAPES, shared=dict(width=128, steps=100_000)),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every arm of the tier and its seeds, seeds outermost."""
    if tier not in TIERS:
        return []
    t, found = TIERS[tier], []
    for (architecture, n_layers, n_heads, scored), count in t["shapes"].items():
        for seed in range(seeds or count):
            shape = dict(architecture=architecture, n_layers=n_layers, n_heads=n_heads)
            params = dict(task={**t["task"], "scored": scored}, seed=seed, **shape, **t["shared"])
            config = StudyConfig(NAME, tier, "compact_abstraction", params, seed, seed)
            found.append(planned_study(config, scored=scored, **shape))
    return by_seed(found)


def table(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: loss and floor, the two accuracies by side, the strongest head, accuracy without the best."""
    return pd.DataFrame(
        {
            **{k: r.labels[k] for k in ("architecture", "n_layers", "n_heads", "scored", "seed")},
            "loss": r.metrics["seen"]["loss"],
            "floor": r.metrics["floor"],
            "last_seen": r.metrics["last"]["seen"],
            "last_held_out": r.metrics["last"]["held_out"],
            "matching_held_out": r.metrics["matching"]["held_out"],
            "strongest_head": r.metrics["heads"]["strongest"],
            "accuracy": r.metrics["heads"]["accuracy"],
            "without_best": min(min(layer) for layer in r.metrics["heads"]["without"]),
        }
        for r in records
    )


def by_position(records: Sequence[Record]) -> pd.DataFrame:
    """Long: loss on templates of training by prefix length, beside the exact floor."""
    parts = [
        pd.DataFrame(
            {
                **{k: r.labels[k] for k in ("architecture", "n_layers", "scored", "seed")},
                "position": r.metrics["seen"]["position"],
                "loss": r.metrics["seen"]["loss_by_position"],
                "floor": r.metrics["floor_by_position"],
            }
        )
        for r in records
    ]
    return pd.concat(parts, ignore_index=True)


def entp_gain(records: Sequence[Record], n_layers: int = 2) -> list[float]:
    """Last-token accuracy of ENTP less the decoder's on held-out templates, paired by seed."""
    rows = table(select(records, n_layers=n_layers, scored="sampled"))
    wide = rows.pivot_table(index="seed", columns="architecture", values="last_held_out")
    return (wide["entp"] - wide["decoder"]).dropna().tolist() if {"entp", "decoder"} <= set(wide) else []


def above_floor(rows: pd.DataFrame) -> str:
    """How far beyond the floor of their templates runs end, by depth."""
    means = (rows["loss"] - rows["floor"]).groupby(rows["n_layers"]).mean()
    return f"decoders of {', '.join(map(str, means.index))} layers end {', '.join(f'{m:.2f}' for m in means)} above it"


def measure(records: Sequence[Record]) -> list[Measurement | Check]:
    """The floor of 0.686 nats exactly; last-token accuracy of two layers over one, and of three over two, by seed."""
    if not records:
        return []
    tier = records[0].config.tier
    task = Templates(held_out=0.0)
    floor = bayes_floor(task, task.sides()[0])
    rows = table(select(records, architecture="decoder", scored="all"))
    wide = rows.pivot_table(index="seed", columns="n_layers", values="last_held_out")
    matching = rows.pivot_table(index="seed", columns="n_layers", values="matching_held_out")
    ids = tuple(name_of(r) for r in select(records, architecture="decoder", scored="all"))

    def stand(**arms: Any) -> tuple[Level, ...]:
        means = table(select(records, **arms)).groupby(["architecture", "n_layers"])["last_held_out"].mean()
        return tuple(Level(float(score), GUESS, 1.0, NEAR) for score in means)

    decoders = dict(architecture="decoder", scored="all")
    found = [
        Check("CT-templates", len(all_templates(8, 3)) == 903, tier, records=ids),
        Check("CT-floor", abs(floor - 0.68) < 0.01, tier, records=ids, remark=above_floor(rows)),
        Measurement(
            "CT-depth-2",
            (wide[2] - wide[1]).dropna().tolist(),
            tier,
            ids,
            levels=stand(n_layers=(1, 2), **decoders),
        ),
        Measurement("CT-matching", (matching[1] - 1).dropna().tolist(), tier, ids),
    ]
    heads = rows.pivot_table(index="seed", columns="n_layers", values="strongest_head")
    heads = heads[wide[2] >= 1 - NEAR]  # of two layers that succeed
    found.append(Measurement("CT-abstraction-head", (heads[2] - heads[1]).dropna().tolist(), tier, ids))
    if 3 in wide:
        values, levels = (wide[3] - wide[2]).dropna().tolist(), stand(n_layers=(2, 3), **decoders)
        found.append(Measurement("CT-depth-3", values, tier, ids, levels=levels))
    sampled = tuple(name_of(r) for r in select(records, scored="sampled"))
    if sampled:
        levels = stand(n_layers=2, scored="sampled")
        found.append(Measurement("CT-entp-depth", entp_gain(records), tier, sampled, levels=levels))
    return found


ABSTRACTION = Experiment(
    name=NAME,
    version=1,
    title="Abstraction from instantiations of a template",
    notebook="12_compact_transformers",
    plan=plan,
    measure=measure,
)
