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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.tasks.base import Batch, CheckpointRule, Task, loss_curve
from entp_lib.tasks.fixed import FixedData
from entp_lib.validation import check_types, require

CHARACTERS = "0123456789+=$\n"
IDS = {c: i for i, c in enumerate(CHARACTERS)}
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
    body = example.removesuffix("\n")
    if not (body.startswith("$") and body.endswith("$") and body.count("+") == body.count("=") == 1):
        raise ValueError(f"{example!r}: must look like $a+b=c$")
    left, answer = body[1:-1].split("=")
    a, plus, b = left.partition("+")
    if not plus or not all(part.isascii() and part.isdigit() for part in (a, b, answer)):
        raise ValueError(f"{example!r}: a, b and c in $a+b=c$ must be whole numbers")
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
    """Examples of one part of a split of pairs. Subclasses define ``split``, ``most_digits`` and ``name_of``.

    ``view``: ``answer`` has one example per row, from position 0, scored from = on. ``windows`` has what the authors
    train on: random windows of ``window`` characters of the training text, a line per example in random order, cut
    anywhere and scored at every character, so that most of the loss is about operands that nobody can predict. Both
    are evaluated and tested as ``answer`` is trained: single examples from position 0, answers alone, all characters
    of which must be right for a sequence to be. Only windows train the positions that longer examples reach.

    ``part``: ``train`` (evaluated on validation), ``test``, ``seen``, evaluated on the training examples themselves, or
    ``text``, windows of the validation text.

    ``drawn``: how many characters of a training window are scored, drawn for each window anew; 0 for all. The gradient
    is the same on average, and ENTP costs that share.
    """

    reversed_answer: bool = True
    split_seed: int = 0
    view: Literal["answer", "windows"] = "answer"
    part: Literal["train", "test", "seen", "text"] = "train"
    window: int = WINDOW
    drawn: int = 0

    def check_window(self) -> None:
        """ConfigError for a negative seed, or where a tested example is longer than what windows train."""
        most = self.window if self.view == "windows" else 0
        require(0 <= self.drawn <= most, f"drawn = {self.drawn}: must be 0 (all) to {most} characters of a window")
        require(self.split_seed >= 0, f"split_seed = {self.split_seed}: must not be negative")
        longest = characters(self.most_digits("test")) - 1
        require(
            longest <= self.window <= WINDOW,
            f"window = {self.window}: must be {longest}, the longest tested example, to {WINDOW}",
        )

    def split(self) -> dict[str, np.ndarray]:
        """The pairs (P, 2) of ``train``, ``validation`` and ``test``."""
        raise NotImplementedError

    def most_digits(self, part: str) -> int:
        """Digits of the longest operand of a part."""
        raise NotImplementedError

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """The group of each pair."""
        raise NotImplementedError

    @property
    def vocab_size(self) -> int:
        return len(CHARACTERS)

    @property
    def length(self) -> int:
        """The longest input: a window, or the longest example without the $ that ends it."""
        windows = self.view == "windows" or self.part == "text"
        return self.window if windows else characters(self.most_digits("test")) - 1

    @property
    def patience_score(self) -> str:
        """The validation loss: of the whole text for windows, as the authors stop, else of the answers."""
        return loss_curve(WHOLE_TEXT) if self.view == "windows" else "loss"

    @property
    def same_prompts(self) -> bool:
        """Windows have no prompts, the examples of validation and test have."""
        return self.view != "windows"

    def watched(self) -> dict[str, Task]:
        """The validation text at every character, whose lowest loss is the authors' choice of a checkpoint."""
        return {WHOLE_TEXT: replace(self, part="text")} if (self.view, self.part) == ("windows", "train") else {}

    def checkpoint_rules(self) -> dict[str, CheckpointRule]:
        """Of windows also the lowest loss of the whole text, prompts included: the authors' choice."""
        first, *others = super().checkpoint_rules().items()
        whole = {f"lowest_{loss_curve(name)}": CheckpointRule(loss_curve(name)) for name in self.watched()}
        return dict([first, *whole.items(), *others])

    def reported_apart(self) -> dict[str, Task]:
        """The training examples: what of an error is not having fitted them yet."""
        return {"seen": replace(self, part="seen")} if self.part == "train" else {}

    def count(self, part: str) -> int:
        return len(encoded(self, part)[0])

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        if self.part == "text":
            return self.windows(generator, size, "validation")
        if self.view == "windows" and self.part == "train" and not evaluating:
            found = self.windows(generator, size, "train")
            if self.drawn:  # after the windows, so that twins with another number share them
                ranks_BT = torch.rand(found.wanted_BT.shape, generator=generator, device=generator.device)
                chosen_BK = ranks_BT.topk(self.drawn).indices
                found = replace(found, wanted_BT=torch.zeros_like(found.wanted_BT).scatter(1, chosen_BK, True))
            return found
        return super().batch(generator, size, evaluating)

    def evaluation(self, generator: torch.Generator, sequences: int, most: int) -> Iterator[Batch]:
        """Each example once, or so many of them, in random order; of the text as many windows as wanted."""
        if self.part == "text":
            yield from Task.evaluation(self, generator, sequences, most)
        else:
            yield from super().evaluation(generator, sequences, most)

    def rows_of(self, part: str, chosen_B: Tensor) -> Batch:
        """The chosen examples of a part, from position 0, scored on their answers."""
        pool_PT, prompts_P, lengths_P = encoded(self, part)
        device, chosen_B = chosen_B.device, chosen_B.cpu()
        text_BT, prompts_B, lengths_B = (x[chosen_B].to(device) for x in (pool_PT, prompts_P, lengths_P))
        text_BT = text_BT.long()
        places_T = torch.arange(text_BT.shape[1] - 1, device=device)
        wanted_BT = (places_T >= prompts_B[:, None] - 1) & (places_T < lengths_B[:, None] - 1)
        return Batch(text_BT[:, :-1], text_BT[:, 1:], wanted_BT, prompts_B)

    def windows(self, generator: torch.Generator, size: int, part: str) -> Batch:
        """Random windows of the text of a part, scored at every character."""
        line_S = running_text(self, part)
        device = generator.device
        starts_B = torch.randint(len(line_S) - self.window, (size,), generator=generator, device=device).cpu()
        text_BT = line_S[starts_B[:, None] + torch.arange(self.window + 1)].to(device).long()
        wanted_BT = torch.ones(size, self.window, dtype=torch.bool, device=device)
        return Batch(text_BT[:, :-1], text_BT[:, 1:], wanted_BT, torch.ones(size, dtype=torch.long, device=device))

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
        most = 100 + 9_900 + (round(KEPT * 990_000) if self.largest == 999 else 0) - sum(HELD_OUT[self.largest])
        require(
            200 <= self.n_train <= most,
            f"n_train = {self.n_train}: must be 200 to {most}, what validation and test leave of the pool",
        )
        self.check_window()

    def split(self) -> dict[str, np.ndarray]:
        return split(self.n_train, self.split_seed, self.largest)

    def most_digits(self, part: str) -> int:
        return len(str(self.largest))

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """(digits, carries), as in "3 digits, 2 carries"."""
        return [f"{d} digits, {c} carries" for d, c in zip(digits(a, b), carries(a, b), strict=True)]


