"""Write files atomically, and read them with one-line errors that name the file."""

import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 5.0  # waiting longer for a lock is logged
STALE_SECONDS = 86_400.0  # a temporary file untouched for longer is not in use
log = logging.getLogger(__name__)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, a crash or a full disk never leaves half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(path)  # a failed write's error names no file
        raise
    with contextlib.suppress(OSError):  # so that the rename survives a power cut
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove files and folders matching ``pattern`` that were not touched for a day.

    They are left behind by killed processes. A folder counts as touched if anything in it was.
    Errors are ignored, since another process may be removing the same files.
    """
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            is_folder = path.is_dir() and not path.is_symlink()
            inside = path.rglob("*") if is_folder else ()
            touched = max(p.lstat().st_mtime for p in (path, *inside))
            if time.time() - touched < STALE_SECONDS:
                continue
            if is_folder:
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


@contextlib.contextmanager
def file_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; if that takes long, log ``what`` the other process does."""
    import filelock  # imported here to keep the command line's help fast

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        held = lock.acquire(timeout=PATIENCE_SECONDS)
    except filelock.Timeout:
        log.warning("waiting for another process: %s", what)
        held = lock.acquire()
    with held:
        yield
