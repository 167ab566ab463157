"""Which settings of an experiment's runs are not those of the paper's, in words."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from entp_lib.config import RunConfig
from entp_lib.experiments.experiment import PlannedRun
from entp_lib.records.store import Record
from entp_lib.tasks import build_task


def differing_settings(records: Sequence[Record], of_paper: Sequence[PlannedRun]) -> str:
    """Settings of training runs that the paper's do not have, as "steps 1,200 (150,000)": task, model, schedule.

    Compared are the runs of the paper's tier whose labels are most alike; where a setting varies, all values are named.
    Empty where there are no training runs, or no such tier.
    """
    ours = [r for r in records if isinstance(r.config, RunConfig)]
    theirs = [run for run in of_paper if isinstance(run.config, RunConfig)]
    if not ours or not theirs:
        return ""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for record in ours:
        likeness = [len(record.labels.items() & run.labels.items()) for run in theirs]
        alike = [settings_of(t.config) for t, n in zip(theirs, likeness, strict=True) if n == max(likeness)]
        for name, value in settings_of(record.config).items():
            papers = dict.fromkeys(as_text(paper[name]) for paper in alike if name in paper)
            if papers and as_text(value) not in papers:
                mine, of_paper = found.setdefault(name, ({}, {}))
                mine[as_text(value)] = None
                of_paper.update(papers)
    return ", ".join(f"{name} {'/'.join(mine)} ({'/'.join(papers)})" for name, (mine, papers) in found.items())


SHOWN_SETTINGS = ("steps", "batch_size", "max_lr", "min_lr", "precision")  # of a schedule, beside task and shape


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings of a run that a reader would compare: the task's parameters, the model's shape, the schedule."""
    task = build_task(config.task, config.task_params)
    plain = {f.name: getattr(task, f.name) for f in fields(task)}
    plain = {name: value for name, value in plain.items() if not name.endswith("seed") and name != "part"}
    shape = {name: getattr(config.model, name) for name in ("n_layers", "n_heads", "width")}
    return {**plain, **shape, **{name: getattr(config.train, name) for name in SHOWN_SETTINGS}}


def as_text(value: Any) -> str:
    """A setting as a table shows it."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
