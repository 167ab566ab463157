"""Functions for notebooks: pairs of runs, their records, and both models' curves and scores as tidy frames."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
from tqdm.auto import tqdm

from entp_lab import paths
from entp_lab.budgets import prefixes_of, sequence_operations, step_operations
from entp_lab.configs import RunConfig, TierName, config_id
from entp_lab.experiment import TWINS, Experiment, model_for, planned
from entp_lab.frames import numbers
from entp_lab.parameters import NotebookParameters
from entp_lab.provenance import processes, provenance, sources
from entp_lab.registry import EXPERIMENTS, build_task, task_name
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import computing_threads, modules_of
from entp_lab.statistics import mean_interval
from entp_lab.store import OWN, Record, Records, Store, count_seeds
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.data.sources import file_checksum
from entp_lib.tasks import Task, Text
from entp_lib.validation import Json, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shape = ModelConfig | Json
Schedule = TrainConfig | Mapping[str, TrainConfig]
SMALL = {"n_layers": 3, "n_heads": 4, "width": 64}  # default shape of ``compare``


@dataclass(frozen=True, repr=False)
class Runs:
    """Records of training runs, and frames of them.

    ``step_costs``: the multiply-adds of a training step, by record. ``note``: which runs these are, in a sentence.
    """

    records: list[Record]
    step_costs: list[float]
    note: str = ""

    def curves(self) -> pd.DataFrame:
        """Return a row per run and evaluation: model, seed, step, multiply_adds, and every curve."""
        frames = (
            pd.DataFrame(
                {
                    **identity(record),
                    "step": record.curves["step"],
                    "multiply_adds": [cost * step for step in record.curves["step"]],
                    **record.curves,
                }
            )
            for record, cost in zip(self.records, self.step_costs, strict=True)
        )
        return pd.concat(frames, ignore_index=True)

    def scores(self) -> pd.DataFrame:
        """Return a row per run: model, seed, its last scores, steps, multiply_adds, and seconds of training."""
        return pd.DataFrame(
            {
                **identity(record),
                **numbers(record),
                "steps": record.provenance["steps"],
                "multiply_adds": cost * record.provenance["steps"],
                "seconds": record.provenance["train_seconds"],
            }
            for record, cost in zip(self.records, self.step_costs, strict=True)
        )

    def paired(self, score: str, first: str, second: str) -> pd.DataFrame:
        """Return a row per random seed with both models' scores and their difference, and the mean as the last row.

        With three or more pairs the mean has its 95 % interval (Student's t).
        """
        table = self.scores()
        require(
            score in table, f"score = {score!r}: these runs have {', '.join(table.columns[2:])}"
        )
        self.check_distinct()
        wide = table.pivot(index="seed", columns="model", values=score)
        for name in (first, second):
            require(name in wide, f"model = {name!r}: these runs are of {', '.join(wide)}")
        found = wide[[first, second]].dropna().rename_axis(columns=None)
        found["difference"] = found[first] - found[second]
        mean, low, high = mean_interval(found["difference"].tolist())
        summary = found.mean().to_dict() | {"difference": mean}
        if len(found) >= 3:
            summary |= {"low": low, "high": high}
        return pd.concat([found, pd.DataFrame([summary], index=["mean"])]).rename_axis("seed")

    def plot(self, score: str = "token_accuracy") -> "Figure":
        """Draw a score by steps and by multiply-adds: a line per model, and a band from the lowest to the highest seed.

        Raises ConfigError for a score that these runs do not have.
        """
        from entp_lab import figures

        table = self.curves()
        require(score in table, f"score = {score!r}: these runs have {', '.join(table.columns)}")
        self.check_distinct()
        figure, axes = figures.panels(2, sharey=True)
        for ax, spent in zip(axes, ("step", "multiply_adds"), strict=True):
            figures.lines(ax, table, spent, score, by="model", looks=figures.ARMS)
        figures.legend(figure)
        return figure

    def check_distinct(self) -> None:
        """Raise ConfigError where two runs of a model have one random seed: their settings differ."""
        seen = [tuple(identity(record).values()) for record in self.records]
        require(
            len(set(seen)) == len(seen),
            "these runs have several settings of a model: ask for those of one at a time",
        )

    def __repr__(self) -> str:
        return self.note


def identity(record: Record) -> Json:
    """Return the model and random seed, which distinguish a run from the others."""
    return {
        "model": cast(RunConfig, record.config).model.architecture,
        "seed": record.config.model_seed,
    }


def pairs(
    task: Task,
    model: Shape,
    train: Schedule,
    models: Sequence[str] = TWINS,
    seeds: int = 5,
    experiment: str = OWN,
    tier: TierName = "quick",
) -> list[RunConfig]:
    """Plan a run per model and random seed; runs of one seed share initial weights, batches and evaluations.

    ``model``: a ModelConfig, or only its shape, so that vocabulary and length follow from the task. ``train``: one
    schedule, or one for each of ``models``. ``experiment``: the experiment whose committed records are used where the
    settings match.
    """
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    if isinstance(task, Text) and experiment == OWN and (paths.root() / task.corpus).is_file():
        # so that another text in the file is another task
        task = replace(task, checksum=file_checksum(paths.root() / task.corpus)[:16])
    known = task_name(task)
    name = known or f"({type(task).__name__})"  # a new task: only ``compare`` trains it
    params = {
        field.name: getattr(task, field.name)
        for field in (dataclasses.fields(cast(Any, task)) if known else ())
        if field.init and getattr(task, field.name) != field.default
    }
    if experiment != OWN:  # it may write the parameters of an equal task differently
        for config in EXPERIMENTS.named(experiment).configs(tier, seeds):
            if (
                isinstance(config, RunConfig)
                and config.task == name
                and build_task(name, config.task_params) == task
            ):
                params = config.task_params
                break
    if isinstance(model, ModelConfig):
        shapes = {kind: replace(model, architecture=kind) for kind in models}
    else:
        shapes = {kind: model_for(task, kind, model) for kind in models}
    schedules = dict.fromkeys(models, train) if isinstance(train, TrainConfig) else train
    return [
        RunConfig(experiment, tier, name, params, shapes[kind], schedules[kind], seed, seed)
        for seed in range(seeds)
        for kind in models
    ]


def run(
    configs: Sequence[RunConfig], jobs: int = 0, fresh: bool = False, time_limit: float = 0.0
) -> Runs:
    """Return the stored records of ``configs``, and train those that have none, several at a time.

    Runs planned by a committed experiment are stored with its own, all others in ``results/own``. If they take minutes,
    an estimate is printed first, unless a command executes the notebook. ``jobs``: 0 for one run per core. ``fresh``:
    train stored runs again. ``time_limit``: seconds, 0 for none; the next call continues what it cuts short.
    """
    require(configs, "no runs were asked for: seeds and models must not be empty")
    first = configs[0]
    name = first.experiment
    tier = first.tier
    for config in configs:
        require(
            (config.experiment, config.tier) == (name, tier),
            f"{config.experiment}, {config.tier}: one call takes runs of one experiment and tier",
        )
        require(
            config.task.isidentifier(),
            f"task = {config.task}: not a task of the project; lab.compare trains it",
        )
    no_experiment = Experiment(OWN, 1, "", "", lambda tier, seeds: [])
    experiment = no_experiment if name == OWN else EXPERIMENTS.named(name)
    version = experiment.version
    known = {config_id(run.config, version): run for run in experiment.plan(tier)}
    asked = {config_id(config, version): planned(config) for config in configs}
    is_unplanned = not asked.keys() <= known.keys()
    store = Store.of_tier(tier)
    if is_unplanned and tier != "smoke":
        store = store.own()
    parameters = NotebookParameters(jobs=jobs, time_limit=time_limit)
    planned_runs = [known.get(name, run) for name, run in asked.items()]
    records = experiment.compute(planned_runs, parameters, store, fresh).complete
    runs = shown(
        records,
        [step_operations(record.config) for record in records],
        len(configs),
        "your own runs (results/own)" if is_unplanned else f"records of {name}",
    )
    if is_unplanned and any(
        process.get("sources") != sources(modules_of(record.config))
        for record in records
        for process in processes(record)
    ):
        print("Some were made by other code than today's; fresh=True trains them again.")
    return runs


def shown(records: Records, step_costs: list[float], asked: int, where: str) -> Runs:
    """Return runs, and print their models, size and seeds, and how many of them a time limit cut."""
    note = f"Shown: nothing; none of {asked} runs is complete."
    if records:
        configs = [cast(RunConfig, record.config) for record in records]
        models = dict.fromkeys(config.model.architecture for config in configs)
        sizes = dict.fromkeys(
            f"{config.model.n_layers} layers of width {config.model.width}, {config.train.steps:,} steps"
            for config in configs
        )
        cut = (
            f"; {asked - len(records)} of {asked} runs are not complete"
            if len(records) < asked
            else ""
        )
        note = (
            f"Shown: {' and '.join(models)}, {' or '.join(sizes)}, "
            f"{count_seeds(records)}, tier {configs[0].tier}; {where}{cut}."
        )
    print(note)
    return Runs(list(records), step_costs, note)


def compare(
    task: Task,
    models: Sequence[str] = TWINS,
    steps: int = 1000,
    seeds: int = 3,
    model: Shape | None = None,
    train: Schedule | None = None,
    fresh: bool = False,
) -> Runs:
    """Train ``models`` on any task and return their runs; three random seeds by default, since one alone may mislead.

    Runs on a task of ``entp_lib.tasks`` are stored in ``results/own``. A task defined in a notebook is trained in this
    process, with a progress bar, and not stored. ``train`` takes the place of ``steps``. ``fresh``: train stored runs
    again. The cost of each model's step
    is printed first.
    """
    every = max(5, steps // 20)
    train = train or TrainConfig(
        steps, max_lr=3e-3, min_lr=3e-4, warmup_steps=steps // 10, eval_every=every
    )
    configs = pairs(task, model or SMALL, train, models, seeds)
    lengths = prefixes_of(task)
    costs = [
        sequence_operations(config.model, lengths) * config.train.batch_size for config in configs
    ]
    each = zip(models, costs, strict=False)
    price = ", ".join(f"{name} {cost:.2g} ({cost / min(costs):.1f} ×)" for name, cost in each)
    print(f"Multiply-adds of a training step: {price}")
    if task_name(task):
        return run(configs, fresh=fresh)
    name = type(task).__name__
    with (
        computing_threads(1),
        tqdm(total=sum(config.train.steps for config in configs), desc=name, leave=False) as bar,
    ):
        records = [train_here(config, task, bar) for config in configs]
    return shown(records, costs, len(configs), f"trained now on {name}, not stored")


def train_here(config: RunConfig, task: Task, bar: tqdm) -> Record:
    """Train a run on ``task`` in this process and return its record, which is not stored."""
    started = time.monotonic()
    outcome = train_run(
        config, task=task, checkpoint=Checkpoint(on_step=lambda step, last: bar.update())
    )
    spent = {"steps": outcome.state.step, "train_seconds": outcome.state.seconds}
    where = provenance("cpu", 1) | spent | {"wall_seconds": time.monotonic() - started}
    return Record(
        OWN, 1, config, outcome.metrics, outcome.state.curves, where, labels=planned(config).labels
    )
