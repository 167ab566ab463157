"""Texts with a scratchpad, and the rows that they are trained on (appendix C.2).

    question START state_1 # state_2 # … state_k END

Everything up to START is the memory, which every state may read. A state with the token that ends
it (# or END) is a segment. Without states the answer is the only segment. With question Q and
states s1, s2, s3 the rows are

    chunks      Q s1#    Q s1# s2#    Q s2# s3     and a loss only on the last segment of each
    duplicated  Q s1# s1# s2# s2# s3               and no loss on second copies
    groups      0 1 … 1 2 … 2 2 … 2 3 … 3 3 …      a token sees its own group and the memory, 0
    positions   every group starts again after the memory

Our source lacks the paper's figure of the three vectors, which follow its text here. In a decoder,
the sum of losses and every gradient are the same for chunks and duplicated states (``exact``).

Letters: B batch, T tokens.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entp_lib.tasks.base import Batch
from entp_lib.validation import require

Tokens = tuple[int, ...]
START = 0  # after the question
DELIMITER = 1  # after every state but the last
END = 2  # after the last state
# Ingredients of rows with duplicated states; each can be left out to show that it is needed.
INGREDIENTS = ("groups", "positions", "targets")


@dataclass(frozen=True)
class Example:
    """A question, the states of its scratchpad, and its answer, as token ids without delimiters.

    The first ``given`` states belong to the prompt and are neither learned nor written. The
    question may be empty only if a state is given, because then the last state has all information.
    """

    question: Tokens
    states: tuple[Tokens, ...]
    answer: Tokens = ()
    given: int = 0


def memory_of(question: Sequence[int], given: int = 0) -> Tokens:
    """Return the question and ``START``: what every state may read.

    ConfigError for a question with a delimiter, or an empty one without a given state.
    """
    require(
        len(question) > 0 or given > 0,
        "the question is empty: it must have at least one token, or the first state must be given",
    )
    check_content("the question", question)
    return (*question, START)


def segments_of(example: Example) -> tuple[Tokens, ...]:
    """Return every state with the token that ends it; without states, only the answer.

    ConfigError for no states and no answer, an empty state, or a delimiter inside one.
    """
    states = example.states or (example.answer,)
    for number, state in enumerate(states, 1):
        require(len(state) > 0, f"state {number} is empty: it must have at least one token")
        check_content(f"state {number}", state)
    return (*((*state, DELIMITER) for state in states[:-1]), (*states[-1], END))


def text_of(example: Example) -> Tokens:
    """Return the whole text."""
    return sum(segments_of(example), memory_of(example.question, example.given))


def check_content(name: str, tokens: Sequence[int]) -> None:
    """Raise ConfigError for a delimiter inside the question or a state."""
    for mark, token in (("start", START), ("delimiter", DELIMITER), ("end", END)):
        require(token not in tokens, f"{name} contains the {mark} token {token}")


@dataclass(frozen=True)
class Row:
    """One text to train on: by token its group, its position, and whether it is learned."""

    tokens: Sequence[int]
    groups: Sequence[int]
    positions: Sequence[int]
    counted: Sequence[bool]


def plain_row(read: Tokens, learned: Tokens) -> Row:
    """Make one group with positions in order, and a loss only on the second part."""
    tokens = read + learned
    counted = (False,) * len(read) + (True,) * len(learned)
    return Row(tokens, (0,) * len(tokens), range(len(tokens)), counted)


def chunks(example: Example) -> list[Row]:
    """Cut a text into chunks: a row per segment, after the memory and the segment before it."""
    memory = memory_of(example.question, example.given)
    pairs = itertools.pairwise(((), *segments_of(example)))
    return [plain_row(memory + before, segment) for before, segment in pairs][example.given :]


def duplicate_states(example: Example, without: Sequence[str] = ()) -> Row:
    """Duplicate states: one row with every segment but the last twice, a given one once.

    ``without``: those of ``INGREDIENTS`` to leave out. ConfigError as in ``memory_of`` and
    ``segments_of``.
    """
    tokens = list(memory_of(example.question, example.given))
    start = len(tokens)
    groups = [0] * start
    positions = list(range(start))
    counted = [False] * start
    for number, row in enumerate(chunks(example), 1 + example.given):
        tokens += row.tokens[start:]
        groups += [number] * len(row.tokens[start:])
        positions += row.positions[start:]
        counted += row.counted[start:]
    if "targets" in without:
        counted = [group > 0 for group in groups]
    if "groups" in without:
        groups = [0] * len(tokens)
    if "positions" in without:
        positions = list(range(len(tokens)))
    return Row(tokens, groups, positions, counted)


def ordinary(example: Example) -> Row:
    """Return the text as it is, every state seeing all before it: the ordinary scratchpad."""
    segments = segments_of(example)
    memory = memory_of(example.question, example.given)
    return plain_row(sum(segments[: example.given], memory), sum(segments[example.given :], ()))


def batch_of(rows: Sequence[Row], extra: int = 0) -> Batch:
    """Batch rows, padded with ``END`` to the longest row and by ``extra`` columns more.

    A prediction is scored at the token before it; the first token of a row is not predicted. Filler
    sees only itself. If no row has groups, the batch has no mask and no positions, and only the
    architecture hides tokens.
    """
    length = max(len(row.tokens) for row in rows) - 1 + extra

    def table(values: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (length - len(row))] for row in values])

    scored_BT = table([row.counted[1:] for row in rows], False)
    inputs_BT, targets_BT = (
        table([r.tokens[part] for r in rows], END) for part in (slice(-1), slice(1, None))
    )
    if not any(any(r.groups) or [*r.positions] != [*range(len(r.tokens))] for r in rows):
        return Batch(inputs_BT, targets_BT, scored_BT)
    positions_BT = table([row.positions[:-1] for row in rows], 0)
    mask_BTT = group_mask(table([row.groups[:-1] for row in rows], -1))
    return Batch(inputs_BT, targets_BT, scored_BT, positions_BT=positions_BT, mask_BTT=mask_BTT)


def group_mask(groups_BT: Tensor) -> Tensor:
    """Let a token (row of B, T, T) see its own group and group 0; filler, group -1, sees itself.

    What comes later is hidden by the architecture, not here.
    """
    same_BTT = groups_BT[:, :, None] == groups_BT[:, None]
    filler_BT = groups_BT < 0
    seen_BTT = (same_BTT | (groups_BT == 0)[:, None]) & ~filler_BT[:, :, None]
    return seen_BTT | torch.eye(groups_BT.shape[1], dtype=torch.bool, device=groups_BT.device)
