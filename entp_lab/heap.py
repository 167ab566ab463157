"""This process's heap where the C library is glibc: a training step uses the memory that the last one has freed.

By default glibc returns large buffers to the system and asks for them anew, and the system hands out zeroed pages one
fault at a time (docs/journal/engine.md has what that costs). With another C library nothing happens here.
"""

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as mallopt(3) numbers them
KEPT = 2**30  # bytes


def keep_freed() -> None:
    """Serve buffers of up to a GiB from the heap, and leave as much free at its end."""
    with contextlib.suppress(AttributeError):
        for limit in (TRIM_THRESHOLD, MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(limit, KEPT)


def give_back() -> None:
    """Return what is free to the system, so that what is resident is in use."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