def characters(most_digits: int) -> int:
    """Of the longest example with operands of so many digits."""
    return len(text(10**most_digits - 1, 10**most_digits - 1, False))


def decode(ids: list[int]) -> str:
    return "".join(CHARACTERS[i] for i in ids)


@functools.lru_cache(maxsize=12)
def encoded(task: Sums, part: str) -> tuple[Tensor, Tensor, Tensor]:
    """The examples of a part as ids (P, T), filled up with line ends, the lengths of their prompts and their own."""
    lines = [text(a, b, task.reversed_answer) for a, b in task.split()[part].tolist()]
    longest = characters(task.most_digits(part))
    rows = np.frombuffer("".join(line.ljust(longest, "\n") for line in lines).encode(), dtype=np.uint8)
    table = np.zeros(128, dtype=np.int8)
    for character, i in IDS.items():
        table[ord(character)] = i
    ids_PT = torch.from_numpy(table[rows].reshape(len(lines), longest))
    prompts_P = torch.tensor([line.index("=") + 1 for line in lines])
    return ids_PT, prompts_P, torch.tensor([len(line) for line in lines])


@functools.lru_cache(maxsize=4)
def running_text(task: Sums, part: str) -> Tensor:
    """All examples of a part in a random order, a line each, as ids (S,)."""
    ids_PT, _, lengths_P = encoded(task, part)
    order_P = torch.randperm(len(ids_PT), generator=torch.Generator().manual_seed(task.split_seed))
    # a line end after every row: its own, or the one more that the longest lack
    rows_PT = torch.nn.functional.pad(ids_PT[order_P], (0, 1), value=IDS["\n"])
    kept_PT = torch.arange(rows_PT.shape[1]) <= lengths_P[order_P][:, None]
    return rows_PT[kept_PT]
