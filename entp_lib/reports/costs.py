"""The page ``docs/costs.md``: measured seconds of the records, and extrapolated hours of tiers without records.

Operations are those of ``entp_lib.experiments.budgets``.
"""

import pandas as pd

from entp_lib.config import BEST_FIRST, ON_CPU, RunConfig
from entp_lib.experiments.budgets import training_operations
from entp_lib.experiments.experiment import Experiment, own, spent
from entp_lib.experiments.frames import processor_share
from entp_lib.records.store import Store
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports.findings import markdown

GPU_RATE = 1e14  # multiply-adds and additions a second: a tenth of an H200's bf16 peak, assumed, not measured


def tier_operations(experiment: Experiment, tier: str) -> float:
    """Multiply-adds of all runs of a tier, from those of its first seed; 0 where it has no runs."""
    once, all_runs = experiment.configs(tier, 1), experiment.configs(tier, 0)
    runs = [c for c in once if isinstance(c, RunConfig)]
    return sum(map(training_operations, runs)) * len(all_runs) / len(once) if runs else 0.0


def costs(store: Store) -> pd.DataFrame:
    """A row for each tier of training runs that has no records: operations, and hours at two rates.

    Core-hours are at the rate of the experiment's quick runs, measured; GPU-hours at ``GPU_RATE``.
    """
    rows = []
    for experiment in EXPERIMENTS.values():
        quick = [r for r in experiment.stored(store, "quick") or [] if isinstance(r.config, RunConfig)]
        if not quick:
            continue
        took = sum(r.provenance["train_seconds"] * processor_share(r) for r in quick)
        rate = sum(training_operations(r.config) for r in quick) / took
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


def page(table: pd.DataFrame, store: Store) -> str:
    """The page as Markdown."""
    return "\n".join(
        [
            "# Costs\n",
            "<!-- The whole page is written by python -m entp_lib readme; no line of it is typed. -->\n",
            "## Measured\n",
            "What the records of each experiment took, all runs added, from their provenance: processor time on CPUs, "
            "or by the clock where an older record has that alone. Cores were often shared with other work, which "
            "lengthens both, so that times are upper bounds.\n",
            markdown(measured(store)) + "\n",
            "## Extrapolated\n",
            "Tiers without records: multiply-adds of all their training steps, counted; core-hours at the rate that "
            "the same experiment's `quick` runs reached; GPU-hours at an assumed 1e14 operations a second, a tenth of "
            "an H200's peak. Evaluation is left out, and nothing in this table was measured on a GPU.\n",
            markdown(costs(store)) + "\n",
        ]
    )


def measured(store: Store) -> pd.DataFrame:
    """Processor time, memory and machines of each experiment's records, by tier."""
    rows = []
    for experiment in EXPERIMENTS.values():
        for tier in reversed(BEST_FIRST):
            records = own(experiment, experiment.stored(store, tier) or [])
            if records:
                seconds = sum(map(spent, records))
                peak = max(r.provenance["peak_memory_bytes"] for r in records)
                rows.append(
                    {
                        "notebook": experiment.notebook,
                        "experiment": experiment.name,
                        "tier": tier,
                        "runs": len(records),
                        "core-minutes" if tier in ON_CPU else "minutes": f"{seconds / 60:.1f}",
                        "peak memory": f"{peak / 2**20:.0f} MiB",
                        "machine": ", ".join(sorted({r.provenance["device"] for r in records})),
                    }
                )
    return pd.DataFrame(rows).fillna("")
