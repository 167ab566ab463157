"""Progress of a sweep: a bar over the steps of its runs."""

import multiprocessing
import sys
import time
from collections.abc import Callable, MutableSequence, Sequence

from tqdm.auto import tqdm

UPDATE_SECONDS = 0.5
LOGGED_SECONDS = 60.0  # between lines of progress where they go to a file
# holds at most one function, which is called in this process with a run's place and step
ON_STEP: list[Callable[[int, float], None]] = []


class Meter:
    """One bar over all steps of a sweep; in a log file, one line per minute.

    It writes to the terminal of the process, even while the output of a cell is captured. ``steps``: the steps of each
    run. ``steps_made``: the steps that each has made, shared with worker processes.
    """

    def __init__(self, steps: Sequence[int], label: str):
        self.steps = steps
        self.updated = 0.0
        self.steps_made: MutableSequence[float] = multiprocessing.get_context("spawn").RawArray(
            "d", len(steps)
        )
        stream = sys.__stderr__ or sys.stderr
        if stream.isatty() or "ipykernel" in sys.modules:  # a bar can overwrite itself here
            ending = ""
            pause = 0.1
        else:
            ending = "\n"
            pause = LOGGED_SECONDS
        options = {
            "bar_format": "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]" + ending,
            "mininterval": pause,
            "miniters": 1,
            "leave": False,
            "file": stream,
        }
        self.bar = tqdm(total=sum(steps), desc=label, **options)
        ON_STEP[:] = [self.on_step]

    def close(self) -> None:
        """Remove the bar."""
        ON_STEP.clear()
        self.bar.close()

    def on_step(self, place: int, step: float) -> None:
        """Note a run's step, and redraw the bar if it is more than half a second old."""
        self.steps_made[place] = step
        if time.monotonic() - self.updated > UPDATE_SECONDS:
            self.update()

    def update(self, ended: int | None = None) -> None:
        """Redraw the bar. ``ended``: the place of a run that has just ended, well or not."""
        if ended is not None:
            self.steps_made[ended] = self.steps[ended]
        self.updated = time.monotonic()
        done = int(sum(map(min, self.steps_made, self.steps)))
        self.bar.update(max(0, done - self.bar.n))
