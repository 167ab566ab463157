"""Requests to end: SIGTERM, which a scheduler sends some seconds before it kills.

A training loop finishes its step and saves its checkpoint before the process ends. Everything else ends at once.
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
    """A sweep interrupted by Ctrl-C or JupyterLab's stop button, which shows this one line and no traceback."""


# Whether this process was asked to end, and how many blocks now defer that until they are left.
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
    """Treat SIGTERM as a request to end, in the main thread; do nothing in others, where signals never arrive."""
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
    """Only note requests to end within the block; after the last such block the process ends if there was one."""
    REQUEST.deferred += 1
    try:
        yield
    finally:
        REQUEST.deferred -= 1
        if threading.current_thread() is threading.main_thread():
            end_if_asked()
