"""Read tables, with one-line errors that name the file, and write them as Markdown."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from entp_lab.texts import read_text
from entp_lib.validation import ConfigError, require


def read_table(
    path: Path, columns: Sequence[str], needed: Sequence[str] = (), **options
) -> pd.DataFrame:
    """Return a CSV file as a frame; ``options`` go to ``pandas.read_csv``.

    ConfigError names the file where it is missing, empty or not UTF-8, lacks one of ``columns``, has rows with more
    cells than columns, or an empty cell in those that are ``needed``. A row with fewer cells has empty ones at its end.
    """
    text = read_text(path)
    try:
        # warned of for rows with more cells than columns
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            table = pd.read_csv(path, encoding="utf-8-sig", index_col=False, **options)
    except pd.errors.ParserWarning:
        raise ConfigError(
            f"{path}: its rows have more cells than columns; put a cell with commas in quotes"
        ) from None
    except (ValueError, OverflowError) as error:  # includes pandas' own errors
        why = "it is empty" if not text.strip() else str(error).strip().split("\n")[0]
        raise ConfigError(f"{path} is no table of comma-separated values: {why}") from error
    missing = [name for name in columns if name not in table]
    require(
        not missing,
        f"{path}: lacks the columns {', '.join(missing)}; it has {', '.join(map(str, table.columns))}",
    )
    for name in needed:
        empty = table.index[table[name].isna()]
        require(empty.empty, f"{path}: row {empty.min() + 1} of the table has no {name}")
    return table


def markdown_table(frame: pd.DataFrame) -> str:
    """Return a frame as a Markdown table; bars and line ends inside a cell are escaped, a missing value is empty."""
    plain = frame.astype(object).where(frame.notna(), "").astype(str)
    cells = plain.map(lambda text: " ".join(text.replace("|", "\\|").splitlines()).strip())
    lines = [frame.columns, ["---"] * len(frame.columns), *cells.values]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
