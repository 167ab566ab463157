"""What tiers without records would cost, by counting: operations of a tier over operations per second of another.

Operations are those of ``entp_lib.experiments.operations``.
"""

import pandas as pd

from entp_lib.config import RunConfig
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import processor_share
from entp_lib.experiments.operations import training_operations
from entp_lib.records.store import Record, Store

GPU_RATE = 1e14  # multiply-adds and additions a second: a tenth of an H200's bf16 peak, assumed, not measured


def tier_operations(experiment: Experiment, tier: str) -> float:
    """Multiply-adds of all runs of a tier, from those of its first seed; 0 where it has no runs."""
    once, all_runs = experiment.configs(tier, 1), experiment.configs(tier, 0)
    runs = [c for c in once if isinstance(c, RunConfig)]
    return sum(map(training_operations, runs)) * len(all_runs) / len(once) if runs else 0.0


def training_seconds(record: Record) -> float:
    """Seconds that training took, of the processor where the record tells them."""
    return record.provenance["train_seconds"] * processor_share(record)


def costs(store: Store) -> pd.DataFrame:
    """A row for each tier of training runs that has no records: operations, and hours at two rates.

    Core-hours are at the rate of the experiment's quick runs, measured; GPU-hours at ``GPU_RATE``.
    """
    from entp_lib.registry import EXPERIMENTS

    rows = []
    for experiment in EXPERIMENTS.values():
        quick = [r for r in experiment.stored(store, "quick") or [] if isinstance(r.config, RunConfig)]
        if not quick:
            continue
        rate = sum(training_operations(r.config) for r in quick) / sum(map(training_seconds, quick))
        for tier in ("gpu", "paper"):
            operations = 0.0 if experiment.stored(store, tier) else tier_operations(experiment, tier)
            if operations:
                rows.append(
                    {
                        "experiment": experiment.name,
                        "tier": tier,
                        "runs": len(experiment.configs(tier, 0)),
                        "multiply-adds": f"{operations:.1e}",
                        "core-hours": f"{operations / rate / 3600:,.0f}",
                        "GPU-hours": f"{2 * operations / GPU_RATE / 3600:.2g}",
                    }
                )
    return pd.DataFrame(rows)
