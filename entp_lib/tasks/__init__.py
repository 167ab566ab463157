"""The tasks, one module each, found by folder: a task has the name of its module, and its class that in capitals.

A task's module is imported when the task, or its class (``from entp_lib.tasks import Counting``), is asked for.
"""

from pathlib import Path
from typing import Any

from entp_lib.registry import Lazy
from entp_lib.tasks.base import Batch, CheckpointRule, FixedData, Task, generator_for, loss_curve, seed_from
from entp_lib.validation import from_dict


def class_of(module: str) -> str:
    """Name of a task's class: ``InContext`` of the module ``in_context``."""
    return module.title().replace("_", "")


def places() -> dict[str, str]:
    """ "module:class" by task, of the modules that define one."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    texts = {name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in names}
    return {n: f"{__name__}.{n}:{class_of(n)}" for n in names if f"\nclass {class_of(n)}(" in texts[n]}


TASKS = Lazy("task", places)


def __getattr__(name: str) -> type[Task]:
    for task in TASKS:
        if name == class_of(task):
            return TASKS[task]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_task(name: str, params: dict[str, Any]) -> Task:
    """The named task with its parameters, checked; ConfigError names what does not fit."""
    return from_dict(TASKS.named(name), params, f"{name}.")


__all__ = [
    "TASKS",
    "Batch",
    "CheckpointRule",
    "FixedData",
    "Task",
    "build_task",
    "generator_for",
    "loss_curve",
    "seed_from",
]
