"""A SUBLEQ program: word width, initial memory, commands, and the names its author gave to cells and lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.subleq import Shape, SubleqMachine
from entp_papers.looped.words import check_word

ZERO, MINUS_ONE = 0, 1  # cells that hold 0 and -1 in every program, for the command that halts


@dataclass(frozen=True)
class Program:
    """``code`` has (a, b, c) by line, cells and lines counted from 0; its last command halts: (0, 1, itself).

    Cells 0 and 1 hold 0 and -1 and must not be written to with anything else; the assembler sees to both.
    Raises ConfigError where a cell or a line does not exist, a word is too wide, or the program cannot halt.
    """

    bits: int
    memory: tuple[int, ...]
    code: tuple[tuple[int, int, int], ...]
    cells: Mapping[str, int] = field(default_factory=dict, compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        shape = self.shape
        for i, value in enumerate(self.memory):
            check_word(f"cell {i}", value, self.bits)
        require(self.memory[:2] == (0, -1), f"cells 0 and 1 hold {self.memory[:2]}: must be 0 and -1, to halt")
        for i, (a, b, c) in enumerate(self.code):
            for cell in (a, b):
                require(
                    0 <= cell < shape.cells, f"line {i}: cell {cell} is out of range, cells are 0 to {shape.cells - 1}"
                )
            require(0 <= c < shape.commands, f"line {i}: line {c} is out of range, lines are 0 to {shape.commands - 1}")
            harmless = (a, b) in ((ZERO, ZERO), (ZERO, MINUS_ONE))
            require(b > 1 or harmless, f"line {i}: writes to cell {b}, which must stay {self.memory[b]}")
        halt = (ZERO, MINUS_ONE, self.last)
        require(self.code[-1] == halt, f"the last command is {self.code[-1]}: must be {halt}, which halts")

    @property
    def shape(self) -> Shape:
        return Shape(self.bits, len(self.memory), len(self.code))

    @property
    def last(self) -> int:
        """The line that halts."""
        return len(self.code) - 1

    def cell(self, name: str | int) -> int:
        """The place of a named cell; a number stands for itself."""
        if isinstance(name, int):
            return name
        require(name in self.cells, f"cell {name!r} does not exist; there are {', '.join(self.cells) or 'no names'}")
        return self.cells[name]

    def with_values(self, **values: int) -> "Program":
        """The same program with other initial values of named cells."""
        memory = list(self.memory)
        for name, value in values.items():
            memory[self.cell(name)] = value
        return Program(self.bits, tuple(memory), self.code, self.cells, self.lines)

    def padded(self, shape: Shape) -> "Program":
        """The same program for a machine of a larger shape: cells of 0, and commands that halt and are never reached.

        Raises ConfigError where it does not fit.
        """
        own = self.shape
        for name in ("cells", "commands"):
            have, room = getattr(own, name), getattr(shape, name)
            require(have <= room, f"{name} = {room}: the program has {have}")
        require(own.bits == shape.bits, f"bits = {shape.bits}: the program's words have {own.bits}")
        memory = self.memory + (0,) * (shape.cells - own.cells)
        more = shape.commands - own.commands
        code = tuple((a, b, c + more if c == self.last else c) for a, b, c in self.code)
        halt = (ZERO, MINUS_ONE, shape.commands - 1)
        return Program(self.bits, memory, code[:-1] + (halt,) * (more + 1), self.cells, self.lines)


def states(machine: SubleqMachine, programs: list[Program]) -> Tensor:
    """The state (B, T, D) of programs that stand at their first line, padded to the machine's shape."""
    programs = [p.padded(machine.shape) for p in programs]
    words_BC = torch.tensor([p.memory for p in programs])
    commands_BI3 = torch.tensor([p.code for p in programs])
    return machine.encode(words_BC, commands_BI3, torch.zeros(len(programs), dtype=torch.long))
