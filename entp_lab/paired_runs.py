"""What notebooks call: pairs of runs, their records, and both models' curves and scores as tidy frames."""

import dataclasses
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import pandas as pd
import torch
from tqdm.auto import tqdm

from entp_lab import paths
from entp_lab.budgets import prefixes_of, sequence_operations, step_operations
from entp_lab.configs import RunConfig, TierName, config_id
from entp_lab.plans import TWINS, PlannedRun, model_for, planned
from entp_lab.provenance import available_cores, provenance
from entp_lab.registry import EXPERIMENTS, build_task, task_name
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import sweep
from entp_lab.statistics import mean_interval
from entp_lab.store import Record, Store, is_complete
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import evaluate
from entp_lib.model import build_model
from entp_lib.tasks import Task
from entp_lib.training import train as train_model
from entp_lib.validation import ConfigError, require

Shape = ModelConfig | Mapping[str, Any]
Schedule = TrainConfig | Mapping[str, TrainConfig]
OWN = "own"  # the experiment of runs that belong to none
SMALL = {"n_layers": 3, "n_heads": 4, "width": 64}  # what ``compare`` trains unless told otherwise
TIMED_STEPS = 3
TIMED_SEQUENCES = 64


@dataclass(frozen=True, repr=False)
class Runs:
    """Records of runs, and frames and a plot of them.

    ``step_costs``: the multiply-adds of a training step, by record. ``committed``: the project's own records of the
    same experiment, which ``plot`` draws beside runs of other settings. ``note``: which runs these are, in a sentence.
    """

    records: list[Record]
    step_costs: list[float]
    committed: list[Record] = field(default_factory=list)
    note: str = ""

    def curves(self) -> pd.DataFrame:
        """Return a row a run and evaluation: model, seed, step, multiply_adds, and every curve."""
        frames = []
        for record, cost in zip(self.records, self.step_costs, strict=True):
            steps = record.curves["step"]
            spent = {"step": steps, "multiply_adds": [cost * step for step in steps]}
            frames.append(pd.DataFrame(identity(record) | spent | record.curves))
        return pd.concat(frames, ignore_index=True)

    def scores(self) -> pd.DataFrame:
        """Return a row a run: model, seed, its last scores, steps, multiply_adds, and seconds of training."""
        rows = []
        for record, cost in zip(self.records, self.step_costs, strict=True):
            numbers = {name: value for name, value in record.metrics.items() if isinstance(value, int | float)}
            steps = record.provenance["steps"]
            spent = {"steps": steps, "multiply_adds": cost * steps, "seconds": record.provenance["train_seconds"]}
            rows.append({**identity(record), **numbers, **spent})
        return pd.DataFrame(rows)

    def paired(self, score: str, first: str, second: str) -> pd.DataFrame:
        """Return a row a random seed with both models' scores and their difference, and the mean as the last row.

        The mean has its 95 % interval (Student's t) from three pairs on.
        """
        table = self.scores()
        require(score in table, f"score = {score!r}: these runs have {', '.join(table.columns[2:])}")
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

    def plot(self, y: str = "token_accuracy", x: str = "step", ax=None):
        """Draw ``y`` against "step" or "multiply_adds", a line a model through the means, a band over random seeds.

        Committed records beside one's own are dotted. Returns the axes.
        """
        from entp_lab import figures

        ax = figures.panels(1, width=4.2, height=3.0)[1] if ax is None else ax
        table = self.curves()
        require(y in table, f"y = {y!r}: the curves are {', '.join(table.columns[2:])}")
        require(x in ("step", "multiply_adds"), f"x = {x!r}: step or multiply_adds")
        figures.lines(ax, table, x, y, by="model", looks=figures.ARMS)
        if self.committed:
            beside = Runs(self.committed, [step_operations(r.config) for r in self.committed]).curves()
            looks = {
                name: replace(figures.ARMS[name], dashes=":", label=f"{figures.ARMS[name].label}, committed")
                for name in beside["model"].unique()
            }
            figures.lines(ax, beside, x, y, by="model", looks=looks, errorbar=None, marks=0)
        ax.legend(fontsize=8)
        return ax

    def __repr__(self) -> str:
        return self.note


def identity(record: Record) -> dict[str, Any]:
    """Return what tells a run from the others: its model and its random seed."""
    return {"model": trained(record).model.architecture, "seed": record.config.model_seed}


def trained(record: Record) -> RunConfig:
    """Return the configuration of a training run; ConfigError for a study."""
    if not isinstance(record.config, RunConfig):
        raise ConfigError(f"record {record.name} is a study, which has no model to compare")
    return record.config


