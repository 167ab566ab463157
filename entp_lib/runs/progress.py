"""Progress without talking processes: workers leave their step in a file, whoever watches reads it.

``ENTP_EVENTS`` names a file to which the library appends one JSON line per event (progress of a sweep, records
used, figures written): that is how ``run_all.sh`` sees into a notebook.
"""

import json
import os
import time
from pathlib import Path

from tqdm.auto import tqdm

EVENTS_VARIABLE = "ENTP_EVENTS"
BEAT_SECONDS = 0.5


def event(kind: str, **fields) -> None:
    """Append an event for whoever started this process; nothing happens where nobody asked for it."""
    path = os.environ.get(EVENTS_VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": kind, **fields}) + "\n")


def read_events(path: Path) -> list[dict]:
    """All whole lines of an events file so far."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


class Heartbeat:
    """A worker's side: ``beat(step)`` notes the step in a file, at most twice a second."""

    def __init__(self, path: Path | None):
        self.path, self.last = path, 0.0

    def __call__(self, step: int) -> None:
        now = time.monotonic()
        if self.path is not None and now - self.last > BEAT_SECONDS:
            self.last = now
            self.path.write_text(str(step))


class Meter:
    """The watcher's side: one bar over all steps of a sweep, and the same as events."""

    def __init__(self, folder: Path, steps: dict[str, int], label: str):
        self.folder, self.steps, self.label = folder, steps, label
        self.finished: set[str] = set()
        self.bar = tqdm(total=sum(steps.values()), desc=label, unit="step", leave=False)

    def update(self) -> None:
        done = sum(self.steps[i] if i in self.finished else self.read(i) for i in self.steps)
        self.bar.update(max(0, done - self.bar.n))
        event(
            "progress",
            label=self.label,
            done=done,
            total=sum(self.steps.values()),
            runs=len(self.steps),
            finished=len(self.finished),
        )

    def read(self, name: str) -> int:
        try:
            return min(int((self.folder / name).read_text()), self.steps[name])
        except (FileNotFoundError, ValueError):  # not begun, or caught while being written
            return 0

    def close(self) -> None:
        self.bar.close()
