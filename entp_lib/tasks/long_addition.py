"""Addition, length generalisation (§7.1, appendix C.3): trained on short numbers, tested on longer ones.

Training and validation: the length of each operand is uniform in 1 to ``trained_digits``, independently. Test: one
operand is longer than that, its length uniform up to ``tested_digits``, the other's is uniform in 1 to
``tested_digits``, in random order. No pair occurs twice, so that the few shortest pairs are rarer than their length.

Letters: P pairs.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from entp_lib.tasks.addition import Sums, digits
from entp_lib.validation import check_intervals, check_types, require

MOST_TESTED = 18  # digits: a longer sum would not fit into 64 bits
FEWEST = 20  # examples of a part: their text must be longer than a window


def numbers(digits_P: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random whole number of so many digits each, (P,), 0 being one of one digit."""
    return generator.integers(np.where(digits_P == 1, 0, 10 ** (digits_P - 1)), 10**digits_P)


def unique_pairs(draw: Callable[[int], np.ndarray], count: int) -> np.ndarray:
    """The first ``count`` different pairs (P, 2) that ``draw`` gives, in the order in which they came."""
    pairs = np.empty((0, 2), dtype=np.int64)
    while len(pairs) < count:
        pairs = np.concatenate([pairs, draw(count)])
        pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
    return pairs[:count]


@functools.lru_cache(maxsize=4)
def split(n_train: int, n_validation: int, n_test: int, trained: int, tested: int, seed: int) -> dict[str, np.ndarray]:
    """The pairs (P, 2) of each part, all different."""
    generator = np.random.default_rng(seed)

    def short(count: int) -> np.ndarray:
        return numbers(generator.integers(1, trained + 1, (count, 2)), generator)

    def long(count: int) -> np.ndarray:
        lengths = np.stack([generator.integers(first, tested + 1, count) for first in (trained + 1, 1)], 1)
        return generator.permuted(numbers(lengths, generator), axis=1)

    # the pairs of one digit are soon used up: shuffled, they are as rare in validation as in training
    drawn = generator.permutation(unique_pairs(short, n_train + n_validation))
    return {"train": drawn[:n_train], "validation": drawn[n_train:], "test": unique_pairs(long, n_test)}


@dataclass(frozen=True)
class LongAddition(Sums):
    """Sums with operands of up to ``trained_digits`` to learn from and of up to ``tested_digits`` in the test."""

    n_train: int = 100_000
    n_validation: int = 5_000
    n_test: int = 25_000
    trained_digits: int = 10
    tested_digits: int = 15

    def __post_init__(self):
        check_types(self)
        tested = f"[{self.trained_digits + 1}, {MOST_TESTED}]"
        intervals = dict.fromkeys(("n_train", "n_validation", "n_test"), f"[{FEWEST}, inf)")
        check_intervals(self, {"trained_digits": "[1, inf)", "tested_digits": tested} | intervals)
        short, all_pairs = 10 ** (2 * self.trained_digits), 10 ** (2 * self.tested_digits)
        # lengths are uniform, pairs are not: drawing the last of them would take for ever
        asked = {"n_train + n_validation": (self.n_train + self.n_validation, short)}
        asked["n_test"] = self.n_test, all_pairs - short
        for name, (count, pairs) in asked.items():
            right = f"{name} = {count}: must be at most {pairs // 2}, half of the different pairs there are"
            require(count <= pairs // 2, right)
        self.check_window()

    def split(self) -> dict[str, np.ndarray]:
        return split(
            self.n_train, self.n_validation, self.n_test, self.trained_digits, self.tested_digits, self.split_seed
        )

    def most_digits(self, part: str) -> int:
        return self.tested_digits if part == "test" else self.trained_digits

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """Digits of the longer operand, as in "11 digits"."""
        return [f"{d} digits" for d in digits(a, b)]
