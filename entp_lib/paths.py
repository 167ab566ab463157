"""Where things lie, found from the package and never from the working directory.

papermill starts kernels where it was launched, nbval in ``notebooks/``: only the repository root is the same
for both. Two environment variables move the places that are written to: ``ENTP_RESULTS`` and ``ENTP_FIGURES``.
"""

import os
from pathlib import Path


def root() -> Path:
    """The repository root: the folder that holds ``entp_lib/`` and ``notebooks/``."""
    return Path(__file__).resolve().parent.parent


def results() -> Path:
    """Folder of records, checkpoints and executed notebooks."""
    return Path(os.environ.get("ENTP_RESULTS") or root() / "results")


def corpora() -> Path:
    """Folder of exported corpora and of their tokens: made again when missing, ignored by git."""
    return results() / "corpora"


def figures() -> Path:
    """Folder of the finished figures."""
    return Path(os.environ.get("ENTP_FIGURES") or root() / "figures")


def notebooks() -> Path:
    """Folder of the numbered notebooks."""
    return root() / "notebooks"


def reference() -> Path:
    """Folder of published numbers, each table with its source; part of the repository, never written to."""
    return root() / "results" / "reference"


def shown(path: Path) -> str:
    """A path as a message should show it: relative to the root where it lies inside."""
    path = Path(path)
    try:  # a link is shown as itself: it may lead nowhere
        return str(Path(os.path.realpath(path.parent), path.name).relative_to(root()))
    except ValueError:
        return str(path)
