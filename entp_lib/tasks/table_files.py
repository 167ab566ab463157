"""Reading a file of sequences (``entp_lib.tasks.table``): CSV or ``.npz``, checked, in the user's words.

Letters: P examples, T tokens, d numbers of an input.
"""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from entp_lib.files import read_table
from entp_lib.tasks.base import PARTS, Batch
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
    """Every example of a file as one batch.

    ``words``: what the symbols mean, empty for numbers. ``part``: the part of each example where the file names it.
    ``answered``: whether the file has targets of its own, in place of the next token.
    """

    examples: Batch
    symbols: int
    words: tuple[str, ...] = ()
    part: np.ndarray | None = None
    answered: bool = False

    @property
    def continuous(self) -> bool:
        return self.examples.inputs_BT.dim() == 3


def read(path: Path) -> Contents:
    """The examples of a CSV or ``.npz`` file. ConfigError names the line, the column or the array at fault."""
    kind = path.suffix.lower()
    require(kind in (".csv", ".npz"), f"{path}: must end in .csv or .npz")
    try:
        return read_csv(path) if kind == ".csv" else read_npz(path)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{path}: cannot be read as npz ({error})") from None
    except MemoryError as error:
        raise ConfigError(f"{path}: does not fit into memory ({error})") from None


def read_csv(path: Path) -> Contents:
    """The examples of a CSV file, a line each; blank lines are left out."""
    table = read_table(path, (), dtype=str, keep_default_na=False, skip_blank_lines=False).fillna("")
    names = ", ".join(map(str, table))
    right = f"must have a column 'sequence', its first line has {names[:60]}{'…' * (len(names) > 60)}; {FORMAT}"
    require("sequence" in table, f"{path}: {right}")
    unknown = [name for name in table if name not in COLUMNS]
    require(not unknown, f"{path}: unknown column {unknown and unknown[0]!r}; known, once each: {', '.join(COLUMNS)}")
    table = table[table.apply(lambda column: column.str.strip() != "").any(axis=1)]
    require(len(table) > 0, f"{path}: has no sequences below its first line")
    answered = "targets" in table
    sequences, wanted, targets = [], [], []
    for line, row in zip(table.index + 2, table.to_dict("records"), strict=True):
        where, tokens = f"{path}, line {line}", row["sequence"].split()
        require(len(tokens) >= 1, f"{where}: the sequence is empty")
        places = places_of(row.get("wanted", ""), len(tokens), 1 if answered else 2, where)
        if answered:
            right = f"{where}: wanted {row.get('wanted')!r}: positions must ascend, each target belongs to one"
            require(places == sorted(set(places)), right)
            targets.append(row["targets"].split())
            right = f"{where}: {len(targets[-1])} targets for {len(places)} wanted positions"
            require(len(targets[-1]) == len(places), right)
        sequences.append(tokens)
        wanted.append(np.array(places) - 1)
    ids, words = numbered([*sequences, *targets], path)
    shape = len(sequences), max(map(len, sequences))
    tokens_PT, answers_PT = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    wanted_PT = np.zeros(shape, dtype=bool)
    for i, places in enumerate(wanted):
        tokens_PT[i, : len(sequences[i])] = ids[i]
        wanted_PT[i, places] = True
        if answered:
            answers_PT[i, places] = ids[shape[0] + i]
    part = part_of(table["part"], path) if "part" in table else None
    return of_tokens(tokens_PT, wanted_PT, answers_PT if answered else None, words, part, path)


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
        right = f"{path}: the symbol {longest[:20]} is too large; at most {LARGEST - 1}"
        require(len(longest) <= len(str(LARGEST)) and max(map(int, words)) < LARGEST, right)
        return [[int(token) for token in row] for row in rows], ()
    place = {word: i for i, word in enumerate(words)}
    return [[place[token] for token in row] for row in rows], tuple(words)


