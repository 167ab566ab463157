"""Changes to an experiment, asked for in a notebook: ``{"task.length": 14, "model.width": 96, "train.steps": 400}``.

Every training run of the experiment is changed alike, and checked as strictly as any configuration. Its records go to
a store of their own, and no claim counts them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from entp_lab.budgets import EQUAL_FORWARDS, equal_forwards
from entp_lab.configs import RunConfig
from entp_lab.parameters import PARTS, check_names
from entp_lab.registry import build_task
from entp_lib.validation import ConfigError, from_dict, require


def changed(runs: Sequence[Any], changes: dict[str, Any]) -> list[Any]:
    """Planned ``runs`` with every change made to those that train, and task changes to studies that have a task.

    ``train.steps`` is that of the run with the fewest; longer ones keep their ratio to it. Decay and evaluations are
    stretched with it unless they are named too; a warm-up stays, unless the run is shorter. The arm
    ``longer`` keeps its budget on the changed task. Labels: ``changed``. Raises ConfigError for what the configurations
    of runs that train do not know or refuse, and for what tells the runs of the experiment apart.
    """
    check_names(changes)
    training = [run.config for run in runs if isinstance(run.config, RunConfig)]
    if not changes or (not training and not any("task" in run.config.params for run in runs)):
        return list(runs)
    parts = [(*name.partition(".")[::2], value) for name, value in changes.items()]
    asked = {part: {field: value for of, field, value in parts if of == part} for part in PARTS}
    said = ", ".join(f"{name} = {value}" for name, value in changes.items())
    fewest = min((config.steps for config in training), default=1)
    found = []
    try:
        require(not any(c.start_from for c in training), "its runs start from others' weights, and stay")
        for part, field, _ in parts if training else ():
            of_task = part == "task"  # also a setting that is left at its default
            holders = (build_task(c.task, c.task_params) if of_task else getattr(c, part) for c in training)
            values = dict.fromkeys(repr(getattr(holder, field, None)) for holder in holders)
            alike = len(values) == 1 or (part, field) == ("train", "steps")
            differ = f"{part}.{field} is what the runs of the experiment differ in ({', '.join(values)})"
            require(alike, f"{differ}: one value cannot be for all")
        for run in runs:
            if isinstance(run.config, RunConfig):
                config = changed_run(run.config, asked, fewest, twin_of(run, runs))
            else:  # whether its task has such settings is seen when the study builds it
                task = run.config.params.get("task")
                params = {"task": {**task, **asked["task"]}} if isinstance(task, dict) else {}
                config = replace(run.config, params={**run.config.params, **params})
            label = {} if config == run.config else {"changed": said}
            found.append(replace(run, config=config, labels={**run.labels, **label}))
    except ConfigError as error:
        raise ConfigError(f"changes: {error}") from None
    return found


def twin_of(run: Any, runs: Sequence[Any]) -> RunConfig | None:
    """Find the ENTP whose budget the arm ``longer`` has, of the same labels else; None for another run."""
    if run.labels.get("arm") != EQUAL_FORWARDS:
        return None
    scored = {**run.labels, "arm": "entp", "architecture": "entp"}
    found = (r.config for r in runs if all(scored.get(name, value) == value for name, value in r.labels.items()))
    return next(found, run.config)


def changed_run(config: RunConfig, asked: dict[str, dict], fewest: int, twin: RunConfig | None) -> RunConfig:
    """One run with what is ``asked`` of its parts; its model's sizes follow the task, and its steps a ``twin``."""
    params = {**config.task_params, **asked["task"]}
    before, after = build_task(config.task, config.task_params), build_task(config.task, params)
    sizes = {"max_length": config.model.max_length + after.length - before.length}
    if after.continuous:
        sizes["input_dim"] = after.input_dim
    else:  # a model may have more symbols than its task
        sizes["vocab_size"] = config.model.vocab_size + after.vocab_size - before.vocab_size
    model = built(config.model, {**sizes, **asked["model"]})
    schedule = dict(asked["train"])
    steps = schedule.pop("steps", fewest)
    require(type(steps) is int and steps >= 1, f"train.steps = {steps!r}: must be a whole number from 1 on")
    ratio = steps / fewest
    if twin is not None:
        curriculum = "a step's work grows along a curriculum, so that the steps of the arm longer cannot follow"
        require(after.at_step(1) == after, f"task.curriculum_every: {curriculum}")
        theirs = replace(twin, task_params={**twin.task_params, **asked["task"]})
        ratio *= equal_forwards(theirs, replace(config, task_params=params)) / equal_forwards(twin, config)
    train = config.train
    if not math.isclose(ratio, 1.0):
        start = replace(train, warmup_steps=round(train.warmup_steps * min(1.0, ratio)))
        train = start.lengthened(ratio, max(1, math.ceil(train.eval_every * ratio - 1e-9)))
    train = built(train, schedule)
    warmup = train.warmup_steps
    right = f"train.warmup_steps = {warmup}: {config.label} has {train.steps} steps, all of them before the full rate"
    require("warmup_steps" not in schedule or warmup <= train.steps, right)
    return replace(config, task_params=params, model=model, train=train)


def built(config: Any, values: dict[str, Any]) -> Any:
    """A part of a configuration with other values, checked; lists stand for pairs."""
    return from_dict(type(config), asdict(config) | values)


def texts(records: Iterable) -> list[str]:
    """The changes that the labels of records tell, each once."""
    return list(dict.fromkeys(r.labels["changed"] for r in records if r.labels.get("changed")))
