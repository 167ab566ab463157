"""How many of the runs that a notebook asks for have a record: what must be computed, and what a failure lacks."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.execution import Config


@dataclass(frozen=True)
class Planned:
    """Runs that a notebook's experiments ask for, how many are complete, and the configurations of the others."""

    total: int = 0
    complete: int = 0
    todo: Sequence[Config] = field(default=(), compare=False)

    @property
    def missing(self) -> int:
        return self.total - self.complete


def common(parameters: dict[str, Any]) -> NotebookParameters:
    """What all notebooks accept, of the parameters of one. ConfigError for a value that makes no sense."""
    names = common_names()
    return NotebookParameters(**{name: value for name, value in parameters.items() if name in names})


def common_names() -> set[str]:
    return {f.name for f in dataclasses.fields(NotebookParameters)}


def planned(notebook: str, parameters: dict[str, Any]) -> Planned:
    """The runs of a notebook (its name without suffix) at these parameters; with ``fresh`` none counts as complete.

    Runs that the notebook shows where they are stored, and does not compute at ``best``, are not among them; nor does
    a parameter of the notebook's own count that puts other runs in their place.

    ConfigError for ``changes`` that fit none of its experiments' runs.
    """
    from entp_lib.experiments.experiment import NoRuns
    from entp_lib.registry import EXPERIMENTS

    wanted = common(parameters)
    total, todo = 0, []
    for experiment in (e for e in EXPERIMENTS.values() if e.notebook == notebook):
        try:
            store, runs = experiment.wanted(wanted)
        except NoRuns:
            continue
        if experiment.shown_if_stored and wanted.tier == "best":
            continue
        total += len(runs)
        for run in runs:
            found = None if wanted.fresh else store.find(run.config, experiment.version)
            if found is None or found.status != "complete":
                todo.append(run.config)
    return Planned(total, total - len(todo), todo)
