"""Addition, sample complexity (§7.1, appendix C.3): sums of up to three digits from few examples.

    plain     $123+456=579$
    reversed  $123+456=975$     the answer from its last digit on

The pool is all 1,000,000 pairs up to 999, of which nine in ten three-digit pairs are removed,
within each number of carries. Training, validation and test sets are drawn from the rest, in
proportion to the cells (digits, carries). The 100 one-digit sums are all in the training set. A
smaller pool for two cores has all 10,000 pairs up to 99.

``Sums`` is what this task shares with length generalisation (``entp_lib.tasks.long_addition``).

Letters: B batch, T tokens, S characters of a text, P pairs of a part.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor

from entp_lib.tasks.base import (
    PARTS,
    Batch,
    FixedData,
    Task,
    integers,
    loss_curve,
    some_positions,
)
from entp_lib.validation import check_intervals, check_types

CHARACTERS = "0123456789+=$\n"
LINE_END = CHARACTERS.index("\n")
KEPT = 0.1  # share of the three-digit pairs
# Numbers of validation and test pairs, by the largest operand.
HELD_OUT = {
    99: (1_000, 4_000),
    999: (10_000, 70_000),
}
MOST_DIGITS = 18  # a longer sum would not fit into 64 bits
WINDOW = 64  # characters, as the authors have
WHOLE_TEXT = "text"  # name of the extra scoring of every character
Pairs = dict[str, np.ndarray]  # the pairs (P, 2) of each part


def carries(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count the carries in a + b: into place k where the last k digits add up to 10^k or more."""
    most = len(str((a + b).max(initial=0)))
    return sum(a % 10**k + b % 10**k >= 10**k for k in range(1, most + 1))


def digits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count the digits of the longer operand; 0 has one."""
    powers = 10 ** np.arange(1, MOST_DIGITS)
    return 1 + np.searchsorted(powers, np.maximum(a, b), side="right")


def text(a: int, b: int, reversed_answer: bool) -> str:
    """Write one example, from $ to $."""
    answer = str(a + b)
    return f"${a}+{b}={answer[::-1] if reversed_answer else answer}$"


def in_proportion(
    cells: np.ndarray, count: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw ``count`` indices, each cell in proportion to its size, by largest remainders."""
    names, sizes = np.unique(cells, return_counts=True)
    exact = sizes * (count / len(cells))
    quota = np.floor(exact).astype(int)
    quota[np.argsort(quota - exact, kind="stable")[: count - quota.sum()]] += 1
    parts = [
        generator.permutation(np.flatnonzero(cells == cell))[:wanted]
        for cell, wanted in zip(names.tolist(), quota, strict=True)
    ]
    return np.concatenate(parts)


@functools.lru_cache(maxsize=4)
def split(n_train: int, seed: int, largest: int = 999) -> Pairs:
    """Return the pairs of each part, all disjoint; one-digit sums are in train only."""
    generator = np.random.default_rng(seed)
    a, b = (x.ravel() for x in np.mgrid[: largest + 1, : largest + 1])
    length = digits(a, b)
    cell = 10 * length + carries(a, b)
    one, pool, three = (np.flatnonzero(length == k) for k in (1, 2, 3))
    if len(three):
        kept = in_proportion(cell[three], round(KEPT * len(three)), generator)
        pool = np.concatenate([pool, three[kept]])
    sizes = n_train - len(one), *HELD_OUT[largest]
    parts = {}
    for name, size in zip(PARTS, sizes, strict=True):
        chosen = in_proportion(cell[pool], size, generator)
        parts[name] = pool[chosen]
        pool = np.delete(pool, chosen)
    parts["train"] = np.concatenate([one, parts["train"]])
    return {name: np.stack([a[index], b[index]], 1) for name, index in parts.items()}


