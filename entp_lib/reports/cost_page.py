"""The page ``docs/costs.md``: what the records cost, and what tiers without records would."""

import pandas as pd

from entp_lib.config import BEST_FIRST, ON_CPU
from entp_lib.experiments.experiment import own, spent
from entp_lib.records.store import Store
from entp_lib.reports import costs
from entp_lib.reports.tables import markdown


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
            markdown(costs.costs(store)) + "\n",
        ]
    )


def measured(store: Store) -> pd.DataFrame:
    """What each experiment's records cost, by tier."""
    from entp_lib.registry import EXPERIMENTS

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
