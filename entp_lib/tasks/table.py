"""Data of one's own: sequences and wanted positions from a file, as a task with training, validation and test parts.

A CSV file has a line for each sequence, tokens separated by spaces (numbers, or words of any kind)::

    sequence,wanted
    1 2 + 3 4 = 4 6,7-8
    7 + 5 = 1 2,5-6

``wanted`` names the tokens to be predicted from those before them, counted from 1; without it all but the first. With a
column ``targets`` (as many tokens as wanted positions) the answer is another token, given after each wanted position.

An ``.npz`` file has the same as arrays: ``sequences`` (P, T) of whole numbers, padded with -1 at the end, ``wanted``
(P, T) of truth values, and ``targets`` (P, T). ``sequences`` of real numbers (P, T, d) with real ``targets`` make a
continuous task, as in-context learning is. A column or array ``part`` of train, validation and test decides the parts.

Letters: P examples, B batch, T tokens, d numbers of an input.
"""

import dataclasses
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.corpora.sources import check_checksum
from entp_lib.tasks.base import PARTS, Batch, FixedData
from entp_lib.tasks.table_files import Contents, read
from entp_lib.validation import check_intervals, check_types, require

MAX_WORDS = 100  # of a vocabulary that a record lists


@dataclass(frozen=True)
class Table(FixedData):
    """The sequences of a CSV or ``.npz`` file, trained on one part of them and evaluated on the others.

    ``file``: its path. ``checksum``: the first 16 hexadecimal digits of its SHA-256, so that a record cannot mean two
    files; "" takes what is there. ``held_out``: the share of validation, and of test, among different inputs, where
    the file does not name the parts; equal inputs, however many, always go to one part, chosen by ``split_seed``. An
    input ends with the last token that a prediction sees; later tokens tell no two inputs apart.
    ConfigError for what the file lacks.
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
        targets_PT, wanted_PT = train.targets_BT.numpy(), train.wanted_BT.numpy()
        return torch.from_numpy(np.sum(targets_PT, 0, where=wanted_PT) / np.maximum(1, wanted_PT.sum(0)))

    def facts(self) -> dict[str, Any]:
        """Under ``data``: the file's name and checksum, the examples of each part, and a small vocabulary's words."""
        words = list(self.contents.words)
        about = {"file": Path(self.file).name, "checksum": opened(self.file)[1]}
        about |= {part: self.count(part) for part in PARTS}
        return {"data": about | ({"words": words} if 0 < len(words) <= MAX_WORDS else {})}

    def named(self) -> "Table":
        """The same task with its whole path and its checksum, as a record should name it."""
        checksum = opened(self.file)[1]  # a file that is not there is named before its path is resolved
        return dataclasses.replace(self, file=str(Path(self.file).resolve()), checksum=checksum)


def opened(file: str) -> tuple[Contents, str]:
    """The examples that a file holds now, and its checksum; ConfigError where there is none, or it lacks something."""
    path = Path(file)
    require(path.is_file(), f"{file}: no such file")
    state = path.stat()
    return contents_of(str(path), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def contents_of(file: str, changed_ns: int, size: int) -> tuple[Contents, str]:
    """Examples and checksum of a file of this time and size."""
    checksum = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    return read(Path(file)), checksum


@functools.lru_cache(maxsize=8)
def examples_of(found: Contents, held_out: float, seed: int) -> dict[str, Batch]:
    """The examples of each part: as the file names them, else drawn by groups of equal inputs."""
    part_P = found.part
    if part_P is None:
        wanted_PT, inputs = found.examples.wanted_BT.numpy(), found.examples.inputs_BT.numpy().copy()
        length = wanted_PT.shape[1]
        seen_P = length - np.argmax(wanted_PT[:, ::-1], axis=1)  # tokens up to the last wanted position
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
