"""Reading a file of sequences (``entp_lib.tasks.table``): CSV or ``.npz``, checked, in the user's words.

Letters: P examples, T tokens.
"""

import csv
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from entp_lib.tasks.fixed import PARTS
from entp_lib.validation import ConfigError, require

COLUMNS = ("sequence", "wanted", "targets", "part")
ARRAYS = ("sequences", "wanted", "targets", "part")
FORMAT = (
    "write tokens with spaces between them and say which to predict, as in a first line 'sequence,wanted' above "
    "'1 2 + 3 4 = 4 6,7-8'; real numbers go into an .npz file (docs/starting.md has both)"
)
LARGEST = 2**20  # of a symbol: a model has an embedding for every number up to it


@dataclass(frozen=True, eq=False)
class Contents:
    """Every example of a file, as batches need them: (P, T), and inputs (P, T, d) where they are real numbers.

    ``words``: what the symbols mean, empty for numbers. ``part``: the part of each example where the file names it.
    ``answered``: whether the file has targets of its own, in place of the next token.
    """

    inputs: np.ndarray
    targets: np.ndarray
    wanted: np.ndarray
    prompt_lengths: np.ndarray
    symbols: int
    words: tuple[str, ...] = ()
    part: np.ndarray | None = None
    answered: bool = False

    @property
    def continuous(self) -> bool:
        return self.inputs.ndim == 3


