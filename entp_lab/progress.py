"""Progress of a sweep: a bar over the steps of its runs, and the same as events for the process that started this one.

``ENTP_EVENTS`` names a file to which the library appends one JSON line per event (progress of a sweep, records
used, figures written): that is how ``run_all.sh`` sees into a notebook.
"""

import contextlib
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, MutableSequence, Sequence
from pathlib import Path

from tqdm.auto import tqdm

EVENTS_VARIABLE = "ENTP_EVENTS"
UPDATE_SECONDS = 0.5
LOGGED_SECONDS = 60.0  # between lines of progress where they go to a file
ON_STEP: list[Callable[[int, float], None]] = []  # at most one: called in this process with a run's place and step
log = logging.getLogger(__name__)


def event(kind: str, **fields) -> None:
    """Append an event to the file of ``ENTP_EVENTS``, if that is set. A file that cannot be written is no error."""
    if path := os.environ.get(EVENTS_VARIABLE):
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"event": kind, **fields}) + "\n")
        except OSError as error:
            log.debug("event %s was not written: %s", kind, error)


def read_events(path: Path) -> list[dict]:
    """Return all whole lines of an events file so far; one that a full disk cut short is left out."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict) and "event" in entry]


class Meter:
    """One bar over all steps of a sweep (in a log a line a minute), and the same as events.

    ``steps``: of each run. ``steps_made``: how many each has made, shared with worker processes.
    """

    def __init__(self, steps: Sequence[int], label: str):
        self.steps = steps
        self.label = label
        self.updated = 0.0
        self.steps_made: MutableSequence[float] = multiprocessing.get_context("spawn").RawArray("d", len(steps))
        if sys.stderr.isatty() or "ipykernel" in sys.modules:  # where a bar can replace itself
            ending, pause = "", 0.1
        else:
            ending, pause = "\n", LOGGED_SECONDS
        layout = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]" + ending
        self.bar = tqdm(total=sum(steps), desc=label, bar_format=layout, leave=False, mininterval=pause, miniters=1)
        ON_STEP[:] = [self.on_step]

    def close(self) -> None:
        """Remove the bar."""
        ON_STEP.clear()
        self.bar.close()

    def on_step(self, place: int, step: float) -> None:
        """Note a run's step, and show it where the last look was half a second ago."""
        self.steps_made[place] = step
        if time.monotonic() - self.updated > UPDATE_SECONDS:
            self.update()

    def update(self, ended: int | None = None) -> None:
        """Show how far the runs are. ``ended``: the place of one that has just ended, well or not."""
        if ended is not None:
            self.steps_made[ended] = self.steps[ended]
        self.updated = time.monotonic()
        done = int(sum(map(min, self.steps_made, self.steps)))
        self.bar.update(max(0, done - self.bar.n))
        event("progress", label=self.label, done=done, total=self.bar.total)
