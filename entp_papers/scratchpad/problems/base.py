"""What a task with a scratchpad is: questions of a size, the induction from one state to the next, and a solver."""

from collections.abc import Iterable, Sequence

import numpy as np

from entp_lib.validation import require
from entp_papers.scratchpad.format import Example, Scratchpad, Tokens

Symbols = tuple[str, ...]  # a text: characters, or names that are one token each
DELIMITERS = (":", "#", ".")  # start, end of a state, end of the text
MOST_STATES = 10_000  # an induction that goes on beyond is not one


class Problem:
    """Subclasses are frozen dataclasses, and define the six methods that raise here.

    A state follows from the question and the state before it alone: ``next_state`` is given nothing else.
    """

    @property
    def symbols(self) -> Symbols:
        """Every symbol of questions, states and answers, delimiters left out."""
        raise NotImplementedError

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        """A random question of a size, and the states that are given with it."""
        raise NotImplementedError

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        """The state after ``state``; the first one after None."""
        raise NotImplementedError

    def is_last(self, state: Symbols) -> bool:
        """Whether a state ends the scratchpad."""
        raise NotImplementedError

    def answer(self, state: Symbols) -> Symbols:
        """What a last state says is the answer. ValueError where it says nothing."""
        raise NotImplementedError

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        """The answer, from the question and not by way of states."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> Symbols:
        """The symbols by token id."""
        return DELIMITERS + self.symbols

    def pad(self, **bounds: int) -> Scratchpad:
        """The format of this task's texts."""
        return Scratchpad(*range(3), **bounds)

    def encode(self, symbols: Iterable[str]) -> Tokens:
        """Token ids. ConfigError for a symbol that the task does not have."""
        ids = {symbol: i for i, symbol in enumerate(self.vocabulary)}
        text = tuple(symbols)
        for symbol in text:
            require(symbol in ids, f"symbol {symbol!r}: not one of this task's")
        return tuple(ids[symbol] for symbol in text)

    def decode(self, tokens: Sequence[int]) -> Symbols:
        """The symbols of token ids."""
        return tuple(self.vocabulary[token] for token in tokens)

    def states(self, question: Symbols, given: tuple[Symbols, ...] = ()) -> tuple[Symbols, ...]:
        """The whole scratchpad of a question, the given states first."""
        states = list(given)
        while not states or not self.is_last(states[-1]):
            require(len(states) < MOST_STATES, f"no last state among the first {MOST_STATES}")
            states.append(self.next_state(question, states[-1] if states else None))
        return tuple(states)

    def example(self, size: int, generator: np.random.Generator) -> Example:
        """A random question of a size, its states and its answer, as token ids."""
        question, given = self.question(size, generator)
        states = tuple(self.encode(state) for state in self.states(question, given))
        return Example(self.encode(question), states, self.encode(self.solve(question, given)), len(given))

    def without_states(self, example: Example) -> Example:
        """The same question with no scratchpad: what was given becomes the question, and the answer follows."""
        question = sum(example.states[: example.given], example.question)
        return Example(question, (), example.answer)

    def is_right(self, example: Example, states: Sequence[Tokens]) -> bool:
        """Whether a written scratchpad ends with the right answer, however it got there."""
        try:
            return self.encode(self.answer(self.decode(states[-1]))) == example.answer
        except ValueError:
            return False


def digits_of(symbols: Symbols) -> int:
    """The number that some symbols write. ValueError where they do not."""
    text = "".join(symbols)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r}: must be digits")
    return int(text)
