"""Progress of a sweep: a bar over its runs."""

import multiprocessing
import sys
import time
from collections.abc import Callable, MutableSequence

from tqdm.auto import tqdm

UPDATE_SECONDS = 0.5
LOGGED_SECONDS = 60.0  # between lines of progress where they go to a file
# holds at most one function, which is called in this process with a run's place and how much of it is done
ON_STEP: list[Callable[[int, float], None]] = []


class Meter:
    """One bar over all runs of a sweep; in a log file, one line per minute.

    It writes to the terminal of the process, even while the output of a cell is captured. ``shares``: how much of each
    run is done, from 0 to 1, shared with worker processes.
    """

    def __init__(self, count: int, label: str):
        self.updated = 0.0
        self.shares: MutableSequence[float] = multiprocessing.get_context("spawn").RawArray(
            "d", count
        )
        stream = sys.__stderr__ or sys.stderr
        if stream.isatty() or "ipykernel" in sys.modules:  # a bar can overwrite itself here
            ending = ""
            pause = 0.1
        else:
            ending = "\n"
            pause = LOGGED_SECONDS
        self.bar = tqdm(
            total=count,
            desc=label,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]" + ending,
            mininterval=pause,
            miniters=1,
            leave=False,
            file=stream,
        )
        ON_STEP[:] = [self.on_step]

    def close(self) -> None:
        """Remove the bar."""
        ON_STEP.clear()
        self.bar.close()

    def on_step(self, place: int, share: float) -> None:
        """Note how much of a run is done, and redraw the bar if it is more than half a second old."""
        self.shares[place] = share
        if time.monotonic() - self.updated > UPDATE_SECONDS:
            self.update()

    def update(self, ended: int | None = None) -> None:
        """Redraw the bar. ``ended``: the place of a run that has just ended, well or not."""
        if ended is not None:
            self.shares[ended] = 1.0
        self.updated = time.monotonic()
        self.bar.update(max(0.0, sum(self.shares) - self.bar.n))
