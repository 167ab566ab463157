"""Addition, sample complexity (§7.1, appendix C.3): sums of up to three digits from a limited set of examples.

    plain     $123+456=579$
    reversed  $123+456=975$     the answer from its last digit on

All 1,000,000 pairs up to 999 are the pool; nine in ten of the three-digit ones are removed, within each number of
carries. Training, validation and test sets are drawn from what is left, in proportion to the cells (digits, carries);
the 100 one-digit sums are all in the training set.

Letters: B batch, T tokens, P pairs of a pool.
"""

import functools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from entp_lib.config import check_types, require
from entp_lib.tasks.base import Batch, Task

CHARACTERS = "0123456789+=$\n"
IDS = {c: i for i, c in enumerate(CHARACTERS)}
LARGEST = 999
KEPT = 0.1  # of the three-digit pairs
VALIDATION, TEST = 10_000, 70_000
WINDOW = 64


def carries(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Carries in a + b: each takes 9 from the digit sum."""
    return (digit_sum(a) + digit_sum(b) - digit_sum(a + b)) // 9


def digit_sum(x: np.ndarray) -> np.ndarray:
    return sum(x // 10**k % 10 for k in range(19))


def digits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Digits of the longer operand; 0 has one."""
    return sum((np.maximum(a, b) >= 10**k).astype(int) for k in range(1, 19)) + 1


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
    a, b = left.split("+")
    if not all(part.isascii() and part.isdigit() for part in (a, b, answer)):
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
def split(n_train: int, seed: int) -> dict[str, np.ndarray]:
    """The pairs (P, 2) of each part: train, validation and test are disjoint, one-digit sums are in train alone."""
    generator = np.random.default_rng(seed)
    a, b = (x.ravel() for x in np.mgrid[: LARGEST + 1, : LARGEST + 1])
    length, cell = digits(a, b), 10 * digits(a, b) + carries(a, b)
    one, two, three = (np.flatnonzero(length == k) for k in (1, 2, 3))
    kept = three[in_proportion(cell[three], round(KEPT * len(three)), generator)]
    pool = np.concatenate([two, kept])
    parts = {}
    for name, size in (("train", n_train - len(one)), ("validation", VALIDATION), ("test", TEST)):
        chosen = in_proportion(cell[pool], size, generator)
        parts[name] = pool[chosen]
        pool = np.delete(pool, chosen)
    parts["train"] = np.concatenate([one, parts["train"]])
    return {name: np.stack([a[index], b[index]], 1) for name, index in parts.items()}


@dataclass(frozen=True)
class Addition(Task):
    """Examples of one part of a split: ``train`` (evaluated on validation) or ``test``.

    ``view``: ``answer`` has one example per row, scored from = on; ``windows`` has the authors' random windows of 64
    characters of the training text, scored everywhere. Both are evaluated on single examples, answers alone, all of
    which must be right for a sequence to be: the text before = is the same in training and test.
    """

    reversed_answer: bool = True
    n_train: int = 2500
    split_seed: int = 0
    view: Literal["answer", "windows"] = "answer"
    part: Literal["train", "test"] = "train"

    def __post_init__(self):
        check_types(self)
        most = 100 + 9_900 + round(KEPT * 990_000) - VALIDATION - TEST
        require(
            200 <= self.n_train <= most,
            f"n_train = {self.n_train}: must be 200 to {most}, what validation and test leave of the pool",
        )

    @property
    def vocab_size(self) -> int:
        return len(CHARACTERS)

    @property
    def example_length(self) -> int:
        """Characters of the longest input: $999+999=1998, without the $ that ends it."""
        return len(text(LARGEST, LARGEST, False)) - 1

    @property
    def length(self) -> int:
        return WINDOW if self.view == "windows" else self.example_length

    def test(self) -> "Task | None":
        """The task on the test set: scored there are the weights that each checkpoint rule chooses."""
        return replace(self, part="test") if self.part == "train" else None

    def pool(self, evaluating: bool) -> str:
        return self.part if self.part == "test" else ("validation" if evaluating else "train")

    def batch(self, generator: torch.Generator, size: int, evaluating: bool = False) -> Batch:
        if self.view == "windows" and self.part == "train" and not evaluating:
            return self.windows(generator, size)
        pool_PT, prompts_P, lengths_P = encoded(
            self.n_train, self.split_seed, self.pool(evaluating), self.reversed_answer
        )
        device = generator.device
        chosen_B = torch.randint(len(pool_PT), (size,), generator=generator, device=device).cpu()
        text_BT, prompts_B, lengths_B = (x[chosen_B].to(device) for x in (pool_PT, prompts_P, lengths_P))
        text_BT = text_BT.long()
        places_T = torch.arange(text_BT.shape[1] - 1, device=device)
        wanted_BT = (places_T >= prompts_B[:, None] - 1) & (places_T < lengths_B[:, None] - 1)
        return Batch(text_BT[:, :-1], text_BT[:, 1:], wanted_BT, prompts_B)

    def windows(self, generator: torch.Generator, size: int) -> Batch:
        """Random windows of the training text, as one line per example, scored at every character."""
        line_S = running_text(self.n_train, self.split_seed, self.reversed_answer)
        device = generator.device
        starts_B = torch.randint(len(line_S) - WINDOW, (size,), generator=generator, device=device).cpu()
        text_BT = line_S[starts_B[:, None] + torch.arange(WINDOW + 1)].to(device).long()
        wanted_BT = torch.ones(size, WINDOW, dtype=torch.bool, device=device)
        return Batch(text_BT[:, :-1], text_BT[:, 1:], wanted_BT, torch.ones(size, dtype=torch.long, device=device))

    def groups(self, batch: Batch) -> list[str]:
        """(digits, carries) of each example, as in "3 digits, 2 carries"."""
        prompts = zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B.tolist(), strict=True)
        operands = [decode(row[1 : end - 1]).split("+") for row, end in prompts]
        a, b = (np.array([int(pair[i]) for pair in operands]) for i in (0, 1))
        return [f"{d} digits, {c} carries" for d, c in zip(digits(a, b), carries(a, b), strict=True)]


