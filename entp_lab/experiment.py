"""Experiments: named sets of labelled runs by tier, and the records that a notebook asks for.

Most experiments are planned by a ``Plan``: a table of tiers, arms and variants.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from entp_lab import paths
from entp_lab.budgets import Budget
from entp_lab.configs import (
    BEST_FIRST,
    TIERS,
    TRIAL_SEED,
    Config,
    Configs,
    RunConfig,
    StudyConfig,
    TierName,
    config_id,
    lengthened,
)
from entp_lab.estimates import announce_runs
from entp_lab.measurements import MIN_PAIRS, Finding, Measure, still_improving, strongest
from entp_lab.parameters import NotebookParameters
from entp_lab.registry import build_task
from entp_lab.runs import Sweep, sweep
from entp_lab.store import RecordError, Records, Store, count_seeds, seeds_of
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.files import write_atomically
from entp_lib.tasks import Task
from entp_lib.validation import ConfigError, Json, from_dict, require

WORKERS_SECONDS = 5.0  # shorter runs are not worth starting other processes
TWINS = ("decoder", "entp")  # the two architectures that nearly every comparison has


@dataclass(frozen=True)
class PlannedRun:
    """A planned run: its configuration, and labels (such as its arm) that go into every frame."""

    config: Config
    labels: Json


PlannedRuns = Iterable[PlannedRun]  # what a planner yields


def planned(config: Config, **labels: Any) -> PlannedRun:
    """Plan a run with the labels that all runs have (``arm`` is the architecture unless given) and its own."""
    if isinstance(config, RunConfig):
        architecture = config.model.architecture
        common = {"arm": architecture, "architecture": architecture, "seed": config.model_seed}
    else:
        common = {"study": config.study, "seed": config.model_seed}
    return PlannedRun(config, {**common, "tier": config.tier, **labels})


def planned_study(
    experiment: str,
    tier: TierName,
    study: str,
    params: Json,
    seed: int = 0,
    **labels: Any,
) -> PlannedRun:
    """Plan a study with its labels."""
    return planned(StudyConfig(experiment, tier, study, params, seed, seed), **labels)


def twins(
    base: RunConfig, architectures: Sequence[str], seeds: int, **labels: Any
) -> list[PlannedRun]:
    """Plan ``base`` for every architecture and seed; twins share both seeds, so that comparisons are paired."""
    pairs = itertools.product(range(seeds), architectures)
    return [planned(Arm(name).run(base, seed), **labels) for seed, name in pairs]


def by_seed(runs: PlannedRuns) -> list[PlannedRun]:
    """Sort runs by seed first, so that the runs completed within a time limit form pairs."""
    return sorted(runs, key=lambda run: run.labels["seed"])


def with_model(config: RunConfig, **fields: Any) -> RunConfig:
    """Return a run with other values for its model."""
    return replace(config, model=replace(config.model, **fields))


def with_train(config: RunConfig, **fields: Any) -> RunConfig:
    """Return a run with other values for its schedule."""
    return replace(config, train=replace(config.train, **fields))


def model_for(task: Task, architecture: str, shape: Json) -> ModelConfig:
    """Return a model configuration whose sizes follow from the task, with all else from ``shape``."""
    sizes: Json = {"max_length": task.length}
    if task.continuous:
        sizes |= {"vocab_size": 0, "input_dim": task.input_dim, "output_dim": 1}
    else:
        sizes["vocab_size"] = task.vocab_size
    return from_dict(ModelConfig, {"architecture": architecture} | sizes | shape, "model.")


def run_of(
    experiment: str,
    tier: TierName,
    task: str,
    params: Json,
    shape: Json,
    train: TrainConfig,
    seed: int = 0,
) -> RunConfig:
    """Plan a decoder whose sizes follow from the task. ConfigError for wrong parameters."""
    model = model_for(build_task(task, params), "decoder", shape)
    return RunConfig(experiment, tier, task, params, model, train, seed, seed)


@dataclass(frozen=True)
class Tier:
    """One tier: parameters of its task, shape of its model, schedule, and its number of random seeds.

    ``arms``, ``variants``: those of the plan that this tier has, empty for all. ``by_seed``: compute the runs seed by
    seed, so that those completed within a time limit form pairs.
    """

    task: Json
    model: Json
    train: TrainConfig
    seeds: int
    arms: Sequence[str] = ()
    variants: Sequence[str] = ()
    by_seed: bool = False


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an architecture, and how it differs from the tier.

    ``budget``: stretches the schedule until the run has spent as much as ENTP. ``model``: values that replace those of
    the shape. ``once``: run only with the last random seed.
    """

    architecture: str
    budget: Budget | None = None
    model: Json = field(default_factory=dict)
    once: bool = False

    def run(self, base: RunConfig, seed: int) -> RunConfig:
        """Return the arm's run with a seed, from the tier's run ``base``."""
        shaped = with_model(base, architecture=self.architecture, **self.model)
        own = replace(shaped, model_seed=seed, data_seed=seed)
        if self.budget is None:
            return own
        ratio = self.budget(with_model(base, architecture="entp"), own)
        return replace(own, train=lengthened(own.train, ratio))