def pairs(
    task: Task,
    model: Shape,
    train: Schedule,
    models: Sequence[str] = TWINS,
    seeds: int = 5,
    experiment: str = OWN,
    tier: TierName = "quick",
) -> list[RunConfig]:
    """Plan a run a model and random seed; runs of one seed share initial weights, batches and evaluations.

    ``model``: a ModelConfig, or its shape alone, whose sizes then follow from the task. ``train``: one schedule, or one
    for each of ``models``. ``experiment``: whose committed records are found where the settings are theirs.
    """
    name = task_name(task)
    if name is None:
        raise ConfigError(f"task = {task!r}: not a task of the project; lab.compare trains it")
    fields = [field for field in dataclasses.fields(cast(Any, task)) if field.init]
    params = {field.name: getattr(task, field.name) for field in fields if getattr(task, field.name) != field.default}
    known = EXPERIMENTS.named(experiment).plan(tier, seeds) if experiment != OWN else []
    configs = plan_pairs(RunParts(experiment, tier, name, params), task, model, train, models, seeds)
    planned_configs = [run.config for run in known]
    return [next((c for c in planned_configs if is_same(c, config, task)), config) for config in configs]


class RunParts(NamedTuple):
    """What all runs of a comparison share: experiment, tier, and the task's name and parameters."""

    experiment: str
    tier: TierName
    task: str
    params: dict[str, Any]


def plan_pairs(
    parts: RunParts, task: Task, model: Shape, train: Schedule, models: Sequence[str], seeds: int
) -> list[RunConfig]:
    """Plan a run a random seed and architecture, the seeds outermost."""
    require(seeds >= 1, f"seeds = {seeds}: must be at least 1")
    configs = []
    for seed in range(seeds):
        for name in models:
            schedule = train if isinstance(train, TrainConfig) else train[name]
            if isinstance(model, ModelConfig):
                shape = replace(model, architecture=name)
            else:
                shape = model_for(task, name, model)
            configs.append(RunConfig(*parts, shape, schedule, seed, seed))
    return configs


def is_same(planned_config: Any, config: RunConfig, task: Task) -> bool:
    """Say whether a planned run is ``config``, however its task's parameters are written."""
    if not isinstance(planned_config, RunConfig) or planned_config.task != config.task:
        return False
    alike = replace(planned_config, task_params=config.task_params) == config
    return alike and build_task(planned_config.task, planned_config.task_params) == task


def run(configs: Sequence[RunConfig], jobs: int = 0, fresh: bool = False, time_limit: float = 0.0) -> Runs:
    """Return the stored records of ``configs``, and train those that have none, several at a time.

    Runs that a committed experiment plans are stored with its own, all others in ``results/own``. Before anything is
    trained a line says how long it takes. ``jobs`` 0: one run per core; ``fresh`` trains again what is stored;
    ``time_limit`` in seconds, 0 for none: what it cuts short is continued by the next call.
    """
    require(bool(configs), "no runs were asked for: seeds and models must not be empty")
    first = configs[0]
    for config in configs:
        same = (config.experiment, config.tier) == (first.experiment, first.tier)
        require(same, f"{config.experiment}, {config.tier}: one call takes runs of one experiment and tier")
    experiment = EXPERIMENTS.named(first.experiment) if first.experiment != OWN else None
    version = experiment.version if experiment else 1
    seeds = len({config.model_seed for config in configs})
    plan = experiment.plan(first.tier, seeds) if experiment else []
    labels = {config_id(run.config, version): run.labels for run in plan}
    is_own = any(config_id(config, version) not in labels for config in configs)
    if first.tier == "smoke":
        store = Store(paths.results() / "smoke", read_only=False)
    else:
        store = Store().own() if is_own else Store()
    missing = [c for c in configs if fresh or not is_complete(store.find(c, version))]
    if missing and first.tier != "smoke" and not store.read_only:
        say_price(missing, jobs)
    done = sweep(configs, version, store=store, fresh=fresh, jobs=jobs, time_limit=time_limit, label=first.experiment)
    own_labels = {config_id(config, version): planned(config).labels for config in configs}
    records = [replace(record, labels=(own_labels | labels)[record.id]) for record in done.complete]
    where = "your own runs (results/own)" if is_own else f"records of {first.experiment}"
    note = f"Shown: {sentence(records, len(configs), where)}"
    beside: list[Record] = []
    if experiment and is_own:
        models = {config.model.architecture for config in configs}
        beside = experiment.found(Store(), first_setting(plan, models)) or []
    if beside:
        note += f" Dotted: {sentence(beside, len(beside), f'committed records of {first.experiment}')}"
    print(note)
    return Runs(records, [step_operations(record.config) for record in records], beside, note)


def first_setting(plan: Sequence[PlannedRun], models: Container[str]) -> list[PlannedRun]:
    """Return the runs of a plan that have the task of its first and one of these architectures as arm."""
    runs = [run for run in plan if isinstance(run.config, RunConfig) and run.labels.get("arm") in models]
    return [run for run in runs if parameters(run) == parameters(runs[0])]


def parameters(run: PlannedRun) -> dict[str, Any]:
    """Return the parameters of a training run's task."""
    return cast(RunConfig, run.config).task_params


