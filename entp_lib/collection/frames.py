"""What an experiment is: configurations by tier, and the frames that notebooks show of its records."""

from collections.abc import Sequence

import pandas as pd

from entp_lib.config import RunConfig
from entp_lib.runs.records import Record
from entp_lib.statistics import mean_interval

ACCURACIES = ("token_accuracy", "sequence_accuracy")


def summary(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run: labels, final metrics, cost."""
    return pd.DataFrame(
        {
            **labels(r),
            **{k: v for k, v in r.metrics.items() if isinstance(v, (int, float))},
            **{f"baseline_{k}": r.metrics["baseline"][k] for k in ACCURACIES if k in r.metrics["baseline"]},
            "steps": r.provenance["steps"],
            "token_forwards": r.provenance["token_forwards"],
            "train_seconds": r.provenance["train_seconds"],
            "wall_seconds": r.provenance["wall_seconds"],
            "peak_memory_bytes": r.provenance["peak_memory_bytes"],
            "device": r.provenance["device"],
        }
        for r in records
    )


def curves(records: Sequence[Record]) -> pd.DataFrame:
    """All curves, long: one row per run and evaluation."""
    return pd.concat([pd.DataFrame({**labels(r), **r.curves}) for r in records], ignore_index=True)


def by_position(records: Sequence[Record]) -> pd.DataFrame:
    """Final scores by prefix length, long, the mode baseline among them as an architecture of its own."""
    parts = []
    for r in records:
        for source, name in ((r.metrics, labels(r)["architecture"]), (r.metrics["baseline"], "baseline")):
            part = {
                "position": source["position"],
                "token_accuracy": source["token_accuracy_by_position"],
                "margin": source.get("margin_by_position", float("nan")),  # a constant guess has none
            }
            parts.append(pd.DataFrame({**labels(r), **part, "architecture": name}))
    return pd.concat(parts, ignore_index=True)


def labels(record: Record) -> dict:
    """What tells a run from its siblings."""
    config = record.config
    return {
        "architecture": config.model.architecture,
        "seed": config.model_seed,
        "tier": config.tier,
        "variant": variant_name(config),
    }


def variant_name(config: RunConfig) -> str:
    """The variant of a run within its experiment, where it has several: its task's parameters."""
    return ", ".join(f"{k}={v}" for k, v in sorted(config.task_params.items()))


def paired(table: pd.DataFrame, metric: str, first: str, second: str) -> pd.Series:
    """Differences first − second of a metric, paired by seed; seeds that lack a twin are left out."""
    wide = table.pivot(index="seed", columns="architecture", values=metric)
    if first not in wide or second not in wide:
        return pd.Series(dtype=float)
    return (wide[first] - wide[second]).dropna()


def describe(records: Sequence[Record]) -> str:
    """Tier, seeds, task, model and schedule of runs that share them, in two lines."""
    config = records[0].config
    shape, train, task = config.model, config.train, config.task_params
    seeds = len({r.config.model_seed for r in records})
    rate = f"learning rate {train.max_lr:g} to {train.min_lr:g}, {train.precision}"
    return (
        f"tier {config.tier}, {seeds} seed{'s' if seeds != 1 else ''}; task {task or 'with its own defaults'}\n"
        f"{shape.n_layers} layers, {shape.n_heads} heads, width {shape.width}; "
        f"{train.steps} steps of {train.batch_size} sequences, {rate}"
    )


def cost_per_run(table: pd.DataFrame) -> pd.DataFrame:
    """Mean cost of a run of each architecture, from a ``summary``."""
    means = table.groupby("architecture", sort=False)[
        ["train_seconds", "wall_seconds", "token_forwards", "peak_memory_bytes"]
    ].mean()
    return pd.DataFrame(
        {
            "training (s)": means["train_seconds"].round(1),
            "wall (s)": means["wall_seconds"].round(1),
            "token-forwards": means["token_forwards"].round().astype(int),
            "peak memory (MiB)": (means["peak_memory_bytes"] / 2**20).round().astype(int),
        }
    )


def mean_table(table: pd.DataFrame, metrics: Sequence[str], by: Sequence[str] = ("architecture",)) -> pd.DataFrame:
    """Mean and 95 % interval over seeds of each metric, as short text."""

    def text(values: pd.Series) -> str:
        mean, low, high = mean_interval(values)
        return f"{mean:.3f}" if low != low else f"{mean:.3f} ({low:.3f} to {high:.3f})"

    rows = {key: {m: text(part[m]) for m in metrics} for key, part in table.groupby(list(by), sort=False)}
    out = pd.DataFrame.from_dict(rows, orient="index")
    out.index = [" ".join(map(str, key)) if isinstance(key, tuple) else key for key in out.index]
    return out
