"""An assembler for SUBLEQ with cells, numbers and labels.

    # multiply by repeated addition
    bits 16
    cell x = 7
    cell y = 9
    cell product
    cell minus_x
    cell list[3] = 5 1 4        # list[0] to list[2]

        subleq x minus_x
    loop:
        subleq minus_x product  # product -= -x
        subleq #1 y done        # y -= 1, and to done if it is at most 0; #1 is a cell that holds 1
        goto loop
    done:
        halt

``subleq a b c`` is mem[b] -= mem[a], then a jump to c if mem[b] <= 0. ``next``, the default for c,
is the next line. ``goto c``, ``halt`` and ``clear a`` are one command each. The cells ZERO and
MINUS_ONE exist in every program, and so does a last command that halts. Everything after # and a
space is a comment.
"""

import re

from entp_lib.validation import ConfigError, one_of, require
from entp_papers.looped.circuits import MOST_BITS
from entp_papers.looped.subleq import MINUS_ONE, ZERO, Program

LABEL = re.compile(r"([A-Za-z_]\w*)\s*:\s*")
CELL = re.compile(r"cell\s+([A-Za-z_]\w*)(?:\[(\w+)\])?(?:\s*=\s*(.+))?")
BITS = re.compile(r"bits\s+(\S+)")
OPERANDS = {"subleq": (2, 3), "goto": (1,), "halt": (0,), "clear": (1,)}
DECLARATIONS = ("cell", "bits")


def assemble(text: str) -> Program:
    """Assemble a program. ConfigError names the line and what would be right."""
    assembler = Assembler()
    try:
        for assembler.line, line in enumerate(text.splitlines(), 1):
            statement = re.sub(r"(^|\s)#(\s.*)?$", "", line.rstrip()).strip()
            if re.match(r"(cell|bits)(\s|$)", statement):
                assembler.declare(statement)
            else:
                assembler.command(statement)
        return assembler.link()
    except ConfigError as error:
        raise ConfigError(f"line {assembler.line}: {error}") from None


def number(text: str) -> int:
    """Parse a whole number, in decimal or as 0x and so on."""
    try:
        return int(text, 0)
    except ValueError:
        raise ConfigError(f"{text!r} is no number") from None


class Assembler:
    """Cells, labels and commands read so far; ``line`` is the one that is being read."""

    def __init__(self):
        self.line = 0
        self.bits = 16
        self.memory = [0, -1]
        self.cells = {"ZERO": ZERO, "MINUS_ONE": MINUS_ONE}
        self.labels: dict[str, int] = {}
        self.code: list[tuple[int, str, str, str]] = []  # line, a, b and c as written

    def declare(self, text: str) -> None:
        """Read a declaration: ``bits`` or ``cell``."""
        if match := CELL.fullmatch(text):
            name, size, values = match.groups()
            count = number(size) if size else 1
            initial = [number(v) for v in re.split(r"[\s,]+", values)] if values else []
            require(count >= 1, f"{name}[{count}]: must have at least one cell")
            require(
                len(initial) in (0, count),
                f"{name} has {count} cells and {len(initial)} values: give all of them or none",
            )
            for i, value in enumerate(initial or [0] * count):
                cell = f"{name}[{i}]" if size else name
                require(cell not in self.cells, f"{cell!r} exists already")
                self.new_cell(cell, value)
        elif match := BITS.fullmatch(text):
            self.bits = number(match[1])
            require(2 <= self.bits <= MOST_BITS, f"bits {self.bits}: must be from 2 to {MOST_BITS}")
            require(len(self.memory) == 2, "bits must come before the first cell")
        else:
            raise ConfigError(f"{text!r} is not understood: cell name = value, or bits N")

    def new_cell(self, name: str, value: int) -> None:
        """Add a cell with its initial value."""
        half = 1 << (self.bits - 1)
        require(
            -half <= value < half,
            f"{name} = {value}: does not fit into a word of {self.bits} bits, "
            f"which holds {-half} to {half - 1}",
        )
        self.cells[name] = len(self.memory)
        self.memory.append(value)

    def command(self, text: str) -> None:
        """Read labels, and the command after them."""
        while match := LABEL.match(text):
            label = match[1]
            require(
                label not in ("next", "halt"), f"label {label!r}: that name is a target of its own"
            )
            require(label not in self.labels, f"label {label!r} exists already")
            self.labels[label] = len(self.code)
            text = text[match.end() :]
        if not text:
            return
        word, *operands = text.split()
        require(
            word not in DECLARATIONS, f"{word!r} behind a label: labels stand before commands alone"
        )
        one_of("command", word, (*OPERANDS, *DECLARATIONS))
        if len(operands) not in OPERANDS[word]:
            takes = " or ".join(map(str, OPERANDS[word]))
            raise ConfigError(f"{word} takes {takes} operands, {len(operands)} are given")
        if word == "subleq":
            a, b, c = (*operands, "next")[:3]
        elif word == "clear":
            a, b, c = operands[0], operands[0], "next"
        else:  # goto, halt
            a, b, c = "ZERO", "MINUS_ONE", (*operands, "halt")[0]
        self.code.append((self.line, a, b, c))

    def link(self) -> Program:
        """Replace names by places and append the command that halts."""
        last = len(self.code)
        code = []
        for i, (line, a, b, c) in enumerate(self.code):
            self.line = line
            require(
                not b.startswith("#"), f"{b} is a constant and cannot be written to: name a cell"
            )
            targets = self.labels | {"next": i + 1, "halt": last}
            one_of("label", c, targets)
            read = self.cell(a)
            changed = self.cell(b)
            require(
                changed > MINUS_ONE or read == ZERO,
                f"{b} must keep its value: name another cell to write to",
            )
            code.append((read, changed, targets[c]))
        return Program(self.bits, tuple(self.memory), (*code, (ZERO, MINUS_ONE, last)), self.cells)

    def cell(self, name: str) -> int:
        """Find a cell by name, list[number] or #number; a constant gets its cell on first use."""
        if name.startswith("#"):
            value = number(name[1:])
            if f"#{value}" not in self.cells:
                self.new_cell(f"#{value}", value)
            return self.cells[f"#{value}"]
        if match := re.fullmatch(r"(\w+)\[(\w+)\]", name):
            name = f"{match[1]}[{number(match[2])}]"
            size = sum(c.startswith(f"{match[1]}[") for c in self.cells)
            require(
                name in self.cells or not size,
                f"{name} is out of range, {match[1]} has {size} cells, 0 to {size - 1}",
            )
        one_of("cell", name, self.cells)
        return self.cells[name]
