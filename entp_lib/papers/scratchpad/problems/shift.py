"""Addition by shifting (the authors train to 4 digits): the last digits are added, then each operand turns by one.

There is no question beside the first state, which is given. Both operands stand behind $ and random characters; the
register takes the digits of the sum. When only $ stands at the ends, the last state has the carry and the register.

    :a$7+c$5=$x|0#7a$+5c$=2$|1#12$.

The public code masks the given first state and counts its loss otherwise. Here both follow appendix C: the first state
belongs to the prompt, and nobody learns it.
"""

from dataclasses import dataclass

import numpy as np

from entp_lib.papers.scratchpad.problems.base import Problem, Symbols, digits_of
from entp_lib.papers.scratchpad.problems.spaced_addition import FILLING, check_filling, number, random_text
from entp_lib.strict import check_types, require


@dataclass(frozen=True)
class ShiftAddition(Problem):
    """Two numbers of ``size`` digits in fields of ``most_digits`` + 1 characters, filled up from ``filling``."""

    most_digits: int = 4
    filling: str = FILLING

    def __post_init__(self):
        check_types(self)
        require(self.most_digits >= 1, f"most_digits = {self.most_digits}: must be at least 1")
        check_filling(self.filling)

    @property
    def symbols(self) -> Symbols:
        return tuple(sorted({*"0123456789+=$|", *self.filling}))

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        most = self.most_digits
        require(1 <= size <= most, f"{size} digits: must be 1 to {most}")
        a, b = (
            (*random_text(self.filling, most - size, generator), "$", *str(number(size, generator))) for _ in range(2)
        )
        return (), ((*a, "+", *b, "=", "$", *random_text(self.filling, most, generator), "|", "0"),)

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        if state is None:
            raise ValueError("the first state is given")
        a, b, register, carry = self.fields(state)
        if a[-1] == b[-1] == "$":
            return (str(carry), *register)
        total = sum(int(x[-1]) for x in (a, b) if x[-1] != "$") + carry
        a, b = (x if x[-1] == "$" else (x[-1], *x[:-1]) for x in (a, b))
        return (*a, "+", *b, "=", str(total % 10), *register[:-1], "|", str(total // 10))

    def fields(self, state: Symbols) -> tuple[Symbols, Symbols, Symbols, int]:
        """Both operands, the register and the carry of a state that is not the last."""
        width = self.most_digits + 1
        return state[:width], state[width + 1 : 2 * width + 1], state[2 * width + 2 : -2], digits_of(state[-1:])

    def is_last(self, state: Symbols) -> bool:
        return "+" not in state

    def answer(self, state: Symbols) -> Symbols:
        if not self.is_last(state) or "$" not in state:
            raise ValueError(f"{''.join(state)!r}: not the last state")
        return state[: state.index("$")]

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        a, b = ("".join(x).rpartition("$")[2] for x in self.fields(given[0])[:2])
        return tuple(f"{int(a) + int(b):0{max(len(a), len(b)) + 1}}")
