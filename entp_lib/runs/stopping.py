"""Asked to end by a scheduler: SIGTERM, which it sends some seconds before it kills.

A run that is being trained ends its step, leaves its checkpoint and a partial record, and only then does the process
end; whatever else a process is at ends at once.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

from entp_lib.strict import OneLine

GRACE_SECONDS = 20.0  # a scheduler may signal every process of a job, and each passes it on: that is one request


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class Stopped(OneLine, KeyboardInterrupt):
    """A sweep that was interrupted, by Ctrl-C or JupyterLab's square: there it is this one line, and no traceback."""


class Request:
    """Whether this process was asked to end, and whether it is at something that ends by itself."""

    def __init__(self):
        self.since: float | None = None
        self.finishing = 0

    def made(self) -> bool:
        """Whether there was a request: what a run in training asks between steps."""
        return self.since is not None

    def handle(self, *_) -> None:
        """Signal handler: note the request where a run will see it, else raise Terminated; later ones raise."""
        first, self.since = self.since is None, self.since or time.monotonic()
        if not self.finishing or (not first and time.monotonic() - self.since > GRACE_SECONDS):
            raise Terminated


REQUEST = Request()


@contextlib.contextmanager
def handled(number: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Within it the signal is a request to end. Nothing happens outside the main thread, where signals never arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    REQUEST.since = None
    before = signal.signal(number, REQUEST.handle)
    try:
        yield
    finally:
        signal.signal(number, before)
        REQUEST.since = None


@contextlib.contextmanager
def finishing_first() -> Iterator[None]:
    """Within it a request waits; at its end Terminated is raised if there was one."""
    with noted():
        yield
    end_if_asked()


def end_if_asked() -> None:
    """Raise Terminated where a request has waited."""
    if REQUEST.made() and threading.current_thread() is threading.main_thread():
        raise Terminated


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Within it a request is noted and nothing else: somebody else will say when to end."""
    REQUEST.finishing += 1
    try:
        yield
    finally:
        REQUEST.finishing -= 1
