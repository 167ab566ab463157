"""Tables and figures of notebook 05: curves by arm, answers by verdict, a provider's price, and the
bundled models.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lab.store import Record
from entp_lib.config import TrainConfig


def settings(records: Sequence[Record]) -> str:
    """Model, task and schedule of trained records, in two lines."""
    shown = next(r for r in records if "train_config" in r.config.params).config
    p, train = shown.params, TrainConfig(**shown.params["train_config"])
    seeds = len({r.config.model_seed for r in records})
    layers = f", first {p['layers']} layers" if p.get("layers") else ""
    rate = f"rate {train.max_lr:g} to {train.min_lr:g}"
    task = {k: v for k, v in p["task"].items() if k != "order"}
    return (
        f"tier {shown.tier}, {seeds} seed{'s' if seeds != 1 else ''}; {p['model']}{layers}; task {task}\n"
        f"{train.steps} steps of {train.batch_size} sequences, {rate}"
    )


def costs(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Processor seconds and peak memory of each experiment's records, by arm."""
    runs = pd.concat(table.assign(experiment=name) for name, table in tables.items() if len(table))
    groups = runs.groupby(["experiment", "arm"], sort=False)
    seconds, memory = (
        groups["cpu_seconds"].mean().round(1),
        (groups["peak_memory_bytes"].max() / 2**30).round(2),
    )
    return pd.DataFrame(
        {"runs": groups.size(), "processor seconds a run": seconds, "peak memory (GiB)": memory}
    )