def read_npz(path: Path) -> Contents:
    """The examples of an ``.npz`` file; nothing in it is unpickled."""
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            names = getattr(loaded, "files", [])
            arrays = {name: loaded[name] for name in names if name in ARRAYS}
        except ValueError as error:
            raise ConfigError(f"{path}: an array cannot be read ({error})") from None
    unknown = [name for name in names if name not in ARRAYS]
    require("sequences" in names, f"{path}: must have an array 'sequences', it has {', '.join(names) or 'none'}")
    require(not unknown, f"{path}: unknown array {unknown and unknown[0]!r}; known: {', '.join(ARRAYS)}")
    for name, array in arrays.items():
        require(isinstance(array, np.ndarray), f"{path}: {name} is no array")
    found, wanted, targets = (arrays.get(name) for name in ARRAYS[:3])
    real = np.issubdtype(found.dtype, np.floating) and found.ndim == 3
    right = f"{path}: sequences is {found.dtype} of shape {found.shape}"
    tokens = found.dtype.kind in "iu" and found.ndim == 2
    require(tokens or real, f"{right}: must be whole numbers (P, T), or real numbers (P, T, d)")
    require(found.size > 0, f"{right}: holds nothing")
    for name in ("wanted", "targets"):
        shape = arrays[name].shape if name in arrays else found.shape[:2]
        require(shape == found.shape[:2], f"{path}: {name} has shape {shape}, must be {found.shape[:2]}, as sequences")
    part = part_of(arrays["part"].astype(str).tolist(), path) if "part" in arrays else None
    right = f"{path}: part must have {len(found)} names, one for each sequence"
    require(part is None or len(part) == len(found), right)
    require(wanted is None or set(np.unique(wanted)) <= {0, 1}, f"{path}: wanted must hold truth values (or 0 and 1)")
    kinds, right = ("iuf", "real numbers") if real else ("iu", "whole numbers, as sequences are")
    require(
        targets is None or targets.dtype.kind in kinds,
        f"{path}: targets is {targets is not None and targets.dtype}: must be {right}",
    )
    if real:
        require(
            targets is not None, f"{path}: sequences of real numbers need an array 'targets' of shape {found.shape[:2]}"
        )
        wanted_PT = np.ones(found.shape[:2], dtype=bool) if wanted is None else wanted.astype(bool)
        return of_numbers(found, wanted_PT, targets, part, path)
    if wanted is None:
        wanted = found >= 0
        if targets is None:
            wanted[:, 0] = False
    wrong = int(found.min())
    require(wrong >= -1, f"{path}: sequences hold {wrong}; symbols are 0 and more, and -1 is padding")
    return of_tokens(found.astype(np.int64), wanted.astype(bool), targets, (), part, path)


def part_of(names, path: Path) -> np.ndarray:
    """The part that each example says it belongs to."""
    for name in names:
        require(name in PARTS, f"{path}: part {name!r}: must be one of {', '.join(PARTS)}")
    return np.array(names)


def require_none(wrong_P: np.ndarray, path: Path, what: str) -> None:
    """ConfigError that names the first sequence that is ``wrong_P``."""
    require(not wrong_P.any(), f"{path}: sequence {int(wrong_P.argmax()) + 1} {what}")


def of_tokens(tokens_PT, wanted_PT, answers_PT, words, part, path: Path) -> Contents:
    """Examples of symbols; -1 is padding, at the end alone. Without answers the next token is the target."""
    padding_PT, answered = tokens_PT < 0, answers_PT is not None
    gap_P = (padding_PT[:, :-1] & ~padding_PT[:, 1:]).any(1) | padding_PT[:, 0]
    require_none(gap_P, path, "has padding (-1) before its end")
    require_none((padding_PT & wanted_PT).any(1), path, "has a wanted position behind its end")
    inputs_PT = np.where(padding_PT, 0, tokens_PT)
    if not answered:
        require_none(wanted_PT[:, 0], path, "wants its first token, before which nothing stands")
        require(tokens_PT.shape[1] >= 2, f"{path}: sequences of one token have nothing to predict")
        inputs_PT, answers_PT, wanted_PT = inputs_PT[:, :-1], inputs_PT[:, 1:], wanted_PT[:, 1:]
    answers_PT = np.where(wanted_PT, answers_PT, 0).astype(np.int64)
    require(int(answers_PT.min()) >= 0, f"{path}: targets must be 0 or more where they are wanted")
    largest = max(int(inputs_PT.max()), int(answers_PT.max()))
    require(max(largest + 1, len(words)) >= 2, f"{path}: a single symbol leaves nothing to predict; two are needed")
    require(largest < LARGEST, f"{path}: the symbol {largest} is too large; at most {LARGEST - 1}")
    examples = batch_of(inputs_PT, answers_PT, wanted_PT, path)
    return Contents(examples, len(words) or largest + 1, words, part, answered)


def of_numbers(inputs_PTd, wanted_PT, targets_PT, part, path: Path) -> Contents:
    """Examples of real inputs with a real target at each wanted position."""
    with np.errstate(over="ignore"):  # what is too large for fp32 is infinite there, and refused
        targets_PT = np.where(wanted_PT, targets_PT, 0.0).astype(np.float32)
        inputs_PTd = inputs_PTd.astype(np.float32)
    finite = np.isfinite(inputs_PTd).all() and np.isfinite(targets_PT).all()
    require(bool(finite), f"{path}: sequences and wanted targets must be finite numbers, in fp32 too")
    return Contents(batch_of(inputs_PTd, targets_PT, wanted_PT, path), 0, (), part)


def batch_of(inputs_PT: np.ndarray, targets_PT: np.ndarray, wanted_PT: np.ndarray, path: Path) -> Batch:
    """All examples as one batch whose prompts end with the first prediction."""
    require_none(~wanted_PT.any(1), path, "has no wanted position")
    arrays = (inputs_PT, targets_PT, wanted_PT, wanted_PT.argmax(1) + 1)
    return Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in arrays))
