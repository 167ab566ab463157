"""Progress of a sweep: a bar over the steps of its runs."""

import multiprocessing
import sys
import time
from collections.abc import Callable, MutableSequence, Sequence

from tqdm.auto import tqdm

UPDATE_SECONDS = 0.5
LOGGED_SECONDS = 60.0  # between lines of progress where they go to a file
# at most one: called in this process with a run's place and step
ON_STEP: list[Callable[[int, float], None]] = []


class Meter:
    """One bar over all steps of a sweep; in a log a line a minute.

    It goes to the terminal of the process, also where what cells print is taken down. ``steps``: of each run.
    ``steps_made``: how many each has made, shared with worker processes.
    """

    def __init__(self, steps: Sequence[int], label: str):
        self.steps = steps
        self.updated = 0.0
        self.steps_made: MutableSequence[float] = multiprocessing.get_context("spawn").RawArray(
            "d", len(steps)
        )
        stream = sys.__stderr__ or sys.stderr
        if stream.isatty() or "ipykernel" in sys.modules:  # where a bar can replace itself
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
