"""The frame shared by FLEQ's blocks (Definition 1), and the machine that runs them (Theorem 2).

    FLEQ(a, b, c, m, flag, p, d_h, d_w):  mem[c] = f_m(mem[a], mem[b]);  if mem[flag] <= 0 goto p

A matrix has a token per column. Tokens 0 to d - 1 hold A, the next d hold B, the next d hold C =
f(A, B), in d rows that only this block uses. Further tokens are free for the block, and the last
one, the rest token, holds 0 in every row that changes. These tokens are ``inside``: they are the
machine's scratchpad, on which all blocks work at once. Its memory, d tokens per matrix, and its
commands are ``outside``.

The supplied text ends before the proof of Theorem 2 (Appendix D); this construction is ours, a loop
of 9 + max l_i layers. Every scratchpad token holds the counter and reads the command, its column of
A or B, or writes its column of C:

    1 fetch the command   2 pointers of every token   3 read A and B   4 give them to block m
    5 … 4 + max l_i       the blocks
    then                  collect C from block m; write it; read the flag;
                          choose the next counter and clear; correct the counter

d_h and d_w are masks, a bit per row and column, for reading and writing. Data are real numbers of
less than ``BOUND``; only the counter is corrected.

Letters: B batch, S tokens of the scratchpad, T tokens, D width, I items, C commands, d size of
matrices, L pointer bits
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from entp_papers.looped import circuits
from entp_papers.looped.circuits import pointer_bits, to_bits, to_unsigned
from entp_papers.looped.layers import BOUND, LayerPlan, Pairs, Rows, Stack, Terms, paired, times

FAR = 200.0  # a score that is lower by this much is not seen: e^-200 vanishes in any sum
HEAT = 64.0  # λ of heads that choose; their scores differ by 1 at least
AWAY = FAR / HEAT  # such a score of theirs, before λ
ROLES = ("a", "b", "c")


class Frame:
    """The coordinates that all blocks share.

    ``tokens`` counts those inside: three matrices, or the d² of a transpose, and the rest token.
    ``constants`` has (token, coordinate) of what is always 1.
    """

    def __init__(self, d: int):
        self.d = d
        self.tokens = max(3 * d, d * d) + 1
        self.rows = Rows()
        (self.inside, self.outside, *roles, self.rest), self.slot = self.rows.take(6, d)
        self.role = dict(zip(ROLES, roles, strict=True))
        # the score that sends tokens outside to those inside, which hold no commands and no memory
        self.away = ({self.outside: AWAY}, self.inside)
        self.constants = [(t, self.inside) for t in range(self.tokens)]
        self.constants.append((self.tokens - 1, self.rest))
        for token, (role, slot) in enumerate(itertools.product(roles, self.slot)):
            self.constants += [(token, role), (token, slot)]

    def head(self, plan: LayerPlan, scores: Pairs, values: Pairs, heat: float = HEAT) -> None:
        """Add a head whose tokens inside do not see those outside, nor the other way round.

        The unseen scores are lowered, not the others raised: products need scores that are exact
        near 0.
        """
        apart = [
            ({self.inside: -FAR / heat}, self.outside),
            ({self.outside: -FAR / heat}, self.inside),
        ]
        plan.head(scores + apart, values, heat)

    def others_rest(self, reader: int) -> tuple[Terms, int]:
        """Return the score that sends tokens inside to the rest token, unless ``reader`` is 1."""
        return {self.inside: 4.0, reader: -4.0}, self.rest

    def read_columns(self, plan: LayerPlan, sources: Sequence[str], values: Pairs) -> None:
        """Let C's tokens attend to the same column in ``sources``; all others to the rest token."""
        c = self.role["c"]
        by_role = (c, {self.role[s]: 1.0 for s in sources})
        self.head(plan, [by_role, *paired(self.slot, self.slot), self.others_rest(c)], values)

    def clear_c(self, plan: LayerPlan, data: range) -> None:
        """Set C's tokens to 0."""
        for i in data:
            plan.add({i: -1.0}, i, [self.role["c"]])


@dataclass
class Block:
    """A function as Transformer layers within a frame.

    ``data`` are the rows of A, B and C, ``temporary`` those that must be 0 afterwards. ``exact`` is
    the function on matrices (..., d, d), for the interpreter and the tests. ``constants`` are as in
    ``Frame``.
    """

    data: range
    temporary: Sequence[int]
    plans: list[LayerPlan]
    exact: Callable[[Tensor, Tensor], Tensor]
    constants: list[tuple[int, int]] = field(default_factory=list)

    @property
    def heads(self) -> int:
        """Return how many heads the layer with most of them has."""
        return max(len(plan.heads) for plan in self.plans)


Maker = Callable[[Frame], Block]
Functions = dict[str, Maker]  # those of a machine, by name


class FleqShape(NamedTuple):
    """``d`` × ``d`` matrices, ``items`` of them in memory, ``commands`` commands."""

    d: int
    items: int
    commands: int

    @property
    def pointer(self) -> int:
        """Count the bits that tell items and commands apart; at least 2: scores differ by 2."""
        return max(2, pointer_bits(self.items + self.commands))


