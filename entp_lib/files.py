"""Files written whole or not at all, and read with errors of one line that name the file."""

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entp_lib.validation import ConfigError, require

if TYPE_CHECKING:
    import pandas as pd

PATIENCE_SECONDS = 5.0  # waiting longer for a lock is logged
STALE_SECONDS = 86_400.0  # nothing that is still being written was last touched longer ago
log = logging.getLogger(__name__)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, a crash or a full disk never leaves half of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes private files
        os.replace(temporary, path)
        with contextlib.suppress(OSError):  # not every file system can; a power cut must not undo the order of files
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a failed write does not say where by itself
        raise


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove what killed processes left: files and folders of a name's ``pattern`` that were not touched for a day.

    A folder counts as touched with anything in it. What cannot be removed stays; another process may be removing it.
    """
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            is_folder = path.is_dir() and not path.is_symlink()
            touched = max(p.lstat().st_mtime for p in (path, *(path.rglob("*") if is_folder else ())))
            if time.time() - touched >= STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True) if is_folder else path.unlink()


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; a longer wait is logged, with ``what`` the other process does."""
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
    """A UTF-8 text, a mark of byte order at its beginning left out. ConfigError names a file that is none."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}); convert it") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a file of JSON lines; empty lines are left out. ConfigError names what is no object."""
    for number, line in enumerate(read_text(path).split("\n"), 1):  # a line may hold any other end of line
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}, line {number}: not JSON ({error})") from error
        require(isinstance(row, dict), f"{path}, line {number}: {line.strip()[:40]} is no object like {{...}}")
        yield number, row


def read_table(path: Path, columns: Sequence[str], needed: Sequence[str] = (), **options) -> "pd.DataFrame":
    """A CSV file as a frame; ``options`` go to ``pandas.read_csv``.

    ConfigError names the file where it is missing, empty or not UTF-8, lacks one of ``columns``, has rows with more
    cells than columns, or an empty cell in one of ``needed``. A row with fewer cells has empty ones at its end.
    """
    import pandas as pd

    text = read_text(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows with more cells than columns
            table = pd.read_csv(path, **{"encoding": "utf-8-sig", "index_col": False} | options)
    except pd.errors.ParserWarning:
        raise ConfigError(f"{path}: its rows have more cells than columns; put a cell with commas in quotes") from None
    except (ValueError, OverflowError) as error:  # pandas' own errors are among these
        why = "it is empty" if not text.strip() else str(error).strip().split("\n")[0]
        raise ConfigError(f"{path} is no table of comma-separated values: {why}") from error
    missing = [name for name in dict.fromkeys([*columns, *needed]) if name not in table]
    require(not missing, f"{path}: lacks the columns {', '.join(missing)}; it has {', '.join(map(str, table.columns))}")
    for name in needed:
        empty = table.index[table[name].isna()]
        require(empty.empty, f"{path}: row {empty.min() + 1} of the table has no {name}")
    return table
