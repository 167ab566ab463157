"""Requests to end: SIGTERM, which a scheduler sends some seconds before it kills.

A run that is being trained ends its step, leaves its checkpoint and a partial record, and only then does the process
end; whatever else a process is at ends at once.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

from entp_lib.validation import OneLine

GRACE_SECONDS = 20.0  # a scheduler may signal every process of a job, and each passes it on: that is one request


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class Stopped(OneLine, KeyboardInterrupt):
    """A sweep that was interrupted, by Ctrl-C or JupyterLab's square: there it is this one line, and no traceback."""


class Request:
    """Whether this process was asked to end, and how many blocks defer that until they end by themselves."""

    since: float | None = None
    deferred = 0

    def made(self) -> bool:
        """Whether there was a request: what a run in training asks between steps."""
        return self.since is not None

    def handle(self, *_) -> None:
        """Signal handler: note the request where it is deferred, else raise Terminated; later ones raise."""
        first, self.since = self.since is None, self.since or time.monotonic()
        if not self.deferred or (not first and time.monotonic() - self.since > GRACE_SECONDS):
            raise Terminated


REQUEST = Request()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Within it SIGTERM is a request to end. Nothing happens outside the main thread, where signals never arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    REQUEST.since = None
    before = signal.signal(signal.SIGTERM, REQUEST.handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        REQUEST.since = None


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Within it a request is noted and nothing else; ``raise_if_asked`` afterwards ends the process."""
    REQUEST.deferred += 1
    try:
        yield
    finally:
        REQUEST.deferred -= 1


def raise_if_asked() -> None:
    """Raise Terminated where a request has waited."""
    if REQUEST.made() and threading.current_thread() is threading.main_thread():
        raise Terminated
