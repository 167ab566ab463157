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

import re
from pathlib import Path

from entp_lab.tables import read_table
from entp_lib.tasks import Table
from entp_lib.validation import ConfigError, one_of, require

COLUMNS = ("sequence", "scored", "targets", "part")


def table_from_csv(file: str | Path, held_out: float = 0.1, seed: int = 0) -> Table:
    """Return the sequences of a CSV file as a task; ConfigError names file, row and column.

    ``held_out`` and ``seed`` are those of ``Table.from_arrays``; blank lines are left out.
    """
    # every cell is a text, and NA a word like others
    table = read_table(
        Path(file),
        ["sequence"],
        needed=["sequence"],
        dtype=str,
        na_values=[""],
        keep_default_na=False,
    ).fillna("")
    for name in table:
        one_of(f"{file}: column", name, COLUMNS)
    has_targets = "targets" in table
    sequences = []
    scored = []
    targets = []
    for number, row in enumerate(table.to_dict("records"), 1):
        where = f"{file}: row {number} of the table"
        tokens = row["sequence"].split()
        first = 1 if has_targets else 2
        positions = read_positions(row.get("scored", ""), len(tokens), first, where)
        answers = row["targets"].split() if has_targets else [tokens[p - 1] for p in positions]
        require(
            len(answers) == len(positions),
            f"{where}: {len(answers)} targets for {len(positions)} scored positions",
        )
        answer_at = dict(zip(positions, answers, strict=True))
        sequences.append(tokens)
        scored.append([place in answer_at for place, _ in enumerate(tokens, 1)])
        targets.append([answer_at.get(place, token) for place, token in enumerate(tokens, 1)])
    words = (token for row in [*sequences, *targets] for token in row)
    if all(re.fullmatch("0|[1-9][0-9]{0,19}", word) for word in words):  # 01 is none of the numbers
        sequences = [[int(token) for token in row] for row in sequences]
        targets = [[int(token) for token in row] for row in targets]
    try:
        return Table.from_arrays(
            sequences,
            scored,
            targets if has_targets else None,
            table["part"].tolist() if "part" in table else None,
            held_out=held_out,
            seed=seed,
        )
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


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
        require(
            low >= first and high <= length,
            f"{where}: scored position {wrong} of a sequence of {length}: {first} to {length}, "
            "and nothing stands before the first to predict it from",
        )
        require(
            low <= high and low > max(positions, default=0), f"{where}: scored {text!r} must ascend"
        )
        positions += range(low, high + 1)
    return positions or list(range(first, length + 1))