def read(path: Path) -> Contents:
    """What a CSV or ``.npz`` file holds. ConfigError names the line, the column or the array that is not as needed."""
    kinds = {".csv": read_csv, ".npz": read_npz}
    require(path.suffix.lower() in kinds, f"{path}: must end in .csv or .npz")
    try:
        return kinds[path.suffix.lower()](path)
    except (UnicodeDecodeError, csv.Error, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{path}: cannot be read as {path.suffix.lower()[1:]} ({error})") from None
    except MemoryError as error:
        raise ConfigError(f"{path}: does not fit into memory ({error})") from None


def read_csv(path: Path) -> Contents:
    """The examples of a CSV file: a line each."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)  # a quote that is never closed would swallow lines
        names = reader.fieldnames or []
        unknown = [name for name in names if name not in COLUMNS]
        found = ", ".join(names)
        right = (
            f"{path}: must have a column 'sequence', its first line has {found[:60]}{'…' * (len(found) > 60)}; {FORMAT}"
        )
        require("sequence" in names, right)
        require(not unknown, f"{path}: unknown column {unknown and unknown[0]!r}; known: {', '.join(COLUMNS)}")
        require(len(set(names)) == len(names), f"{path}: a column stands twice in the first line: {', '.join(names)}")
        rows, lines = [], []
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    require(len(rows) > 0, f"{path}: has no sequences below its first line")
    sequences, wanted, targets = [], [], []
    for line, row in zip(lines, rows, strict=True):
        where = f"{path}, line {line}"
        surplus = any(cell.strip() for cell in row.get(None, ()))
        require(not surplus, f'{where}: more cells than columns; put a list such as "6,8" in quotes')
        tokens = (row["sequence"] or "").split()
        require(len(tokens) >= 1, f"{where}: the sequence is empty")
        given = "targets" in names
        first = 1 if given else 2
        places = places_of(row.get("wanted") or "", len(tokens), first, where)
        ascending = places == sorted(set(places))
        right = f"{where}: wanted {row.get('wanted')!r}: positions must ascend, each target belongs to one"
        require(ascending or not given, right)
        places = sorted(set(places))
        sequences.append(tokens)
        wanted.append(places)
        if given:
            answers = (row["targets"] or "").split()
            right = f"{where}: {len(answers)} targets for {len(places)} wanted positions"
            require(len(answers) == len(places), right)
            targets.append(answers)
    ids, words = numbered([*sequences, *targets], path)
    part = part_of([row["part"] for row in rows], path) if "part" in names else None
    length = max(map(len, sequences))
    tokens_PT, wanted_PT = np.full((len(rows), length), -1, dtype=np.int64), np.zeros((len(rows), length), dtype=bool)
    answers_PT = np.zeros((len(rows), length), dtype=np.int64)
    for i, places in enumerate(wanted):
        tokens_PT[i, : len(sequences[i])] = ids[i]
        wanted_PT[i, [place - 1 for place in places]] = True
        if targets:
            answers_PT[i, [place - 1 for place in places]] = ids[len(rows) + i]
    return of_tokens(tokens_PT, wanted_PT, answers_PT if targets else None, words, part, path)


def places_of(text: str, length: int, first: int, where: str) -> list[int]:
    """Positions as written in "5", "5 7" or "5-8", from 1 on; all from ``first`` on where the text is empty."""
    if not text.strip():
        return list(range(first, length + 1))
    found: list[int] = []
    for piece in text.replace(",", " ").split():
        low, dash, high = piece.partition("-")
        numbers = piece.isascii() and low.isdigit() and (high.isdigit() or not dash) and len(piece) < 20
        require(numbers and int(low) <= int(high or low), f"{where}: wanted {piece[:40]!r}: write 5, or 5-8")
        found += range(int(low), min(int(high or low), max(length, int(low)) + 1) + 1)
    wrong = next((place for place in found if not first <= place <= length), None)
    why = " (nothing stands before the first, to predict it from)" if wrong == 1 else ""
    require(wrong is None, f"{where}: wanted position {wrong} of a sequence of {length}: {first} to {length}{why}")
    require(bool(found), f"{where}: no wanted position")
    return found


def numbered(rows: list[list[str]], path: Path) -> tuple[list[list[int]], tuple[str, ...]]:
    """Tokens as numbers: themselves where all are whole numbers from 0 on, else their place among all words."""
    words = sorted({token for row in rows for token in row})
    if all(word.isascii() and word.isdigit() and (word[0] != "0" or word == "0") for word in words):  # 01 is a word
        longest = max(words, key=len)
        require(
            len(longest) <= len(str(LARGEST)) and max(map(int, words)) < LARGEST,
            f"{path}: the symbol {longest[:20]} is too large; at most {LARGEST - 1}",
        )
        return [[int(token) for token in row] for row in rows], ()
    place = {word: i for i, word in enumerate(words)}
    return [[place[token] for token in row] for row in rows], tuple(words)


def read_npz(path: Path) -> Contents:
    """The examples of an ``.npz`` file; nothing in it is unpickled."""
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            names = getattr(loaded, "files", [])
            arrays: dict[str, Any] = {name: loaded[name] for name in names if name in ARRAYS}
        except ValueError as error:
            raise ConfigError(f"{path}: an array cannot be read ({error})") from None
    unknown = [name for name in names if name not in ARRAYS]
    require("sequences" in names, f"{path}: must have an array 'sequences', it has {', '.join(names) or 'none'}")
    require(not unknown, f"{path}: unknown array {unknown and unknown[0]!r}; known: {', '.join(ARRAYS)}")
    no_array = next((name for name, found in arrays.items() if not isinstance(found, np.ndarray)), None)
    require(no_array is None, f"{path}: {no_array} is no array")
    found = arrays["sequences"]
    shape = found.shape
    tokens = found.dtype.kind in "iu" and found.ndim == 2
    real = np.issubdtype(found.dtype, np.floating) and found.ndim == 3
    right = "must be whole numbers (P, T), or real numbers (P, T, d)"
    require(tokens or real, f"{path}: sequences is {found.dtype} of shape {shape}: {right}")
    require(0 not in shape, f"{path}: sequences of shape {shape} hold nothing")
    for name in ("wanted", "targets"):
        other = arrays.get(name)
        right = f"{path}: {name} has shape {other is not None and other.shape}, must be {shape[:2]}, as sequences"
        require(other is None or other.shape == shape[:2], right)
    part = part_of(arrays["part"].astype(str).tolist(), path) if "part" in arrays else None
    require(
        part is None or len(part) == len(found), f"{path}: part must have {len(found)} names, one for each sequence"
    )
    wanted = arrays.get("wanted")
    require(wanted is None or set(np.unique(wanted)) <= {0, 1}, f"{path}: wanted must hold truth values (or 0 and 1)")
    targets = arrays.get("targets")
    if real:
        require(targets is not None, f"{path}: sequences of real numbers need an array 'targets' of shape {shape[:2]}")
        require(targets.dtype.kind in "iuf", f"{path}: targets is {targets.dtype}: must be real numbers")
        return of_numbers(found, wanted, targets, part, path)
    if wanted is None:
        wanted = found >= 0
        if targets is None:
            wanted[:, 0] = False
    integers = targets is None or targets.dtype.kind in "iu"
    wrong = int(found.min())
    require(wrong >= -1, f"{path}: sequences hold {wrong}; symbols are 0 and more, and -1 is padding")
    require(integers, f"{path}: targets of whole numbers must be whole numbers")
    return of_tokens(found.astype(np.int64), wanted.astype(bool), targets, (), part, path)


def part_of(names: list[str | None], path: Path) -> np.ndarray:
    """The part that each example says it belongs to."""
    wrong = next((name for name in names if name not in PARTS), None)
    require(all(n in PARTS for n in names), f"{path}: part {wrong!r}: must be one of {', '.join(PARTS)}")
    return np.array(names)


def of_tokens(tokens_PT, wanted_PT, answers_PT, words, part, path: Path) -> Contents:
    """Examples of symbols; -1 is padding, at the end alone. Without answers the next token is the target."""
    padding_PT = tokens_PT < 0
    gap = (padding_PT[:, :-1] & ~padding_PT[:, 1:]).any(1) | padding_PT[:, 0]
    require(not gap.any(), f"{path}: sequence {int(gap.argmax()) + 1} has padding (-1) before its end")
    beyond = (padding_PT & wanted_PT).any(1)
    require(not beyond.any(), f"{path}: sequence {int(beyond.argmax()) + 1} has a wanted position behind its end")
    inputs_PT, answered = np.where(padding_PT, 0, tokens_PT), answers_PT is not None
    if not answered:
        right = "wants its first token, before which nothing stands"
        require(not wanted_PT[:, 0].any(), f"{path}: sequence {int(wanted_PT[:, 0].argmax()) + 1} {right}")
        require(tokens_PT.shape[1] >= 2, f"{path}: sequences of one token have nothing to predict")
        inputs_PT, answers_PT, wanted_PT = inputs_PT[:, :-1], inputs_PT[:, 1:], wanted_PT[:, 1:]
    empty = ~wanted_PT.any(1)
    require(not empty.any(), f"{path}: sequence {int(empty.argmax()) + 1} has no wanted position")
    answers_PT = np.where(wanted_PT, answers_PT, 0).astype(np.int64)
    require(int(answers_PT.min()) >= 0, f"{path}: targets must be 0 or more where they are wanted")
    largest = max(int(inputs_PT.max()), int(answers_PT.max()))
    require(max(largest + 1, len(words)) >= 2, f"{path}: a single symbol leaves nothing to predict; two are needed")
    require(largest < LARGEST, f"{path}: the symbol {largest} is too large; at most {LARGEST - 1}")
    return Contents(
        np.ascontiguousarray(inputs_PT, dtype=np.int64),
        answers_PT,
        np.ascontiguousarray(wanted_PT),
        wanted_PT.argmax(1) + 1,
        len(words) or largest + 1,
        words,
        part,
        answered,
    )


def of_numbers(inputs_PTd, wanted_PT, targets_PT, part, path: Path) -> Contents:
    """Examples of real inputs with a real target at each wanted position."""
    wanted_PT = np.ones(inputs_PTd.shape[:2], dtype=bool) if wanted_PT is None else wanted_PT.astype(bool)
    with np.errstate(over="ignore"):  # what is too large for fp32 is infinite there, and refused
        targets_PT = np.where(wanted_PT, targets_PT, 0.0).astype(np.float32)
        inputs_PTd = inputs_PTd.astype(np.float32)
    finite = np.isfinite(inputs_PTd).all() and np.isfinite(targets_PT).all()
    require(bool(finite), f"{path}: sequences and wanted targets must be finite numbers, in fp32 too")
    empty = ~wanted_PT.any(1)
    require(not empty.any(), f"{path}: sequence {int(empty.argmax()) + 1} has no wanted position")
    return Contents(inputs_PTd, targets_PT, wanted_PT, wanted_PT.argmax(1) + 1, 0, (), part)
