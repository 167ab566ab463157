"""Experiments: named sets of labelled runs by tier, and the records that a notebook asks for."""

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from entp_lab import paths
from entp_lab.caveats import still_improving
from entp_lab.changes import changed, texts
from entp_lab.configs import BEST_FIRST, ON_CPU, TIERS, RunConfig, StudyConfig, config_id
from entp_lab.measurements import MIN_PAIRS, Check, Measurement, strongest
from entp_lab.parameters import NotebookParameters
from entp_lab.plans import PlannedRun
from entp_lab.runs import Sweep, sweep
from entp_lab.store import Record, Store, is_complete
from entp_lib.validation import ConfigError

log = logging.getLogger(__name__)


class NoRuns(ConfigError):
    """A tier that an experiment does not have."""


@dataclass(frozen=True)
class Experiment:
    """A named set of runs. ``plan(tier, seeds)`` lists those of one of its ``tiers`` (``Plan`` is a table).

    ``measure``: the records of a tier to what they say of claims (``Comparisons`` is a table). ``version``: raised when
    the same configuration would now give another result, which abandons all earlier records. ``jobs`` = 1 where runs at
    a time would disturb each other. ``changeable``, ``seeded``: whether a notebook's ``changes`` and number of seeds
    are for it. Runs of another experiment among those of ``plan`` are what its own, the first among them, are compared
    with; their records are that experiment's. ``still_improving_note``: a remark on runs that were not at rest at
    their last step. ``check_prerequisites``: called with the runs to be computed before any starts; ConfigError where
    what they need is missing. ``figure_labels``: labels of those runs of the paper's tier that its figures show.
    ``show_only``: its notebook computes it only at tiers that have it and are asked for by name (``collect_if_any``).
    """

    name: str
    version: int
    title: str
    notebook: str
    plan: Callable[[str, int], list[PlannedRun]]
    measure: Callable[[Sequence[Record]], list[Measurement | Check]]
    tiers: Collection[str] = field(default=TIERS, hash=False)
    jobs: int = 0
    changeable: bool = True
    seeded: bool = True
    still_improving_note: Callable[[Sequence[Record]], str] = still_improving
    check_prerequisites: Callable[[Sequence[RunConfig | StudyConfig]], None] = lambda configs: None
    figure_labels: Mapping[str, Any] = field(default_factory=dict, hash=False)
    show_only: bool = False

    def __post_init__(self):
        plan, tiers = self.plan, self.tiers
        planned = functools.cache(lambda tier, seeds=0: plan(tier, seeds) if tier in tiers else [])
        object.__setattr__(self, "plan", planned)  # read by many, changed by none
        if self.measure is not no_claims:
            object.__setattr__(self, "measure", functools.partial(measured, self.measure))

    def configs(self, tier: str, seeds: int = 0) -> list[RunConfig | StudyConfig]:
        """The configurations of a tier; ``seeds`` 0: as many as the tier has."""
        return [run.config for run in self.plan(tier, seeds)]

    def labelled(self, records: Sequence[Record], runs: Sequence[PlannedRun]) -> list[Record]:
        """``records`` with the labels of the runs that planned them, found by configuration."""
        labels = {config_id(run.config, self.version): run.labels for run in runs}
        return [replace(record, labels=labels[record.id]) for record in records]

    def stored(self, store: Store, tier: str, seeds: int = 0) -> list[Record] | None:
        """The complete records of a tier, labelled, or None if one is missing or the tier has none.

        ``seeds`` 0: those of its own number; if that is below the pairs that a verdict takes, and the records of so
        many are there too, of these. More never count, so that nobody adds seeds until a verdict pleases.
        """
        found = self.found(store, self.plan(tier, seeds))
        if found and not seeds and self.seeded and seeds_of(found) < MIN_PAIRS:
            return self.found(store, self.plan(tier, MIN_PAIRS)) or found
        return found

    def found(self, store: Store, runs: Sequence[PlannedRun]) -> list[Record] | None:
        """The complete records of ``runs``, labelled, or None if one is missing or there are no runs."""
        if not runs or not all(store.has(run.config, self.version) for run in runs):
            return None  # before any is read
        records = [store.find(run.config, self.version) for run in runs]
        if not all(map(is_complete, records)):
            return None
        return [replace(record, labels=run.labels) for record, run in zip(records, runs, strict=True)]

    def whole_by(self, label: str, tier: str = "overnight", store: Store | None = None) -> dict[Any, list[Record]]:
        """The stored records of a tier by the values of a label, of those values whose runs are all complete."""
        store, runs = store or Store(), self.plan(tier, 0)
        names = dict.fromkeys(run.labels[label] for run in runs)
        whole = {name: self.found(store, [run for run in runs if run.labels[label] == name]) for name in names}
        return {name: records for name, records in whole.items() if records}

    def missing(self, store: Store, tier: str) -> list[RunConfig | StudyConfig]:
        """The configurations of a tier whose records are not complete, in the order of the plan."""
        return [config for config in self.configs(tier) if not is_complete(store.find(config, self.version))]

    def best_tier(self, store: Store, seeds: int = 0) -> str | None:
        """The tier of ``best``; None if none is whole."""
        return next((record.config.tier for record in self.best(store, seeds)), None)

    def best(self, store: Store, seeds: int = 0) -> list[Record]:
        """The records of the best tier there is; empty if none is whole.

        That is the highest whole tier with the seeds that a verdict takes, as in the ledger; without one the highest.
        """
        highest = []
        for tier in BEST_FIRST:
            records = self.stored(store, tier, seeds) or []
            if seeds_of(records) >= MIN_PAIRS:
                return records
            highest = highest or records
        return highest

    def runs_for(self, parameters: NotebookParameters, store: Store | None = None) -> tuple[Store, list[PlannedRun]]:
        """The store and the runs that a notebook's parameters ask for.

        ``best``: those of the best whole tier, else of ``quick``, which also stands for a higher tier that the
        experiment does not have. ``changes`` are made to the runs of ``quick`` where no tier is named. Smoke runs have
        a store of their own; where some runs are changed, or beyond the tier's own number of seeds, what has no record
        goes to ``Store.own``. No runs where changes are not for the experiment. Raises NoRuns where the tier has none,
        ConfigError for changes that do not fit.
        """
        tier, changes = parameters.tier, parameters.changes
        store = Store(paths.results() / "smoke", read_only=False) if tier == "smoke" else store or Store()
        if changes and not self.changeable:
            return store, []
        seeds = parameters.seeds if self.seeded else 0
        if tier == "best":
            recomputed = parameters.fresh or changes
            tier = "quick" if recomputed else self.best_tier(store, seeds) or "quick"
        if tier in BEST_FIRST and not self.plan(tier, seeds):
            tier = "quick"
        stored = [] if changes else self.stored(store, tier) or []
        counted = MIN_PAIRS if len(stored) > len(self.plan(tier, 0)) else 0  # more seeds than its own number
        runs = self.plan(tier, seeds or counted)
        if not runs:
            asked = tier if parameters.tier == "best" else parameters.tier
            raise NoRuns(f"tier = {asked!r}: experiment {self.name} has no runs at this tier")
        own = changed(runs, changes)
        planned = {config_id(config, self.version) for config in self.configs(tier, counted)}
        scored = {config_id(run.config, self.version) for run in own}
        return (store if tier == "smoke" or scored <= planned else store.own()), own

    def collect(self, parameters: NotebookParameters, store: Store | None = None) -> Sweep:
        """The records that a notebook's parameters ask for, labelled, computed where they are missing.

        Where changes are not for the experiment there are none, and a printed line says so. Warns of whole tiers above
        the best that has the seeds of a verdict.
        """
        store, runs = self.runs_for(parameters, store)
        if not runs:
            print(self.left_out(parameters, store))
            return Sweep()
        shown = runs[0].config.tier
        for tier in BEST_FIRST[: BEST_FIRST.index(shown)] if parameters.tier == "best" else ():
            if few := seeds_of(self.stored(store, tier) or []):
                text = "%s: shown is tier %s; tier %s has %d of the %d seeds that a verdict takes: tier = %r shows it"
                log.warning(text, self.name, shown, tier, few, MIN_PAIRS, tier)
        return self.compute(runs, parameters, store, parameters.fresh)

    def collect_if_any(self, parameters: NotebookParameters) -> list[Record]:
        """The complete records of an experiment that only some tiers have, labelled.

        ``best`` shows what is stored and computes nothing; another tier, and ``quick`` where there are changes, is
        collected if the experiment has it. Where there are none a printed line says why.
        """
        tier = "quick" if parameters.changes and parameters.tier == "best" else parameters.tier
        if tier != "best" and self.plan(tier, parameters.seeds):
            return self.collect(parameters).complete
        store = Store()
        found = self.best(store, parameters.seeds) if tier == "best" else []
        if not found:
            print(self.left_out(parameters, store))
        return found

    def left_out(self, parameters: NotebookParameters, store: Store) -> str:
        """Why a notebook with these parameters shows nothing of the experiment, in a line."""
        stored = self.best_tier(store)
        if parameters.changes:
            why = "the changes are not made to its runs"
        elif stored:
            why = f"its runs are stored at tier {stored}; tier = 'best' and seeds = 0 show them"
        else:
            tier = next((tier for tier in reversed(BEST_FIRST) if self.plan(tier, 0)), parameters.tier)
            why = f"not run yet; to run it: ./run_all.sh --tier {tier} --only {paths.number_of(self.notebook)}"
        return f"left out: {self.title} ({why})"

    def measurements(self, records: Sequence[Record], store: Store | None = None) -> list[Measurement | Check]:
        """Measurements of ``records``, and for claims that they do not touch, of stored ones of their tier or below.

        Where ``records`` are those of a whole tier, a lower one's also stand for a claim about which they can conclude
        less, as in the ledger. No others stand beside those of changed runs.
        """
        mine = self.measure(records)
        if texts(records):
            return mine
        tier = records[0].config.tier if records else "smoke"
        ids, touched = {record.id for record in records}, {m.claim for m in mine}
        whole = tier != "smoke" and all(config_id(c, self.version) in ids for c in self.configs(tier))
        below = BEST_FIRST[BEST_FIRST.index(tier) :] if tier in BEST_FIRST else ("quick",)
        stored = (m for lower in below for m in self.measure(self.stored(store or Store(), lower) or []))
        others = (m for m in stored if whole or m.claim not in touched)
        return [m for m, _ in strongest((m, None) for m in (*mine, *others)).values()]

    def compute(self, runs: Sequence[PlannedRun], parameters: NotebookParameters, store: Store, fresh: bool) -> Sweep:
        """The records of ``runs``, which are of one tier, with a notebook's jobs and time limit."""
        tier, configs = runs[0].config.tier, [run.config for run in runs]
        self.check_prerequisites([c for c in configs if fresh or store.find(c, self.version) is None])
        one = 1 if tier == "smoke" else 0  # starting processes would cost more than the runs
        how = dict(jobs=parameters.jobs or self.jobs or one, time_limit=parameters.time_limit)
        done = sweep(configs, self.version, store=store, fresh=fresh, label=f"{self.name} {tier}", **how)
        done.records = self.labelled(done.records, runs)
        return done


