"""The tasks, one module each, found by folder: a task has the name of its module, and its class that in capitals.

A task's module is imported when the task, or its class (``from entp_lib.tasks import Counting``), is asked for.
"""

from pathlib import Path
from typing import Any

from entp_lib.registry import Lazy
from entp_lib.tasks.base import Batch, FixedData, Task, generator_for, loss_curve, seed_from
from entp_lib.validation import from_dict


def places() -> dict[str, str]:
    """ "module:class" by task, of the modules that define one."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        name = path.stem.title().replace("_", "")  # ``InContext`` of the module ``in_context``
        if f"\nclass {name}(" in path.read_text(encoding="utf-8"):
            found[path.stem] = f"{__name__}.{path.stem}:{name}"
    return found


TASKS = Lazy("task", places)


def __getattr__(name: str) -> type[Task]:
    for task, place in TASKS.places().items():
        if place.endswith(f":{name}"):
            return TASKS[task]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_task(name: str, params: dict[str, Any]) -> Task:
    """The named task with its parameters, checked; ConfigError names what does not fit."""
    return from_dict(TASKS.named(name), params, f"{name}.")


__all__ = ["TASKS", "Batch", "FixedData", "Task", "build_task", "generator_for", "loss_curve", "seed_from"]