def committed(experiment: str, tier: TierName = "quick", **labels: Any) -> Runs:
    """Return the stored records of a whole experiment at a tier, those that carry these labels."""
    from entp_lab.frames import select

    found = EXPERIMENTS.named(experiment).stored(Store(), tier)
    require(found is not None, f"{experiment} at tier {tier} has no complete records; ./run_all.sh --list says which")
    records = select(found or [], **labels)
    costs = [step_operations(record.config) for record in records]
    return Runs(records, costs, note=f"Shown: {sentence(records, len(records), f'records of {experiment}')}")


def sentence(records: Sequence[Record], asked: int, where: str) -> str:
    """Say of which models, size and seeds what is shown is, and whether a time limit cut any of it."""
    if not records:
        return f"nothing; none of {asked} runs is complete."
    shape, train = trained(records[0]).model, trained(records[0]).train
    models = " and ".join(dict.fromkeys(trained(record).model.architecture for record in records))
    seeds = len({record.config.model_seed for record in records})
    cut = f"; {asked - len(records)} of {asked} runs are not complete" if len(records) < asked else ""
    return (
        f"{models}, {shape.n_layers} layers of width {shape.width}, {train.steps:,} steps, "
        f"{seeds} random seed{'s' if seeds != 1 else ''}, tier {records[0].config.tier}; {where}{cut}."
    )


def compare(
    task: Task,
    models: Sequence[str] = TWINS,
    steps: int = 1000,
    seeds: int = 3,
    model: Shape | None = None,
    train: Schedule | None = None,
) -> Runs:
    """Train ``models`` on any task and return their runs; three random seeds, since one may learn late and mislead.

    A task of ``entp_lib.tasks`` is stored in ``results/own``; one defined in a notebook is trained in this process and
    not stored. A line says first what a step takes. ``train`` takes the place of ``steps``.
    """
    every = max(1, steps // 20)
    train = train or TrainConfig(steps, max_lr=3e-3, min_lr=3e-4, warmup_steps=steps // 10, eval_every=every)
    model = model or SMALL
    if task_name(task) is not None:
        return run(pairs(task, model, train, models, seeds))
    name = type(task).__name__
    configs = plan_pairs(RunParts(OWN, "quick", name, {}), task, model, train, models, seeds)
    say_price(configs, 1, task)
    lengths = prefixes_of(task)
    records, costs = [], []
    with one_thread(), tqdm(total=sum(c.steps for c in configs), desc=name, leave=False) as bar:
        for config in configs:
            records.append(train_here(config, task, bar))
            costs.append(sequence_operations(config.model, lengths) * config.train.batch_size)
    note = f"Shown: {sentence(records, len(configs), f'trained now on {name}, not stored')}"
    print(note)
    return Runs(records, costs, note=note)


def train_here(config: RunConfig, task: Task, bar: tqdm) -> Record:
    """Train a run on ``task`` in this process and return its record, which is not stored."""
    started = time.monotonic()
    outcome = train_run(config, task=task, checkpoint=Checkpoint(on_step=lambda step: bar.update()))
    where = provenance("cpu", 1)
    where |= {"steps": outcome.state.step, "train_seconds": outcome.state.seconds}
    where["wall_seconds"] = time.monotonic() - started
    labels = planned(config).labels
    return Record(OWN, 1, config, outcome.metrics, outcome.state.curves, where, labels=labels)


@contextmanager
def one_thread():
    """Compute on one thread, so that results do not depend on the number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def say_price(configs: Sequence[RunConfig], jobs: int, task: Task | None = None) -> None:
    """Print what a step of each model takes here, measured now, and about how long all runs take."""
    at_a_time = min(jobs or available_cores(), len(configs))
    steps, total = {}, 0.0
    with one_thread():
        for config in configs:
            kind = config.model.architecture
            if kind not in steps:
                steps[kind] = time_step(config, task or build_task(config.task, config.task_params))
            step, sequence = steps[kind]
            train = config.train
            evaluated = -(-train.steps // train.eval_every) * train.eval_sequences + train.final_eval_sequences
            total += train.steps * step + evaluated * sequence
    each = ", ".join(f"{1000 * step:.3g} ms ({kind})" for kind, (step, _) in steps.items())
    minutes = total / at_a_time / 60
    spoken = f"{60 * minutes:.0f} seconds" if minutes < 2 else f"{minutes:.0f} minutes"
    print(f"To train: {len(configs)} runs. A step takes {each}; all of them about {spoken}.", flush=True)


def time_step(config: RunConfig, task: Task) -> tuple[float, float]:
    """Return the seconds of a training step, and those of one sequence of an evaluation, measured on a few."""
    model = build_model(config.model, 0)
    short = partial(replace, config.train, decay_steps=None, stop_loss=None, eval_sequences=1)
    train_model(model, task, short(steps=1, eval_every=1))  # the first step also fills caches
    state = train_model(model, task, short(steps=TIMED_STEPS, eval_every=TIMED_STEPS))
    started = time.monotonic()
    evaluate(model, task, TIMED_SEQUENCES, precision=config.train.precision)
    return state.seconds / TIMED_STEPS, (time.monotonic() - started) / TIMED_SEQUENCES
