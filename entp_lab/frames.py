"""Data frames of records for notebooks: of runs, of curves, of pairs, and at equal compute.

Every row carries the labels of its run (arm, architecture, seed, tier, and whatever its experiment adds).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from entp_lab import paths
from entp_lab.budgets import EQUAL_FORWARDS, step_operations
from entp_lab.configs import ON_CPU, RunConfig
from entp_lab.statistics import mean_interval
from entp_lab.store import Record, Records, seeds_of
from entp_lib.validation import ConfigError

if TYPE_CHECKING:
    from entp_lab.experiment import PlannedRun

Labelled = TypeVar("Labelled", Record, "PlannedRun")
ACCURACIES = ("token_accuracy", "sequence_accuracy")


def select(runs: Sequence[Labelled], **labels: Any) -> list[Labelled]:
    """Return the records, or planned runs, that carry all of these labels; a tuple of values means any of them."""
    found = list(runs)
    for name, value in labels.items():
        allowed = value if isinstance(value, tuple) else (value,)
        found = [run for run in found if run.labels.get(name) in allowed]
    return found


def without_longer(records: Records) -> Records:
    """Leave out the arm ``longer``, which is stored but not shown (``entp_lab.budgets``)."""
    return [record for record in records if record.labels.get("arm") != EQUAL_FORWARDS]


def numbers(record: Record) -> dict[str, float]:
    """Return the metrics of a run that are numbers."""
    return {name: of for name, of in record.metrics.items() if isinstance(of, int | float)}


def summary(records: Records) -> pd.DataFrame:
    """Return a row per run: labels, final metrics, cost."""
    return pd.DataFrame(
        {
            **r.labels,
            **numbers(r),
            **{
                f"baseline_{k}": r.metrics["baseline"][k]
                for k in ACCURACIES
                if k in r.metrics["baseline"]
            },
            "steps": r.provenance["steps"],
            "multiply_adds": step_operations(r.config) * r.provenance["steps"],
            "train_seconds": r.provenance["train_seconds"] * processor_share(r),
            "wall_seconds": r.provenance["wall_seconds"],
            "cpu_seconds": r.provenance.get("cpu_seconds", math.nan),
            "peak_memory_bytes": r.provenance["peak_memory_bytes"],
            "device": r.provenance["device"],
        }
        for r in records
    )


def curves(records: Records) -> pd.DataFrame:
    """Return all curves in long form: a row per run and evaluation.

    ``seconds``: training time, as CPU time if known. ``multiply_adds``: of training up to the evaluation, NaN if the
    cost of a run is unknown.
    """
    parts = []
    for r in records:
        part = pd.DataFrame({**r.labels, **r.curves})
        part["seconds"] *= processor_share(r)
        part["multiply_adds"] = step_operations(r.config) * part["step"]
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def check_costs(course: pd.DataFrame) -> None:
    """Raise ConfigError for a frame of ``curves`` with runs of unknown cost, naming the first of them."""
    unknown = course[course["multiply_adds"].isna()]
    if len(unknown):
        first = unknown.iloc[0]
        run = ", ".join(
            f"{name} {first[name]}" for name in ("study", "arm", "tier", "seed") if name in first
        )
        raise ConfigError(
            f"multiply_adds: the compute of the run {run} is not known; its curves can be drawn by step"
        )


def processor_share(record: Record) -> float:
    """Return a run's CPU seconds per wall second, 1 if unknown.

    On cores shared with other work, wall time is many times the CPU time, by a factor that differs from seed to seed.
    """
    return spent(record) / record.provenance["wall_seconds"]


def spent(record: Record) -> float:
    """Return the seconds that a run took: CPU time if it ran on a CPU and its record has it, else wall time.

    On a crowded machine wall time is several times as long; with a GPU the CPU mostly waits.
    """
    where = record.provenance
    on_cpu = record.config.tier in ON_CPU and where.get("cpu_seconds")
    return on_cpu or where["wall_seconds"]


def by_position(records: Records, *metrics: str) -> pd.DataFrame:
    """Return final scores by prefix length in long form, from the lists ..._by_position of records; NaN without one."""
    names = {"position": "position"} | {metric: f"{metric}_by_position" for metric in metrics}
    parts = [
        {**r.labels, **{column: r.metrics.get(name, math.nan) for column, name in names.items()}}
        for r in records
    ]
    return pd.concat(map(pd.DataFrame, parts), ignore_index=True)


def paired(table: pd.DataFrame, metric: str, first: str, second: str, by: str = "arm") -> pd.Series:
    """Return the differences first − second of a metric, paired by seed; seeds that lack a twin are left out.

    A difference is NaN if a run has no score, for example because it was not finite: the pair stays, and keeps the
    comparison undecided. Empty if no pair has a score.
    """
    wide = table.pivot(index="seed", columns=by, values=metric)
    if first not in wide or second not in wide:
        return pd.Series(dtype=float)
    both = table[table[by].isin((first, second))].groupby("seed")[by].nunique() == 2
    found = (wide[first] - wide[second])[both.reindex(wide.index, fill_value=False)]
    return found if found.notna().any() else pd.Series(dtype=float)


def paired_within(
    table: pd.DataFrame, metric: str, first: str, second: str, within: str
) -> pd.DataFrame:
    """Return ``paired`` for every value of a column: seeds (rows) by the values at which both arms were run."""
    wide = table.pivot(index=["seed", within], columns="arm", values=metric)
    if not {first, second} <= set(wide):
        return pd.DataFrame()
    return (wide[first] - wide[second]).unstack(within).dropna(axis=1, how="all")


def mean_table(
    table: pd.DataFrame, metrics: Sequence[str], by: Sequence[str] = ("architecture",)
) -> pd.DataFrame:
    """Return mean and 95 % interval over seeds of each metric, as short text; accuracies stay between 0 and 1."""
    groups = table.groupby(list(by), sort=False)
    rows = {
        " ".join(map(str, key)): {name: interval_text(part[name]) for name in metrics}
        for key, part in groups
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def interval_text(values: pd.Series) -> str:
    """Return mean and 95 % interval of a column as text, a share's cut to 0 and 1; list fewer than three values."""
    if len(values) < 3:
        return ", ".join(f"{value:.3f}" for value in values)
    mean, low, high = mean_interval(values)
    if "accuracy" in str(values.name) or "right" in str(values.name):
        low = max(low, 0.0)
        high = min(high, 1.0)
    return f"{mean:.3f}" + ("" if math.isnan(low) else f" ({low:.3f} to {high:.3f})")