def decode(ids: list[int]) -> str:
    return "".join(CHARACTERS[i] for i in ids)


@functools.lru_cache(maxsize=12)
def encoded(n_train: int, seed: int, part: str, reversed_answer: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The examples of a part as ids (P, T), filled up with line ends, the lengths of their prompts and their own."""
    lines = [text(a, b, reversed_answer) for a, b in split(n_train, seed)[part].tolist()]
    longest = len(text(LARGEST, LARGEST, False))
    rows = np.frombuffer("".join(line.ljust(longest, "\n") for line in lines).encode(), dtype=np.uint8)
    table = np.zeros(128, dtype=np.int8)
    for character, i in IDS.items():
        table[ord(character)] = i
    ids_PT = torch.from_numpy(table[rows].reshape(len(lines), longest))
    prompts_P = torch.tensor([line.index("=") + 1 for line in lines])
    return ids_PT, prompts_P, torch.tensor([len(line) for line in lines])


@functools.lru_cache(maxsize=4)
def running_text(n_train: int, seed: int, reversed_answer: bool) -> Tensor:
    """All training examples in a random order, a line each, as ids (S,)."""
    ids_PT, _, lengths_P = encoded(n_train, seed, "train", reversed_answer)
    order = torch.randperm(len(ids_PT), generator=torch.Generator().manual_seed(seed))
    # a filled-up row holds its example and then line ends: keep one of these
    rows = [ids_PT[i, : lengths_P[i] + 1].tolist() + [IDS["\n"]] * int(lengths_P[i] == ids_PT.shape[1]) for i in order]
    return torch.tensor([i for row in rows for i in row], dtype=torch.int8)
