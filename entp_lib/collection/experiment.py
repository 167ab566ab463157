"""What an experiment is: a named set of labelled runs by tier, and how a notebook asks for their records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from entp_lib import paths
from entp_lib.collection.claims import Check, Measurement
from entp_lib.collection.parameters import NotebookParameters
from entp_lib.config import RunConfig, StudyConfig
from entp_lib.runs.records import Record, Store
from entp_lib.runs.sweeps import Sweep, sweep
from entp_lib.strict import require

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


def no_claims(records: Sequence[Record]) -> list[Measurement]:
    """What an experiment measures whose records are shown in tables and figures and decide no claim."""
    return []


def cost(experiment: Experiment, tier: str, store: Store) -> float | None:
    """Seconds of computing that an experiment's records took at a tier, all runs added; None without records."""
    records = experiment.stored(store, tier)
    return sum(r.provenance["wall_seconds"] for r in records) if records else None
