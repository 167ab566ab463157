"""Addition, length generalisation (§7.1, appendix C.3): trained on short numbers, tested on longer.

Training and validation: the lengths of the two operands are independent and uniform in 1 to
``trained_digits``. Test: one operand is longer than that, with a length uniform up to
``tested_digits``; the other's length is uniform in 1 to ``tested_digits``; the order is random. No
pair occurs twice, so that the few pairs of the shortest lengths are rarer than uniform.

Letters: P pairs.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from entp_lib.tasks.addition import MOST_DIGITS, Pairs, Sums, digits
from entp_lib.validation import check_intervals, check_types

MIN_EXAMPLES = 20  # of a part, whose text must be longer than a window


def numbers(digits_P: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw random integers with the given numbers of digits, (P,); 0 has one digit."""
    return generator.integers(
        np.where(digits_P == 1, 0, 10 ** (digits_P - 1)), 10**digits_P
    )


def unique_pairs(draw: Callable[[int], np.ndarray], count: int) -> np.ndarray:
    """Return the first ``count`` different pairs (P, 2) that ``draw`` gives, in their order."""
    pairs = np.empty((0, 2), dtype=np.int64)
    while len(pairs) < count:
        pairs = np.concatenate([pairs, draw(count)])
        first = np.unique(pairs, axis=0, return_index=True)[1]
        pairs = pairs[np.sort(first)]
    return pairs[:count]


@functools.lru_cache(maxsize=4)
def split(
    n_train: int, n_validation: int, n_test: int, trained: int, tested: int, seed: int
) -> Pairs:
    """Return the pairs of each part, all different."""
    generator = np.random.default_rng(seed)

    def short(count: int) -> np.ndarray:
        return numbers(generator.integers(1, trained + 1, (count, 2)), generator)

    def long(count: int) -> np.ndarray:
        longer = generator.integers(trained + 1, tested + 1, count)
        other = generator.integers(1, tested + 1, count)
        return generator.permuted(
            numbers(np.stack([longer, other], 1), generator), axis=1
        )

    # one-digit pairs run out early: shuffling makes them as rare in training and validation
    drawn = generator.permutation(unique_pairs(short, n_train + n_validation))
    test = unique_pairs(long, n_test)
    return {"train": drawn[:n_train], "validation": drawn[n_train:], "test": test}


@dataclass(frozen=True)
class LongAddition(Sums):
    """Sums of operands with up to ``trained_digits``, and up to ``tested_digits`` in the test."""

    n_train: int = 100_000
    n_validation: int = 5_000
    n_test: int = 25_000
    trained_digits: int = 10
    tested_digits: int = 15

    def __post_init__(self):
        check_types(self)
        tested = f"[{self.trained_digits + 1}, {MOST_DIGITS}]"
        check_intervals(self, {"trained_digits": "[1, inf)", "tested_digits": tested})
        short = 10 ** (2 * self.trained_digits)
        long = 10 ** (2 * self.tested_digits) - short
        # at most half of all different pairs, since drawing the last would never end
        counts = {
            "n_validation": f"[{MIN_EXAMPLES}, {short // 2 - MIN_EXAMPLES}]",
            "n_train": f"[{MIN_EXAMPLES}, {short // 2 - self.n_validation}]",
            "n_test": f"[{MIN_EXAMPLES}, {long // 2}]",
        }
        check_intervals(self, counts)
        self.check_window()

    def split(self) -> Pairs:
        return split(
            self.n_train,
            self.n_validation,
            self.n_test,
            self.trained_digits,
            self.tested_digits,
            self.split_seed,
        )

    def most_digits(self, part: str) -> int:
        return self.tested_digits if part == "test" else self.trained_digits

    def name_of(self, a: np.ndarray, b: np.ndarray) -> list[str]:
        """Return the digits of the longer operand, as in "11 digits"."""
        return [f"{n} digits" for n in digits(a, b)]
