"""How many of the runs that a notebook asks for have a record: what must be computed, and what a failure lacks."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from entp_lib.collection.parameters import NotebookParameters
from entp_lib.strict import ConfigError


@dataclass(frozen=True)
class Planned:
    """Runs that a notebook's experiments ask for, and how many of them are complete."""

    total: int = 0
    complete: int = 0

    @property
    def missing(self) -> int:
        return self.total - self.complete


def planned(notebook: str, parameters: dict[str, Any]) -> Planned:
    """The runs of a notebook (its name without suffix) at these parameters; with ``fresh`` none counts as complete."""
    from entp_lib.papers import EXPERIMENTS

    names = {f.name for f in dataclasses.fields(NotebookParameters)}
    wanted = NotebookParameters(**{name: value for name, value in parameters.items() if name in names})
    total = complete = 0
    for experiment in (e for e in EXPERIMENTS.values() if e.notebook == notebook):
        try:
            store, runs = experiment.wanted(wanted)
        except ConfigError:  # it has no runs at this tier
            continue
        found = [store.find(run.config, experiment.version) for run in runs]
        total += len(found)
        complete += 0 if wanted.fresh else sum(r is not None and r.status == "complete" for r in found)
    return Planned(total, complete)
