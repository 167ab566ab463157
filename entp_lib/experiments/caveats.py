"""Reservations about a comparison: models that were still improving, settings that are not the paper's."""

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from entp_lib.config import RunConfig
from entp_lib.experiments.plans import PlannedRun
from entp_lib.records.store import Record
from entp_lib.statistics import reaches
from entp_lib.tasks import build_task

FLAT = 0.01  # of token accuracy, between the last fifth of a run's evaluations and the fifth before


def rise(values: Sequence[float]) -> float:
    """Mean over the last fifth of a curve less that over the fifth before; NaN for fewer than five values."""
    if len(values) < 5:
        return float("nan")
    *_, before, last = np.array_split(np.asarray(values, dtype=float), 5)
    return float(last.mean() - before.mean())


def still_improving(records: Sequence[Record]) -> str:
    """After how many steps an arm's token accuracy was still rising by ``FLAT`` or more, in words; empty where none's.

    The mean over seeds decides, of runs whose other labels are alike. Studies and runs without that curve say nothing.
    """
    curves: dict[frozenset, list[Record]] = {}
    for r in records:
        if isinstance(r.config, RunConfig) and "token_accuracy" in r.curves:
            alike = frozenset((name, str(value)) for name, value in r.labels.items() if name != "seed")
            curves.setdefault(alike, []).append(r)
    rises = ((part, np.mean([rise(r.curves["token_accuracy"]) for r in part])) for part in curves.values())
    return after(r.config.train.steps for part, mean in rises if reaches(mean, FLAT) for r in part)


def after(steps: Iterable[int]) -> str:
    """ "still improving after 1,200 steps", for each number of steps once; empty for none."""
    counts = " and ".join(f"{count:,}" for count in sorted(set(steps)))
    return f"still improving after {counts} steps" if counts else ""


def differing_settings(records: Sequence[Record], of_paper: Sequence[PlannedRun]) -> str:
    """Settings of training runs that the paper's do not have, as "steps 1,200 (150,000)": task, model, schedule.

    Compared are the runs of the paper's tier whose labels are most alike; where a setting varies, all values are named.
    Empty where there are no training runs, or no such tier.
    """
    ours = [r for r in records if isinstance(r.config, RunConfig)]
    theirs = [run for run in of_paper if isinstance(run.config, RunConfig)]
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for record in ours if theirs else ():
        likeness = [len(record.labels.items() & run.labels.items()) for run in theirs]
        most = max(likeness)
        alike = [settings_of(t.config) for t, n in zip(theirs, likeness, strict=True) if n == most]
        for name, value in settings_of(record.config).items():
            papers = dict.fromkeys(paper[name] for paper in alike if name in paper)
            if papers and value not in papers:
                mine, of_paper = found.setdefault(name, ({}, {}))
                mine[value] = None
                of_paper.update(papers)
    return ", ".join(f"{name} {'/'.join(mine)} ({'/'.join(papers)})" for name, (mine, papers) in found.items())


def settings_of(config: RunConfig) -> dict[str, str]:
    """The settings of a run that a reader would compare, as text: task's parameters, model's shape, schedule."""
    found = dict(settings_of_task(config.task, json.dumps(config.task_params)))
    found |= {name: getattr(config.model, name) for name in ("n_layers", "n_heads", "width")}
    found |= {name: getattr(config.train, name) for name in ("steps", "batch_size", "max_lr", "min_lr", "precision")}
    return {name: f"{value:,}" if type(value) is int else str(value) for name, value in found.items()}


@functools.lru_cache(maxsize=512)
def settings_of_task(name: str, params: str) -> dict[str, Any]:
    """All parameters of a task, of which ``params`` are some as JSON; without random seeds and parts of its data."""
    task = build_task(name, json.loads(params))
    return {f.name: getattr(task, f.name) for f in fields(task) if not f.name.endswith("seed") and f.name != "part"}
