"""Where relative paths of texts begin, where tokens are kept, and how texts are opened."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Folders:
    """``root``: where the relative path of a corpus begins. ``cache``: made again when missing.

    Both are asked for whenever they are needed. They are the working directory and ``corpora``
    below it, until the laboratory names those of the repository. ``corpora`` holds functions that
    return a ``Source`` from the beginning of its checksum, by the name that ``Text`` knows;
    ``reader`` is one that returns it from a path, in place of ``TextFile``.
    """

    root: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path] = lambda: Path.cwd() / "corpora"
    corpora: dict[str, Callable[[str], Any]] = field(default_factory=dict)
    reader: Callable[[Path], Any] | None = None


FOLDERS = Folders()
