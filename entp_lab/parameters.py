"""Parameters of notebooks, checked before anything runs."""

import ast
import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entp_lab.configs import TIERS
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.validation import ConfigError, check_types, from_dict, one_of, require

MAX_SEEDS = 1000
OPTIONAL = ("changes",)  # what a parameters cell may leave out
PARTS = ("task", "model", "train")
FOLLOWS = ("vocab_size", "max_length", "input_dim", "output_dim")  # of a model: its task decides
INJECTED = "# Parameters\n"  # how the cell begins that papermill puts behind the parameters cell


@dataclass(frozen=True)
class NotebookParameters:
    """Parameters that every notebook accepts in its parameters cell; notebooks with more of them subclass it.

    ``tier``: ``best`` shows the best records there are and computes what has none at ``quick``; one of ``TIERS`` asks
    for that one. ``seeds`` = 0: as many as the tier has. ``fresh`` computes again what has a record. ``jobs`` = 0: one
    run per core at a time. ``time_limit``: seconds for the notebook's runs, 0 for none; a run cut short is marked
    partial and is continued by the next call. ``changes``: other values for the runs' settings, as {"task.length": 14,
    "model.width": 96, "train.steps": 400}; such runs have records of their own that no claim counts. Only notebooks
    that train have it (``OPTIONAL``).
    """

    tier: str = "best"
    seeds: int = 0
    fresh: bool = False
    jobs: int = 0
    time_limit: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        check_types(self)
        one_of("tier", self.tier, ("best", *TIERS))
        optimised = "Python runs with -O or PYTHONOPTIMIZE, which turns the checks in notebooks off: start it without"
        require(__debug__, optimised)
        right = f"must be from 0 (the tier's own number) to {MAX_SEEDS}"
        require(0 <= self.seeds <= MAX_SEEDS, f"seeds = {self.seeds}: {right}")
        require(self.jobs >= 0, f"jobs = {self.jobs}: must be 0 (one per core) or more")
        require(0 <= self.time_limit < math.inf, f"time_limit = {self.time_limit}: must be 0 (none) or more seconds")
        check_names(self.changes)

    @property
    def as_committed(self) -> bool:
        """Whether they ask for what committed notebooks show: the best records, all of them, and nothing changed."""
        return (self.tier, self.seeds, self.fresh, self.changes) == ("best", 0, False, {})


def check_names(changes: dict[str, Any]) -> None:
    """ConfigError for a name that is not ``task.``, ``model.`` or ``train.`` and a field, or that is the task's."""
    fields = {"model": dataclasses.fields(ModelConfig), "train": dataclasses.fields(TrainConfig)}
    for name in changes:
        part, _, of_part = name.partition(".")
        require(bool(of_part), f"changes: {name!r}: write it as task.{name}, model.{name} or train.{name}")
        require(part in PARTS, f"changes: {name!r}: must begin with {', '.join(p + '.' for p in PARTS)}")
        require(name != "model.architecture", "changes: 'model.architecture' is what is compared, and stays")
        require(part != "model" or of_part not in FOLLOWS, f"changes: {name!r} follows from the task: change that")
        if part in fields:
            one_of("changes", name, [f"{part}.{f.name}" for f in fields[part]])


def notebook_parameters(values: dict[str, Any], cls: type = NotebookParameters):
    """The parameters of a notebook from its own ``globals()``, read after the parameters cell.

    In a kernel these are the names that the parameters cell, and papermill's cell behind it, assign, with the values
    that they have now; names that other cells left behind do not count. Elsewhere every plain value counts. A name that
    is no parameter is an error, since papermill alone would inject a misspelt name and go on.
    """
    names, cells = [f.name for f in dataclasses.fields(cls)], values.get("In")
    if isinstance(cells, list) and any(cells):
        given = {name: values[name] for name in assigned(cells, names) if name in values}
    else:
        plain = (bool, int, float, str, list, tuple, dict, type(None))
        given = {name: v for name, v in values.items() if isinstance(v, plain) and name not in ("In", "Out")}
    try:
        parameters = from_dict(cls, {name: v for name, v in given.items() if not name.startswith("_")})
    except ConfigError as error:
        raise ConfigError(f"{error} (this notebook's parameters: {', '.join(names)})") from None
    missing = [name for name in names if name not in given and name not in OPTIONAL]
    require(not missing, f"the parameters cell lacks {', '.join(missing)}")
    return parameters


def assigned(cells: Sequence[str], names: Sequence[str]) -> dict[str, None]:
    """Names that the parameters cell binds, the latest that binds most of ``names``, and papermill's if it comes next.

    Of the executed ``cells``, those that are no Python, as magics are none, bind no name.
    """
    bound: list[dict[str, None]] = []
    for cell in cells:
        try:
            nodes = [node for node in ast.parse(cell).body if isinstance(node, ast.Assign)]
        except SyntaxError:
            nodes = []
        bound.append({t.id: None for node in nodes for t in node.targets if isinstance(t, ast.Name)})
    injected = [cell.startswith(INJECTED) for cell in cells]
    last = max(range(len(cells)), key=lambda i: (0 if injected[i] else len(bound[i].keys() & names), i))
    return bound[last] | (bound[last + 1] if any(injected[last + 1 : last + 2]) else {})


def seconds(text: str | None) -> float:
    """A time limit in seconds from 900, 900s, 15m or 2h; 0 for None."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    found = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else math.inf
    require(math.isfinite(found), f"time limit {text[:20]!r}: write 900, 900s, 15m or 2h")
    return found
