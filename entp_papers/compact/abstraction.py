"""Abstraction from templates (§3.3, §4.3): the runs of every tier, tables of them, and their part in the claims."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lab.experiment import Experiment, no_claims
from entp_lab.frames import paired, select
from entp_lab.measurements import Check, Level, Measurement
from entp_lab.plans import PlannedRun, by_seed, planned_study
from entp_lab.store import Record
from entp_lab.studies import names_of
from entp_papers.compact.templates import Templates, all_templates, bayes_floor

NAME = "compact_abstraction"
LAST_TOKEN_NAME = "compact_last_token"
NOTEBOOK = "12_compact_transformers"
GUESS = 1 / 3  # accuracy among three variables
NEAR = 0.05  # closer to a guess, or to 1, counts as being there

BOTH = ("decoder", "entp")
# By tier: the task; arms as (architecture, layers, heads, scored positions); their seeds; what all share. ENTP
# runs a prefix for each scored position, so that it trains on some of them, drawn at random, and has a twin that does.
ALL_SHAPES = [
    (architecture, n_layers, n_heads, scored)
    for architecture, scored in (("decoder", "all"), ("decoder", "sampled"), ("entp", "sampled"))
    for n_layers, n_heads in ((1, 8), (2, 4), (3, 2))
]
TIERS: dict[str, dict[str, Any]] = {
    "smoke": dict(
        task=dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3, sample=4),
        shapes=[("decoder", n_layers, 2, "all") for n_layers in (1, 2)] + [(name, 2, 2, "sampled") for name in BOTH],
        seeds=1,
        shared=dict(width=16, steps=4, batch_size=8, evaluations=2, sequences=16),
    ),
    "quick": dict(
        task=dict(template_length=6),
        shapes=ALL_SHAPES[:3] + [(name, 2, 4, "sampled") for name in BOTH],
        seeds=5,
        shared=dict(width=48, steps=1200, evaluations=12, sequences=128),
    ),
    # The paper's width and a fifth of its steps, for the question that five pairs can answer in a night.
    "overnight": dict(
        task=dict(),
        shapes=ALL_SHAPES[:2],
        seeds=5,
        shared=dict(width=128, steps=20_000, evaluations=40),
    ),
    "gpu": dict(task=dict(), shapes=ALL_SHAPES, seeds=5, shared=dict(width=128, steps=20_000)),
    "paper": dict(task=dict(), shapes=ALL_SHAPES, seeds=5, shared=dict(width=128, steps=100_000)),
}
# Runs of the same seeds measured while they learn, (n_layers, n_heads, seed, steps): until just after two thirds of
# the last tokens are right, as far as the runs of ``compact_abstraction`` had shown it.
LAST_TOKEN_RUNS: dict[str, Sequence[tuple[int, int, int, int]]] = {
    "smoke": ((1, 2, 0, 4),),
    "overnight": ((1, 8, 0, 8000), (1, 8, 2, 8000), (2, 4, 4, 3000)),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan every arm of the tier and its seeds, seeds outermost."""
    t = TIERS[tier]
    found = []
    for architecture, n_layers, n_heads, scored in t["shapes"]:
        for seed in range(seeds or t["seeds"]):
            shape = dict(architecture=architecture, n_layers=n_layers, n_heads=n_heads)
            params = dict(task={**t["task"], "scored": scored}, seed=seed, **shape, **t["shared"])
            found.append(planned_study(NAME, tier, "compact_abstraction", params, seed, scored=scored, **shape))
    return by_seed(found)