class FleqMachine(Stack):
    """The looped Transformer for a ``FleqShape`` and a set of functions, by name.

    Every layer has as many heads as its blocks together (Theorem 2), or ``one_head`` for all.
    """

    def __init__(self, shape: FleqShape, functions: Functions, one_head: bool = False):
        frame = Frame(shape.d)
        blocks = {name: maker(frame) for name, maker in functions.items()}
        # the parts of a command, and the rows of the machine after those of its blocks
        L = shape.pointer
        d = shape.d
        sizes = dict.fromkeys(("a", "b", "c", "flag", "goto"), L)
        sizes |= {"function": len(blocks), "height": d, "width": d}
        rows = frame.rows
        rows.add(position=L, memory=d, command=sum(sizes.values()))
        part = dict(zip(sizes, rows.take(*sizes.values()), strict=True))
        rows.add(counter=L, pointer=L, target=L, active=1)
        rows.add(operand=d, result=d, incoming=d, hit=1, number=1, flag=1, following=L)
        first = first_layers(frame, part, blocks.values())
        last = last_layers(frame, part, blocks.values())
        if one_head:
            for block, chosen in zip(blocks.values(), part["function"], strict=True):
                copies = gate_constants(frame, block, chosen, first[-1])
                last[-2].clear(copies.values())
        super().__init__([*first, *all_at_once(blocks, one_head), *last], rows.width)
        self.shape = shape
        self.frame = frame
        self.blocks = blocks
        self.tokens = frame.tokens + shape.items * d + shape.commands

    def encode(self, memory_BIdd: Tensor, commands_BCX: Tensor) -> Tensor:
        """Make the state (B, T, D) at the first command."""
        shape = self.shape
        rows = self.frame.rows
        d = shape.d
        S = self.frame.tokens
        L = shape.pointer
        start = S + shape.items * d
        x_BTD = torch.zeros(len(memory_BIdd), self.tokens, self.width, dtype=torch.float64)
        for part in (self.frame, *self.blocks.values()):
            for t, i in part.constants:
                x_BTD[:, t, i] = 1.0
        x_BTD[:, S:, self.frame.outside] = 1.0
        items = torch.arange(shape.items).repeat_interleave(d)
        ids = torch.cat([items, shape.items + torch.arange(shape.commands)])
        x_BTD[:, S:, rows["position"]] = to_bits(ids, L)
        x_BTD[:, S:start, self.frame.slot] = torch.eye(d).double().repeat(shape.items, 1)
        x_BTD[:, S:start, rows["memory"]] = memory_BIdd.mT.flatten(1, 2)
        pointers_BC5 = commands_BCX[..., :5] + torch.tensor([0, 0, 0, 0, shape.items])
        written = [
            to_bits(pointers_BC5, L).flatten(2),
            torch.nn.functional.one_hot(commands_BCX[..., 5], len(self.blocks)),
            (torch.arange(d) < commands_BCX[..., 6:, None]).flatten(2),  # height and width
        ]
        x_BTD[:, start:, rows["command"]] = torch.cat(written, -1)
        x_BTD[:, :S, rows["counter"]] = to_bits(torch.tensor(shape.items), L)
        return x_BTD

    def memory(self, x_BTD: Tensor) -> Tensor:
        """Read all items (B, I, d, d) from a state."""
        S = self.frame.tokens
        d = self.shape.d
        data = x_BTD[:, S : S + self.shape.items * d, self.frame.rows["memory"]]
        return data.unflatten(1, (-1, d)).mT

    def counters(self, x_BTD: Tensor) -> Tensor:
        """Read the command (B,) that each program is at, counted from 0."""
        return to_unsigned(x_BTD[:, 0, self.frame.rows["counter"]]) - self.shape.items


def gate_constants(frame: Frame, block: Block, chosen: int, give: LayerPlan) -> dict[int, int]:
    """Let a block read copies of its constants that are 0 unless the block is ``chosen``.

    If another block is chosen, all its queries, values and results are then 0, so that all blocks
    can share one head. Keys keep the constants: a query of 0 scores 0 with any key.
    """
    constants = sorted({row for _, row in (*frame.constants, *block.constants)})
    (rows,) = frame.rows.take(len(constants))
    copies = dict(zip(constants, rows, strict=True))

    def gated(terms: Terms) -> Terms:
        return {copies.get(row, row): weight for row, weight in times(terms).items()}

    for row, copy in copies.items():
        give.add(row, copy, [chosen], 1.0)
    for plan in block.plans:
        plan.units = [(gated(source), bias, target) for source, bias, target in plan.units]
        plan.heads = [
            (
                [(gated(query), key) for query, key in scores],
                [(gated(value), target) for value, target in values],
                temperature,
            )
            for scores, values, temperature in plan.heads
        ]
    return copies


