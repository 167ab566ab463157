"""A user's own table: the sequences and scored positions of a CSV file, as a task.

A line for each sequence, tokens separated by spaces (numbers, or words of any kind)::

    sequence,scored
    1 2 + 3 4 = 4 6,7-8
    7 + 5 = 1 2,5-6

``scored`` names the tokens to be predicted from those before them, counted from 1; by default all but the first. With a
column ``targets`` (as many tokens as scored positions) the model predicts these tokens instead, each after its scored
position. A column ``part`` assigns each row to train, validation or test. Arrays and real numbers go to
``Table.from_arrays``.
"""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from entp_lab.texts import decode_text
from entp_lib.tasks import Table
from entp_lib.validation import ConfigError, require

COLUMNS = ("sequence", "scored", "targets", "part")
FORMAT = (
    "write tokens with spaces between them and say which to predict, as in a first line 'sequence,scored' above "
    "'1 2 + 3 4 = 4 6,7-8' (docs/starting.md)"
)


def table_from_csv(file: str | Path, held_out: float = 0.1, seed: int = 0) -> Table:
    """Return the sequences of a CSV file as a task; ConfigError names file, line and column.

    ``held_out`` and ``seed`` are those of ``Table.from_arrays``; blank lines are left out.
    """
    path = Path(file)
    require(path.is_file(), f"{file}: no such file")
    require(
        path.suffix.lower() == ".csv", f"{file}: must end in .csv; arrays go to Table.from_arrays"
    )
    reader = csv.reader(io.StringIO(decode_text(path.read_bytes(), file), newline=""), strict=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        where = f"{file}, line {reader.line_num}"
        raise ConfigError(f"{where}: no comma-separated values ({error})") from None
    names = rows.pop(0)[1] if rows else []
    check_columns(names, file)
    require(len(rows) > 0, f"{file}: has no sequences below its first line")
    sequences: list[list] = []
    scored: list[list[bool]] = []
    targets: list[list] = []
    parts: list[str] = []
    for line, cells in rows:
        where = f"{file}, line {line}"
        require(
            len(cells) <= len(names),
            f"{where}: more cells than columns; put a cell with commas in quotes",
        )
        row = dict.fromkeys(names, "") | dict(zip(names, cells, strict=False))
        tokens = row["sequence"].split()
        require(len(tokens) > 0, f"{where}: the sequence is empty")
        first = 1 if "targets" in names else 2
        positions = read_positions(row.get("scored", ""), len(tokens), first, where)
        answers = row["targets"].split() if "targets" in names else []
        if "targets" in names and len(answers) != len(positions):
            raise ConfigError(
                f"{where}: {len(answers)} targets for {len(positions)} scored positions"
            )
        sequences.append(tokens)
        scored.append([False] * len(tokens))
        targets.append(list(tokens))
        for position in positions:
            scored[-1][position - 1] = True
        for position, answer in zip(positions, answers, strict=False):
            targets[-1][position - 1] = answer
        parts.append(row.get("part", ""))
    if are_numbers([*sequences, *targets]):
        sequences = [[int(token) for token in row] for row in sequences]
        targets = [[int(token) for token in row] for row in targets]
    try:
        return Table.from_arrays(
            sequences,
            scored,
            targets if "targets" in names else None,
            parts if "part" in names else None,
            held_out=held_out,
            seed=seed,
        )
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def check_columns(names: Sequence[str], file: str | Path) -> None:
    """Raise ConfigError unless the column names are ``sequence`` and possibly others of ``COLUMNS``, each once."""
    shown = ", ".join(names)[:60]
    require(
        "sequence" in names, f"{file}: no column 'sequence' in its first line, {shown}; {FORMAT}"
    )
    for name in names:
        if name not in COLUMNS or names.count(name) > 1:
            raise ConfigError(
                f"{file}: column {name!r}: its columns may be {', '.join(COLUMNS)}, each once"
            )


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
            raise ConfigError(
                f"{where}: scored position {wrong} of a sequence of {length}: {right}"
            )
        ascends = low <= high and low > max(positions, default=0)
        require(ascends, f"{where}: scored {text!r} must ascend")
        positions += range(low, high + 1)
    return positions or list(range(first, length + 1))


def are_numbers(rows: Sequence[Sequence[str]]) -> bool:
    """Say whether all tokens are whole numbers from 0 on; 01 is a word."""
    return all(re.fullmatch("0|[1-9][0-9]{0,19}", token) for row in rows for token in row)
