"""The SUBLEQ machine (Lemma 4): nine layers and two heads, one instruction per pass.

    SUBLEQ(a, b, c):  mem[b] = mem[b] - mem[a];  if mem[b] <= 0 goto c, else to the next instruction

The tokens are one scratchpad token, the memory, a word each, and the commands. Nothing but 0 and ±1
is in the state between passes, bits as in ``circuits``. The last command points to itself: halting
is a fixed point of the pass.

The paper's steps add up to more or fewer than nine layers, depending on how they are read; this
schedule has nine:

    1 fetch the command      4 add 1             7 flag, and counter + 1
    2 read mem[a], mem[b]    5 add to mem[b]     8 choose the next counter
    3 flip bits of mem[a]    6 write it back     9 correct errors

Letters: B batch, T tokens, D width; L pointer bits, N word bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from entp_lib.validation import one_of
from entp_papers.looped import circuits
from entp_papers.looped.circuits import pointer_bits, to_bits, to_signed, to_unsigned
from entp_papers.looped.layers import LayerPlan, Rows, Stack

ZERO = 0
MINUS_ONE = 1  # cells that hold 0 and -1 in every program, for the command that halts


class Shape(NamedTuple):
    """Bits of a word, memory cells and commands: all that a machine's weights depend on.

    There are at least two bits, and the halting command with its two cells.
    """

    bits: int
    cells: int
    commands: int

    @classmethod
    def of_tokens(cls, bits: int, tokens: int) -> "Shape":
        """Return the shape with this many tokens, half of them memory and half commands."""
        cells = (tokens - 1) // 2
        return cls(bits, cells, tokens - 1 - cells)

    @property
    def tokens(self) -> int:
        return 1 + self.cells + self.commands

    @property
    def pointer(self) -> int:
        """Count the bits of a pointer, L."""
        return pointer_bits(self.tokens)


def largest_error(bits: int) -> float:
    """Return the ε that a machine with words of ``bits`` bits tolerates: 2^-(bits + 3).

    Scores differ by 2 at least, so the weight off the target is at most n exp(-2λ) = ε² / n⁵. The
    adders read a word as a number and then its bits again: layers 4 and 5 each multiply the error
    of a bit by up to 2^bits. The final error must stay below what error correction tolerates. The
    paper does not say that ε, and with it λ, depends on the word.
    """
    return 2.0 ** -(bits + 3)


def plan_layers(
    L: int, rows: Rows, heat: float, printed: str = "", corrected: bool = True
) -> list[LayerPlan]:
    """Write the nine layers. Without ``corrected`` the ninth does nothing."""
    (bit,) = rows["scratchpad"]
    p_a, p_b, p_c = (rows["current"][k * L : (k + 1) * L] for k in range(3))

    fetch = LayerPlan("fetch the command that the counter points to")
    circuits.copy_pointed(fetch, rows, rows["counter"], "command", "current", "new_command", heat)

    read = LayerPlan("read mem[a] and mem[b], a head each")
    circuits.copy_pointed(read, rows, p_a, "word", "copy_a", "new_a", heat)
    circuits.copy_pointed(read, rows, p_b, "word", "copy_b", "new_b", heat)

    flip = LayerPlan("flip the bits of mem[a]")
    flip.scale(rows["copy_a"], -1.0)
    increment = LayerPlan("add 1, which makes it -mem[a]")
    circuits.add_words(increment, rows["copy_a"], rows["copy_a"], None, bit, constant=1)
    add = LayerPlan("add it to mem[b]")
    circuits.add_words(add, rows["copy_b"], rows["copy_b"], rows["copy_a"], bit)

    write = LayerPlan("write the difference back to mem[b]")
    circuits.copy_pointed(
        write,
        rows,
        p_b,
        "word",
        "copy_b",
        "new_b",
        heat,
        to_memory=True,
        printed=printed == "write",
    )

    decide = LayerPlan("flag whether it is at most 0; the counter plus 1")
    circuits.flag_of_word(decide, rows["flag"][0], rows["copy_b"])
    circuits.add_words(
        decide, rows["following"], rows["counter"], None, bit, constant=1, in_place=False
    )

    select = LayerPlan("choose the next counter by the flag; clear the scratchpad")
    circuits.branch(select, rows, p_c, bit, printed=printed == "branch")
    for name in ("current", "copy_a", "copy_b", "flag", "following"):
        select.clear(rows[name])

    correct = LayerPlan("round every coordinate to -1, 0 or 1")
    if corrected:
        circuits.correct_errors(correct, [i for i in range(rows.width) if i != bit])
    return [fetch, read, flip, increment, add, write, decide, select, correct]


class SubleqMachine(Stack):
    """The looped Transformer for one ``Shape``; the same weights run every program of that shape.

    ``heat`` is λ, by default the paper's bound at the ε that its words bear. ``printed``: which of
    the formulas "write" and "branch" is built as the paper prints it. ``encode`` makes a state of
    programs, a call is one pass, ``words`` and ``counters`` read a state.
    """

    def __init__(
        self,
        shape: Shape,
        dtype: torch.dtype = torch.float64,
        heat: float | None = None,
        printed: str = "",
        corrected: bool = True,
    ):
        L = shape.pointer
        N = shape.bits
        # the paper's 8 L + 3 N + 1 rows of equation (5)
        rows = Rows(
            command=3 * L,
            word=N,
            copy_a=N,
            copy_b=N,
            current=3 * L,
            counter=L,
            position=L,
            scratchpad=1,
            # what its lemmas need as well
            new_command=3 * L,
            new_a=N,
            new_b=N,
            flag=1,
            following=L,
        )
        if heat is None:
            heat = circuits.temperature(shape.tokens, largest_error(N))
        super().__init__(plan_layers(L, rows, heat, printed, corrected), rows.width, dtype)
        self.shape = shape
        self.rows = rows

    def encode(self, words_BC: Tensor, commands_BI3: Tensor, counters_B: Tensor) -> Tensor:
        """Make the state (B, T, D) of words, commands (a, b, c) and counters; all count from 0."""
        shape = self.shape
        rows = self.rows
        L = shape.pointer
        first = 1 + shape.cells
        x_BTD = torch.zeros(len(words_BC), shape.tokens, rows.width, dtype=torch.float64)
        x_BTD[:, 1:first, rows["word"]] = to_bits(words_BC, shape.bits)
        tokens_BI3 = commands_BI3 + torch.tensor([1, 1, first])
        x_BTD[:, first:, rows["command"]] = to_bits(tokens_BI3, L).flatten(2)
        x_BTD[:, 0, rows["counter"]] = to_bits(counters_B + first, L)
        x_BTD[:, 1:, rows["position"]] = to_bits(torch.arange(1, shape.tokens), L)
        x_BTD[:, 0, rows["scratchpad"]] = 1.0
        return x_BTD.to(self.dtype)

    def words(self, x_BTD: Tensor) -> Tensor:
        """Read the memory (B, cells) from a state."""
        return to_signed(x_BTD[:, 1 : 1 + self.shape.cells, self.rows["word"]])

    def counters(self, x_BTD: Tensor) -> Tensor:
        """Read the line (B,) that each program of a state is at."""
        return to_unsigned(x_BTD[:, 0, self.rows["counter"]]) - 1 - self.shape.cells


@dataclass(frozen=True)
class Program:
    """Initial memory, and (a, b, c) by line, counted from 0; the last command halts.

    Cells 0 and 1 must keep their values 0 and -1; the assembler ensures that. ``cells`` are the
    places of named cells.
    """

    bits: int
    memory: tuple[int, ...]
    code: tuple[tuple[int, int, int], ...]
    cells: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def shape(self) -> Shape:
        return Shape(self.bits, len(self.memory), len(self.code))

    @property
    def last(self) -> int:
        """Return the line that halts."""
        return len(self.code) - 1

    def cell(self, name: str) -> int:
        """Return the place of a named cell."""
        one_of("cell", name, self.cells)
        return self.cells[name]

    def padded(self, shape: Shape) -> "Program":
        """Fit the program to a larger machine with cells of 0 and commands that halt."""
        missing = shape.commands - len(self.code)
        memory = self.memory + (0,) * (shape.cells - len(self.memory))
        code = tuple((a, b, c + missing if c == self.last else c) for a, b, c in self.code)
        halt = (ZERO, MINUS_ONE, shape.commands - 1)
        return Program(self.bits, memory, code[:-1] + (halt,) * (missing + 1), self.cells)


def states(machine: SubleqMachine, programs: list[Program]) -> Tensor:
    """Encode programs at their first line as (B, T, D), padded to the machine's shape."""
    programs = [p.padded(machine.shape) for p in programs]
    words_BC = torch.tensor([p.memory for p in programs])
    commands_BI3 = torch.tensor([p.code for p in programs])
    return machine.encode(words_BC, commands_BI3, torch.zeros(len(programs), dtype=torch.long))
