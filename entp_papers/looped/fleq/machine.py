"""The FLEQ machine (Theorem 2): function blocks within a loop of 9 + max l_i layers that runs any program.

    FLEQ(a, b, c, m, flag, p, d_h, d_w):  mem[c] = f_m(mem[a], mem[b]);  if mem[flag] <= 0 goto p

The supplied text ends before the proof (Appendix D); this construction is ours. The tokens are the scratchpad, on which
all blocks work at once, each in rows of its own; the memory, d tokens per matrix; and the commands. Every scratchpad
token holds the counter and reads the command, its column of A or B, or writes its column of C:

    1 fetch the command    2 pointers of every token   3 read A and B            4 give them to block m
    5 … 4 + max l_i  the blocks
    then: collect C from block m; write it; read the flag; choose the next counter and clear; correct the counter

d_h and d_w are masks, a bit per row and column, of what is read and of what is written. Data are real numbers of less
than ``BOUND``; only the counter is corrected.

Letters: B batch, T tokens, D width; d height and width of matrices, L pointer bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from entp_lib.validation import check_types, require
from entp_papers.looped.circuits import add_words, branch, correct_errors, flag_of_number
from entp_papers.looped.fleq.frame import BOUND, FAR, HEAT, Block, Frame, Maker, tokens_needed
from entp_papers.looped.layers import Stack, sparse
from entp_papers.looped.plan import LayerPlan
from entp_papers.looped.words import pointer_bits, to_bits, to_unsigned

POINTERS = ("a", "b", "c", "flag", "goto")


@dataclass(frozen=True)
class FleqShape:
    """``d`` × ``d`` matrices, ``items`` of them in memory, ``commands`` commands."""

    d: int
    items: int
    commands: int

    def __post_init__(self):
        check_types(self)
        for name in ("d", "items", "commands"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: must be at least 1")

    @property
    def pointer(self) -> int:
        """L: bits that tell all items and commands apart; at least 2, so that scores differ by 2."""
        return max(2, pointer_bits(self.items + self.commands))


class FleqMachine(Stack):
    """The looped Transformer for a ``FleqShape`` and a set of functions, by name."""

    def __init__(self, shape: FleqShape, functions: Mapping[str, Maker], dtype: torch.dtype = torch.float64):
        require(len(functions) > 0, "functions is empty: a machine needs at least one")
        frame = Frame(shape.d, tokens_needed(shape.d))
        blocks = [maker(frame, name) for name, maker in functions.items()]
        add_rows(frame, shape, len(blocks))
        plans = [*first_layers(frame, shape, blocks), *block_layers(blocks), *last_layers(frame, shape, blocks)]
        width = frame.rows.width
        super().__init__([plan.build(width, dtype) for plan in plans], width, frame.tokens)
        self.shape, self.frame, self.blocks, self.dtype = shape, frame, blocks, dtype
        self.functions = list(functions)

    @property
    def tokens(self) -> int:
        return self.frame.tokens + self.shape.items * self.shape.d + self.shape.commands

    def encode(self, memory_BIdd: Tensor, commands_BCX: Tensor) -> Tensor:
        """State (B, T, D) at the first command. A command is a, b, c, flag, goto, function, height, width, integers."""
        shape, rows, d, S = self.shape, self.frame.rows, self.shape.d, self.frame.tokens
        L, start = shape.pointer, S + shape.items * d
        x_BTD = torch.zeros(len(memory_BIdd), self.tokens, self.width, dtype=self.dtype)
        for t, i, value in self.frame.constants + [c for block in self.blocks for c in block.constants]:
            x_BTD[:, t, i] = value
        x_BTD[:, S:, self.frame.outside] = 1.0
        items = torch.arange(shape.items).repeat_interleave(d)
        ids = torch.cat([items, shape.items + torch.arange(shape.commands)])
        x_BTD[:, S:, rows.slice("position")] = to_bits(ids, L, self.dtype)
        x_BTD[:, S:start, rows.slice("slot")] = torch.eye(d, dtype=self.dtype).repeat(shape.items, 1)
        x_BTD[:, S:start, rows.slice("memory")] = memory_BIdd.transpose(2, 3).flatten(1, 2).to(self.dtype)
        pointers_BC5 = commands_BCX[..., :5] + torch.tensor([0, 0, 0, 0, shape.items])
        sizes = torch.arange(d)
        written = [
            to_bits(pointers_BC5, L, self.dtype).flatten(2),
            torch.nn.functional.one_hot(commands_BCX[..., 5], len(self.blocks)),
            sizes < commands_BCX[..., 6:7],
            sizes < commands_BCX[..., 7:8],
        ]
        x_BTD[:, start:, rows.slice("command")] = torch.cat([part.to(self.dtype) for part in written], -1)
        x_BTD[:, :S, rows.slice("counter")] = to_bits(torch.tensor(shape.items), L, self.dtype)
        return x_BTD

    def memory(self, x_BTD: Tensor) -> Tensor:
        """All items (B, items, d, d) of a state."""
        S, d = self.frame.tokens, self.shape.d
        data = x_BTD[:, S : S + self.shape.items * d, self.frame.rows.slice("memory")]
        return data.unflatten(1, (self.shape.items, d)).transpose(2, 3)

    def counters(self, x_BTD: Tensor) -> Tensor:
        """The command (B,) that each program is at, counted from 0."""
        return to_unsigned(x_BTD[:, 0, self.frame.rows.slice("counter")]) - self.shape.items

    def sparse(self) -> Stack:
        """The same pass, computed from the weights that are not zero."""
        return sparse(self)


def add_rows(frame: Frame, shape: FleqShape, functions: int) -> None:
    """The rows of the machine beside those of its blocks."""
    L, d = shape.pointer, shape.d
    command = len(POINTERS) * L + functions + 2 * d
    for name, size in (("position", L), ("memory", d), ("command", command), ("current", command), ("counter", L)):
        frame.rows.add(name, size)
    for name, size in (("pointer", L), ("target", L), ("active", 1), ("operand", d), ("result", d)):
        frame.rows.add(name, size)
    for name, size in (("incoming", d), ("hit", 1), ("number", 1), ("flag", 1), ("following", L)):
        frame.rows.add(name, size)


def fields(frame: Frame, shape: FleqShape, functions: int) -> dict[str, range]:
    """The parts of the command that is being executed."""
    L, d, start = shape.pointer, shape.d, frame.rows["current"].start
    sizes = [(name, L) for name in POINTERS] + [("function", functions), ("height", d), ("width", d)]
    found = {}
    for name, size in sizes:
        found[name] = range(start, start + size)
        start += size
    return found


def first_layers(frame: Frame, shape: FleqShape, blocks: list[Block]) -> list[LayerPlan]:
    """Fetch, pointers, read, give to the block."""
    rows, part = frame.rows, fields(frame, shape, len(blocks))
    fetch, point, read, give = (
        LayerPlan(says)
        for says in ("fetch the command", "pointers of every token", "read A and B", "give them to the chosen block")
    )
    # tokens outside see tokens inside, whose rows of commands and memory are 0
    away = ({frame.outside: FAR / HEAT}, {frame.inside: 1.0})
    by_counter = [({q: 1.0}, {k: 1.0}) for q, k in zip(rows["counter"], rows["position"], strict=True)]
    copy = [({x: 1.0}, {y: 1.0}) for x, y in zip(rows["command"], rows["current"], strict=True)]
    fetch.head([*by_counter, away], copy, HEAT)

    for role in ("a", "b", "c"):
        gate, out = frame.role[role], rows["target" if role == "c" else "pointer"]
        for bit, target in zip(part[role], out, strict=True):  # ±1 where the role is 1, else 0
            point.unit({bit: 1.0, gate: 1.0}, {target: 2.0}, -1.0)
            point.unit({gate: 1.0}, {target: -1.0})
    for bit, slot in zip(part["width"], frame.slot, strict=True):
        point.unit({bit: 1.0, slot: 1.0}, {rows["active"][0]: 1.0}, -1.0)

    readers = {frame.role["a"]: -FAR / HEAT, frame.role["b"]: -FAR / HEAT}
    idle = ({frame.inside: FAR / HEAT, frame.outside: FAR / HEAT, **readers}, {frame.inside: 1.0})
    by_pointer = [({q: 1.0}, {k: 1.0}) for q, k in zip(rows["pointer"], rows["position"], strict=True)]
    by_slot = [({i: 2.0}, {i: 1.0}) for i in frame.slot]
    operand = [({x: 1.0}, {y: 1.0}) for x, y in zip(rows["memory"], rows["operand"], strict=True)]
    read.head([*by_pointer, *by_slot, idle], operand, HEAT)

    for block, chosen in zip(blocks, part["function"], strict=True):
        for x, y, tall in zip(rows["operand"], block.data, part["height"], strict=True):
            give.add_where({x: 1.0}, {y: 1.0}, [chosen, tall, rows["active"][0]], BOUND)
    give.clear(rows["operand"])
    return [fetch, point, read, give]


def block_layers(blocks: list[Block]) -> list[LayerPlan]:
    """All blocks at once, layer by layer."""
    plans = []
    for i in range(max(block.layers for block in blocks)):
        parts = [block.plans[i] for block in blocks if i < block.layers]
        plan = LayerPlan("; ".join(p.says for p in parts))
        for p in parts:
            plan.take(p)
        plans.append(plan)
    return plans


def last_layers(frame: Frame, shape: FleqShape, blocks: list[Block]) -> list[LayerPlan]:
    """Collect, write, flag, select, correct."""
    rows, part = frame.rows, fields(frame, shape, len(blocks))
    collect, write, decide, select, correct = (
        LayerPlan(says)
        for says in (
            "collect C from the chosen block",
            "write it to memory",
            "read the flag; the counter plus 1",
            "choose the next counter; clear the scratchpad",
            "round the counter to ±1",
        )
    )
    c, hit, (active,) = frame.role["c"], rows["hit"][0], rows["active"]
    for block, chosen in zip(blocks, part["function"], strict=True):
        for x, y, tall in zip(block.data, rows["result"], part["height"], strict=True):
            collect.add_where({x: 1.0}, {y: 1.0}, [chosen, tall, active, c], BOUND)

    # A memory token sees itself, or the token of C that points to it, which scores 1 more and marks a hit
    to_memory = [({q: 1.0}, {q: 1.0, t: 1.0}) for q, t in zip(rows["position"], rows["target"], strict=True)]
    by_slot = [({i: 2.0}, {i: 1.0}) for i in frame.slot]
    inner = ({frame.inside: FAR / HEAT}, {frame.rest: 1.0})
    values = [({x: 1.0}, {y: 1.0}) for x, y in zip(rows["result"], rows["incoming"], strict=True)]
    write.head([*to_memory, *by_slot, ({frame.outside: 1.0}, {c: 1.0}), inner], [*values, ({c: 1.0}, {hit: 1.0})], HEAT)
    for x, y in zip(rows["incoming"], rows["memory"], strict=True):
        write.add_where({x: 1.0, y: -1.0}, {y: 1.0}, [hit], 2 * BOUND)
    write.clear([*rows["incoming"], hit])

    (number,), (flag,) = rows["number"], rows["flag"]
    by_flag = [({q: 1.0}, {k: 1.0}) for q, k in zip(part["flag"], rows["position"], strict=True)]
    first = ({frame.inside: 2.0}, {frame.slot[0]: 1.0})
    away = ({frame.outside: FAR / HEAT}, {frame.inside: 1.0})
    decide.head([*by_flag, first, away], [({rows["memory"][0]: 1.0}, {number: 1.0})], HEAT)
    flag_of_number(decide, flag, number, frame.inside)
    add_words(decide, rows["following"], rows["counter"], None, frame.inside, constant=1, in_place=False)

    branch(select, rows["counter"], rows["following"], part["goto"], flag, frame.inside)
    for name in ("current", "pointer", "target", "active", "number", "flag", "following", "result"):
        select.clear(rows[name])
    for block in blocks:
        for used in (block.data, *block.temporary):
            select.clear(used)
    correct_errors(correct, rows["counter"])
    return [collect, write, decide, select, correct]
