"""Two of the paper's tasks with inductive scratchpads, and the literal registry that names them.

Formats are those of the authors' public code (github.com/aryol/inductive-scratchpad), as the paper's appendix names
only one of the tasks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from entp_lib.validation import require
from entp_papers.scratchpad.format import Example, Tokens, text_of

Symbols = tuple[str, ...]  # a text, character by character
DELIMITERS = (":", "#", ".")  # by token id: start, end of a state, end of the text
FILLING = "abcdefghijklmnopqrstuvwxyz0123456789$"


class Problem:
    """Questions of a size, the induction from one state to the next, and a solver. Subclasses, frozen dataclasses, have

    - ``symbols``: every symbol of questions, states and answers, delimiters left out
    - ``question(size, generator)``: a random question of a size, and the states that are given with it
    - ``next_state(question, state)``: the state after ``state``, from the two alone; the first one after None
    - ``answer(state)``: the answer as the last state has it; None of one that is not the last, or ValueError
    - ``solve(question, given)``: the answer, from the question and not by way of states
    """

    @property
    def vocabulary(self) -> Symbols:
        """The symbols by token id."""
        return DELIMITERS + self.symbols

    def encode(self, symbols: Iterable[str]) -> Tokens:
        """Token ids."""
        ids = {symbol: i for i, symbol in enumerate(self.vocabulary)}
        return tuple(ids[symbol] for symbol in symbols)

    def decode(self, tokens: Sequence[int]) -> Symbols:
        """The symbols of token ids."""
        return tuple(self.vocabulary[token] for token in tokens)

    def states(self, question: Symbols, given: tuple[Symbols, ...] = ()) -> tuple[Symbols, ...]:
        """The whole scratchpad of a question, the given states first."""
        states = list(given)
        while not states or self.answer(states[-1]) is None:
            states.append(self.next_state(question, states[-1] if states else None))
        return tuple(states)

    def example(self, size: int, generator: np.random.Generator) -> Example:
        """A random question of a size, its states and its answer, as token ids."""
        question, given = self.question(size, generator)
        states = tuple(self.encode(state) for state in self.states(question, given))
        return Example(self.encode(question), states, self.encode(self.solve(question, given)), len(given))

    def written_out(self, size: int, seed: int) -> str:
        """A random question of a size, its scratchpad and its answer, to be read."""
        example = self.example(size, np.random.default_rng(seed))
        return f"{''.join(self.decode(text_of(example)))}   answer {''.join(self.decode(example.answer))}"

    def without_states(self, example: Example) -> Example:
        """The same question with no scratchpad: what was given becomes the question, and the answer follows."""
        return Example(sum(example.states[: example.given], example.question), (), example.answer)

    def is_right(self, example: Example, states: Sequence[Tokens]) -> bool:
        """Whether a written scratchpad ends with the right answer, however it got there."""
        try:
            return self.encode(self.answer(self.decode(states[-1])) or ()) == example.answer
        except ValueError:
            return False


@dataclass(frozen=True)
class SpacedParity(Problem):
    """Parity of ``size`` bits with random spaces between them, in ``slots`` slots (the authors train to 30 in 60).

    A state has the slot of a bit, the bit, and the parity so far; the last one has the number of slots, at most 99,
    in place of a slot.

        __1_01__=:[02]1,1#[04]0,1#[05]1,0#[08]_,0.
    """

    slots: int = 60

    symbols = tuple("0123456789_=[],")

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        fits = 1 <= size <= self.slots <= 99
        require(fits, f"{size} bits: must be 1 to the {self.slots} slots, and these at most 99")
        text = ["_"] * self.slots
        for slot in generator.choice(self.slots, size, replace=False).tolist():
            text[slot] = str(generator.integers(2))
        return (*text, "="), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        slot, parity = (-1, 0) if state is None else (self.slot(state), number_in(state[-1:]))
        slot = next((place for place in range(slot + 1, self.slots) if question[place] != "_"), self.slots)
        bit = "_" if slot == self.slots else question[slot]
        return tuple(f"[{slot:02}]{bit},{parity ^ (bit == '1')}")

    def slot(self, state: Symbols) -> int:
        return number_in(state[1:3])

    def answer(self, state: Symbols) -> Symbols | None:
        return state[-1:] if len(state) == 7 and self.slot(state) == self.slots else None

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        return (str(question.count("1") % 2),)


@dataclass(frozen=True)
class ShiftAddition(Problem):
    """Addition by shifting (the authors train to 4 digits): the last digits are added, then each operand turns by one.

    There is no question, but a first state, which is given. Both operands, of ``size`` digits, are in fields of
    ``most_digits`` + 1 characters behind $ and random characters of ``filling``; the register takes the digits of the
    sum. When only $ is at the ends, the last state has the carry and the register.

        :a$7+c$5=$x|0#7a$+5c$=2$|1#12$.

    The public code masks the given first state and counts its loss otherwise. Here both follow appendix C: the first
    state belongs to the prompt, and nobody learns it.
    """

    most_digits: int = 4
    filling: str = FILLING

    @property
    def symbols(self) -> Symbols:
        return tuple(sorted({*"0123456789+=$|", *self.filling}))

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        most = self.most_digits
        require(1 <= size <= most, f"{size} digits: must be 1 to {most}")
        a, b = (
            (*random_text(self.filling, most - size, generator), "$", *str(random_number(size, generator)))
            for _ in range(2)
        )
        return (), ((*a, "+", *b, "=", "$", *random_text(self.filling, most, generator), "|", "0"),)

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        a, b, register, carry = self.fields(state)
        if a[-1] == b[-1] == "$":
            return (str(carry), *register)
        total = sum(int(x[-1]) for x in (a, b) if x[-1] != "$") + carry
        a, b = (x if x[-1] == "$" else (x[-1], *x[:-1]) for x in (a, b))
        return (*a, "+", *b, "=", str(total % 10), *register[:-1], "|", str(total // 10))

    def fields(self, state: Symbols) -> tuple[Symbols, Symbols, Symbols, int]:
        """Both operands, the register and the carry of a state that is not the last."""
        width = self.most_digits + 1
        return state[:width], state[width + 1 : 2 * width + 1], state[2 * width + 2 : -2], number_in(state[-1:])

    def answer(self, state: Symbols) -> Symbols | None:
        return None if "+" in state else state[: state.index("$")]

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        a, b = ("".join(x).rpartition("$")[2] for x in self.fields(given[0])[:2])
        return tuple(f"{int(a) + int(b):0{max(len(a), len(b)) + 1}}")


PROBLEMS: dict[str, type[Problem]] = {"parity": SpacedParity, "shift_addition": ShiftAddition}


def number_in(symbols: Symbols) -> int:
    """The number that some symbols write. ValueError where they do not."""
    text = "".join(symbols)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r}: must be digits")
    return int(text)


def random_number(size: int, generator: np.random.Generator) -> int:
    """A random number of so many digits, without a leading zero."""
    return int("".join(map(str, [generator.integers(1, 10), *generator.integers(0, 10, size - 1)])))


def random_text(filling: str, length: int, generator: np.random.Generator) -> list[str]:
    """Random characters."""
    return [filling[i] for i in generator.integers(len(filling), size=length)]