def plan_last_token(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan the runs of the tier, whatever ``seeds`` is: each has a seed of its own."""
    found = []
    for n_layers, n_heads, seed, steps in LAST_TOKEN_RUNS[tier]:
        shape = dict(architecture="decoder", n_layers=n_layers, n_heads=n_heads)
        shared = dict(width=TIERS[tier]["shared"]["width"], steps=steps, evaluations=min(32, steps))
        params = dict(task=TIERS[tier]["task"], seed=seed, **shape, **shared)
        found.append(planned_study(LAST_TOKEN_NAME, tier, "compact_last_token", params, seed, **shape))
    return found


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per run: loss and floor, both accuracies by side, the strongest head, accuracy without the best."""
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


def stretches(records: Sequence[Record]) -> pd.DataFrame:
    """Average ``compact_last_token`` by run over the evaluations at which ``last`` is from 0.55 to 0.75."""
    parts = [
        pd.DataFrame(r.curves).assign(n_layers=r.labels["n_layers"], seed=r.labels["seed"], rule=r.metrics["rule"])
        for r in records
    ]
    rows = pd.concat(parts, ignore_index=True)
    means = {name: (name, "mean") for name in ("last", "rule", "repeating", "others", "copied")}
    there = rows[rows["last"].between(0.55, 0.75)].groupby(["n_layers", "seed"])
    return there.agg(evaluations=("step", "size"), **means)


def levels(rows: pd.DataFrame) -> tuple[Level, ...]:
    """Return a ``Level`` for each arm of ``table``: accuracy at the last held-out token, between a guess and 1."""
    means = rows.groupby(["architecture", "n_layers"])["last_held_out"].mean()
    return tuple(Level(float(score), GUESS, 1.0, NEAR) for score in means)


def measure(records: Sequence[Record]) -> list[Measurement | Check]:
    """Check the floor of 0.686 nats; compare depths at the last token, by seed."""
    tier = records[0].config.tier
    task = Templates(held_out=0.0)
    floor = bayes_floor(task, task.sides()[0])
    decoders = select(records, architecture="decoder", scored="all")
    sampled = select(records, scored="sampled")
    rows = table(decoders)
    ids = names_of(decoders)
    means = (rows["loss"] - rows["floor"]).groupby(rows["n_layers"]).mean()
    depths = ", ".join(map(str, means.index))
    above = ", ".join(f"{m:.2f}" for m in means)
    remark = f"decoders of {depths} layers end {above} above it"
    succeeded = rows[(rows["n_layers"] == 2) & (rows["last_held_out"] >= 1 - NEAR)]["seed"]  # of others nothing is said
    heads = rows[rows["seed"].isin(succeeded)]
    stronger = paired(heads, "strongest_head", 2, 1, by="n_layers").tolist()
    one = rows[rows["n_layers"] == 1].sort_values("seed")["matching_held_out"]

    def deeper(claim: str, shallow: int, deep: int) -> Measurement:
        values = paired(rows, "last_held_out", deep, shallow, by="n_layers").tolist()
        return Measurement(claim, values, tier, ids, levels=levels(rows[rows["n_layers"].isin((shallow, deep))]))

    found = [
        Check("CT-templates", len(all_templates(8, 3)) == 903, tier, records=ids),
        Check("CT-floor", abs(floor - 0.68) < 0.01, tier, records=ids, remark=remark),
        deeper("CT-depth-2", 1, 2),
        Measurement("CT-matching", (one - 1).tolist(), tier, ids),
        Measurement("CT-abstraction-head", stronger, tier, ids),
    ]
    if 3 in set(rows["n_layers"]):
        found.append(deeper("CT-depth-3", 2, 3))
    if sampled:
        two = table(select(sampled, n_layers=2))
        values = paired(two, "last_held_out", "entp", "decoder", by="architecture").tolist()
        found.append(Measurement("CT-entp-depth", values, tier, names_of(sampled), levels=levels(two)))
    return found


TITLE = "Abstraction from instantiations of a template"
ABSTRACTION = Experiment(NAME, 1, TITLE, NOTEBOOK, plan, measure, tiers=TIERS)
TITLE = "What two thirds of the last tokens are"
LAST_TOKEN = Experiment(
    LAST_TOKEN_NAME,
    1,
    TITLE,
    "12b_compact_details",
    plan_last_token,
    no_claims,
    tiers=LAST_TOKEN_RUNS,
)
