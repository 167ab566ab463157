"""Folders of texts: where relative paths begin, and where exported texts and tokens are kept to be read again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Folders:
    """``root``: where the relative path of a corpus begins. ``cache``: made again when missing.

    Both are asked for whenever they are needed. They are the working directory and ``corpora`` below it, until the
    laboratory names those of the repository.
    """

    root: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path] = lambda: Path.cwd() / "corpora"


FOLDERS = Folders()
