"""The tasks, one module each. A new task is a file here, an import, and a line in ``TASKS``.

``python -m entp_lab new task NAME`` writes all three and a test.
"""

from typing import TYPE_CHECKING

from entp_lib.tasks.addition import Addition
from entp_lib.tasks.base import (
    Batch,
    FixedData,
    Task,
    generator_for,
    loss_curve,
    seed_from,
)
from entp_lib.tasks.chain import Chain
from entp_lib.tasks.counting import Counting
from entp_lib.tasks.in_context import InContext
from entp_lib.tasks.long_addition import LongAddition
from entp_lib.tasks.table import Table
from entp_lib.tasks.text import Text
from entp_lib.tasks.triplets import Triplets
from entp_lib.validation import Json, OneLine, from_dict, one_of

TASKS: dict[str, type[Task]] = {
    "addition": Addition,
    "chain": Chain,
    "counting": Counting,
    "in_context": InContext,
    "long_addition": LongAddition,
    "text": Text,
    "triplets": Triplets,
}


def build_task(name: str, params: Json) -> Task:
    """Return the named task with its parameters, checked; ConfigError names what does not fit."""
    one_of("task", name, TASKS)
    return from_dict(TASKS[name], params, f"{name}.")


class UnknownTask(OneLine, AttributeError):
    """A task that does not exist; the message names those that do."""


if not TYPE_CHECKING:  # type checkers should see only the names above

    def __getattr__(name):
        """Raise UnknownTask for a name that this package lacks."""
        names = ", ".join(cls.__name__ for cls in TASKS.values())
        raise UnknownTask(f"there is no task {name}: the tasks are {names}")


__all__ = [
    "TASKS",
    "Addition",
    "Batch",
    "Chain",
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
