"""Files written whole or not at all, and read with errors of one line that name the file."""

import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from entp_lib.validation import ConfigError

PATIENCE_SECONDS = 5.0  # waiting longer for a lock is logged
STALE_SECONDS = 86_400.0  # nothing that is still being written was last touched longer ago
log = logging.getLogger(__name__)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, a crash or a full disk never leaves half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(path)  # a failed write does not say where by itself
        raise
    with contextlib.suppress(OSError):  # a power cut must not undo the order of files
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove files and folders of a name's ``pattern`` that were not touched for a day.

    Killed processes left them. A folder counts as touched with anything in it. What cannot be
    removed stays; another process may be removing it.
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
    """Hold the lock file ``path``; log, after a while, ``what`` the other process does."""
    import filelock  # which the command line's help does without

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        held = lock.acquire(timeout=PATIENCE_SECONDS)
    except filelock.Timeout:
        log.warning("waiting for another process: %s", what)
        held = lock.acquire()
    with held:
        yield


def read_text(path: Path) -> str:
    """Return a UTF-8 text, without a byte order mark. ConfigError names a file that is none."""
    try:
        return decode_text(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def decode_text(data: bytes, path: Path | str) -> str:
    """Return the text of a file's bytes, its lines ended by line feeds and without a BOM."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 (byte {error.start}); convert it"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
