"""Frames as Markdown tables."""

import pandas as pd


def markdown(frame: pd.DataFrame) -> str:
    """A frame as a Markdown table; bars and line ends inside a cell are escaped."""
    cells = frame.astype(str).map(lambda cell: cell.replace("|", "\\|").replace("\n", " "))
    lines = [list(frame.columns), ["---"] * len(frame.columns), *cells.values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
