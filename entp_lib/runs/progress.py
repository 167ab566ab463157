"""Progress without talking processes: workers leave their step in a file, whoever watches reads it.

``ENTP_EVENTS`` names a file to which the library appends one JSON line per event (progress of a sweep, records
used, figures written): that is how ``run_all.sh`` sees into a notebook.
"""

import contextlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from entp_lib.files import own_name, remove_stale

EVENTS_VARIABLE = "ENTP_EVENTS"
BEAT_SECONDS = 0.5
LOGGED_SECONDS = 60.0  # between lines of progress where they go to a file
log = logging.getLogger(__name__)


def event(kind: str, **fields) -> None:
    """Append an event for whoever started this process; nothing happens where nobody asked for it.

    A file that cannot be written costs the watcher a line and the work nothing.
    """
    path = os.environ.get(EVENTS_VARIABLE)
    if path:
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"event": kind, **fields}) + "\n")
        except OSError as error:
            log.debug("event %s was not written: %s", kind, error)


def read_events(path: Path) -> list[dict]:
    """All whole lines of an events file so far; one that a full disk cut short is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    return [entry for entry in map(parsed, lines[:-1]) if isinstance(entry, dict) and "event" in entry]


def parsed(line: str) -> Any:
    """What a line of JSON says; None where it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return None


@contextlib.contextmanager
def progress_folder(root: Path) -> Iterator[Path | None]:
    """A folder below ``root`` where workers leave their steps; None, with a warning, where there can be none."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_stale(root, "steps-*")
        folder = Path(tempfile.mkdtemp(dir=root, prefix=own_name("steps")))
    except OSError as error:
        log.warning("progress cannot be shown: %s: %s", error.filename, error.strerror)
        yield None
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Heartbeat:
    """A worker's side: ``beat(step)`` notes the step in a file, at most twice a second."""

    def __init__(self, path: Path | None):
        self.path, self.last = path, 0.0

    def __call__(self, step: int) -> None:
        now = time.monotonic()
        if self.path is not None and now - self.last > BEAT_SECONDS:
            self.last = now
            try:
                self.path.write_text(str(step))
            except OSError as error:
                log.debug("step %s was not noted: %s", step, error)


def drawn_in_place() -> bool:
    """Whether a bar can replace itself: on a terminal or in a notebook, not in a file or a pipe."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Meter:
    """The watcher's side: one bar over all steps of a sweep (in a log a line a minute), and the same as events.

    ``weights``: what a step of each run costs beside the others' (default: all alike), so that a mixture of cheap and
    costly runs tells the time that is left.
    """

    def __init__(self, folder: Path | None, steps: dict[str, int], label: str, weights: dict[str, float] | None = None):
        self.folder, self.steps, self.label = folder, steps, label
        self.weights = weights or dict.fromkeys(steps, 1.0)
        self.finished: set[str] = set()
        self.total = round(sum(count * self.weights[i] for i, count in steps.items()))
        shown = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
        logged = {} if drawn_in_place() else dict(mininterval=LOGGED_SECONDS, miniters=1)
        end = "\n" if logged else ""
        self.bar = tqdm(total=self.total, desc=label, bar_format=shown + end, leave=False, **logged)

    def update(self) -> None:
        steps = {i: self.steps[i] if i in self.finished else self.read(i) for i in self.steps}
        done = min(self.total, round(sum(count * self.weights[i] for i, count in steps.items())))
        self.bar.update(max(0, done - self.bar.n))
        event(
            "progress",
            label=self.label,
            done=done,
            total=self.total,
            runs=len(self.steps),
            finished=len(self.finished),
        )

    def read(self, name: str) -> int:
        if self.folder is None:
            return 0
        try:
            return min(int((self.folder / name).read_text()), self.steps[name])
        except (OSError, ValueError):  # not begun, or caught while being written
            return 0

    def close(self) -> None:
        self.bar.close()
