"""Folders of corpora and of their tokens, and how corpora are opened."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Folders:
    """``root``: where a corpus's relative path starts. ``cache``: tokens, made again when missing.

    Both are called whenever they are needed. By default they are the working directory and
    ``corpora`` below it; ``entp_lab`` sets those of the repository. ``corpora``: by the name of a
    corpus, a function from the first digits of its checksum to its ``Source``. ``reader``: a
    function from a path to a ``Source``, used in place of ``TextFile``.
    """

    root: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path] = lambda: Path.cwd() / "corpora"
    corpora: dict[str, Callable[[str], Any]] = field(default_factory=dict)
    reader: Callable[[Path], Any] | None = None


FOLDERS = Folders()
