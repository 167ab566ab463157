"""Speed and memory, printed and never asserted: run as ``python -m benchmarks.<name>``."""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd


def parser_of(doc: str) -> argparse.ArgumentParser:
    """A command line that can write its rows as JSON, too."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows as JSON")
    return parser


def positive(text: str) -> int:
    """Read an option that is a whole number from 1 up."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def in_turn(ours: Callable[[], Any], theirs: Callable[[], Any], repeat: int, seconds: Callable) -> dict[str, float]:
    """Seconds of ``theirs`` over those of ``ours``, measured in turn: median, lowest and highest ratio, and ours."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(repeat)]
    ratios = [b / a for a, b in pairs]
    found = {"ratio_median": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
    return found | {"seconds": statistics.median(a for a, _ in pairs)}


def show(table: pd.DataFrame, digits: int, file: Path | None) -> None:
    """Print a table, rounded, and write its rows where a file is named."""
    print(table.round(digits).to_string(index=False, na_rep=""))
    if file is not None:
        file.write_text(json.dumps(json.loads(table.to_json(orient="records")), indent=1) + "\n")
