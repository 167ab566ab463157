"""Ways of reading a scratchpad that grows token by token, all for the same next-token logits (appendix C.2).

    Trimmed      question, last state and present state alone, read afresh for every token      (the definition)
    Masked       the whole text, read afresh with a mask and positions that hide older states
    Recomputed   keys and values kept, those of a state computed anew once it is the last one
    Doubled      every token read twice as it comes: in its own state, and as the context of the next
    Naive        keys and values kept as they were: wrong from the third state on
    Whole        the ordinary scratchpad: the whole text, read afresh; Cached keeps its keys and values

Each reader counts in ``forwards`` the tokens that went through the model. ENTP's keys change with every token, so that
it has the definition alone.

Letters: B batch (always 1), T tokens, V vocabulary.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from entp_lib.models import Transformer
from entp_lib.models.decoding import Cache, cached_logits
from entp_lib.validation import require
from entp_papers.scratchpad.format import Scratchpad
from entp_papers.scratchpad.rows import group_mask


class Reader:
    """The tokens of one scratchpad so far, the ``given`` states first, and the logits (V,) after the last of them.

    Raises ConfigError for an empty question, tokens outside the vocabulary, and texts longer than the model's context
    as each way of reading counts it.
    """

    cached = True  # whether keys and values are kept, which only a causal model allows

    def __init__(
        self, model: Transformer, pad: Scratchpad, question: Sequence[int], given: Sequence[Sequence[int]] = ()
    ):
        require(
            len(question) > 0 or len(given) > 0,
            "the question is empty: it must have at least one token, or the first state must be given",
        )
        pad.check_content("the question", question)
        kind = f"architecture = {model.cfg.architecture!r}"
        require(not model.cfg.open_prompt, f"{kind}: a scratchpad needs the decoder, ENTP or a hybrid")
        require(
            not self.cached or model.cfg.recomputed_layers < 2,
            f"{type(self).__name__} keeps keys and values, which only a decoder allows; {kind} is read afresh",
        )
        self.model, self.pad, self.forwards = model, pad, 0
        for token in (*question, pad.start, pad.delimiter, pad.end):
            self.check(token)
        self.memory = [*question, pad.start]
        self.segments: list[list[int]] = [[]]  # the last one is being written
        self.begin()
        for state in given:
            for token in (*state, pad.delimiter):
                self.append(token)

    def begin(self) -> None:
        """Read the memory, where something of it is kept."""

    def check(self, token: int) -> None:
        size = self.model.cfg.vocab_size
        require(0 <= token < size, f"token {token}: outside the vocabulary of {size}")

    def append(self, token: int) -> None:
        """Add a token to the present state; ``delimiter`` begins the next one."""
        self.check(token)
        self.segments[-1].append(token)
        self.read(token)
        if token == self.pad.delimiter:
            self.segments.append([])
            self.next_state()

    def read(self, token: int) -> None:
        """Take up one token, where something of it is kept."""

    def next_state(self) -> None:
        """Take up that a new state begins."""

    def logits(self) -> Tensor:
        """(V,) after the present last token."""
        raise NotImplementedError

    @property
    def context(self) -> list[int]:
        """The memory, the last whole state and what there is of the present one."""
        before = self.segments[-2] if len(self.segments) > 1 else []
        return self.memory + before + self.segments[-1]

    @torch.no_grad()
    def run(self, tokens: Sequence[int], **relations: Tensor) -> Tensor:
        """Logits (V,) after the last of some tokens, read from nothing."""
        room = self.model.cfg.max_length
        require(
            len(tokens) <= room,
            f"{len(tokens)} tokens to read at state {len(self.segments)}: beyond the model's max_length of {room}",
        )
        inputs_BT = self.tensor(tokens)
        wanted_BT = torch.zeros_like(inputs_BT, dtype=torch.bool)
        wanted_BT[:, -1] = True
        self.forwards += len(tokens)
        return self.model(inputs_BT, wanted_BT, **relations)[0]

    def tensor(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor([list(tokens)], device=self.model.ln_f.weight.device)

    def extend(self, cache: Cache, tokens: Sequence[int]) -> Tensor:
        """Logits (V,) after further tokens, whose keys and values ``cache`` keeps; positions go on counting."""
        stop, room = cache.length + len(tokens), cache.max_length
        require(
            stop <= room,
            f"{stop} tokens kept at state {len(self.segments)}: beyond the model's max_length of {room}",
        )
        self.forwards += len(tokens)
        return cached_logits(self.model, self.tensor(tokens), cache)[0]


class Trimmed(Reader):
    """The definition: the input is changed, to what the present state may be written from."""

    cached = False

    def logits(self) -> Tensor:
        return self.run(self.context)


class Masked(Reader):
    """The whole text with a mask: a state sees itself and the memory, and the present one the last as well.

    Positions of the last two states are those of the trimmed text; what older states have does not matter.
    """

    cached = False

    def logits(self) -> Tensor:
        tokens, groups = list(self.memory), [0] * len(self.memory)
        positions = list(range(len(tokens)))
        newest = len(self.segments)
        for number, segment in enumerate(self.segments, 1):
            start = len(self.memory) + (len(self.segments[-2]) if number == newest > 1 else 0)
            positions += range(start, start + len(segment))
            groups += [number] * len(segment)
            tokens += segment
        groups_BT = self.tensor(groups)
        last_two = (groups_BT[:, :, None] == newest) & (groups_BT[:, None] == newest - 1)
        if (
            self.model.cfg.recomputed_layers
        ):  # full attention: the context sees the present state, as when it is trimmed
            context = (groups_BT == 0) | (groups_BT >= newest - 1)
            mask_BTT = group_mask(groups_BT) & ~context[:, :, None] | (context[:, :, None] & context[:, None])
        else:
            mask_BTT = group_mask(groups_BT) | last_two
        return self.run(tokens, positions_BT=self.tensor(positions), mask_BTT=mask_BTT)


class Recomputed(Reader):
    """One cache of memory, last state and present state. When a state ends, all but the memory is forgotten.

    The state that has ended is then read again, as the last one.
    """

    def begin(self) -> None:
        self.cache = Cache(self.model, 1)
        self.last = self.extend(self.cache, self.memory)

    def read(self, token: int) -> None:
        if token not in (self.pad.delimiter, self.pad.end):  # a state's last token is read with the state
            self.last = self.extend(self.cache, [token])

    def next_state(self) -> None:
        self.cache.length = len(self.memory)
        self.last = self.extend(self.cache, self.segments[-2])

    def logits(self) -> Tensor:
        return self.last


class Doubled(Reader):
    """Two caches, filled as tokens come: for the present state, and for the next, which will read this one as its last.

    When a state ends the second takes the place of the first, and no token is read again.
    """

    def begin(self) -> None:
        self.now, self.next = Cache(self.model, 1), Cache(self.model, 1)
        self.last = self.extend(self.now, self.memory)
        copy_cache(self.now, self.next)

    def read(self, token: int) -> None:
        if token == self.pad.end:
            return
        if token != self.pad.delimiter:  # the next state begins behind it, as its own context alone
            self.last = self.extend(self.now, [token])
        self.prepared = self.extend(self.next, [token])

    def next_state(self) -> None:
        self.now, self.next = self.next, self.now
        self.next.length = len(self.memory)
        self.last = self.prepared

    def logits(self) -> Tensor:
        return self.last


class Naive(Reader):
    """One cache that forgets the state before last when a state ends and keeps the last as it was read.

    Its keys and values come from attending to a state that the next must not know. Positions go on where the trimmed
    text has them, and those that ALiBi compares are put right: what is wrong is the content alone.
    """

    def begin(self) -> None:
        self.cache = Cache(self.model, 1)
        self.last = self.extend(self.cache, self.memory)

    def read(self, token: int) -> None:
        if token != self.pad.end:
            self.last = self.extend(self.cache, [token])

    def next_state(self) -> None:
        start, kept = len(self.memory), len(self.segments[-2])
        old = slice(self.cache.length - kept, self.cache.length)
        self.cache.kv[..., start : start + kept, :] = self.cache.kv[..., old, :].clone()
        self.cache.length = start + kept

    def logits(self) -> Tensor:
        return self.last


class Whole(Reader):
    """The ordinary scratchpad: every state may read all before it."""

    cached = False

    @property
    def context(self) -> list[int]:
        return [*self.memory, *itertools.chain(*self.segments)]

    def logits(self) -> Tensor:
        return self.run(self.context)


class Cached(Reader):
    """The ordinary scratchpad with every key and value kept, which is exact."""

    def begin(self) -> None:
        self.cache = Cache(self.model, 1)
        self.last = self.extend(self.cache, self.memory)

    def read(self, token: int) -> None:
        if token != self.pad.end:
            self.last = self.extend(self.cache, [token])

    def logits(self) -> Tensor:
        return self.last


def copy_cache(source: Cache, target: Cache) -> None:
    """Fill one cache with what another holds."""
    target.kv.copy_(source.kv)
    target.positions_BT.copy_(source.positions_BT)
    target.length = source.length


READERS: dict[str, type[Reader]] = {
    "trimmed": Trimmed,
    "masked": Masked,
    "recomputed": Recomputed,
    "doubled": Doubled,
    "naive": Naive,
    "whole": Whole,
    "cached": Cached,
}
