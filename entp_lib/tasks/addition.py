"""Addition, sample complexity (§7.1, appendix C.3): sums of up to three digits from a limited set of examples.

    plain     $123+456=579$
    reversed  $123+456=975$     the answer from its last digit on

All 1,000,000 pairs up to 999 are the pool; nine in ten of the three-digit ones are removed, within each number of
carries. Training, validation and test sets are drawn from what is left, in proportion to the cells (digits, carries);
the 100 one-digit sums are all in the training set. A pool of the 10,000 pairs up to 99, none removed, is for two cores.

``Sums`` is what this task shares with length generalisation (``entp_lib.tasks.long_addition``).

Letters: B batch, T tokens, S characters of a text, P pairs of a part.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.tasks.base import Batch, FixedData, Task, loss_curve, some_positions
from entp_lib.validation import check_intervals, check_types

CHARACTERS = "0123456789+=$\n"
KEPT = 0.1  # of the three-digit pairs
HELD_OUT = {99: (1_000, 4_000), 999: (10_000, 70_000)}  # validation and test pairs, by the largest operand
WINDOW = 64  # characters, the authors'
WHOLE_TEXT = "text"  # the watched scoring of every character


def carries(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Carries in a + b: each takes 9 from the digit sum."""
    return (digit_sum(a) + digit_sum(b) - digit_sum(a + b)) // 9


def digit_sum(x: np.ndarray) -> np.ndarray:
    return sum(x // 10**k % 10 for k in range(len(str(x.max(initial=0)))))


def digits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Digits of the longer operand; 0 has one."""
    longer = np.maximum(a, b)
    return sum((longer >= 10**k).astype(int) for k in range(1, len(str(longer.max(initial=0))))) + np.ones_like(longer)


def text(a: int, b: int, reversed_answer: bool) -> str:
    """One example, from $ to $."""
    answer = str(a + b)
    return f"${a}+{b}={answer[::-1] if reversed_answer else answer}$"


def parse(example: str, reversed_answer: bool) -> tuple[int, int, int]:
    """(a, b, answer) of an example. Raises ValueError where it is not one."""
    found = re.fullmatch(r"\$([0-9]+)\+([0-9]+)=([0-9]+)\$\n?", example)
    if found is None:
        raise ValueError(f"{example!r}: must look like $a+b=c$, with whole numbers a, b and c")
    a, b, answer = found.groups()
    return int(a), int(b), int(answer[::-1] if reversed_answer else answer)


def in_proportion(cells: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Indices of ``count`` entries, each cell in proportion to its size, by largest remainders."""
    names, sizes = np.unique(cells, return_counts=True)
    exact = sizes * (count / len(cells))
    quota = np.floor(exact).astype(int)
    quota[np.argsort(quota - exact, kind="stable")[: count - quota.sum()]] += 1
    parts = [generator.permutation(np.flatnonzero(cells == c))[:q] for c, q in zip(names.tolist(), quota, strict=True)]
    return np.concatenate(parts)


@functools.lru_cache(maxsize=4)
def split(n_train: int, seed: int, largest: int = 999) -> dict[str, np.ndarray]:
    """The pairs (P, 2) of each part: train, validation and test are disjoint, one-digit sums are in train alone."""
    generator = np.random.default_rng(seed)
    a, b = (x.ravel() for x in np.mgrid[: largest + 1, : largest + 1])
    length, cell = digits(a, b), 10 * digits(a, b) + carries(a, b)
    one, pool, three = (np.flatnonzero(length == k) for k in (1, 2, 3))
    if len(three):
        pool = np.concatenate([pool, three[in_proportion(cell[three], round(KEPT * len(three)), generator)]])
    parts = {}
    for name, size in zip(("train", "validation", "test"), (n_train - len(one), *HELD_OUT[largest]), strict=True):
        chosen = in_proportion(cell[pool], size, generator)
        parts[name] = pool[chosen]
        pool = np.delete(pool, chosen)
    parts["train"] = np.concatenate([one, parts["train"]])
    return {name: np.stack([a[index], b[index]], 1) for name, index in parts.items()}


@dataclass(frozen=True)
class Sums(FixedData):
    """Examples of one part of a split of pairs.

    Subclasses define ``split()``, the pairs (P, 2) of ``train``, ``validation`` and ``test``; ``most_digits(part)``,
    digits of a part's longest operand; and ``name_of(a, b)``, the group of each pair.

    ``view``: ``answer`` has one example per row, from position 0, scored from = on. ``windows`` trains on the authors'
    text: random windows of ``window`` characters, a line per example in random order, cut anywhere and scored at every
    character, so that most of the loss is about operands that nobody can predict. Both are evaluated and tested as
    ``answer`` is trained. Only windows train the positions that longer examples reach. ``part``: ``train`` (evaluated
    on validation), ``test``, ``seen``, evaluated on the training examples, or ``text``, windows of validation.
    ``drawn``: how many characters of a training window are scored, drawn anew; 0 for all. ENTP costs that share.
    """

    reversed_answer: bool = True
    split_seed: int = 0
    view: Literal["answer", "windows"] = "answer"
    part: Literal["train", "test", "seen", "text"] = "train"
    window: int = WINDOW
    drawn: int = 0
    vocab_size = len(CHARACTERS)

    def check_window(self) -> None:
        """ConfigError for a negative seed, or where a tested example is longer than a window."""
        drawn, longest = self.window if self.view == "windows" else 0, characters(self.most_digits("test")) - 1
        intervals = {"drawn": f"[0, {drawn}]", "split_seed": "[0, inf)", "window": f"[{longest}, {WINDOW}]"}
        check_intervals(self, intervals)

    @property
    def length(self) -> int:
        windows = self.view == "windows" or self.part == "text"  # else the longest example without the $ that ends it
        return self.window if windows else characters(self.most_digits("test")) - 1

    @property
    def patience_score(self) -> str:
        """The validation loss: of the whole text for windows, as the authors stop, else of the answers."""
        return loss_curve(WHOLE_TEXT) if self.view == "windows" else "loss"

    @property
    def same_prompts(self) -> bool:
        return self.view != "windows"  # which have none

    def watched(self) -> dict[str, Task]:
        """The validation text at every character, whose lowest loss is the authors' choice of a checkpoint."""
        return {WHOLE_TEXT: replace(self, part="text")} if (self.view, self.part) == ("windows", "train") else {}

    def reported_apart(self) -> dict[str, Task]:
        """The training examples: the share of an error that is not having fitted them yet."""
        return {"seen": replace(self, part="seen")} if self.part == "train" else {}

    def examples(self, part: str) -> Batch:
        return encoded(self, part)

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        if self.part != "text" and (self.view == "answer" or self.part != "train" or evaluating):
            return super().batch(generator, size, evaluating)
        found = self.windows(generator, size, "validation" if self.part == "text" else "train")
        if self.drawn and self.part == "train":  # after the windows, so that twins with another number share them
            found = replace(found, scored_BT=some_positions(generator, found.scored_BT, self.drawn))
        return found

    def evaluation(self, generator: torch.Generator, sequences: int, most: int) -> Iterator[Batch]:
        """Each example once, or so many of them, in random order; of the text as many windows as asked for."""
        kind = Task if self.part == "text" else FixedData
        return kind.evaluation(self, generator, sequences, most)

    def windows(self, generator: torch.Generator, size: int, part: str) -> Batch:
        """Random windows of the text of a part, scored at every character."""
        line_S = running_text(self, part)
        device = generator.device
        starts_B = torch.randint(len(line_S) - self.window, (size,), generator=generator, device=device).cpu()
        return Batch.of_text(line_S[starts_B[:, None] + torch.arange(self.window + 1)].to(device).long())

    def groups(self, batch: Batch) -> list[str]:
        """``name_of`` the operands of each example."""
        prompts = zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B.tolist(), strict=True)
        operands = [decode(row[1 : end - 1]).split("+") for row, end in prompts]
        return self.name_of(*np.array([[int(x) for x in pair] for pair in operands]).T)


