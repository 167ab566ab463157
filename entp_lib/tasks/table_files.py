"""Reading a file of sequences (``entp_lib.tasks.table``): CSV or ``.npz``, checked, in the user's words.

Letters: P examples, T tokens, d numbers of an input.
"""

import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from entp_lib.files import read_table
from entp_lib.tasks.base import PARTS, Batch
from entp_lib.validation import ConfigError, one_of, require

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
    for name in table:
        require(name in COLUMNS, f"{path}: unknown column {name!r}; known, once each: {', '.join(COLUMNS)}")
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
    tokens_PT = np.full((len(sequences), max(map(len, sequences))), -1, dtype=np.int64)
    answers_PT, wanted_PT = np.zeros_like(tokens_PT), np.zeros(tokens_PT.shape, dtype=bool)
    for i, places in enumerate(wanted):
        tokens_PT[i, : len(sequences[i])] = ids[i]
        wanted_PT[i, places] = True
        if answered:
            answers_PT[i, places] = ids[len(sequences) + i]
    return of_tokens(tokens_PT, wanted_PT, answers_PT if answered else None, words, table.get("part"), path)


def places_of(text: str, length: int, first: int, where: str) -> list[int]:
    """Positions as written in "5", "5 7" or "5-8", from 1 on; all from ``first`` on where the text is empty."""
    if not text.strip():
        return list(range(first, length + 1))
    found: list[int] = []
    for piece in text.replace(",", " ").split():
        written = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", piece)
        low, high = (int(written[1]), int(written[2] or written[1])) if written else (1, 0)
        require(low <= high, f"{where}: wanted {piece[:40]!r}: write 5, or 5-8")
        wrong, right = low if low < first else high, f"a sequence of {length}: {first} to {length}"
        right += " (nothing stands before the first, to predict it from)" if wrong < first else ""
        require(first <= low and high <= length, f"{where}: wanted position {wrong} of {right}")
        found += range(low, high + 1)
    return found


def numbered(rows: list[list[str]], path: Path) -> tuple[list[list[int]], tuple[str, ...]]:
    """Tokens as numbers: themselves where all are whole numbers from 0 on, else their place among all words."""
    words = sorted({token for row in rows for token in row})
    if all(re.fullmatch("0|[1-9][0-9]*", word) for word in words):  # 01 is a word
        longest = max(words, key=len)
        require(len(longest) < 20, f"{path}: the symbol {longest[:20]} is too large; at most {LARGEST - 1}")
        return [[int(token) for token in row] for row in rows], ()
    place = {word: i for i, word in enumerate(words)}
    return [[place[token] for token in row] for row in rows], tuple(words)


def read_npz(path: Path) -> Contents:
    """The examples of an ``.npz`` file; nothing in it is unpickled."""
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            arrays = {name: loaded[name] for name in getattr(loaded, "files", ())}
        except ValueError as error:
            raise ConfigError(f"{path}: an array cannot be read ({error})") from None
    require("sequences" in arrays, f"{path}: must have an array 'sequences', it has {', '.join(arrays) or 'none'}")
    for name, array in arrays.items():
        require(name in ARRAYS, f"{path}: unknown array {name!r}; known: {', '.join(ARRAYS)}")
        require(isinstance(array, np.ndarray), f"{path}: {name} is no array")
    found, wanted, targets, part = map(arrays.get, ARRAYS)
    real = found.dtype.kind == "f" and found.ndim == 3
    fits = found.size > 0 and (real or (found.dtype.kind in "iu" and found.ndim == 2))
    right = "must be whole numbers (P, T), or real numbers (P, T, d), and at least one"
    require(fits, f"{path}: sequences is {found.dtype} of shape {found.shape}: {right}")
    kinds, right = ("iuf", "real numbers") if real else ("iu", "whole numbers, as sequences are")
    for name, array in (("wanted", wanted), ("targets", targets)):
        if array is not None:
            same = array.shape == found.shape[:2]
            require(same, f"{path}: {name} has shape {array.shape}, must be {found.shape[:2]}, as sequences")
    require(wanted is None or set(np.unique(wanted)) <= {0, 1}, f"{path}: wanted must hold truth values (or 0 and 1)")
    require(targets is not None or not real, f"{path}: sequences of real numbers need an array 'targets' of (P, T)")
    if targets is not None:
        require(targets.dtype.kind in kinds, f"{path}: targets is {targets.dtype}: must be {right}")
    if wanted is None:
        wanted = np.full(found.shape[:2], True) if real else found >= 0
        if targets is None:
            wanted[:, 0] = False
    if real:
        return of_numbers(found, wanted.astype(bool), targets, part, path)
    wrong = int(found.min())
    require(wrong >= -1, f"{path}: sequences hold {wrong}; symbols are 0 and more, and -1 is padding")
    return of_tokens(found.astype(np.int64), wanted.astype(bool), targets, (), part, path)


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
    return contents(inputs_PT, answers_PT, wanted_PT, len(words) or largest + 1, words, part, answered, path)


def of_numbers(inputs_PTd, wanted_PT, targets_PT, part, path: Path) -> Contents:
    """Examples of real inputs with a real target at each wanted position."""
    with np.errstate(over="ignore"):  # what is too large for fp32 is infinite there, and refused
        targets_PT = np.where(wanted_PT, targets_PT, 0.0).astype(np.float32)
        inputs_PTd = inputs_PTd.astype(np.float32)
    finite = np.isfinite(inputs_PTd).all() and np.isfinite(targets_PT).all()
    require(bool(finite), f"{path}: sequences and wanted targets must be finite numbers, in fp32 too")
    return contents(inputs_PTd, targets_PT, wanted_PT, 0, (), part, False, path)


def contents(inputs_PT, targets_PT, wanted_PT, symbols: int, words, part, answered: bool, path: Path) -> Contents:
    """All examples as one batch whose prompts end with the first prediction."""
    require_none(~wanted_PT.any(1), path, "has no wanted position")
    if part is not None:
        part = np.asarray(part).astype(str)
        require(len(part) == len(inputs_PT), f"{path}: part must have {len(inputs_PT)} names, one for each sequence")
        for name in part.tolist():
            one_of(f"{path}: part", name, PARTS)
    arrays = (inputs_PT, targets_PT, wanted_PT, wanted_PT.argmax(1) + 1)
    examples = Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in arrays))
    return Contents(examples, symbols, words, part, answered)


def require_none(wrong_P: np.ndarray, path: Path, what: str) -> None:
    """ConfigError that names the first sequence that is ``wrong_P``."""
    require(not wrong_P.any(), f"{path}: sequence {int(wrong_P.argmax()) + 1} {what}")
