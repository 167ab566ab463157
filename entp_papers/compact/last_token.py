"""What two thirds of the last tokens are: three runs of ``compact_abstraction``, looked at while they learn (§4.3)."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, no_claims, planned_study
from entp_lib.records.store import Record
from entp_papers.compact import abstraction

NAME = "compact_last_token"
# (n_layers, n_heads, seed, steps): until just after two thirds, as far as the runs of the same seeds had shown it
RUNS: dict[str, Sequence[tuple[int, int, int, int]]] = {
    "smoke": ((1, 2, 0, 4),),
    "overnight": ((1, 8, 0, 8000), (1, 8, 2, 8000), (2, 4, 4, 3000)),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The runs of the tier, whatever ``seeds`` is: each has a seed of its own."""
    found = []
    for n_layers, n_heads, seed, steps in RUNS.get(tier, ()):
        t: dict[str, Any] = abstraction.TIERS[tier]
        shape = dict(architecture="decoder", n_layers=n_layers, n_heads=n_heads)
        shared = dict(width=t["shared"]["width"], steps=steps, evaluations=min(32, steps))
        config = StudyConfig(NAME, tier, "compact_last_token", {"task": t["task"], "seed": seed, **shape, **shared},
                             seed, seed)  # fmt: skip
        found.append(planned_study(config, **shape))
    return found


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Long: a row per run and evaluation, with the four shares, and what the rule gets."""
    rows = [
        pd.DataFrame(r.curves).assign(n_layers=r.labels["n_layers"], seed=r.labels["seed"], rule=r.metrics["rule"])
        for r in records
    ]
    return pd.concat(rows, ignore_index=True)


def stretches(records: Sequence[Record], low: float = 0.55, high: float = 0.75) -> pd.DataFrame:
    """By run: at how many evaluations ``last`` is between ``low`` and ``high``, and the mean of each share there."""
    rows = table(records)
    there = rows[rows["last"].between(low, high)].groupby(["n_layers", "seed"])
    return there.agg(
        evaluations=("step", "size"),
        **{name: (name, "mean") for name in ("last", "rule", "repeating", "others", "copied")},
    )


LAST_TOKEN = Experiment(
    name=NAME,
    version=1,
    title="What two thirds of the last tokens are",
    notebook="12_compact_transformers",
    plan=plan,
    measure=no_claims,
)
