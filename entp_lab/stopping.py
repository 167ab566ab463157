"""Requests to end: SIGTERM, which a scheduler sends some seconds before it kills.

A training loop ends its step and leaves its checkpoint, and only then does the process end; whatever else a process is
at ends at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

from entp_lib.validation import OneLine


class Cut(Exception):
    """A run was asked to end before its last step; its checkpoint is written. ``step``: the last that was made."""

    def __init__(self, step: int):
        super().__init__(step)
        self.step = step


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C is."""


class Stopped(OneLine, KeyboardInterrupt):
    """A sweep that was interrupted, by Ctrl-C or JupyterLab's square: there it is this one line, and no traceback."""


# Whether this process was asked to end, and how many blocks defer that until they end by themselves.
REQUEST = SimpleNamespace(made=False, deferred=0)


def end_if_asked() -> None:
    """Raise Terminated where a request was made and nothing defers it."""
    if REQUEST.made and not REQUEST.deferred:
        raise Terminated


def on_sigterm(*_: object) -> None:
    """Note the request, and end at once where nothing defers it."""
    REQUEST.made = True
    end_if_asked()


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Take SIGTERM for a request to end, in the main thread; in others, where signals never arrive, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    REQUEST.made = False
    before = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        REQUEST.made = False


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Note requests and do nothing else; after the last such block the process ends if there was one."""
    REQUEST.deferred += 1
    try:
        yield
    finally:
        REQUEST.deferred -= 1
        if threading.current_thread() is threading.main_thread():
            end_if_asked()
