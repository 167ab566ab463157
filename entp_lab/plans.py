"""Plans: the labelled runs of an experiment, and the table of tiers, arms and variants that most of them are."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from entp_lab.budgets import Budget, on_budget
from entp_lab.configs import RunConfig, StudyConfig, TierName
from entp_lab.registry import build_task
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.tasks import Task

TWINS = ("decoder", "entp")  # the two architectures that nearly every comparison has


@dataclass(frozen=True)
class PlannedRun:
    """A run as an experiment plans it: its configuration, and labels, such as its arm, which go into every frame."""

    config: RunConfig | StudyConfig
    labels: dict[str, Any] = field(default_factory=dict)


def planned(config: RunConfig, **labels: Any) -> PlannedRun:
    """Plan a training run with the labels every one has (``arm`` is the architecture unless given) and its own."""
    architecture = config.model.architecture
    common = {"arm": architecture, "architecture": architecture, "seed": config.model_seed, "tier": config.tier}
    return PlannedRun(config, {**common, **labels})


def planned_study(
    experiment: str, tier: TierName, study: str, params: dict[str, Any], seed: int = 0, **labels: Any
) -> PlannedRun:
    """Plan a study with its labels."""
    config = StudyConfig(experiment, tier, study, params, seed, seed)
    return PlannedRun(config, {"study": study, "seed": seed, "tier": tier, **labels})


def twins(base: RunConfig, architectures: Sequence[str], seeds: int, **labels: Any) -> list[PlannedRun]:
    """Plan ``base`` for every architecture and seed; twins share both seeds, so that comparisons are paired."""
    pairs = itertools.product(range(seeds), architectures)
    return [planned(with_seed(with_model(base, architecture=name), seed), **labels) for seed, name in pairs]


def by_seed(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Sort runs with seeds outermost, so that what a time limit leaves is paired."""
    return sorted(runs, key=lambda run: run.labels["seed"])


def with_model(config: RunConfig, **fields: Any) -> RunConfig:
    """Return a run with other values for its model."""
    return replace(config, model=replace(config.model, **fields))


def with_train(config: RunConfig, **fields: Any) -> RunConfig:
    """Return a run with other values for its schedule."""
    return replace(config, train=replace(config.train, **fields))


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """Return a run with one random seed for weights and data."""
    return replace(config, model_seed=seed, data_seed=seed)


def model_for(task: Task, architecture: str, shape: Mapping[str, Any]) -> ModelConfig:
    """Return a model that takes its sizes from the task, all else from ``shape``."""
    sizes: dict[str, Any] = {"max_length": task.length}
    if task.continuous:
        sizes |= {"vocab_size": 0, "input_dim": task.input_dim, "output_dim": 1}
    else:
        sizes["vocab_size"] = task.vocab_size
    return ModelConfig(architecture, **(sizes | dict(shape)))


def run_of(
    experiment: str,
    tier: TierName,
    task: str,
    params: Mapping[str, Any],
    shape: Mapping[str, Any],
    train: TrainConfig,
    architecture: str = "decoder",
    seed: int = 0,
) -> RunConfig:
    """Plan a run whose model takes its sizes from the task. ConfigError for wrong parameters."""
    model = model_for(build_task(task, dict(params)), architecture, shape)
    return RunConfig(experiment, tier, task, dict(params), model, train, seed, seed)


@dataclass(frozen=True)
class Tier:
    """One tier: parameters of its task, shape of its model, schedule, and its number of random seeds.

    ``arms``, ``variants``: which of the plan's it has, all unless named. ``by_seed``: runs are made seed by seed, so
    that what a time limit leaves is paired.
    """

    task: dict[str, Any]
    model: dict[str, Any]
    train: TrainConfig
    seeds: int
    arms: Sequence[str] = ()
    variants: Sequence[str] = ()
    by_seed: bool = False


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an architecture, and where it departs from the tier.

    ``budget``: its schedule is stretched until it has spent as much as ENTP. ``model``: other values for the shape.
    ``once``: run with the last random seed alone.
    """

    architecture: str
    budget: Budget | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False

    def run(self, base: RunConfig, seed: int) -> RunConfig:
        """Return the arm's run with a seed, where ``base`` is the tier's."""
        own = with_seed(with_model(base, architecture=self.architecture, **self.model), seed)
        return on_budget(self.budget, with_model(base, architecture="entp"), own) if self.budget else own


@dataclass(frozen=True)
class Variant:
    """A task that differs from the tier's in some parameters, and the arms that it has, all unless named."""

    task: Mapping[str, Any] = field(default_factory=dict)
    arms: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """The ``plan`` of an experiment as a table: every arm and random seed on every variant of a tier's task.

    ``variant_label``: the label that has the variant's name. Arms on the tier's schedule come before those on a budget.
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
        setting, runs = self.tiers[tier], []
        every = range(seeds or setting.seeds)
        for variant in setting.variants or self.variants:
            params = {**setting.task, **self.variants[variant].task}
            base = run_of(self.experiment, tier, self.task, params, setting.model, setting.train)
            labels = {self.variant_label: variant} if self.variant_label else {}
            asked = [set(names or self.arms) for names in (setting.arms, self.variants[variant].arms)]
            arms = {name: arm for name, arm in self.arms.items() if all(name in names for names in asked)}
            apart = [name for name, arm in arms.items() if arm.budget or arm.once]
            for group in ([name for name in arms if name not in apart], *([name] for name in apart)):
                for seed in every:
                    last = seed == every[-1]
                    names = [name for name in group if last or not arms[name].once]
                    runs += [planned(arms[name].run(base, seed), arm=name, **labels) for name in names]
        return by_seed(runs) if setting.by_seed else runs
