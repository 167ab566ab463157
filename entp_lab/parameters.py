"""Parameters of notebooks, checked before anything runs."""

import math
import re
from dataclasses import dataclass

from entp_lab.configs import TIERS
from entp_lab.live import answer_interrupts
from entp_lib.validation import Json, check_intervals, check_types, fields_of, one_of, require

MAX_SEEDS = 1000
# first line of the cell that papermill inserts after the parameters cell
INJECTED = "# Parameters\n"


@dataclass(frozen=True)
class NotebookParameters:
    """Parameters that every notebook accepts in its parameters cell; notebooks with more of them subclass it.

    ``tier``: ``best`` shows the best stored records, and computes missing ones at ``quick``; a name in ``TIERS``
    selects that tier. ``seeds``: 0 for the tier's own number. ``fresh``: compute stored runs again. ``jobs``: runs at a
    time, 0 for one per core. ``time_limit``: seconds for each of the notebook's experiments, 0 for none; the next call
    continues a run that was cut short.
    """

    tier: str = "best"
    seeds: int = 0
    fresh: bool = False
    jobs: int = 0
    time_limit: float = 0.0

    def __post_init__(self):
        check_types(self)
        one_of("tier", self.tier, ("best", *TIERS))
        require(
            __debug__,
            "Python runs with -O or PYTHONOPTIMIZE, which turns the checks in notebooks off: start it without",
        )
        require(
            0 <= self.seeds <= MAX_SEEDS,
            f"seeds = {self.seeds}: must be from 0 (the tier's own number) to {MAX_SEEDS}",
        )
        check_intervals(self, {"jobs": "[0, inf)", "time_limit": "[0, inf)"})

    @property
    def as_committed(self) -> bool:
        """Whether they ask for what committed notebooks show: all of the best records, and none computed again."""
        return (self.tier, self.seeds, self.fresh) == ("best", 0, False)


def notebook_parameters(values: Json, cls: type = NotebookParameters):
    """Return the parameters of a notebook, checked, from its own ``globals()``.

    Raises ConfigError for a misspelt name, which papermill injects without complaint. From here on an interrupt is
    reported in one line.
    """
    answer_interrupts()
    names = fields_of(cls)
    injected = [cell for cell in values.get("In", ()) if cell.startswith(INJECTED)]
    for name in re.findall(r"^(\w+) = ", "".join(injected[-1:]), re.MULTILINE):
        one_of("parameter", name, names)
    missing = [name for name in names if name not in values]
    require(
        not missing, f"the parameters cell lacks {', '.join(missing)}; it has {', '.join(names)}"
    )
    return cls(**{name: values[name] for name in names})


def seconds(text: str) -> float:
    """Return a time limit in seconds from 900, 900s, 15m or 2h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    found = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else math.inf
    require(math.isfinite(found), f"time limit {text[:20]!r}: write 900, 900s, 15m or 2h")
    return found
