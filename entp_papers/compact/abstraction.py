"""Abstraction from templates (§3.3, §4.3): the runs of every tier, their tables and claims."""

from typing import Any

import pandas as pd

from entp_lab.experiment import (
    Closed,
    Experiment,
    PlannedRuns,
    planned_study,
)
from entp_lab.frames import paired, select
from entp_lab.measurements import Check, Findings, Level, Measurement, checked, measured
from entp_lab.store import Records
from entp_papers.compact.templates import Templates, all_templates, bayes_floor

NAME = "compact_abstraction"
NOTEBOOK = "12_compact_transformers"
GUESS = 1 / 3  # accuracy among three variables
NEAR = 0.05  # closer to a guess, or to 1, counts as equal to it

# By tier: the task; arms as (architecture, layers, heads, scored positions); their seeds; shared
# parameters. ENTP runs a prefix for each scored position, so it trains on a random sample of them,
# and so does one of the decoders, for comparison.
ALL_SHAPES = [
    (architecture, n_layers, n_heads, scored)
    for architecture, scored in (("decoder", "all"), ("decoder", "sampled"), ("entp", "sampled"))
    for n_layers, n_heads in ((1, 8), (2, 4), (3, 2))
]
TIERS = {
    "smoke": dict(
        task=dict(template_length=4, variables=2, instances=2, digits=4, held_out=0.3, sample=4),
        shapes=[
            ("decoder", 1, 2, "all"),
            ("decoder", 2, 2, "all"),
            ("decoder", 2, 2, "sampled"),
            ("entp", 2, 2, "sampled"),
        ],
        seeds=1,
        shared=dict(width=16, steps=4, batch_size=8, evaluations=2, sequences=16),
    ),
    "quick": dict(
        task=dict(template_length=6),
        shapes=[*ALL_SHAPES[:3], ("decoder", 2, 4, "sampled"), ("entp", 2, 4, "sampled")],
        seeds=5,
        shared=dict(width=48, steps=1200, evaluations=12, sequences=128),
    ),
    # The paper's width and a fifth of its steps, for the one question that five pairs of runs can
    # answer in a night.
    "overnight": dict(
        task=dict(),
        shapes=ALL_SHAPES[:2],
        seeds=5,
        shared=dict(width=128, steps=20_000, evaluations=40),
    ),
    "gpu": dict(task=dict(), shapes=ALL_SHAPES, seeds=5, shared=dict(width=128, steps=20_000)),
    "paper": dict(task=dict(), shapes=ALL_SHAPES, seeds=5, shared=dict(width=128, steps=100_000)),
}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan every arm of the tier and its seeds, seeds outermost."""
    setting = TIERS[tier]
    for seed in range(seeds or setting["seeds"]):
        for architecture, n_layers, n_heads, scored in setting["shapes"]:
            shape = dict(architecture=architecture, n_layers=n_layers, n_heads=n_heads)
            task = setting["task"] | dict(scored=scored)
            params = dict(task=task, seed=seed, **shape, **setting["shared"])
            yield planned_study(NAME, tier, NAME, params, seed, **shape, scored=scored)


def table(records: Records) -> pd.DataFrame:
    """Return a row per run: loss, floor, both accuracies on held-out templates, strongest head."""
    return pd.DataFrame(
        {
            **{k: r.labels[k] for k in ("architecture", "n_layers", "n_heads", "scored", "seed")},
            "loss": r.metrics["seen"]["loss"],
            "floor": r.metrics["floor"],
            "last_held_out": r.metrics["last"]["held_out"],
            "matching_held_out": r.metrics["matching"]["held_out"],
            "strongest_head": r.metrics["heads"]["strongest"],
        }
        for r in records
    )


def stretches(records: Records) -> pd.DataFrame:
    """Average runs of ``compact_last_token`` over evaluations with ``last`` from 0.55 to 0.75."""
    rows = pd.concat(
        pd.DataFrame({**r.labels, "rule": r.metrics["rule"], **r.curves}) for r in records
    )
    means = {name: (name, "mean") for name in ("last", "rule", "repeating", "others", "copied")}
    there = rows[rows["last"].between(0.55, 0.75)].groupby(["n_layers", "seed"])
    return there.agg(evaluations=("step", "size"), **means)


def levels(rows: pd.DataFrame) -> tuple[Level, ...]:
    """Return a ``Level`` per arm: accuracy at the last token of held-out templates, guess to 1."""
    means = rows.groupby(["architecture", "n_layers"])["last_held_out"].mean()
    return tuple(Level(score, GUESS, 1.0, NEAR) for score in means)


def templates_counted(records: Records) -> Check:
    """Check that 903 templates of length 8 over three variables fit the definition."""
    return checked("CT-templates", len(all_templates(8, 3)) == 903, records)


def loss_is_the_floor(records: Records) -> Check:
    """Check that the loss of 0.68, at which training ends, is the entropy of the task."""
    task = Templates()
    floor = bayes_floor(task, task.sides()[0])
    rows = table(records)
    above = (rows["loss"] - rows["floor"]).groupby(rows["n_layers"]).mean()
    depths = ", ".join(map(str, above.index))
    ends = ", ".join(f"{mean:.2f}" for mean in above)
    remark = f"decoders of {depths} layers end {ends} above it"
    return checked("CT-floor", abs(floor - 0.68) < 0.01, records, remark=remark)


def completed(
    claim: str, records: Records, by: str, first: Any, second: Any, **labels: Any
) -> Measurement:
    """Measure by seed the accuracy at the last token with one value of a label less with another.

    Of ``records``, those with the further ``labels`` are compared.
    """
    rows = table(select(records, **{by: (first, second)}, **labels))
    values = paired(rows, "last_held_out", first, second, by)
    return measured(claim, values, records, levels=levels(rows))


def abstraction_head(records: Records) -> Measurement:
    """Measure the strongest head's attention on an aligned place, two layers less one.

    Only seeds with which two layers succeeded count.
    """
    rows = table(records)
    succeeded = rows.query("n_layers == 2 and last_held_out >= 1 - @NEAR")["seed"]
    pairs = rows[rows["seed"].isin(succeeded)]
    return measured(
        "CT-abstraction-head", paired(pairs, "strongest_head", 2, 1, by="n_layers"), records
    )


def matching(records: Records) -> Measurement:
    """Measure how far one layer is from matching all variables."""
    one = table(select(records, n_layers=1)).sort_values("seed")
    return measured("CT-matching", one["matching_held_out"] - 1, records)


def measure(records: Records) -> Findings:
    """Measure every claim on templates.

    Decoders are trained on all positions; ENTP and decoder are compared on sampled ones.
    """
    decoders = select(records, architecture="decoder", scored="all")
    for claim in (templates_counted, loss_is_the_floor, matching, abstraction_head):
        yield claim(decoders)
    yield completed("CT-depth-2", decoders, "n_layers", 2, 1)
    if select(decoders, n_layers=3):
        yield completed("CT-depth-3", decoders, "n_layers", 3, 2)
    if sampled := select(records, scored="sampled"):
        yield completed("CT-entp-depth", sampled, "architecture", "entp", "decoder", n_layers=2)


ABSTRACTION = Experiment(
    NAME,
    1,
    "Abstraction from instantiations of a template",
    NOTEBOOK,
    plan,
    measure,
    tiers=TIERS,
)
# Runs of the same seeds, measured while they learn. They end just after two thirds of the last
# tokens are right, by the runs of ``compact_abstraction``.
LAST_TOKEN = Experiment(
    "compact_last_token",
    1,
    "What two thirds of the last tokens are",
    "12b_compact_details",
    Closed("compact_last_token"),
)


# --- Figures 24 and 28 ----------------------------------------------------------------------------

# (n_layers, n_heads) of the runs of ``compact_abstraction`` that are repeated, seed 0.
DRAWN = {"smoke": ((2, 2),), "quick": ((2, 4), (3, 2))}


def plan_attention(tier: str, seeds: int) -> PlannedRuns:
    """Plan one run of each shape; ``seeds`` is ignored."""
    shared = {name: value for name, value in TIERS[tier]["shared"].items() if name != "sequences"}
    for n_layers, n_heads in DRAWN[tier]:
        shape = dict(architecture="decoder", n_layers=n_layers, n_heads=n_heads)
        params = dict(task=TIERS[tier]["task"], seed=0, **shape, **shared)
        yield planned_study("compact_attention", tier, "compact_attention", params, **shape)


ATTENTION = Experiment(
    "compact_attention",
    1,
    "Attention of the heads that abstract",
    "12b_compact_details",
    plan_attention,
    tiers=DRAWN,
)
