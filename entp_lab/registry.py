"""Experiments and studies by the names that records carry; each is imported with its paper's modules when asked for.

A paper is a folder of the package ``entp_papers``. Its ``__init__`` holds literals alone: ``EXPERIMENTS`` and
``STUDIES``, from name to "module:attribute", and optionally ``TASKS`` and ``NIGHTLY_ORDER``.
"""

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from entp_lib.validation import ConfigError, Json, from_dict, one_of, require

if TYPE_CHECKING:
    from entp_lib.tasks import Task

PAPERS = "entp_papers"


@dataclass(eq=False)
class Registry(Mapping[str, Any]):
    """Objects of all papers by name, imported when one is asked for; iterating over names imports nothing."""

    kind: str
    table: str

    @functools.cached_property
    def places(self) -> dict[str, str]:
        """ "module:attribute" by name; ConfigError for a name that two papers have."""
        found: dict[str, str] = {}
        for paper in papers().values():
            for name, place in getattr(paper, self.table, {}).items():
                require(
                    name not in found,
                    f"{paper.__name__}: {name} is a name in {found.get(name)}, too",
                )
                found[name] = f"{paper.__name__}.{place}"
        return found

    def __getitem__(self, name: str) -> Any:
        return pkgutil.resolve_name(self.places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def named(self, name: str) -> Any:
        """Return the object of this name; ConfigError with at most five near names for an unknown one."""
        if name not in self.places:
            near = difflib.get_close_matches(name, self.places, 5, 0.65)
            hint = f"did you mean {' or '.join(near)}?" if near else "entp list names them all"
            raise ConfigError(f"there is no {self.kind} {name!r}; {hint}")
        return self[name]


@functools.cache
def papers() -> dict[str, ModuleType]:
    """Return every paper's package by its folder's name, in the order of the reports, then alphabetically."""
    package = importlib.import_module(PAPERS)
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg)
    order = dict.fromkeys([*package.TITLES, *names])
    return {name: importlib.import_module(f"{PAPERS}.{name}") for name in order if name in names}


def paper_titles() -> dict[str, str]:
    """Return every paper's title by its folder's name, in the order of the reports."""
    titles = importlib.import_module(PAPERS).TITLES
    return {name: titles.get(name, name) for name in papers()}


EXPERIMENTS = Registry("experiment", "EXPERIMENTS")
STUDIES = Registry("study", "STUDIES")
PAPERS_TASKS = Registry("task", "TASKS")


def task_class(name: str) -> type["Task"]:
    """Return the task class of this name, from ``entp_lib`` or a paper; ConfigError for an unknown one."""
    from entp_lib.tasks import TASKS  # loads torch, which would slow down a command's help

    if name not in TASKS:
        one_of("task", name, [*TASKS, *PAPERS_TASKS])
    return TASKS.get(name) or PAPERS_TASKS[name]


def task_name(task: "Task") -> str | None:
    """Return the name that records carry for a task's class; None for a class outside the project."""
    from entp_lib.tasks import TASKS

    kind = type(task)
    place = f"{kind.__module__}:{kind.__name__}"
    names = [name for name in TASKS if TASKS[name] is kind]
    names += [name for name, known in PAPERS_TASKS.places.items() if known == place]
    return names[0] if names else None


def build_task(name: str, params: Json) -> "Task":
    """Return the task of this name with its parameters; ConfigError names what does not fit."""
    return from_dict(task_class(name), params, f"{name}.")


def nightly_order() -> list[str]:
    """Return the experiments with runs at long tiers, in the order in which they are computed."""
    return [name for paper in papers().values() for name in getattr(paper, "NIGHTLY_ORDER", ())]
