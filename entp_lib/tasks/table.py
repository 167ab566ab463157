"""Data of one's own: sequences and scored positions from a file, as a task with training, validation and test parts.

A CSV file has a line for each sequence, tokens separated by spaces (numbers, or words of any kind)::

    sequence,scored
    1 2 + 3 4 = 4 6,7-8
    7 + 5 = 1 2,5-6

``scored`` names the tokens to be predicted from those before them, counted from 1; without it all but the first. With a
column ``targets`` (as many tokens as scored positions) the answer is another token, given after each scored position.

An ``.npz`` file has the same as arrays: ``sequences`` (P, T) of whole numbers, padded with -1 at the end, ``scored``
(P, T) of truth values, and ``targets`` (P, T). ``sequences`` of real numbers (P, T, d) with real ``targets`` make a
continuous task, as in-context learning is. A column or array ``part`` of train, validation and test decides the parts.

Letters: P examples, B batch, T tokens, d numbers of an input.
"""

import functools
import hashlib
import re
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.data.sources import check_checksum
from entp_lib.files import read_table
from entp_lib.tasks.base import PARTS, Batch, FixedData
from entp_lib.validation import ConfigError, check_intervals, check_types, one_of, require

COLUMNS = ("sequence", "scored", "targets", "part")
ARRAYS = ("sequences", "scored", "targets", "part")
FORMAT = (
    "write tokens with spaces between them and say which to predict, as in a first line 'sequence,scored' above "
    "'1 2 + 3 4 = 4 6,7-8'; real numbers go into an .npz file (docs/starting.md has both)"
)
LARGEST = 2**20  # of a symbol: a model has an embedding for every number up to it
MAX_WORDS = 100  # of a vocabulary that a record lists


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


@dataclass(frozen=True)
class Table(FixedData):
    """The sequences of a CSV or ``.npz`` file, trained on one part of them and evaluated on the others.

    ``file``: its path. ``checksum``: the first 16 hexadecimal digits of its SHA-256, so that a record cannot mean two
    files; "" takes what is there. ``held_out``: the share of validation, and of test, among different inputs, where
    the file does not name the parts; equal inputs, up to the last token that a prediction sees, always go to one part,
    chosen by ``split_seed``. ConfigError for what the file lacks.
    """

    file: str
    checksum: str = ""
    held_out: float = 0.1
    split_seed: int = 0
    part: Literal["train", "test", "seen"] = "train"

    def __post_init__(self):
        check_types(self)
        require(self.file != "", "file = '': must be the path of a .csv or .npz file")
        check_intervals(self, {"held_out": "(0, 0.5)", "split_seed": "[0, inf)"})
        check_checksum(self.checksum)

    @property
    def contents(self) -> Contents:
        """The file's examples. ConfigError where it is another one than ``checksum`` says, or lacks something."""
        found, checksum = opened(self.file)
        right = f"{self.file} is not the file of checksum {self.checksum}: it has {checksum}"
        require(self.checksum in ("", checksum), right)
        return found

    @property
    def continuous(self) -> bool:
        return self.contents.examples.inputs_BT.dim() == 3

    @property
    def continues(self) -> bool:
        """Whether the symbols to predict are those that come next, so that a sequence can be continued."""
        return not (self.continuous or self.contents.answered)

    @property
    def input_dim(self) -> int | None:
        return self.contents.examples.inputs_BT.shape[2] if self.continuous else None

    @property
    def vocab_size(self) -> int:
        return self.contents.symbols

    @property
    def length(self) -> int:
        return self.contents.examples.inputs_BT.shape[1]

    def examples(self, part: str) -> Batch:
        found = examples_of(self.contents, self.held_out, self.split_seed)[part]
        require(len(found.inputs_BT) > 0, f"{self.file}: no example is left for {part}; it takes more sequences")
        return found

    def constants_T(self) -> Tensor:
        """The mean target of each position in training."""
        train = self.examples("train")
        targets_PT, scored_PT = train.targets_BT.numpy(), train.scored_BT.numpy()
        return torch.from_numpy(np.sum(targets_PT, 0, where=scored_PT) / np.maximum(1, scored_PT.sum(0)))

    def facts(self) -> dict[str, Any]:
        """Under ``data``: the file's name and checksum, the examples of each part, and a small vocabulary's words."""
        words = list(self.contents.words)
        about = {"file": Path(self.file).name, "checksum": opened(self.file)[1]}
        about |= {part: self.count(part) for part in PARTS}
        return {"data": about | ({"words": words} if 0 < len(words) <= MAX_WORDS else {})}

    def named(self) -> "Table":
        """The same task with its whole path and its checksum, as a record should name it."""
        checksum = opened(self.file)[1]  # a file that is not there is named before its path is resolved
        return replace(self, file=str(Path(self.file).resolve()), checksum=checksum)


