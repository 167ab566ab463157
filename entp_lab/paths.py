"""Folders of the project, found from the package and never from the working directory.

papermill starts kernels where it was launched, nbval in ``notebooks/``: only the repository root is the same for both.
Environment variables move the folders that are written to: ``ENTP_RESULTS``, ``ENTP_FIGURES``, and ``ENTP_NEW_FIGURES``
for figures that are not part of the project yet. Installed without its repository, the library writes below the working
directory.
"""

import os
from pathlib import Path

from entp_lab.embedded_corpus import embedded_file
from entp_lab.parquet import ParquetFiles, open_corpus
from entp_lib.data.folders import FOLDERS
from entp_lib.data.sources import TextFile
from entp_lib.validation import require

RESULTS_VARIABLE = "ENTP_RESULTS"
FIGURES_VARIABLE = "ENTP_FIGURES"
NEW_FIGURES_VARIABLE = "ENTP_NEW_FIGURES"


def make_absolute() -> None:
    """Make the paths in the variables above absolute, for processes that a command starts in another folder.

    Raises ConfigError for a path that is a file, or lies below one.
    """
    for variable in (RESULTS_VARIABLE, FIGURES_VARIABLE, NEW_FIGURES_VARIABLE):
        if place := os.environ.get(variable):
            path = Path(os.path.abspath(place))
            there = next(folder for folder in (path, *path.parents) if folder.exists())
            require(
                there.is_dir(), f"{variable} = {str(path)!r}: must be a folder, and {there} is none"
            )
            os.environ[variable] = str(path)


def root() -> Path:
    """Return the repository root: the folder that holds ``entp_lib/`` and ``notebooks/``."""
    return Path(__file__).resolve().parent.parent


def number_of(name: str) -> str:
    """Return the number that a notebook's or a figure's name begins with: "03b" of "03b_count3_details"."""
    return name.partition("_")[0]


def has_repository() -> bool:
    """Say whether the package lies in its repository, rather than being installed without it."""
    return (root() / "notebooks").is_dir()


def repository() -> Path:
    """Return the repository root; ConfigError where the package is installed without it."""
    require(
        has_repository(),
        "entp_lab is installed without its repository: clone it, and run this from there",
    )
    return root()


def of_repository(name: str, variable: str = "") -> Path:
    """Return a folder of the repository, or the one that an environment variable names.

    Without a repository, a folder that has such a variable lies below the working directory; any other raises
    ConfigError.
    """
    place = os.environ.get(variable)
    if variable and not has_repository():
        place = place or name
    return Path(os.path.abspath(place)) if place else repository() / name


def results() -> Path:
    """Return the folder of records, checkpoints and executed notebooks."""
    return of_repository("results", RESULTS_VARIABLE)


def corpora() -> Path:
    """Return the folder of exported corpora and of their tokens: made again when missing, ignored by git."""
    return results() / "corpora"


def figures() -> Path:
    """Return the folder of the finished figures, which are part of the project."""
    return of_repository("figures", FIGURES_VARIABLE)


def new_figures() -> Path:
    """Return the folder that notebooks write figures to: ``ENTP_NEW_FIGURES``, or one next to the executed copies."""
    return Path(
        os.path.abspath(os.environ.get(NEW_FIGURES_VARIABLE) or results() / "executed" / "figures")
    )


def notebooks() -> Path:
    """Return the folder of the numbered notebooks."""
    return of_repository("notebooks")


def reference() -> Path:
    """Return the folder of published numbers, each table with its source; part of the repository, never written to."""
    return of_repository("results") / "reference"


def relative(path: Path) -> str:
    """Return a path as a message should show it: relative to the root where it lies inside."""
    # a symbolic link is not followed: it may be broken
    place = Path(os.path.realpath(path.parent), path.name)
    return str(place.relative_to(root()) if place.is_relative_to(root()) else path)


FOLDERS.root = root
FOLDERS.cache = corpora
FOLDERS.corpora["openwebtext"] = lambda checksum: ParquetFiles()
FOLDERS.corpora["embedded"] = lambda checksum: TextFile(embedded_file(checksum))
FOLDERS.reader = open_corpus
