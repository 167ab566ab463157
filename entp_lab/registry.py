"""Experiments and studies by the names that records carry, each loaded with its own paper's modules when asked for.

A paper is a folder of the package ``entp_papers``. Its ``__init__`` holds literals alone: ``EXPERIMENTS`` and
``STUDIES``, name to "module:attribute", and where it has them ``TASKS``, ``RESUMABLE`` and ``NIGHTLY_ORDER``. A folder
without ``EXPERIMENTS`` has one experiment a module, named as the module and, in capitals, as the variable that holds
it.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from entp_lib.validation import from_dict, one_of, require

if TYPE_CHECKING:
    from entp_lib.tasks import Task

PAPERS = "entp_papers"


class Lazy(Mapping[str, Any]):
    """Objects by name, imported when one is asked for; iterating over names imports nothing."""

    def __init__(self, what: str, places: Callable[[], dict[str, str]]):
        self.what, self.places = what, functools.cache(places)

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.places()[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places())

    def __len__(self) -> int:
        return len(self.places())

    def named(self, name: str) -> Any:
        """The object of this name; ConfigError for an unknown one."""
        one_of(self.what, name, self.places())
        return self[name]


@functools.cache
def papers() -> dict[str, ModuleType]:
    """Every paper's package by its folder's name, in the order of the reports, then of the alphabet."""
    package = importlib.import_module(PAPERS)
    names = [found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg]
    order = [*package.ORDER, *sorted(set(names) - set(package.ORDER))]
    return {name: importlib.import_module(f"{PAPERS}.{name}") for name in order}


def places(table: str) -> dict[str, str]:
    """ "module:attribute" by name, of all papers; of one without ``EXPERIMENTS`` its modules are these.

    ConfigError for a name that two of them have.
    """
    found: dict[str, str] = {}
    for paper in papers().values():
        held = getattr(paper, table, None)
        if held is None and table == "EXPERIMENTS":
            names = [m.name for m in pkgutil.iter_modules(paper.__path__)]
            require(bool(names), f"{paper.__name__}: a paper's folder without experiments")
            held = {name: f"{name}:{name.upper()}" for name in names}
        for name, place in (held or {}).items():
            require(name not in found, f"{paper.__name__}: {name} is a name in {found.get(name)}, too")
            found[name] = f"{paper.__name__}.{place}"
    return found


EXPERIMENTS = Lazy("experiment", lambda: places("EXPERIMENTS"))
STUDIES = Lazy("study", lambda: places("STUDIES"))
OTHER_TASKS = Lazy("task", lambda: {"table": "entp_lab.table_file:TableFile", **places("TASKS")})


def task_names() -> list[str]:
    """Return the names of all tasks: those of the method, then those of the laboratory and of single papers."""
    from entp_lib.tasks import TASKS  # loads torch, which a command's help does without

    return [*TASKS, *OTHER_TASKS]


def task_name(task: "Task") -> str | None:
    """Return the name that records carry for a task's class; None for a class that is no task of the project."""
    from entp_lib.tasks import TASKS

    kind = type(task)
    place = f"{kind.__module__}:{kind.__name__}"
    names = [name for name, known in TASKS.items() if known is kind]
    return next(iter([*names, *(name for name, known in OTHER_TASKS.places().items() if known == place)]), None)


def build_task(name: str, params: dict[str, Any]) -> "Task":
    """Return the task of this name, of whichever room; ConfigError names what does not fit."""
    from entp_lib.tasks import TASKS

    one_of("task", name, task_names())
    return from_dict(TASKS[name] if name in TASKS else OTHER_TASKS[name], params, f"{name}.")


def nightly_order() -> tuple[str, ...]:
    """Experiments with runs at long tiers, in the order in which these are made."""
    return tuple(name for paper in papers().values() for name in getattr(paper, "NIGHTLY_ORDER", ()))


def resumable(study: str) -> bool:
    """Whether a study has a training loop that continues from a checkpoint and reports its steps."""
    return any(study in getattr(paper, "RESUMABLE", ()) for paper in papers().values())