@dataclass(frozen=True)
class Addition(Sums):
    """Sums of operands up to ``largest``, ``n_train`` of them to learn from, the 100 one-digit ones included."""

    n_train: int = 2500
    largest: Literal[99, 999] = 999

    def __post_init__(self):
        check_types(self)
        pool = 100 + 9_900 + (round(KEPT * 990_000) if self.largest == 999 else 0)
        left = pool - sum(HELD_OUT[self.largest])  # by validation and test
        check_intervals(self, {"n_train": f"[200, {left}]"})
        self.check_window()

    def split(self) -> dict[str, np.ndarray]:
        return split(self.n_train, self.split_seed, self.largest)

    def most_digits(self, part: str) -> int:
        return len(str(self.largest))

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """(digits, carries), as in "3 digits, 2 carries"."""
        return [f"{d} digits, {c} carries" for d, c in zip(digits(a, b), carries(a, b), strict=True)]


def characters(most_digits: int) -> int:
    """Characters of the longest example with operands of so many digits."""
    return len(text(10**most_digits - 1, 10**most_digits - 1, False))


def decode(ids: list[int]) -> str:
    return "".join(CHARACTERS[i] for i in ids)


@functools.lru_cache(maxsize=12)
def encoded(task: Sums, part: str) -> Batch:
    """The examples of a part as ids (P, T) of 8 bits, filled up with line ends, scored on their answers."""
    lines = [text(a, b, task.reversed_answer) for a, b in task.split()[part].tolist()]
    longest = characters(task.most_digits(part))
    ids = np.array([max(0, CHARACTERS.find(chr(code))) for code in range(128)], dtype=np.int8)
    text_PS = ids[np.frombuffer("".join(line.ljust(longest, "\n") for line in lines).encode(), dtype=np.uint8)]
    prompts_P, lengths_P = (torch.tensor(x) for x in zip(*((x.index("=") + 1, len(x)) for x in lines), strict=True))
    places_T = torch.arange(longest - 1)
    scored_PT = (places_T >= prompts_P[:, None] - 1) & (places_T < lengths_P[:, None] - 1)
    return Batch.of_text(torch.from_numpy(text_PS.reshape(len(lines), longest)), scored_PT, prompts_P)


@functools.lru_cache(maxsize=4)
def running_text(task: Sums, part: str) -> Tensor:
    """All examples of a part in a random order, a line each, as ids (S,)."""
    rows = encoded(task, part)
    order_P = torch.randperm(len(rows.inputs_BT), generator=torch.Generator().manual_seed(task.split_seed))
    text_PS = torch.cat([rows.inputs_BT[:, :1], rows.targets_BT], 1)[order_P]
    # a line end after every row: its own, or the one more that the longest lack
    text_PS = torch.nn.functional.pad(text_PS, (0, 1), value=CHARACTERS.index("\n"))
    ends_P = rows.scored_BT.shape[1] - rows.scored_BT.flip(1).int().argmax(1)  # place of the $ that ends an example
    return text_PS[torch.arange(text_PS.shape[1]) <= ends_P[order_P][:, None] + 1]