def published(paper: str, table: str) -> pd.DataFrame:
    """Return a table of published numbers, ``results/reference/<paper>/<table>.csv``."""
    return pd.read_csv(paths.reference() / paper / f"{table}.csv")


def describe(records: Records) -> str:
    """Describe tier, seeds, task, model and schedule of runs that share them, in two lines."""
    config = records[0].config
    seeds = seeds_of(records)
    if not isinstance(config, RunConfig):
        return f"tier {config.tier}; study {config.study} {config.params}"
    shape = config.model
    train = config.train
    task = config.task_params or "with its own defaults"
    return (
        f"tier {config.tier}, {seeds} seed{'s' if seeds != 1 else ''}; task {task}\n"
        f"{shape.n_layers} layers, {shape.n_heads} heads, width {shape.width}; "
        f"{train.steps} steps of {train.batch_size} sequences, "
        f"learning rate {train.max_lr:g} to {train.min_lr:g}, {train.precision}"
    )


def cost_per_run(table: pd.DataFrame, by: str = "architecture") -> pd.DataFrame:
    """Return the mean cost of a run by a label, from a ``summary``: CPU seconds if all runs have them."""
    spent, name = (
        ("cpu_seconds", "processor")
        if table["cpu_seconds"].notna().all()
        else ("wall_seconds", "wall")
    )
    means = table.groupby(by, sort=False).mean(numeric_only=True)
    columns = {
        "training (s)": means["train_seconds"].round(1),
        f"{name} (s)": means[spent].round(1),
        "multiply-adds": means["multiply_adds"].map("{:.2g}".format),
        "peak memory (MiB)": (means["peak_memory_bytes"] / 2**20).round().astype(int),
    }
    return pd.DataFrame(columns)
