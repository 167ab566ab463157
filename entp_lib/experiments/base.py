"""What an experiment is: configurations by tier, and the frames that notebooks show of its records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from entp_lib import paths
from entp_lib.claims import Check, Measurement
from entp_lib.config import NotebookParameters, RunConfig, StudyConfig, require
from entp_lib.evaluation import mean_interval
from entp_lib.records import Record, Store
from entp_lib.runs import Sweep, sweep

ACCURACIES = ("token_accuracy", "sequence_accuracy")
BEST_FIRST = ("paper", "gpu", "quick")


@dataclass(frozen=True)
class Experiment:
    """A named set of runs. ``configs(tier, seeds)`` lists them, nothing for a tier it does not have.

    A change to ``version`` abandons all earlier records: raise it when the same configuration would now give
    another result. ``jobs`` = 1 where runs at a time would disturb each other, as in timing.
    """

    name: str
    version: int
    title: str
    notebook: str
    configs: Callable[[str, int], list[RunConfig] | list[StudyConfig]]
    measure: Callable[[list[Record]], list[Measurement | Check]]
    jobs: int = 0

    def stored(self, store: Store, tier: str, seeds: int = 0) -> list[Record] | None:
        """The complete records of a tier, or None if one is missing or the tier has none."""
        configs = self.configs(tier, seeds)
        found = []
        for config in configs:
            record = store.find(config, self.version)
            if record is None or record.status != "complete":
                return None
            found.append(record)
        return found or None

    def best_tier(self, store: Store, seeds: int = 0) -> str | None:
        """The highest tier all of whose records exist."""
        return next((t for t in BEST_FIRST if self.stored(store, t, seeds) is not None), None)

    def best(self, store: Store, seeds: int = 0) -> list[Record]:
        """The records of the best tier there is; empty if none is whole."""
        tier = self.best_tier(store, seeds)
        return self.stored(store, tier, seeds) if tier else []

    def wanted(
        self, parameters: NotebookParameters, store: Store | None = None
    ) -> tuple[Store, list[RunConfig] | list[StudyConfig]]:
        """The store and the configurations that a notebook's parameters ask for.

        ``best``: those of the best whole tier, else of ``quick``. Smoke runs have a store of their own. An experiment
        that a laptop does in full has no tier above ``quick`` and gives that one for it.
        """
        tier = parameters.tier
        if tier == "smoke":
            store = Store(paths.results() / "smoke", read_only=False)
        store = store or Store()
        if tier == "best":
            tier = "quick" if parameters.fresh else self.best_tier(store, parameters.seeds) or "quick"
        configs = self.configs(tier, parameters.seeds)
        if not configs and tier in ("gpu", "paper"):
            configs = self.configs("quick", parameters.seeds)
        require(bool(configs), f"tier = {tier!r}: experiment {self.name} has no runs at this tier")
        return store, configs

    def collect(self, parameters: NotebookParameters, store: Store | None = None) -> Sweep:
        """The records that a notebook's parameters ask for, computed where they are missing."""
        store, configs = self.wanted(parameters, store)
        return self.compute(configs, parameters, store, parameters.fresh)

    def compute(self, configs: Sequence, parameters: NotebookParameters, store: Store, fresh: bool) -> Sweep:
        """The records of ``configs``, which are of one tier, with a notebook's jobs and time limit."""
        tier = configs[0].tier
        return sweep(
            configs,
            self.version,
            store=store,
            fresh=fresh,
            jobs=parameters.jobs
            or self.jobs
            or (1 if tier == "smoke" else 0),  # starting processes would cost more than the runs
            time_limit=parameters.time_limit,
            label=f"{self.name} {tier}",
        )


def twins(base: RunConfig, architectures: Sequence[str], seeds: int) -> list[RunConfig]:
    """``base`` for every architecture and seed; twins share both seeds, so that comparisons are paired."""
    return [
        replace(base, model=replace(base.model, architecture=architecture), model_seed=seed, data_seed=seed)
        for seed in range(seeds)
        for architecture in architectures
    ]


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


def no_claims(records: Sequence[Record]) -> list[Measurement]:
    """What an experiment measures whose records are shown in tables and figures and decide no claim."""
    return []


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


def cost(experiment: Experiment, tier: str, store: Store) -> float | None:
    """Seconds of computing that an experiment's records took at a tier, all runs added; None without records."""
    records = experiment.stored(store, tier)
    return sum(r.provenance["wall_seconds"] for r in records) if records else None


def mean_table(table: pd.DataFrame, metrics: Sequence[str], by: Sequence[str] = ("architecture",)) -> pd.DataFrame:
    """Mean and 95 % interval over seeds of each metric, as short text."""

    def text(values: pd.Series) -> str:
        mean, low, high = mean_interval(values)
        return f"{mean:.3f}" if low != low else f"{mean:.3f} ({low:.3f} to {high:.3f})"

    rows = {key: {m: text(part[m]) for m in metrics} for key, part in table.groupby(list(by), sort=False)}
    out = pd.DataFrame.from_dict(rows, orient="index")
    out.index = [" ".join(map(str, key)) if isinstance(key, tuple) else key for key in out.index]
    return out
