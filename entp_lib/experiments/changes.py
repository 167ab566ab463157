"""Changes to an experiment, asked for in a notebook: ``{"task.length": 14, "model.width": 96, "train.steps": 400}``.

Every training run of the experiment is changed alike, and checked as strictly as any configuration. Its records go to
a store of their own, and no claim counts them.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from entp_lib.config import RunConfig
from entp_lib.experiments.budgets import EQUAL_FORWARDS, compute_ratio, stretched
from entp_lib.experiments.parameters import check_names
from entp_lib.tasks import build_task
from entp_lib.validation import ConfigError, from_dict, require


def changed(runs: Sequence[Any], changes: dict[str, Any]) -> list[Any]:
    """Planned ``runs`` with every change made to those that train, and task changes to studies that have a task.

    ``train.steps`` is that of the run with the fewest; longer ones keep their ratio to it. Decay and evaluations are
    stretched with it unless they are named too; a warm-up stays, unless the run is shorter. A decoder with ENTP's
    token-forwards keeps those of the changed task. Labels: ``changed``. Raises ConfigError for what the configurations
    of runs that train do not know or refuse, and for what tells the runs of the experiment apart.
    """
    check_names(changes)
    training = [run.config for run in runs if isinstance(run.config, RunConfig)]
    if not changes or (not training and not any("task" in run.config.params for run in runs)):
        return list(runs)
    started = next((c for c in training if c.start_from), None)
    require(started is None, f"changes: runs of {training and training[0].experiment} start from others' weights")
    said = ", ".join(f"{name} = {value}" for name, value in changes.items())
    fewest = min((config.steps for config in training), default=1)
    found = []
    try:
        check_shared(training, changes)
        for run in runs:
            if isinstance(run.config, RunConfig):
                config = changed_run(run.config, changes, fewest, twin_of(run, runs))
            else:  # whether its task has such settings is seen when the study builds it
                task = run.config.params.get("task")
                params = {"task": {**task, **only(changes, "task")}} if isinstance(task, dict) else {}
                config = replace(run.config, params={**run.config.params, **params})
            label = {} if config == run.config else {"changed": said}
            found.append(replace(run, config=config, labels={**run.labels, **label}))
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("changes: ") else f"changes: {text}") from None
    return found


def twin_of(run: Any, runs: Sequence[Any]) -> RunConfig | None:
    """The ENTP whose token-forwards a decoder has, of the same labels else; None for another run."""
    if run.labels.get("arm") != EQUAL_FORWARDS:
        return None
    wanted = {**run.labels, "arm": "entp", "architecture": "entp"}
    found = (r.config for r in runs if all(wanted.get(name, value) == value for name, value in r.labels.items()))
    return next(found, run.config)


def check_shared(training: Sequence[RunConfig], changes: dict[str, Any]) -> None:
    """ConfigError for a setting that differs among the runs, which one value for all would make the same."""
    for name in changes:
        part, _, field = name.partition(".")
        if name == "train.steps":
            continue
        of_task = part == "task"  # also a setting that is left at its default
        holders = (build_task(c.task, c.task_params) if of_task else getattr(c, part) for c in training)
        values = dict.fromkeys(repr(getattr(holder, field, None)) for holder in holders)
        require(
            len(values) <= 1,
            f"{name} is what the runs of the experiment differ in ({', '.join(values)}): one value cannot be for all",
        )


def only(changes: dict[str, Any], part: str) -> dict[str, Any]:
    """The changes to one part, by field."""
    return {name.partition(".")[2]: value for name, value in changes.items() if name.startswith(f"{part}.")}


def changed_run(config: RunConfig, changes: dict[str, Any], fewest: int, twin: RunConfig | None) -> RunConfig:
    """One run with its changes; the sizes that its model takes from the task follow, and with a ``twin`` its steps."""
    params = {**config.task_params, **only(changes, "task")}
    before, after = build_task(config.task, config.task_params), build_task(config.task, params)
    for field in only(changes, "task"):
        check_like(f"task.{field}", getattr(after, field), getattr(before, field))
    sizes = {"max_length": config.model.max_length + after.length - before.length}
    if after.continuous:
        sizes["input_dim"] = after.input_dim
    else:  # a model may have more symbols than its task
        sizes["vocab_size"] = config.model.vocab_size + after.vocab_size - before.vocab_size
    model = built(config.model, {**sizes, **only(changes, "model")})
    asked = only(changes, "train")
    steps = asked.pop("steps", fewest)
    require(type(steps) is int and steps >= 1, f"train.steps = {steps!r}: must be a whole number from 1 on")
    ratio = steps / fewest
    curriculum = (
        "task.curriculum_every: a step's work grows along a curriculum, so that no decoder at equal token-forwards fits"
    )
    require(twin is None or after.at_step(1) == after, curriculum)
    if twin is not None and after != before:
        plain = build_task(twin.task, twin.task_params)
        own = build_task(twin.task, {**twin.task_params, **only(changes, "task")})
        ratio *= compute_ratio(own, after) / compute_ratio(plain, before)
    train = config.train if math.isclose(ratio, 1.0) else stretched(config.train, ratio)
    train = built(train, asked)
    warmup = train.warmup_steps
    right = f"train.warmup_steps = {warmup}: {config.label} has {train.steps} steps, all of them before the full rate"
    require("warmup_steps" not in asked or warmup <= train.steps, right)
    return replace(config, task_params=params, model=model, train=train)


def check_like(name: str, value: Any, before: Any) -> None:
    """ConfigError where a task's new value is no number, text or truth value as the one before was."""
    number = (int, float)
    same = type(value) is type(before) or None in (value, before)
    both = isinstance(value, number) and isinstance(before, float) and not isinstance(value, bool)
    require(same or both, f"{name} = {value!r}: must be of type {type(before).__name__}, like {before!r}")


def built(config: Any, fields: dict[str, Any]) -> Any:
    """A part of a configuration with other values, checked; lists stand for pairs."""
    return from_dict(type(config), {**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)}, **fields})


def texts(records: Iterable) -> list[str]:
    """The changes that the labels of records tell, each once."""
    return list(dict.fromkeys(r.labels["changed"] for r in records if r.labels.get("changed")))
