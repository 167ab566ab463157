"""The paper's tasks with inductive scratchpads, and the literal registry that names them.

Formats are those of the authors' public code (github.com/aryol/inductive-scratchpad), because the
paper's appendix names only one of the tasks.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from entp_lib.validation import require
from entp_papers.scratchpad.format import Example, Tokens, text_of

Symbols = tuple[str, ...]  # a text: characters, or names that are one token each
Question = tuple[Symbols, tuple[Symbols, ...]]  # a question, and its given states
DELIMITERS = (":", "#", ".")  # by token id: start, end of a state, end of the text
FILLING = "abcdefghijklmnopqrstuvwxyz0123456789$"


class Problem:
    """A task: questions of a size, the step from one state to the next, and a solver.

    Subclasses are frozen dataclasses with

    - ``symbols``: every symbol of questions, states and answers, without delimiters
    - ``question(size, generator)``: a random question, and the states that are given with it
    - ``next_state(question, state)``: the state after ``state``, or the first one if it is None
    - ``answer(state)``: the answer in the last state; None for any other state, or ValueError
    - ``solve(question, given)``: the answer, computed from the question without states
    """

    @property
    def vocabulary(self) -> Symbols:
        """Return the symbols by token id."""
        return DELIMITERS + self.symbols

    def encode(self, symbols: Iterable[str]) -> Tokens:
        """Return token ids."""
        return tuple(map(self.vocabulary.index, symbols))

    def decode(self, tokens: Sequence[int]) -> Symbols:
        """Return the symbols of token ids."""
        return tuple(self.vocabulary[token] for token in tokens)

    def states(self, question: Symbols, given: tuple[Symbols, ...]) -> tuple[Symbols, ...]:
        """Return the whole scratchpad of a question, the given states first."""
        states = list(given)
        while not states or self.answer(states[-1]) is None:
            states.append(self.next_state(question, states[-1] if states else None))
        return tuple(states)

    def example(self, size: int, generator: np.random.Generator) -> Example:
        """Draw a question of a size, with its states and its answer, as token ids."""
        question, given = self.question(size, generator)
        states = tuple(self.encode(state) for state in self.states(question, given))
        return Example(
            self.encode(question), states, self.encode(self.solve(question, given)), len(given)
        )

    def written_out(self, size: int, seed: int) -> str:
        """Return a random question of a size, its scratchpad and its answer as text."""
        example = self.example(size, np.random.default_rng(seed))
        text = "".join(self.decode(text_of(example)))
        return f"{text}   answer {''.join(self.decode(example.answer))}"

    def without_states(self, example: Example) -> Example:
        """Drop the scratchpad: given states become the question, and the answer follows."""
        return Example(sum(example.states[: example.given], example.question), (), example.answer)

    def is_right(self, example: Example, states: Sequence[Tokens]) -> bool:
        """Return whether a written scratchpad ends with the right answer, however it got there."""
        try:
            return self.encode(self.answer(self.decode(states[-1])) or ()) == example.answer
        except ValueError:
            return False


@dataclass(frozen=True)
class SpacedParity(Problem):
    """Parity of ``size`` bits with random spaces, in ``slots`` slots (the authors: 30 in 60).

    A state has the slot of a bit, the bit, and the parity so far; the last one has the number of
    slots, at most 99, in place of a slot.

        __1_01__=:[02]1,1#[04]0,1#[05]1,0#[08]_,0.
    """

    slots: int = 60

    symbols = tuple("0123456789_=[],")

    def question(self, size: int, generator: np.random.Generator) -> Question:
        require(
            1 <= size <= self.slots <= 99,
            f"{size} bits: must be 1 to the {self.slots} slots, and these at most 99",
        )
        text = ["_"] * self.slots
        for slot in generator.choice(self.slots, size, replace=False).tolist():
            text[slot] = str(generator.integers(2))
        return (*text, "="), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        slot, parity = (-1, 0) if state is None else (self.slot(state), int(state[-1]))
        slot = next(
            (place for place in range(slot + 1, self.slots) if question[place] != "_"), self.slots
        )
        bit = "_" if slot == self.slots else question[slot]
        return tuple(f"[{slot:02}]{bit},{parity ^ (bit == '1')}")

    def slot(self, state: Symbols) -> int:
        return int("".join(state[1:3]))

    def answer(self, state: Symbols) -> Symbols | None:
        return state[-1:] if len(state) == 7 and self.slot(state) == self.slots else None

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        return (str(question.count("1") % 2),)


@dataclass(frozen=True)
class SpacedAddition(Problem):
    """Addition of numbers with random spaces between their digits (the authors: 10 digits).

    The characters of a+b are in order in random ones of 2 ``most_digits`` + 1 slots. After = comes
    an answer register, $ and random characters of ``filling``, which every state shifts to the
    right by one digit of the sum. A state has slot and digit of both operands, the carry and the
    register. For a missing digit, the slot is -1 in the first operand and that of + in the second,
    and the digit is _. The sum has one digit more than the longer operand.

        _7+_5=$xyz:[01]7[04]5c1r2$xy#[-1]_[02]_c0r12$x.

    The public code ends one state earlier if no carry is left, as in 74 of 180 texts that were
    compared.
    """

    most_digits: int = 10
    filling: str = FILLING

    @property
    def slots(self) -> int:
        return 2 * self.most_digits + 1

    @property
    def symbols(self) -> Symbols:
        return tuple(sorted({*"0123456789+_=$[]-cr", *self.filling}))

    def question(self, size: int, generator: np.random.Generator) -> Question:
        require(
            1 <= size <= self.most_digits <= 49,
            f"{size} digits: must be 1 to {self.most_digits}, and that at most 49",
        )
        a, b = (random_number(size, generator) for _ in range(2))
        text = ["_"] * self.slots
        slots = np.sort(generator.choice(self.slots, 2 * size + 1, replace=False)).tolist()
        for slot, character in zip(slots, f"{a}+{b}", strict=True):
            text[slot] = character
        return (*text, "=", "$", *random_text(self.filling, self.most_digits + 1, generator)), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        plus = question.index("+")
        if state is None:
            a = plus
            b = self.slots
            carry = 0
            register = question[self.slots + 1 :]
        else:
            a, b, carry, register = self.fields(state)
        found = []
        # the last digit of either operand before its old slot; none before slot 0 or -1
        for stop, start in ((a, 0), (b, plus + 1)):
            slot = next(
                (place for place in range(stop - 1, start - 1, -1) if question[place] != "_"), -1
            )
            found.append((slot, "_" if slot < 0 else question[slot]))
        (slot_a, digit_a), (slot_b, digit_b) = found
        carry, digit = divmod(sum(int(d) for d in (digit_a, digit_b) if d != "_") + carry, 10)
        place_b = plus if slot_b < 0 else slot_b
        return (*f"[{slot_a:02}]{digit_a}[{place_b:02}]{digit_b}c{carry}r{digit}", *register[:-1])

    def fields(self, state: Symbols) -> tuple[int, int, int, Symbols]:
        """Split a state into slots, carry and register. ValueError if it has another form."""
        if len(state) != 15 + self.most_digits or state[10] != "c":
            raise ValueError(f"{''.join(state)!r}: not a state")
        return int("".join(state[1:3])), int("".join(state[6:8])), int(state[11]), state[13:]

    def answer(self, state: Symbols) -> Symbols | None:
        first, _, _, register = self.fields(state)
        return register[: register.index("$")] if first == -1 and state[9] == "_" else None

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        a, b = "".join(question[: self.slots]).replace("_", "").split("+")
        return tuple(f"{int(a) + int(b):0{max(len(a), len(b)) + 1}}")


@dataclass(frozen=True)
class ShiftAddition(Problem):
    """Addition by shifting (the authors: 4 digits): add last digits, rotate operands by one.

    There is no question; the first state is given instead. Both operands, of ``size`` digits, are
    in fields of ``most_digits`` + 1 characters, after random characters of ``filling`` and $; the
    register takes the digits of the sum. When both operands end with $, the last state has the
    carry and the register.

        :a$7+c$5=$x|0#7a$+5c$=2$|1#12$.

    The public code masks the given first state and counts its loss otherwise. Here both follow
    appendix C: the first state belongs to the prompt and is not learned.
    """

    most_digits: int = 4
    filling: str = FILLING

    @property
    def symbols(self) -> Symbols:
        return tuple(sorted({*"0123456789+=$|", *self.filling}))

    def question(self, size: int, generator: np.random.Generator) -> Question:
        most = self.most_digits
        require(1 <= size <= most, f"{size} digits: must be 1 to {most}")
        a, b = (
            (
                *random_text(self.filling, most - size, generator),
                "$",
                *random_number(size, generator),
            )
            for _ in range(2)
        )
        return (), ((*a, "+", *b, "=", "$", *random_text(self.filling, most, generator), "|", "0"),)

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        a, b, register, carry = self.fields(state)
        if a[-1] == b[-1] == "$":
            return (carry, *register)
        total = sum(int(x[-1]) for x in (a, b) if x[-1] != "$") + int(carry)
        a, b = (x if x[-1] == "$" else (x[-1], *x[:-1]) for x in (a, b))
        return (*a, "+", *b, "=", str(total % 10), *register[:-1], "|", str(total // 10))

    def fields(self, state: Symbols) -> list[str]:
        """Split a state that is not the last into operands, register and carry."""
        return re.split(r"[+=|]", "".join(state))

    def answer(self, state: Symbols) -> Symbols | None:
        return None if "+" in state else state[: state.index("$")]

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        a, b = (x.rpartition("$")[2] for x in self.fields(given[0])[:2])
        return tuple(f"{int(a) + int(b):0{max(len(a), len(b)) + 1}}")


@dataclass(frozen=True)
class TwoCycles(Problem):
    """Reachability in two cycles of ``size`` nodes, named at random out of ``names``.

    Edges in random order, then the two nodes asked about. States walk from the first node, one node
    each; the last also has the answer: 1 where the second node was met, as in half of the
    questions, 0 where the walk came back.

        v3>v1;v1>v3;v2>v4;v4>v2;v3?v4;:v3#v1#v3;0.
    """

    names: int = 1000

    @property
    def symbols(self) -> Symbols:
        return (*">;?01", *(f"v{i}" for i in range(self.names)))

    def question(self, size: int, generator: np.random.Generator) -> Question:
        require(
            2 <= size <= self.names // 2,
            f"cycles of {size}: must be 2 to {self.names // 2}, half of the names",
        )
        nodes = [f"v{i}" for i in generator.choice(self.names, 2 * size, replace=False)]
        cycles = nodes[:size], nodes[size:]
        edges = [
            edge for cycle in cycles for edge in zip(cycle, cycle[1:] + cycle[:1], strict=True)
        ]
        shuffled = generator.permutation(edges).tolist()
        target = nodes[generator.integers(1, size) if generator.integers(2) else size]
        text = [symbol for a, b in shuffled for symbol in (a, ">", b, ";")]
        return (*text, nodes[0], "?", target, ";"), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        source = question[-4]
        target = question[-2]
        if state is None:
            return (source,)
        following = dict(zip(question[:-4:4], question[2:-4:4], strict=True))
        node = following[state[0]]
        return (node, ";", str(int(node == target))) if node in (source, target) else (node,)

    def answer(self, state: Symbols) -> Symbols | None:
        return state[-1:] if len(state) == 3 and state[1] == ";" else None

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        reached = {question[-4]}
        edges = set(zip(question[:-4:4], question[2:-4:4], strict=True))
        while more := {b for a, b in edges if a in reached} - reached:
            reached |= more
        return (str(int(question[-2] in reached)),)


PROBLEMS = {
    "parity": SpacedParity,
    "spaced_addition": SpacedAddition,
    "shift_addition": ShiftAddition,
    "two_cycles": TwoCycles,
}


def random_number(size: int, generator: np.random.Generator) -> str:
    """Draw a number with ``size`` digits, without a leading zero."""
    return "".join(map(str, [generator.integers(1, 10), *generator.integers(0, 10, size - 1)]))


def random_text(filling: str, length: int, generator: np.random.Generator) -> list[str]:
    """Draw random characters of ``filling``."""
    return generator.choice(list(filling), length).tolist()
