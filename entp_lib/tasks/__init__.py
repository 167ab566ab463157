"""The tasks, a module each, imported when the task or its class (``entp_lib.tasks.Counting``) is asked for.

A task of one's own is a file here and a line in ``PLACES``, which ``python -m entp_lib new task NAME`` writes.
"""

from typing import Any

from entp_lib.registry import Lazy
from entp_lib.tasks.base import Batch, FixedData, Task, generator_for, loss_curve, seed_from
from entp_lib.validation import from_dict

PLACES = {
    "addition": "addition:Addition",
    "chain": "chain:Chain",
    "clutrr": "clutrr:Clutrr",
    "counting": "counting:Counting",
    "in_context": "in_context:InContext",
    "long_addition": "long_addition:LongAddition",
    "table": "table:Table",
    "text": "text:Text",
    "triplets": "triplets:Triplets",
}
TASKS = Lazy("task", lambda: {name: f"{__name__}.{place}" for name, place in PLACES.items()})


def __getattr__(name: str) -> type[Task]:
    for task, place in TASKS.places().items():
        if place.endswith(f":{name}"):
            return TASKS[task]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_task(name: str, params: dict[str, Any]) -> Task:
    """The named task with its parameters, checked; ConfigError names what does not fit."""
    return from_dict(TASKS.named(name), params, f"{name}.")


__all__ = ["TASKS", "Batch", "FixedData", "Task", "build_task", "generator_for", "loss_curve", "seed_from"]