@dataclass(frozen=True)
class Variant:
    """A task that differs from the tier's in some parameters, and the arms that it has, empty for all."""

    task: Json = field(default_factory=dict)
    arms: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """The ``plan`` of an experiment as a table: every arm and random seed on every variant of a tier's task.

    ``variant_label``: the label that holds the variant's name. Arms on the tier's schedule come before those on a
    budget.
    """

    experiment: str
    task: str
    tiers: Mapping[str, Tier]
    arms: Mapping[str, Arm]
    variants: Mapping[str, Variant] = field(default_factory=lambda: {"": Variant()})
    variant_label: str = ""

    def __call__(self, tier: TierName, seeds: int = 0) -> list[PlannedRun]:
        if tier not in self.tiers:
            return []
        setting = self.tiers[tier]
        runs = []
        every = range(seeds or setting.seeds)
        for name in setting.variants or self.variants:
            variant = self.variants[name]
            params = {**setting.task, **variant.task}
            base = run_of(self.experiment, tier, self.task, params, setting.model, setting.train)
            labels = {self.variant_label: name} if self.variant_label else {}
            allowed = set(setting.arms or self.arms) & set(variant.arms or self.arms)
            arms = {arm: side for arm, side in self.arms.items() if arm in allowed}
            apart = [arm for arm, side in arms.items() if side.budget or side.once]
            together = [arm for arm in arms if arm not in apart]
            for group in (together, *([arm] for arm in apart)):
                for seed, arm in itertools.product(every, group):
                    if seed == every[-1] or not arms[arm].once:
                        runs.append(planned(arms[arm].run(base, seed), arm=arm, **labels))
        return by_seed(runs) if setting.by_seed else runs


@dataclass(frozen=True)
class Closed:
    """The ``plan`` of a finished experiment: the list of runs that ``close`` wrote next to their records.

    A line has the name of a record, and its labels except the common ones; the configuration is in the record.
    """

    experiment: str

    def __call__(self, tier: TierName, seeds: int = 0) -> list[PlannedRun]:
        """Plan the runs of a tier: its first ``seeds`` random seeds (0: all of them), and all trial runs."""
        store = Store(paths.of_repository("results"))
        runs = []
        for line in list_of_runs(self.experiment).read_text().splitlines():
            labels = json.loads(line)
            name = labels.pop("run")
            record = store.load(name, strict=True)
            if record is None:
                path = paths.relative(store.path(name))
                raise RecordError(f"{path}, a run of {self.experiment}, is missing: git restore it")
            if record.config.tier == tier:
                runs.append(planned(record.config, **labels))
        pairs = sorted({run.labels["seed"] for run in runs if run.labels["seed"] < TRIAL_SEED})
        left_out = pairs[seeds:] if seeds else []
        return [run for run in runs if run.labels["seed"] not in left_out]


