"""Parity of bits with random spaces between them (the authors train to 30 bits in 60 slots).

Bits stand in random slots, in order. A state has the slot of a bit, the bit, and the parity so far; the last one has
the number of slots in place of a slot.

    __1_01__=:[02]1,1#[04]0,1#[05]1,0#[08]_,0.
"""

from dataclasses import dataclass

import numpy as np

from entp_lib.validation import check_types, require
from entp_papers.scratchpad.problems.base import Problem, Symbols, digits_of


@dataclass(frozen=True)
class SpacedParity(Problem):
    """``size`` bits in ``slots`` places. ConfigError for no slots or more than 999."""

    slots: int = 60

    def __post_init__(self):
        check_types(self)
        require(1 <= self.slots <= 999, f"slots = {self.slots}: must be 1 to 999")

    @property
    def symbols(self) -> Symbols:
        return tuple("0123456789_=[],")

    @property
    def place_digits(self) -> int:
        """Digits of a slot's number."""
        return 2 if self.slots <= 99 else 3

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        require(1 <= size <= self.slots, f"{size} bits: must be 1 to the {self.slots} slots")
        text = ["_"] * self.slots
        for slot in generator.choice(self.slots, size, replace=False).tolist():
            text[slot] = str(generator.integers(2))
        return (*text, "="), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        slot, parity = (-1, 0) if state is None else (self.slot(state), digits_of(state[-1:]))
        rest = (place for place in range(slot + 1, self.slots) if question[place] != "_")
        slot = next(rest, self.slots)
        bit = "_" if slot == self.slots else question[slot]
        if bit == "1":
            parity = 1 - parity
        return tuple(f"[{slot:0{self.place_digits}}]{bit},{parity}")

    def slot(self, state: Symbols) -> int:
        return digits_of(state[1 : 1 + self.place_digits])

    def is_last(self, state: Symbols) -> bool:
        return self.slot(state) == self.slots

    def answer(self, state: Symbols) -> Symbols:
        if len(state) != self.place_digits + 5 or not self.is_last(state):
            raise ValueError(f"{''.join(state)!r}: not the last state")
        return state[-1:]

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        return (str(question.count("1") % 2),)
