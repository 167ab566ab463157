"""Writing scratchpads with a model, and ways of reading one that grows (appendix C.2).

    Trimmed      the definition: question, last and present state, computed again for every token
    Masked       the whole text, computed again, with a mask and positions that hide older states
    Recomputed   a cache; a state that has ended is computed once more, as the last one
    Doubled      two caches: every token is read in its own state and as the context of the next
    Naive        a cache that keeps keys and values as they were: wrong from the third state on
    Whole        the ordinary scratchpad: the whole text, computed again
    Cached       the ordinary scratchpad with a cache

ENTP's keys change with every token, so it can only be read by the definition.

Letters: R rows, B batch (always 1), T tokens, V vocabulary.
"""

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entp_lab.studies import largest
from entp_lib.decoding import Cache, cached_logits
from entp_lib.model import Transformer
from entp_papers.scratchpad.format import (
    DELIMITER,
    END,
    START,
    Example,
    Tokens,
    group_mask,
    memory_of,
)

Limits = tuple[int, int]  # the most tokens of a state, and the most states
ENDED = "end"
TOO_LONG = "a state without its delimiter"
TOO_MANY = "too many states"


class Reader:
    """The tokens of one scratchpad so far, and the logits (V,) after the last of them.

    ``forwards`` counts the tokens that went through the model. ConfigError for an empty question,
    or one with a delimiter.
    """

    def __init__(
        self, model: Transformer, question: Sequence[int], given: Sequence[Sequence[int]] = ()
    ):
        self.model = model
        self.forwards = 0
        self.memory = memory_of(question, len(given))
        self.segments: list[list[int]] = [[]]  # the last one is being written
        self.begin()
        for state in given:
            for token in (*state, DELIMITER):
                self.append(token)

    # Hooks for readers that keep something of the text: at its start, and at one more token, when a
    # state that it ends is no longer the last segment.
    def begin(self) -> None: ...
    def read(self, token: int) -> None: ...

    def append(self, token: int) -> None:
        """Add a token to the present state; ``delimiter`` begins the next one."""
        self.segments[-1].append(token)
        if token == DELIMITER:
            self.segments.append([])
        self.read(token)

    @torch.no_grad()
    def run(self, tokens: Sequence[int], **relations: Tensor) -> Tensor:
        """Return logits (V,) after the last of some tokens, computed without a cache."""
        self.forwards += len(tokens)
        scored_BT = torch.arange(len(tokens))[None] == len(tokens) - 1
        return self.model(torch.tensor([tokens]), scored_BT, **relations)[0]

    def extend(self, cache: Cache, tokens: Sequence[int]) -> Tensor:
        """Return logits (V,) after further tokens, whose keys and values ``cache`` keeps."""
        self.forwards += len(tokens)
        return cached_logits(self.model, torch.tensor([tokens]), cache)[0]


class Trimmed(Reader):
    """The definition: the memory, the last whole state and the present one so far."""

    def logits(self) -> Tensor:
        return self.run([*self.memory, *itertools.chain(*self.segments[-2:])])


class Whole(Reader):
    """The ordinary scratchpad: every state may read all before it."""

    def logits(self) -> Tensor:
        return self.run([*self.memory, *itertools.chain(*self.segments)])


class Masked(Reader):
    """The whole text; a mask hides all states but the present one and the last.

    Positions of the last two states are those of the trimmed text; those of older states do not
    matter.
    """

    def logits(self) -> Tensor:
        tokens = list(self.memory)
        groups = [0] * len(self.memory)
        newest = len(self.segments)
        positions = list(range(len(tokens)))
        for number, segment in enumerate(self.segments, 1):
            start = len(self.memory) + (len(self.segments[-2]) if number == newest > 1 else 0)
            positions += range(start, start + len(segment))
            groups += [number] * len(segment)
            tokens += segment
        groups_BT = torch.tensor([groups])
        last_BTT = (groups_BT[:, :, None] == newest) & (groups_BT[:, None] == newest - 1)
        return self.run(
            tokens,
            positions_BT=torch.tensor([positions]),
            mask_BTT=group_mask(groups_BT) | last_BTT,
        )


class Cached(Reader):
    """The ordinary scratchpad with every key and value kept, which is exact only in a decoder."""

    def begin(self) -> None:
        self.cache = Cache(self.model, 1)
        self.last = self.extend(self.cache, self.memory)

    def read(self, token: int) -> None:
        if token != END:
            self.last = self.extend(self.cache, [token])

    def logits(self) -> Tensor:
        return self.last


class Recomputed(Cached):
    """One cache of memory, last state and present state; a state that ends is read again."""

    def read(self, token: int) -> None:
        if token == DELIMITER:
            self.cache.length = len(self.memory)
            self.last = self.extend(self.cache, self.segments[-2])
        else:
            super().read(token)


class Doubled(Cached):
    """Two caches, for the present state and for the next one: no token is read again."""

    def begin(self) -> None:
        super().begin()
        self.next = copy.deepcopy(self.cache)

    def read(self, token: int) -> None:
        if token != END:
            self.prepared = self.extend(self.next, [token])
        if token == DELIMITER:  # after which the next state has its own context only
            self.cache, self.next = self.next, self.cache
            self.next.length = len(self.memory)
            self.last = self.prepared
        else:
            super().read(token)


