"""Frames as Markdown tables."""

import math

import pandas as pd


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; bars and line ends inside a cell are escaped, a missing value is empty."""
    cells = frame.astype(object).map(cell_text)
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell_text(cell: object) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return " ".join(str(cell).replace("|", "\\|").splitlines())