def measured(measure: Callable[[Sequence[Record]], list], records: Sequence[Record]) -> list[Measurement | Check]:
    """Call ``measure``, and mark what it finds of changed runs. RecordError where a record lacks what it asks for."""
    try:
        found = measure(records) if records else []
    except Exception as error:
        names = ", ".join(sorted({r.experiment for r in records}))
        error.add_note(f"while measuring {len(records)} records of {names}")
        raise
    if not texts(records):
        return found
    plain = {"paper_settings": False}
    return [replace(m, tier=f"{m.tier}, changed", **(plain if isinstance(m, Measurement) else {})) for m in found]


def no_claims(records: Sequence[Record]) -> list[Measurement]:
    """``measure`` of an experiment whose records are shown in tables and figures and decide no claim."""
    return []


def seeds_of(records: Sequence[Record]) -> int:
    """The number of random seeds that records have."""
    return len({record.config.model_seed for record in records})


def own(experiment: Experiment, records: Sequence[Record]) -> list[Record]:
    """The records that are the experiment's, without those of others that it compares them with."""
    return [record for record in records if record.experiment == experiment.name]


def spent(record: Record) -> float:
    """Seconds that a run took: of the processor on a CPU, if its record has them, else by the clock.

    The clock of a crowded machine counts several times as many; beside a GPU the processor mostly waits.
    """
    where = record.provenance
    return (where.get("cpu_seconds") if record.config.tier in ON_CPU else None) or where["wall_seconds"]