class Naive(Cached):
    """One cache that keeps the last state's keys and values as they were read.

    They come from attending to a state that the next one must not see. The distances that ALiBi
    takes are those of the trimmed text; learned and rotary positions stay those at which a token
    was read.
    """

    def read(self, token: int) -> None:
        super().read(token)
        if token == DELIMITER:
            start = len(self.memory)
            kept = len(self.segments[-2])
            old = slice(self.cache.length - kept, self.cache.length)
            self.cache.kv[..., start : start + kept, :] = self.cache.kv[..., old, :].clone()
            self.cache.length = start + kept


READERS = {
    way.__name__.lower(): way
    for way in (Trimmed, Masked, Recomputed, Doubled, Naive, Whole, Cached)
}
# Exact ways of reading an inductive scratchpad, the definition first.
EXACT_WAYS = ("trimmed", "masked", "recomputed", "doubled")


@dataclass(frozen=True)
class Written:
    """States that a model wrote, why it stopped, and how many tokens it read.

    If kept: the tokens that it chose, of which the last may end the text, and their logits (T, V).
    """

    states: tuple[Tokens, ...]
    stopped: str
    forwards: int = 0
    tokens: Sequence[int] = ()
    logits_TV: Tensor | None = None


@torch.no_grad()
def write(
    model: Transformer,
    question: Sequence[int],
    way: str,
    limits: Limits,
    choose=torch.argmax,
    given=(),
) -> Written:
    """Write a scratchpad token by token, greedily unless ``choose`` picks from logits (V,).

    ``way``: one of ``READERS``. Writing stops at the end token, and where a state, or the number of
    states, reaches its limit without a delimiter or an end, or the whole text the model's context.
    ``given``: the first states.
    ConfigError as in ``Reader``.
    """
    reader = READERS[way](model, question, given)
    tokens = []
    logits = []
    while True:
        logits.append(reader.logits())
        token = int(choose(logits[-1]))
        tokens.append(token)
        stopped = why_stopped(token, reader.segments, limits)
        length = len(reader.memory) + sum(map(len, reader.segments))
        if stopped or length >= model.cfg.max_length:
            states = contents(reader.segments)
            return Written(
                states, stopped or TOO_LONG, reader.forwards, tokens, torch.stack(logits)
            )
        reader.append(token)


def compare_written(definition: Written, other: Written) -> tuple[bool, float]:
    """Return whether two scratchpads differ, and the largest difference of their logits.

    Logits are compared up to the first token that differs; after it they belong to different texts.
    """
    same = [a == b for a, b in zip(definition.tokens, other.tokens, strict=False)]
    rows = same.index(False) + 1 if False in same else len(same)
    difference = largest(definition.logits_TV[:rows], other.logits_TV[:rows])
    return (definition.states, definition.stopped) != (other.states, other.stopped), difference


def why_stopped(token: int, segments: list[list[int]], limits: Limits) -> str:
    """Return why writing stops at the next ``token`` of the last segment; "" where it goes on."""
    if token == END:
        return ENDED
    if token == DELIMITER:
        return TOO_MANY if len(segments) >= limits[1] else ""
    return TOO_LONG if len(segments[-1]) >= limits[0] else ""


def contents(segments: list[list[int]]) -> tuple[Tokens, ...]:
    """Return the states without their delimiters, of which the last has none."""
    return (*(tuple(segment[:-1]) for segment in segments[:-1]), tuple(segments[-1]))


@torch.no_grad()
def write_many(
    model: nn.Module,
    examples: Sequence[Example],
    inductive: bool,
    limits: Limits,
) -> list[Written]:
    """Write scratchpads for the questions of examples after their given states, greedily and
    without caches.

    With ``inductive`` each state is written from the question and the last state, else from the
    whole text. Rows are padded after their last token, which no architecture but a prefix decoder
    sees. A text that would outgrow the model's context stops with ``TOO_LONG``.
    """
    segments = [[*([*state, DELIMITER] for state in e.states[: e.given]), []] for e in examples]
    stopped = [""] * len(examples)
    while True:
        contexts = {}
        for i, example in enumerate(examples):
            read = segments[i][-2:] if inductive else segments[i]
            context = [*example.question, START, *itertools.chain(*read)]
            if not stopped[i] and len(context) > model.cfg.max_length:
                stopped[i] = TOO_LONG
            if not stopped[i]:
                contexts[i] = context
        if not contexts:
            break
        longest = max(map(len, contexts.values()))
        lengths_R = torch.tensor([len(c) for c in contexts.values()])
        inputs_RT = torch.tensor([[*c, *[END] * (longest - len(c))] for c in contexts.values()])
        tokens_R = model(inputs_RT, torch.arange(longest) == lengths_R[:, None] - 1).argmax(-1)
        for i, token in zip(contexts, tokens_R.tolist(), strict=True):
            stopped[i] = why_stopped(token, segments[i], limits)
            if not stopped[i]:
                segments[i][-1].append(token)
                if token == DELIMITER:
                    segments[i].append([])
    return [Written(contents(whole), why) for whole, why in zip(segments, stopped, strict=True)]
