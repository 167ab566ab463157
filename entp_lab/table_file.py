"""A user's own table: sequences and scored positions from a CSV file, as a task that a record can name.

A line for each sequence, tokens separated by spaces (numbers, or words of any kind)::

    sequence,scored
    1 2 + 3 4 = 4 6,7-8
    7 + 5 = 1 2,5-6

``scored`` names the tokens to be predicted from those before them, counted from 1; without it all but the first. With a
column ``targets`` (as many tokens as scored positions) the answer is another token, given after each scored position. A
column ``part`` of train, validation and test decides the parts. Arrays and real numbers go to ``Table.from_arrays``.
"""

import csv
import functools
import hashlib
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from entp_lib.data.sources import check_checksum
from entp_lib.files import decode_text
from entp_lib.tasks import Batch, FixedData, Table
from entp_lib.validation import ConfigError, check_intervals, check_types, require

MORE = "cells beyond the columns"
COLUMNS = ("sequence", "scored", "targets", "part")
FORMAT = (
    "write tokens with spaces between them and say which to predict, as in a first line 'sequence,scored' above "
    "'1 2 + 3 4 = 4 6,7-8' (docs/starting.md)"
)


@dataclass(frozen=True)
class TableFile(FixedData):
    """The sequences of a CSV file, as ``entp_lib.tasks.Table`` has them.

    ``checksum`` is the first 16 hexadecimal digits of the file's SHA-256, so that a record cannot mean two files; ""
    takes what is there. ConfigError for what the file lacks.
    """

    file: str
    checksum: str = ""
    held_out: float = 0.1
    split_seed: int = 0
    part: Literal["train", "test", "seen"] = "train"

    def __post_init__(self):
        check_types(self)
        require(self.file != "", "file = '': must be the path of a .csv file")
        check_intervals(self, {"held_out": "(0, 0.5)", "split_seed": "[0, inf)"})
        check_checksum(self.checksum)

    @property
    def table(self) -> Table:
        """The file's table. ConfigError where it is another file than ``checksum`` says."""
        table, checksum = read(self.file, self.held_out, self.split_seed)
        if self.checksum not in ("", checksum):
            raise ConfigError(f"{self.file} is not the file of checksum {self.checksum}: it has {checksum}")
        return table

    @property
    def vocab_size(self) -> int:
        return self.table.vocab_size

    @property
    def length(self) -> int:
        return self.table.length

    def examples(self, part: str) -> Batch:
        return self.table.examples(part)

    def facts(self) -> dict[str, Any]:
        """Return, under ``data``, the file's name, its checksum and what every table has."""
        about = {"file": Path(self.file).name, "checksum": self.named().checksum}
        return {"data": about | self.table.facts()["data"]}

    def named(self) -> "TableFile":
        """Return the same task with its whole path and its checksum, as a record names it."""
        checksum = read(self.file, self.held_out, self.split_seed)[1]
        return replace(self, file=str(Path(self.file).resolve()), checksum=checksum)


def read(file: str, held_out: float, seed: int) -> tuple[Table, str]:
    """Return the table that a file holds now, and its checksum."""
    path = Path(file)
    require(path.is_file(), f"{file}: no such file")
    require(path.suffix.lower() == ".csv", f"{file}: must end in .csv; arrays go to Table.from_arrays")
    state = path.stat()
    return read_version(file, held_out, seed, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def read_version(file: str, held_out: float, seed: int, changed_ns: int, size: int) -> tuple[Table, str]:
    """Return the table and the checksum of a file as of this time and size."""
    data = Path(file).read_bytes()
    table = read_csv(decode_text(data, file), file, held_out, seed)
    return table, hashlib.sha256(data).hexdigest()[:16]


def read_csv(text: str, file: str, held_out: float, seed: int) -> Table:
    """Return the table of a CSV text; blank lines are left out. ConfigError names the line."""
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey=MORE, restval="", strict=True)
    try:
        names = list(reader.fieldnames or ())
        rows = [(reader.line_num, row) for row in reader if MORE in row or any(map(str.strip, row.values()))]
    except csv.Error as error:
        where = f"{file}, line {reader.reader.line_num}"
        raise ConfigError(f"{where}: no comma-separated values ({error})") from None
    shown = ", ".join(names)[:60]
    require("sequence" in names, f"{file}: no column 'sequence' in its first line, {shown}; {FORMAT}")
    for name in names:
        if name not in COLUMNS or names.count(name) > 1:
            raise ConfigError(f"{file}: column {name!r}: its columns may be {', '.join(COLUMNS)}, each once")
    require(len(rows) > 0, f"{file}: has no sequences below its first line")
    read = [read_row(row, f"{file}, line {line}") for line, row in rows]
    has_targets = "targets" in names
    tokens = as_numbers([row["sequence"] for row in read] + [row["targets"] for row in read if has_targets])
    try:
        return Table.from_arrays(
            tokens[: len(rows)],
            [row["scored"] for row in read],
            tokens[len(rows) :] if has_targets else None,
            [row["part"] for _, row in rows] if "part" in names else None,
            held_out=held_out,
            seed=seed,
        )
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def read_row(row: dict[str, str], where: str) -> dict[str, list]:
    """Return a row's tokens, a truth value for each, and, where there are any, its targets."""
    require(MORE not in row, f"{where}: more cells than columns; put a cell with commas in quotes")
    tokens = row["sequence"].split()
    require(len(tokens) > 0, f"{where}: the sequence is empty")
    positions = read_positions(row.get("scored", ""), len(tokens), 1 if "targets" in row else 2, where)
    answers = row.get("targets", "").split()
    if "targets" in row and len(answers) != len(positions):
        raise ConfigError(f"{where}: {len(answers)} targets for {len(positions)} scored positions")
    answer = dict(zip(positions, answers, strict=False))
    everywhere = range(1, len(tokens) + 1)
    return {
        "sequence": tokens,
        "scored": [position in positions for position in everywhere],
        "targets": [answer.get(position, answers[0]) for position in everywhere] if answers else [],
    }


def read_positions(text: str, length: int, first: int, where: str) -> list[int]:
    """Return ascending positions written as "5", "5 7" or "5-8"; all from ``first`` on for ""."""
    positions: list[int] = []
    for piece in text.replace(",", " ").split():
        written = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", piece)
        if written is None:
            raise ConfigError(f"{where}: scored {piece[:40]!r}: write 5, or 5-8")
        low = int(written[1])
        high = int(written[2] or low)
        wrong = low if low < first else high
        if low < first or high > length:
            right = f"{first} to {length}, and nothing stands before the first to predict it from"
            raise ConfigError(f"{where}: scored position {wrong} of a sequence of {length}: {right}")
        ascends = low <= high and low > max(positions, default=0)
        require(ascends, f"{where}: scored {text!r} must ascend")
        positions += range(low, high + 1)
    return positions or list(range(first, length + 1))


def as_numbers(rows: list[list[str]]) -> list[list]:
    """Return tokens as numbers where all are whole numbers from 0 on; 01 is a word."""
    if all(re.fullmatch("0|[1-9][0-9]{0,19}", token) for row in rows for token in row):
        return [[int(token) for token in row] for row in rows]
    return rows
