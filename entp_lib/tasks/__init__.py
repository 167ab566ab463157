"""The tasks, one module each, found by folder: a task has the name of its module."""

import dataclasses
import importlib
import pkgutil
from typing import Any

from entp_lib.tasks.addition import Addition
from entp_lib.tasks.base import Batch, CheckpointRule, FixedData, Task, generator_for, loss_curve, seed_from
from entp_lib.tasks.chain import Chain
from entp_lib.tasks.clutrr import Clutrr
from entp_lib.tasks.counting import Counting
from entp_lib.tasks.in_context import InContext
from entp_lib.tasks.long_addition import LongAddition
from entp_lib.tasks.table import Table
from entp_lib.tasks.text import Text
from entp_lib.tasks.triplets import Triplets
from entp_lib.validation import from_dict, one_of


def discover() -> dict[str, type[Task]]:
    """Task class by module: of each module of this folder the dataclass derived from ``Task`` that it defines last."""
    found = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        for cls in vars(module).values():
            own = isinstance(cls, type) and cls.__module__ == module.__name__
            if own and issubclass(cls, Task) and dataclasses.is_dataclass(cls):
                found[name] = cls
    return found


TASKS = discover()


def build_task(name: str, params: dict[str, Any]) -> Task:
    """The named task with its parameters, checked; ConfigError names what does not fit."""
    one_of("task", name, TASKS)
    return from_dict(TASKS[name], params, f"{name}.")


__all__ = [
    "TASKS",
    "Addition",
    "Batch",
    "Chain",
    "CheckpointRule",
    "Clutrr",
    "Counting",
    "FixedData",
    "InContext",
    "LongAddition",
    "Table",
    "Task",
    "Text",
    "Triplets",
    "build_task",
    "generator_for",
    "loss_curve",
    "seed_from",
]