def list_of_runs(experiment: str) -> Path:
    """Return where the runs of a closed experiment are listed."""
    return paths.of_repository("results") / "records" / experiment / "runs.jsonl"


def close(experiment: "Experiment") -> str:
    """Write the list of an experiment's runs beside their records, for ``Closed``.

    Raises ConfigError if no tier is whole, or one has some of its records.
    """
    lines = []
    for tier in BEST_FIRST:
        configs = experiment.configs(tier)
        left = len(Store().missing(configs, experiment.version))
        require(
            left in (0, len(configs)),
            f"{left} of {len(configs)} runs of {experiment.name} at tier {tier} have no record",
        )
        for record in experiment.stored(Store(), tier):
            common = planned(record.config).labels.items()
            labels = dict(label for label in record.labels.items() if label not in common)
            lines.append(json.dumps({"run": record.name, **labels}))
    require(lines, f"experiment {experiment.name} has no tier whose runs are all stored")
    path = list_of_runs(experiment.name)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    return (
        f"{paths.relative(path)} lists {len(lines)} runs: "
        f"Closed({experiment.name!r}) can be the experiment's plan"
    )


class NoRuns(ConfigError):
    """A tier that an experiment does not have."""


def no_claims(records: Records) -> list[Finding]:
    """Measure nothing: the records are shown in tables and figures and decide no claim."""
    return []