@dataclass(frozen=True)
class Sums(FixedData):
    """Examples of one part of a split of pairs.

    A subclass defines ``split()``, the pairs (P, 2) of ``train``, ``validation`` and ``test``;
    ``most_digits(part)``, the digits of a part's longest operand; and ``name_of(a, b)``, the group
    of each pair.

    ``view``: ``answer`` has one example per row, from position 0, scored from = on. ``windows``
    trains as the authors do, on random windows of ``window`` characters: the text has a line per
    example in random order, is cut anywhere and scored at every character, so that most of the loss
    is about operands that cannot be predicted. Both views are evaluated and tested like ``answer``.
    With answers alone, positions beyond the longest training example stay untrained. ``part``:
    ``train`` (evaluated on validation), ``test``, ``seen`` (evaluated on the training examples), or
    ``text`` (windows of the validation text). ``drawn``: how many characters of each training
    window are scored, drawn at random; 0 for all. ENTP's cost falls in proportion.
    """

    reversed_answer: bool = True
    split_seed: int = 0
    view: Literal["answer", "windows"] = "answer"
    part: Literal["train", "test", "seen", "text"] = "train"
    window: int = WINDOW
    drawn: int = 0
    vocab_size = len(CHARACTERS)

    def split(self) -> Pairs:
        """Return the pairs (P, 2) of each part."""
        raise NotImplementedError

    def most_digits(self, part: str) -> int:
        """Count the digits of a part's longest operand."""
        raise NotImplementedError

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """Return the group of each pair."""
        raise NotImplementedError

    def check_window(self) -> None:
        """Raise ConfigError for a window below the longest tested example, or another bad value."""
        longest = characters(self.most_digits("test")) - 1
        drawn = self.window if self.view == "windows" else 0
        intervals = {
            "drawn": f"[0, {drawn}]",
            "split_seed": "[0, inf)",
            "window": f"[{longest}, {WINDOW}]",
        }
        check_intervals(self, intervals)

    @property
    def length(self) -> int:
        if self.view == "windows" or self.part == "text":
            return self.window
        return characters(self.most_digits("test")) - 1  # without the $ that ends it

    @property
    def patience_score(self) -> str:
        """The validation loss: for windows that of the whole text, as the authors do."""
        return loss_curve(WHOLE_TEXT) if self.view == "windows" else "loss"

    @property
    def same_prompts(self) -> bool:
        return self.view != "windows"  # windows have no prompts

    def extra_scorings(self) -> dict[str, Task]:
        """Return the validation text: the authors choose the checkpoint with its lowest loss."""
        if self.view == "windows" and self.part == "train":
            return {WHOLE_TEXT: replace(self, part="text")}
        return {}

    def reported_apart(self) -> dict[str, Task]:
        """Return the training examples, whose error shows how much is a failure to fit them."""
        return {"seen": replace(self, part="seen")} if self.part == "train" else {}

    def examples(self, part: str) -> Batch:
        return encoded(self, part)

    def batch(self, generator: Generator, size: int, evaluating: bool = False) -> Batch:
        if self.part == "text":
            return self.windows(generator, size, "validation")
        if self.view == "answer" or self.part != "train" or evaluating:
            return super().batch(generator, size, evaluating)
        batch = self.windows(generator, size, "train")
        if self.drawn:  # after the windows, so that paired runs share these
            scored_BT = some_positions(generator, batch.scored_BT, self.drawn)
            batch = replace(batch, scored_BT=scored_BT)
        return batch

    def evaluation(
        self, generator: Generator, sequences: int, most: int
    ) -> Iterator[Batch]:
        """Yield each example once, at most ``sequences``; for ``text`` that many windows."""
        kind = Task if self.part == "text" else FixedData
        return kind.evaluation(self, generator, sequences, most)

    def scored_sample(self) -> Tensor:
        if self.view == "windows" and not self.drawn:  # no need to make the text
            return torch.ones(8, self.window, dtype=torch.bool)
        return super().scored_sample()

    def windows(self, generator: Generator, size: int, part: str) -> Batch:
        """Return random windows of a part's text, scored at every character."""
        line_S = running_text(self, part)
        starts_B = integers(generator, len(line_S) - self.window, size).cpu()
        window_BT = line_S[starts_B[:, None] + torch.arange(self.window + 1)]
        return Batch.of_text(window_BT.to(generator.device).long())

    def groups(self, batch: Batch) -> list[str]:
        """Return the group of each example: ``name_of`` its operands; text has no groups."""
        if self.part == "text":
            return []
        lines = map(decode, batch.inputs_BT.tolist())
        operands = [line[1 : line.index("=")].split("+") for line in lines]
        a, b = np.array(operands, dtype=int).T
        return self.name_of(a, b)


@dataclass(frozen=True)
class Addition(Sums):
    """Sums of operands up to ``largest``, ``n_train`` of them to learn from.

    The training sums include all 100 one-digit sums.
    """

    n_train: int = 2500
    largest: Literal[99, 999] = 999

    def __post_init__(self):
        check_types(self)
        pool = 10_000 + (round(KEPT * 990_000) if self.largest == 999 else 0)
        left = pool - sum(HELD_OUT[self.largest])
        check_intervals(self, {"n_train": f"[200, {left}]"})
        self.check_window()

    def split(self) -> Pairs:
        return split(self.n_train, self.split_seed, self.largest)

    def most_digits(self, part: str) -> int:
        return len(str(self.largest))

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """Return digits and carries, as in "3 digits, 2 carries"."""
        pairs = zip(digits(a, b), carries(a, b), strict=True)
        return [f"{n} digits, {carried} carries" for n, carried in pairs]


def characters(most_digits: int) -> int:
    """Count the characters of the longest example with operands of that many digits."""
    return 3 * most_digits + 5  # the sum may have one more; $, +, = and $


def decode(ids: list[int]) -> str:
    """Return the characters of ids."""
    return "".join(CHARACTERS[i] for i in ids)


@functools.lru_cache(maxsize=12)
def encoded(task: Sums, part: str) -> Batch:
    """Return the examples of a part as 8-bit ids (P, T), padded with line ends."""
    lines = [text(a, b, task.reversed_answer) for a, b in task.split()[part].tolist()]
    longest = characters(task.most_digits(part))
    padded = "".join(line.ljust(longest, "\n") for line in lines)
    id_of = bytes.maketrans(CHARACTERS.encode(), bytes(range(len(CHARACTERS))))
    ids = bytearray(padded, "ascii").translate(id_of)
    text_PS = torch.frombuffer(ids, dtype=torch.int8).view(len(lines), longest)
    prompts_P = torch.tensor([line.index("=") + 1 for line in lines])
    place_T = torch.arange(longest - 1)
    scored_PT = (place_T >= prompts_P[:, None] - 1) & (text_PS[:, 1:] != LINE_END)
    return Batch.of_text(text_PS, scored_PT, prompts_P)


@functools.lru_cache(maxsize=4)
def running_text(task: Sums, part: str) -> Tensor:
    """Return all examples of a part in a random order, a line each, as ids (S,)."""
    rows = encoded(task, part)
    generator = torch.Generator().manual_seed(task.split_seed)
    order_P = torch.randperm(len(rows.inputs_BT), generator=generator)
    text_PS = torch.cat([rows.inputs_BT[:, :1], rows.targets_BT], 1)[order_P]
    # one more line end, since the longest rows have none of their own
    text_PS = torch.nn.functional.pad(text_PS, (0, 1), value=LINE_END)
    # each row up to its first line end
    return text_PS[(text_PS == LINE_END).cumsum(1) <= 1]