def all_at_once(blocks: Mapping[str, Block], one_head: bool) -> list[LayerPlan]:
    """Lay the blocks beside each other, layer by layer; with ``one_head`` add up their scores."""
    plans = []
    for layer in itertools.zip_longest(*(block.plans for block in blocks.values())):
        parts = {name: part for name, part in zip(blocks, layer, strict=True) if part}
        plan = LayerPlan("; ".join(f"{name}: {part.purpose}" for name, part in parts.items()))
        plan.heads = [head for part in parts.values() for head in part.heads]
        plan.units = [unit for part in parts.values() for unit in part.units]
        if one_head:
            scores = [
                (times(query, temperature), key)
                for pairs, _, temperature in plan.heads
                for query, key in pairs
            ]
            values = [pair for _, pairs, _ in plan.heads for pair in pairs]
            plan.heads = [(scores, values, 1.0)] if scores else []
        plans.append(plan)
    return plans


def first_layers(
    frame: Frame, part: Mapping[str, range], blocks: Collection[Block]
) -> list[LayerPlan]:
    """Write the first four layers; ``part`` are the rows of the command."""
    rows = frame.rows
    (active,) = rows["active"]

    fetch = LayerPlan("fetch the command")
    match = [*paired(rows["counter"], rows["position"]), frame.away]
    fetch.head(match, paired(rows["command"], itertools.chain(*part.values())), HEAT)

    point = LayerPlan("pointers of every token")
    for role in ROLES:
        gate = frame.role[role]
        out = rows["target" if role == "c" else "pointer"]
        for bit, target in zip(part[role], out, strict=True):  # ±1 where the role is 1, else 0
            point.unit({bit: 1.0, gate: 1.0}, {target: 2.0}, -1.0)
            point.unit(gate, {target: -1.0})
    for bit, slot in zip(part["width"], frame.slot, strict=True):
        point.unit({bit: 1.0, slot: 1.0}, active, -1.0)

    read = LayerPlan("read A and B")
    readers = {frame.role["a"]: -AWAY, frame.role["b"]: -AWAY}
    idle = ({frame.inside: AWAY, frame.outside: AWAY, **readers}, frame.inside)
    match = [*paired(rows["pointer"], rows["position"]), *paired(frame.slot, frame.slot, 2.0), idle]
    read.head(match, paired(rows["memory"], rows["operand"]), HEAT)

    give = LayerPlan("give them to the chosen block")
    for block, chosen in zip(blocks, part["function"], strict=True):
        for x, y, tall in zip(rows["operand"], block.data, part["height"], strict=True):
            give.add(x, y, [chosen, tall, active])
    give.clear(rows["operand"])
    return [fetch, point, read, give]


def last_layers(
    frame: Frame, part: Mapping[str, range], blocks: Collection[Block]
) -> list[LayerPlan]:
    """Write the last five layers: collect, write, read the flag, choose the counter, correct."""
    rows = frame.rows
    c = frame.role["c"]
    (hit,) = rows["hit"]
    (active,) = rows["active"]
    (number,) = rows["number"]
    (flag,) = rows["flag"]

    collect = LayerPlan("collect C from the chosen block")
    for block, chosen in zip(blocks, part["function"], strict=True):
        for x, y, tall in zip(block.data, rows["result"], part["height"], strict=True):
            collect.add(x, y, [chosen, tall, active, c])

    write = LayerPlan("write it to memory")
    # A memory token sees itself, or the token of C that points to it, which scores 1 more and marks
    # a hit
    to_memory = [
        (q, {q: 1.0, t: 1.0}) for q, t in zip(rows["position"], rows["target"], strict=True)
    ]
    inner = ({frame.inside: AWAY}, frame.rest)
    match = [
        *to_memory,
        *paired(frame.slot, frame.slot, 2.0),
        (frame.outside, c),
        inner,
    ]
    write.head(match, [*paired(rows["result"], rows["incoming"]), (c, hit)], HEAT)
    for x, y in zip(rows["incoming"], rows["memory"], strict=True):
        write.add({x: 1.0, y: -1.0}, y, [hit], 2 * BOUND)
    write.clear([*rows["incoming"], hit])

    decide = LayerPlan("read the flag; the counter plus 1")
    first = ({frame.inside: 2.0}, frame.slot[0])
    match = [*paired(part["flag"], rows["position"]), first, frame.away]
    decide.head(match, [(rows["memory"][0], number)], HEAT)
    # 1 - relu(x) + relu(x - 1) of an integer x: whether it is at most 0 (eq. 3)
    decide.unit(frame.inside, flag)
    decide.unit(number, {flag: -1.0})
    decide.unit(number, flag, -1.0)
    circuits.add_words(
        decide, rows["following"], rows["counter"], None, frame.inside, constant=1, in_place=False
    )

    select = LayerPlan("choose the next counter; clear the scratchpad")
    circuits.branch(select, rows, part["goto"], frame.inside)
    select.clear(itertools.chain(*part.values()))
    for name in ("pointer", "target", "active", "number", "flag", "following", "result"):
        select.clear(rows[name])
    for block in blocks:
        select.clear([*block.data, *block.temporary])

    correct = LayerPlan("round the counter to ±1")
    circuits.correct_errors(correct, rows["counter"])
    return [collect, write, decide, select, correct]
