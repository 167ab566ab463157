"""Where relative paths of texts begin, where tokens are kept, and texts that have a name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Folders:
    """``root``: where the relative path of a corpus begins. ``cache``: made again when missing.

    Both are asked for whenever they are needed. They are the working directory and ``corpora``
    below it, until the laboratory names those of the repository. ``corpora`` holds functions that
    return the path of a text from the beginning of its checksum, by the name that ``Text`` knows.
    """

    root: Callable[[], Path] = Path.cwd
    cache: Callable[[], Path] = lambda: Path.cwd() / "corpora"
    corpora: dict[str, Callable[[str], Path]] = field(default_factory=dict)


FOLDERS = Folders()
