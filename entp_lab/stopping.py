"""Requests to end: SIGTERM, which a scheduler sends some seconds before it kills.

A run that is being trained ends its step, leaves its checkpoint and a partial record, and only then does the process
end; whatever else a process is at ends at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

from entp_lib.validation import OneLine


class Cut(Exception):
    """A run was asked to end before its last step. Its checkpoint is written and has the curves so far."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class Stopped(OneLine, KeyboardInterrupt):
    """A sweep that was interrupted, by Ctrl-C or JupyterLab's square: there it is this one line, and no traceback."""


# Whether this process was asked to end, and how many blocks defer that until they end by themselves.
REQUEST = SimpleNamespace(made=False, deferred=0)


def note(*_) -> None:
    """Signal handler: note the request, and raise Terminated where nothing defers it."""
    REQUEST.made = True
    if not REQUEST.deferred:
        raise Terminated


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Within it SIGTERM is a request to end. Nothing happens outside the main thread, where signals never arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    REQUEST.made = False
    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        REQUEST.made = False


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Within it a request is noted and nothing else; ``REQUEST.made`` says so afterwards."""
    REQUEST.deferred += 1
    try:
        yield
    finally:
        REQUEST.deferred -= 1
