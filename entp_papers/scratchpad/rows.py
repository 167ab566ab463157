"""Texts with a scratchpad as rows to train on: cut in chunks, with duplicated states, or as they are (appendix C.2).

    chunks      Q s1#     Q s1# s2#     Q s2# s3      and a loss on the last segment of each alone
    duplicated  Q s1# s1# s2# s2# s3                  and no loss on second copies
    groups      0 1 … 1 2 … 2 2 … 2 3 … 3 3 …         a token sees its own group and group 0, the memory
    positions   every group starts again behind the memory

The paper's figure of the three vectors is lost in our source; they are what its text says. All else being equal, the
sum of losses and every gradient are the same both ways in a decoder, see ``equivalence``.

Letters: B batch, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entp_lib.tasks.base import Batch
from entp_lib.validation import require
from entp_papers.scratchpad.format import Example, Scratchpad

INGREDIENTS = ("groups", "positions", "targets")  # of rows with duplicated states: each may be left out to see its part


@dataclass(frozen=True)
class Row:
    """One text to train on, an entry per token: its group, its position, and whether its prediction counts."""

    tokens: tuple[int, ...]
    groups: tuple[int, ...]
    positions: tuple[int, ...]
    counted: tuple[bool, ...]

    @property
    def plain(self) -> bool:
        """Whether it is a text as any other: one group, positions in order."""
        return not any(self.groups) and self.positions == tuple(range(len(self.tokens)))


def chunks(pad: Scratchpad, example: Example) -> list[Row]:
    """The first method: a row for each segment that is not given, behind the memory and the segment before it.

    Raises ConfigError as ``Scratchpad``, and for a chunk longer than the context.
    """
    memory, segments = pad.memory(example), pad.segments(example)
    rows = []
    for number, segment in enumerate(segments[example.given :], example.given):
        before = segments[number - 1] if number else ()
        tokens = memory + before + segment
        pad.check_length(f"chunk {number + 1}", len(tokens) - 1)
        first = pad.question_loss and number == example.given
        counted = (first,) * len(memory) + (False,) * len(before) + (True,) * len(segment)
        rows.append(Row(tokens, (0,) * len(tokens), tuple(range(len(tokens))), counted))
    return rows


def duplicate_states(pad: Scratchpad, example: Example, without: Sequence[str] = ()) -> Row:
    """The second method: one row in which every segment but the last stands twice, a given one only as the last.

    ``without``: those of ``INGREDIENTS`` to leave out. Raises ConfigError as ``Scratchpad``, and for a row longer than
    the context.
    """
    for name in without:
        require(name in INGREDIENTS, f"without = {name!r}: must be one of {', '.join(INGREDIENTS)}")
    memory, segments = pad.memory(example), pad.segments(example)
    tokens, start = list(memory), len(memory)
    groups, positions = [0] * start, list(range(start))
    counted = [pad.question_loss] * start
    for number, segment in enumerate(segments[example.given :], example.given):
        again = segments[number - 1] if number else ()
        tokens += [*again, *segment]
        groups += [number + 1] * len(again + segment)
        positions += range(start, start + len(again + segment))
        counted += [False] * len(again) + [True] * len(segment)
    pad.check_length("the text with duplicated states", len(tokens) - 1)
    if "groups" in without:
        groups = [0] * len(tokens)
    if "positions" in without:
        positions = list(range(len(tokens)))
    if "targets" in without:
        counted = [old or group > 0 for old, group in zip(counted, duplicate_states(pad, example).groups, strict=True)]
    return Row(tuple(tokens), tuple(groups), tuple(positions), tuple(counted))


def ordinary(pad: Scratchpad, example: Example) -> Row:
    """The text as it is, every state seeing all before it: the ordinary scratchpad, or none without states."""
    memory = pad.memory(example)
    text = pad.text(example)
    pad.check_length("the text", len(text) - 1)
    unlearned = sum(len(segment) for segment in pad.segments(example)[: example.given])
    learned = len(text) - len(memory) - unlearned
    counted = (pad.question_loss,) * len(memory) + (False,) * unlearned + (True,) * learned
    return Row(text, (0,) * len(text), tuple(range(len(text))), counted)


def batch_of(rows: Sequence[Row], filler: int = 0, length: int | None = None) -> Batch:
    """Rows as one batch, filled up behind to ``length`` or the longest with ``filler`` tokens.

    A prediction is counted at the token before. The first token of a row is predicted by nothing. Filler sees itself
    alone. Rows without groups bring no mask and no positions: what an architecture hides is all that they hide.
    ConfigError for no rows, rows too long, or none with a prediction that counts.
    """
    require(len(rows) > 0, "no rows: a batch needs at least one")
    longest = max(len(row.tokens) for row in rows) - 1
    length = longest if length is None else length
    require(longest <= length, f"length = {length}: the longest row has {longest} tokens to read")

    def table(values: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*row, *[fill] * (length - len(row))] for row in values])

    wanted_BT = table([row.counted[1:] for row in rows], False)
    require(bool(wanted_BT.any()), "all labels are ignored: no token of these rows has a loss")
    inputs_BT, targets_BT = (table([r.tokens[part] for r in rows], filler) for part in (slice(-1), slice(1, None)))
    if all(row.plain for row in rows):
        return Batch(inputs_BT, targets_BT, wanted_BT)
    groups_BT = table([row.groups[:-1] for row in rows], -1)
    return Batch(
        inputs_BT,
        targets_BT,
        wanted_BT,
        positions_BT=table([row.positions[:-1] for row in rows], 0),
        mask_BTT=group_mask(groups_BT),
    )


def group_mask(groups_BT: Tensor) -> Tensor:
    """Boolean (B, T, T): a token (row) sees its own group and group 0. Filler, group -1, sees itself alone.

    What comes later is hidden by the architecture, not here.
    """
    same_BTT = groups_BT[:, :, None] == groups_BT[:, None]
    filler_BT = groups_BT < 0
    seen_BTT = (same_BTT | (groups_BT == 0)[:, None]) & ~filler_BT[:, :, None]
    return seen_BTT | torch.eye(groups_BT.shape[1], dtype=torch.bool, device=groups_BT.device)