@dataclass(frozen=True)
class Experiment:
    """A named set of runs. ``plan(tier, seeds)`` lists, or yields, the runs of one of its ``tiers`` (see ``Plan``).

    ``measure`` lists, or yields, what the records of a tier say about claims (see ``Comparisons``); without one they
    are shown and decide none. ``version`` is raised when the same configuration would now give another result, which
    abandons all earlier records. ``jobs`` is 1 if parallel runs would disturb each other. ``seeded``: whether a
    notebook's number of seeds applies. ``plan`` may end with runs of another experiment as the baseline; its own come
    first. ``still_improving_note`` remarks on runs that had not converged. ``check_prerequisites`` is called with the
    runs to be computed before any starts, and raises ConfigError if something that they need is missing.
    ``figure_labels``: labels of the runs of the paper's tier that its figures show. ``paper_runs_of``: the experiment
    whose runs of the paper's tier settings are compared with, if this one has none. ``show_only``: its notebook
    computes it only at tiers that are asked for by name (``collect_if_any``).
    """

    name: str
    version: int
    title: str
    notebook: str
    plan: Callable[..., list[PlannedRun]]
    measure: Measure = no_claims
    tiers: Collection[str] = field(default=TIERS, hash=False)
    jobs: int = 0
    seeded: bool = True
    still_improving_note: Callable[[Records], str] = still_improving
    check_prerequisites: Callable[[Configs], None] = lambda configs: None
    figure_labels: Json = field(default_factory=dict, hash=False)
    paper_runs_of: str = ""
    show_only: bool = False

    def __post_init__(self):
        plan = self.plan
        tiers = self.tiers
        planned = functools.cache(
            lambda tier, seeds=0: list(plan(tier, seeds)) if tier in tiers else []
        )
        object.__setattr__(self, "plan", planned)  # cached, so callers must not change the list
        if self.measure is not no_claims:
            object.__setattr__(self, "measure", functools.partial(with_note, self.measure))

    def configs(self, tier: str, seeds: int = 0) -> Configs:
        """Return the configurations of a tier; ``seeds`` 0: as many as the tier has."""
        return [run.config for run in self.plan(tier, seeds)]

    def labelled(self, records: Records, runs: Sequence[PlannedRun]) -> Records:
        """Give ``records`` the labels of the runs that planned them, found by configuration."""
        labels = {config_id(run.config, self.version): run.labels for run in runs}
        return [record.labelled(labels[record.id]) for record in records]

    def found(self, store: Store, runs: Sequence[PlannedRun]) -> Records:
        """Return the records of ``runs``, labelled; empty if one is missing."""
        found = []
        for run in runs:
            record = store.find(run.config, self.version)
            if record is None:
                return []
            found.append(record.labelled(run.labels))
        return found

    def stored(self, store: Store, tier: str, seeds: int = 0) -> Records:
        """Return the records of a tier, labelled; empty if one is missing or the tier has none.

        ``seeds=0``: the tier's own number of seeds, or ``MIN_PAIRS`` if the tier has fewer and those records exist.
        More never count, so that nobody adds seeds until a verdict pleases.
        """
        found = self.found(store, self.plan(tier, seeds))
        if found and not seeds and self.seeded and seeds_of(found) < MIN_PAIRS:
            return self.found(store, self.plan(tier, MIN_PAIRS)) or found
        return found

    def committed(self, tier: str = "quick") -> Records:
        """Return the project's records of a whole tier; empty where one is missing."""
        return self.stored(Store(), tier)

    def best(self, store: Store, seeds: int = 0) -> Records:
        """Return the records of the best complete tier; empty if no tier is complete.

        That is the highest complete tier with at least ``MIN_PAIRS`` seeds, as in the ledger, else the highest complete
        one.
        """
        highest: Records = []
        for tier in BEST_FIRST:
            records = self.stored(store, tier, seeds)
            if seeds_of(records) >= MIN_PAIRS:
                return records
            highest = highest or records
        return highest

    def runs_for(self, parameters: NotebookParameters) -> tuple[Store, list[PlannedRun]]:
        """Return the store and the runs that a notebook's parameters ask for.

        ``best`` selects the best complete tier, else ``quick``; a higher tier that the experiment lacks is also
        replaced by ``quick``. Smoke runs have a store of their own. If some runs are beyond the tier's own number of
        seeds, new records go to ``Store.own``. Raises NoRuns if the tier has none.
        """
        seeds = parameters.seeds if self.seeded else 0
        tier = parameters.tier
        store = Store.of_tier(tier)
        if tier == "best":
            best = [] if parameters.fresh else self.best(store, seeds)
            tier = best[0].config.tier if best else "quick"
        if tier in BEST_FIRST and not self.plan(tier, seeds):
            tier = "quick"
        counted = MIN_PAIRS if len(self.stored(store, tier)) > len(self.configs(tier)) else 0
        runs = self.plan(tier, seeds or counted)
        if not runs:
            asked = tier if parameters.tier == "best" else parameters.tier
            raise NoRuns(f"tier = {asked!r}: experiment {self.name} has no runs at this tier")
        known = self.configs(tier, counted)
        is_planned = all(run.config in known for run in runs)
        return (store if tier == "smoke" or is_planned else store.own()), runs

    def collect(self, parameters: NotebookParameters) -> Sweep:
        """Return the records that a notebook's parameters ask for, labelled; missing ones are computed.

        Prints a line about the runs shown if they are not those that the text describes, or not all of them.
        """
        store, runs = self.runs_for(parameters)
        done = self.compute(runs, parameters, store, parameters.fresh)
        if not parameters.as_committed or len(done.complete) < len(runs):
            print(self.what_is_shown(done.complete, len(runs)))
        return done

    def what_is_shown(self, records: Records, asked: int) -> str:
        """Describe the records shown by tier, steps and seeds, those that the text describes, and what is missing."""
        if not records:
            return f"Shown of {self.name}: nothing; none of {asked} runs is complete."
        steps = sorted({r.config.train.steps for r in records if isinstance(r.config, RunConfig)})
        parts = [f"tier {records[0].config.tier}, {count_seeds(records)}"]
        if steps:
            parts[0] += f", {' or '.join(f'{count:,}' for count in steps)} steps"
        if told := self.best(Store()):
            parts.append(f"the text tells of tier {told[0].config.tier}, {count_seeds(told)}")
        if len(records) < asked:
            parts.append(f"{asked - len(records)} of {asked} runs are not complete")
        return f"Shown of {self.name}: {'; '.join(parts)}."

    def collect_if_any(self, parameters: NotebookParameters) -> Records:
        """Return the records of ``collect``, but under ``best`` only stored ones, without computing any.

        Empty if there are none, and for a tier that the experiment lacks; a printed line then says so.
        """
        if parameters.tier != "best" and self.plan(parameters.tier, parameters.seeds):
            return self.collect(parameters).complete
        store = Store()
        found = self.best(store, parameters.seeds) if parameters.tier == "best" else []
        if not found:
            stored = self.best(store)
            tier = next(
                (tier for tier in reversed(BEST_FIRST) if self.configs(tier)), parameters.tier
            )
            why = f"not run yet; to run it: ./run_all.sh --tier {tier} --only {paths.number_of(self.notebook)}"
            if stored:
                why = f"its runs are stored at tier {stored[0].config.tier}; tier = 'best' and seeds = 0 show them"
            print(f"left out: {self.title} ({why})")
        return found

    def measurements(self, records: Records) -> list[Finding]:
        """Measure ``records``; fill claims they do not cover from stored records of the same or a lower tier.

        If ``records`` are those of a complete tier, a lower tier also replaces them for claims that it can decide
        better, as in the ledger.
        """
        mine = self.measure(records)
        tier = records[0].config.tier if records else "smoke"
        ids = {record.id for record in records}
        touched = {m.claim for m in mine}
        whole = tier != "smoke" and all(
            config_id(c, self.version) in ids for c in self.configs(tier)
        )
        below = BEST_FIRST[BEST_FIRST.index(tier) :] if tier in BEST_FIRST else ("quick",)
        stored = (m for lower in below for m in self.measure(self.stored(Store(), lower)))
        others = (m for m in stored if whole or m.claim not in touched)
        return [m for m, _ in strongest((m, None) for m in (*mine, *others)).values()]

    def compute(
        self, runs: Sequence[PlannedRun], parameters: NotebookParameters, store: Store, fresh: bool
    ) -> Sweep:
        """Return the records of ``runs``, which are of one tier, with a notebook's jobs and time limit.

        Prints an estimate first if they take minutes, unless a command has printed it.
        """
        tier = runs[0].config.tier
        configs = [run.config for run in runs]
        missing = store.missing(configs, self.version, fresh)
        self.check_prerequisites(missing)
        jobs = self.jobs or parameters.jobs
        limit = parameters.time_limit
        seconds = 0.0  # unknown
        if missing and not store.read_only and paths.NEW_FIGURES_VARIABLE not in os.environ:
            what = f"{len(missing)} runs of {self.name}"
            seconds = announce_runs(what, missing, jobs, True, limit, store)
        done = sweep(
            configs,
            self.version,
            store=store,
            fresh=fresh,
            label=f"{self.name} {tier}",
            jobs=jobs or int(tier == "smoke" or 0 < seconds < WORKERS_SECONDS),
            time_limit=limit,
        )
        done.complete = self.labelled(done.complete, runs)
        return done


def with_note(measure: Measure, records: Records) -> list[Finding]:
    """Call ``measure``; an error of its code keeps its traceback, with a note that names the experiment."""
    try:
        return list(measure(records)) if records else []
    except Exception as error:
        names = ", ".join(sorted({r.experiment for r in records}))
        error.add_note(f"while measuring {len(records)} records of {names}")
        raise


def of_experiment(experiment: Experiment, records: Records) -> Records:
    """Return the records that are the experiment's, without those of others that it compares them with."""
    return [record for record in records if record.experiment == experiment.name]
