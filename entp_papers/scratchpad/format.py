"""What a scratchpad is: a question, then states, each written as if only the question and the state before it existed.

    question START state_1 # state_2 # … state_k END

Everything up to START is the memory, which every state may read. A state with the token that ends it (# or END) is a
segment. Without states the answer is the only segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from entp_lib.validation import check_types, require

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """A question, the states of its scratchpad in order, and its answer, as token ids without delimiters.

    The first ``given`` states belong to the prompt: nobody learns or writes them. Only with one may the question be
    empty, so that everything there is to know stands in the last state.
    """

    question: Tokens
    states: tuple[Tokens, ...]
    answer: Tokens = ()
    given: int = 0


@dataclass(frozen=True)
class Scratchpad:
    """The delimiters, and what a text in this format may be.

    ``start`` ends the question, ``delimiter`` every state but the last, which ``end`` ends. ``context`` is the longest
    input that the model reads, ``most_states`` bounds the number of states; None for no bound. With ``question_loss``
    the question is learned as well, once. Raises ConfigError where delimiters are not three different ids.
    """

    start: int
    delimiter: int
    end: int
    context: int | None = None
    most_states: int | None = None
    question_loss: bool = False

    def __post_init__(self):
        check_types(self)
        marks = {"start": self.start, "delimiter": self.delimiter, "end": self.end}
        require(
            len(set(marks.values())) == 3 and min(marks.values()) >= 0,
            f"{', '.join(f'{name} = {i}' for name, i in marks.items())}: must be three different token ids",
        )
        for name in ("context", "most_states"):
            bound = getattr(self, name)
            require(bound is None or bound >= 1, f"{name} = {bound}: must be at least 1, or None for no bound")

    def memory(self, example: Example) -> Tokens:
        """The question and ``start``: what every state may read. ConfigError for an empty question."""
        require(
            len(example.question) > 0 or example.given > 0,
            "the question is empty: it must have at least one token, or the first state must be given",
        )
        self.check_content("the question", example.question)
        return (*example.question, self.start)

    def segments(self, example: Example) -> tuple[Tokens, ...]:
        """Every state with the token that ends it; the answer alone where there are no states.

        ConfigError for no states and no answer, an empty state, too many, a delimiter inside one, or none to write.
        """
        states = example.states or (example.answer,)
        require(
            0 <= example.given < len(states),
            f"given = {example.given} of {len(states)} states: must leave at least one to write",
        )
        require(
            self.most_states is None or len(states) <= self.most_states,
            f"{len(states)} states: most_states = {self.most_states}",
        )
        for number, state in enumerate(states, 1):
            require(len(state) > 0, f"state {number} is empty: it must have at least one token")
            self.check_content(f"state {number}", state)
        ends = (self.delimiter,) * (len(states) - 1) + (self.end,)
        return tuple((*state, end) for state, end in zip(states, ends, strict=True))

    def check_content(self, name: str, tokens: Sequence[int]) -> None:
        """ConfigError where a delimiter stands inside the question or a state."""
        for mark in ("start", "delimiter", "end"):
            require(getattr(self, mark) not in tokens, f"{name} contains the {mark} token {getattr(self, mark)}")

    def text(self, example: Example) -> Tokens:
        """The whole text."""
        return sum(self.segments(example), self.memory(example))

    def parse(self, tokens: Sequence[int]) -> Example:
        """The question and the states of a whole text. ConfigError where a delimiter is missing or misplaced."""
        text = tuple(tokens)
        require(self.end in text, f"the last state has no end token {self.end}: a state must have its delimiter")
        for mark in ("start", "end"):
            count = text.count(getattr(self, mark))
            require(count == 1, f"a text with {count} {mark} tokens {getattr(self, mark)}: must have exactly one")
        require(text[-1] == self.end, f"a text that goes on after its end token {self.end}")
        place = text.index(self.start)
        states: list[Tokens] = [()]
        for token in text[place + 1 : -1]:
            states = [*states, ()] if token == self.delimiter else [*states[:-1], (*states[-1], token)]
        example = Example(text[:place], tuple(states))
        require(self.text(example) == text, "a text with a delimiter in the question")
        return example

    def check_length(self, name: str, tokens: int) -> None:
        """ConfigError where an input is longer than the context."""
        require(
            self.context is None or tokens <= self.context,
            f"{name}: {tokens} tokens to read, beyond the context of {self.context}",
        )
