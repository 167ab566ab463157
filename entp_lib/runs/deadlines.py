"""A time limit that processes share, on one machine or on several."""

import contextlib
import platform
import time
from pathlib import Path

Deadline = tuple[str, float, float]  # (boot of the machine that set it, its monotonic clock, wall-clock time), plain


def deadline_after(seconds: float) -> Deadline | None:
    """The moment so many seconds from now; None for 0, which means no limit."""
    return (boot(), time.monotonic() + seconds, time.time() + seconds) if seconds else None


def local_deadline(deadline: Deadline | None) -> float | None:
    """``deadline`` on this process's ``time.monotonic``.

    The monotonic clock counts from the machine's start for all of its processes, and nobody can set it; only another
    machine has to go by the clock on the wall.
    """
    if deadline is None:
        return None
    where, monotonic, wall = deadline
    return monotonic if where == boot() else time.monotonic() + wall - time.time()


def boot() -> str:
    """What names this machine since it was started: its boot id, else its name."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()