def opened(file: str) -> tuple[Contents, str]:
    """The examples that a file holds now, and its checksum; ConfigError where there is none, or it lacks something."""
    require(Path(file).is_file(), f"{file}: no such file")
    state = Path(file).stat()
    return contents_of(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def contents_of(file: str, changed_ns: int, size: int) -> tuple[Contents, str]:
    """Examples and checksum of a file of this time and size. ConfigError where it changes while it is read."""

    def checksum() -> str:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

    before, contents = checksum(), read(Path(file))
    require(checksum() == before, f"{file} changed while it was read; start again")
    return contents, before


@functools.lru_cache(maxsize=8)
def examples_of(found: Contents, held_out: float, seed: int) -> dict[str, Batch]:
    """The examples of each part: as the file names them, else drawn by groups of equal inputs."""
    part_P = found.part
    if part_P is None:
        scored_PT, inputs = found.examples.scored_BT.numpy(), found.examples.inputs_BT.numpy().copy()
        length = scored_PT.shape[1]
        seen_P = length - np.argmax(scored_PT[:, ::-1], axis=1)  # tokens up to the last scored position
        inputs[np.arange(length) >= seen_P[:, None]] = 0
        flat = np.column_stack([inputs.reshape(len(inputs), -1), seen_P])  # 0 and 0 0 are two inputs
        group_P = np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1)
        groups = int(group_P.max()) + 1  # shares are of different inputs, however often each comes
        order_G = np.random.default_rng(seed).permutation(groups)
        each = max(1, min(round(held_out * groups), (groups - 1) // 2))
        name_G = np.full(groups, "train", dtype="U10")
        name_G[order_G[:each]], name_G[order_G[each : 2 * each]] = "validation", "test"
        part_P = name_G[group_P]
    return {part: found.examples.rows(torch.from_numpy(np.flatnonzero(part_P == part))) for part in PARTS}


def read(path: Path) -> Contents:
    """The examples of a CSV or ``.npz`` file. ConfigError names the line, the column or the array at fault."""
    kind = path.suffix.lower()
    require(kind in (".csv", ".npz"), f"{path}: must end in .csv or .npz")
    try:
        return read_csv(path) if kind == ".csv" else read_npz(path)
    except (zipfile.BadZipFile, zlib.error, EOFError, MemoryError) as error:
        why = "does not fit into memory" if isinstance(error, MemoryError) else "cannot be read as npz"
        raise ConfigError(f"{path}: {why} ({error})") from None


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
    sequences, scored, targets = [], [], []
    for line, row in zip(table.index + 2, table.to_dict("records"), strict=True):
        where, tokens = f"{path}, line {line}", row["sequence"].split()
        require(len(tokens) >= 1, f"{where}: the sequence is empty")
        places = places_of(row.get("scored", ""), len(tokens), 1 if answered else 2, where)
        if answered:
            right = f"{where}: scored {row.get('scored')!r}: positions must ascend, each target belongs to one"
            require(places == sorted(set(places)), right)
            targets.append(row["targets"].split())
            right = f"{where}: {len(targets[-1])} targets for {len(places)} scored positions"
            require(len(targets[-1]) == len(places), right)
        sequences.append(tokens)
        scored.append(np.array(places) - 1)
    ids, words = numbered([*sequences, *targets], path)
    tokens_PT = np.full((len(sequences), max(map(len, sequences))), -1, dtype=np.int64)
    answers_PT, scored_PT = np.zeros_like(tokens_PT), np.zeros(tokens_PT.shape, dtype=bool)
    for i, places in enumerate(scored):
        tokens_PT[i, : len(sequences[i])] = ids[i]
        scored_PT[i, places] = True
        if answered:
            answers_PT[i, places] = ids[len(sequences) + i]
    return of_tokens(tokens_PT, scored_PT, answers_PT if answered else None, words, table.get("part"), path)


def places_of(text: str, length: int, first: int, where: str) -> list[int]:
    """Positions as written in "5", "5 7" or "5-8", from 1 on; all from ``first`` on where the text is empty."""
    if not text.strip():
        return list(range(first, length + 1))
    found: list[int] = []
    for piece in text.replace(",", " ").split():
        written = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", piece)
        low, high = (int(written[1]), int(written[2] or written[1])) if written else (1, 0)
        require(low <= high, f"{where}: scored {piece[:40]!r}: write 5, or 5-8")
        wrong, right = low if low < first else high, f"a sequence of {length}: {first} to {length}"
        right += " (nothing stands before the first, to predict it from)" if wrong < first else ""
        require(first <= low and high <= length, f"{where}: scored position {wrong} of {right}")
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
    found, scored, targets, part = map(arrays.get, ARRAYS)
    real = found.dtype.kind == "f" and found.ndim == 3
    fits = found.size > 0 and (real or (found.dtype.kind in "iu" and found.ndim == 2))
    right = "must be whole numbers (P, T), or real numbers (P, T, d), and at least one"
    require(fits, f"{path}: sequences is {found.dtype} of shape {found.shape}: {right}")
    kinds, right = ("iuf", "real numbers") if real else ("iu", "whole numbers, as sequences are")
    for name, array in (("scored", scored), ("targets", targets)):
        if array is not None:
            same = array.shape == found.shape[:2]
            require(same, f"{path}: {name} has shape {array.shape}, must be {found.shape[:2]}, as sequences")
    require(scored is None or set(np.unique(scored)) <= {0, 1}, f"{path}: scored must hold truth values (or 0 and 1)")
    require(targets is not None or not real, f"{path}: sequences of real numbers need an array 'targets' of (P, T)")
    if targets is not None:
        require(targets.dtype.kind in kinds, f"{path}: targets is {targets.dtype}: must be {right}")
    if scored is None:
        scored = np.full(found.shape[:2], True) if real else found >= 0
        if targets is None:
            scored[:, 0] = False
    scored = scored.astype(bool)
    if not real:
        wrong = int(found.min())
        require(wrong >= -1, f"{path}: sequences hold {wrong}; symbols are 0 and more, and -1 is padding")
        return of_tokens(found.astype(np.int64), scored, targets, (), part, path)
    with np.errstate(over="ignore"):  # what is too large for fp32 is infinite there, and refused
        targets, found = np.where(scored, targets, 0.0).astype(np.float32), found.astype(np.float32)
    finite = np.isfinite(found).all() and np.isfinite(targets).all()
    require(bool(finite), f"{path}: sequences and scored targets must be finite numbers, in fp32 too")
    return contents(found, targets, scored, 0, (), part, False, path)


def of_tokens(tokens_PT, scored_PT, answers_PT, words, part, path: Path) -> Contents:
    """Examples of symbols; -1 is padding, at the end alone. Without answers the next token is the target."""
    padding_PT, answered = tokens_PT < 0, answers_PT is not None
    gap_P = (padding_PT[:, :-1] & ~padding_PT[:, 1:]).any(1) | padding_PT[:, 0]
    require_none(gap_P, path, "has padding (-1) before its end")
    require_none((padding_PT & scored_PT).any(1), path, "has a scored position behind its end")
    inputs_PT = np.where(padding_PT, 0, tokens_PT)
    if not answered:
        require_none(scored_PT[:, 0], path, "wants its first token, before which nothing stands")
        require(tokens_PT.shape[1] >= 2, f"{path}: sequences of one token have nothing to predict")
        inputs_PT, answers_PT, scored_PT = inputs_PT[:, :-1], inputs_PT[:, 1:], scored_PT[:, 1:]
    answers_PT = np.where(scored_PT, answers_PT, 0).astype(np.int64)
    require(int(answers_PT.min()) >= 0, f"{path}: targets must be 0 or more where they are scored")
    largest = max(int(inputs_PT.max()), int(answers_PT.max()))
    require(max(largest + 1, len(words)) >= 2, f"{path}: a single symbol leaves nothing to predict; two are needed")
    require(largest < LARGEST, f"{path}: the symbol {largest} is too large; at most {LARGEST - 1}")
    return contents(inputs_PT, answers_PT, scored_PT, len(words) or largest + 1, words, part, answered, path)


def contents(inputs_PT, targets_PT, scored_PT, symbols: int, words, part, answered: bool, path: Path) -> Contents:
    """All examples as one batch whose prompts end with the first prediction."""
    require_none(~scored_PT.any(1), path, "has no scored position")
    if part is not None:
        part = np.asarray(part).astype(str)
        require(len(part) == len(inputs_PT), f"{path}: part must have {len(inputs_PT)} names, one for each sequence")
        for name in part.tolist():
            one_of(f"{path}: part", name, PARTS)
    arrays = (inputs_PT, targets_PT, scored_PT, scored_PT.argmax(1) + 1)
    examples = Batch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in arrays))
    return Contents(examples, symbols, words, part, answered)


def require_none(wrong_P: np.ndarray, path: Path, what: str) -> None:
    """ConfigError that names the first sequence that is ``wrong_P``."""
    require(not wrong_P.any(), f"{path}: sequence {int(wrong_P.argmax()) + 1} {what}")
