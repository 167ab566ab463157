"""An assembler for SUBLEQ with cells, constants, labels and macros.

    # multiply by repeated addition
    bits 16
    cell x = 7
    cell y = 9
    cell product
    cell list[3] = 5 1 4        # list[0] to list[2]
    const LIMIT = 10            # a number by name; #LIMIT and #10 are cells that hold it

    macro add from to           # to += from; labels that start with @ belong to one use of the macro
        clear negative
        subleq from negative next
        subleq negative to next
    end

    loop:
        add x product
        subleq #1 y done        # y -= 1, and to done if it is at most 0
        goto loop
    done:
        halt

``subleq a b c`` is mem[b] -= mem[a], then to c if mem[b] <= 0; ``next`` is the line after it, and what c is if it is
left out. ``goto c``, ``halt`` and ``clear a`` are one command each. The cells ZERO and MINUS_ONE exist in every
program, and so does a last command that halts. Everything after # and a space is a comment.
"""

import difflib
import re
from collections.abc import Iterable

from entp_lib.validation import ConfigError, require
from entp_papers.looped.circuits import MOST_BITS, check_word
from entp_papers.looped.subleq import MINUS_ONE, ZERO, Program

DEEPEST = 20  # macros within macros
NAME = re.compile(r"@?[A-Za-z_]\w*")
CELL = re.compile(r"cell\s+([A-Za-z_]\w*)(?:\[(\w+)\])?(?:\s*=\s*(.+))?")
CONST = re.compile(r"const\s+([A-Za-z_]\w*)\s*=\s*(\S+)")
BITS = re.compile(r"bits\s+(\S+)")
OPERANDS = {"subleq": (2, 3), "goto": (1,), "halt": (0,), "clear": (1,)}


class AssemblyError(ConfigError):
    """A text that is no program; the message starts with the line it is about."""


def assemble(text: str) -> Program:
    """The program that ``text`` describes. Raises AssemblyError, which names the line and what would be right."""
    assembler = Assembler()
    try:
        return assembler.program(text)
    except ConfigError as error:
        raise AssemblyError(f"line {assembler.line}: {error}") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean …?' where a known name is near."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


class Assembler:
    """Cells, constants, macros, labels and commands read so far; ``line`` is the one that is being read."""

    def __init__(self):
        self.line, self.bits, self.memory = 0, 16, [0, -1]
        self.cells = {"ZERO": ZERO, "MINUS_ONE": MINUS_ONE}
        self.constants: dict[str, int] = {}
        self.macros: dict[str, tuple[list[str], list[tuple[int, str]]]] = {}  # parameters, numbered lines
        self.labels: dict[str, int] = {}
        self.code: list[tuple[int, str, str, str]] = []  # line, a, b and c as written
        self.uses = 0  # of macros

    def program(self, text: str) -> Program:
        """Declarations and macros first, then the statements, then places for names."""
        macro, statements = "", []
        for number, line in enumerate(text.splitlines(), 1):
            line = re.sub(r"(^|\s)#(\s.*)?$", "", line.rstrip()).strip()
            word, *names = line.split() or [""]
            if macro and word == "end":
                macro = ""
            elif macro and word:
                self.macros[macro][1].append((number, line))
            elif word == "macro":
                self.line, macro = number, names[0] if names else ""
                right = bool(names) and all(NAME.fullmatch(n) for n in names)
                require(right, f"{line!r} is not understood: macro name parameter parameter …")
                require(macro not in (*OPERANDS, *self.macros), f"{macro!r} exists already")
                self.macros[macro] = (names[1:], [])
            elif word in ("cell", "const", "bits"):
                self.line = number
                self.declare(line)
            elif word:
                statements.append((number, line))
        require(not macro, f"macro {macro!r} has no end")
        for self.line, line in statements:
            self.read(line, {}, 0)
        return self.link()

    def number(self, text: str) -> int:
        """A number or a constant's name."""
        if text in self.constants:
            return self.constants[text]
        try:
            return int(text, 0)
        except ValueError:
            hint = did_you_mean(text, self.constants)
            raise ConfigError(f"{text!r} is neither a number nor a constant{hint}") from None

    def declare(self, text: str) -> None:
        """``bits``, ``cell`` and ``const``."""
        if match := CONST.fullmatch(text):
            require(match[1] not in (*self.cells, *self.constants), f"{match[1]!r} exists already")
            self.constants[match[1]] = self.number(match[2])
        elif match := CELL.fullmatch(text):
            name, size, values = match.groups()
            count = self.number(size) if size else 1
            given = [self.number(v) for v in re.split(r"[\s,]+", values)] if values else []
            right = count >= 1 and len(given) in (0, count)
            require(right, f"{name} has {count} cells and {len(given)} values: give all of them or none")
            for i, value in enumerate(given or [0] * count):
                cell = f"{name}[{i}]" if size else name
                require(cell not in (*self.cells, *self.constants), f"{cell!r} exists already")
                self.new_cell(cell, value)
        elif match := BITS.fullmatch(text):
            self.bits = self.number(match[1])
            require(2 <= self.bits <= MOST_BITS, f"bits {self.bits}: must be from 2 to {MOST_BITS}")
            require(len(self.memory) == 2, "bits must come before the first cell")
        else:
            raise ConfigError(f"{text!r} is not understood: cell name = value, const NAME = number, or bits N")

    def new_cell(self, name: str, value: int) -> int:
        """The place of one cell more, with its initial value."""
        check_word(name, value, self.bits)
        self.cells[name] = len(self.memory)
        self.memory.append(value)
        return self.cells[name]

    def read(self, text: str, given: dict[str, str], depth: int) -> None:
        """Labels, commands and uses of macros; ``given`` replaces a macro's parameters and local labels."""
        while match := re.match(r"(@?[A-Za-z_]\w*)\s*:\s*", text):
            label = given.get(match[1], match[1])
            require(label not in self.labels, f"label {label!r} exists already")
            self.labels[label] = len(self.code)
            text = text[match.end() :]
        if not text:
            return
        word, *operands = text.split()
        operands = [given.get(o, o) for o in operands]
        known = (*OPERANDS, *self.macros)
        hint = did_you_mean(word, (*known, "cell", "const", "bits", "macro"))
        require(word in known, f"unknown command {word!r}{hint}")
        takes = OPERANDS[word] if word in OPERANDS else (len(self.macros[word][0]),)
        said = f"{word} takes {' or '.join(map(str, takes))} operands, {len(operands)} are given"
        require(len(operands) in takes, said)
        if word == "subleq":
            a, b, c = (*operands, "next")[:3]
            self.code.append((self.line, a, b, c))
        elif word == "clear":
            self.code.append((self.line, operands[0], operands[0], "next"))
        elif word in OPERANDS:  # goto, halt
            self.code.append((self.line, "ZERO", "MINUS_ONE", operands[0] if operands else "halt"))
        else:
            require(depth < DEEPEST, f"macro {word!r} uses macros more than {DEEPEST} deep: does it use itself?")
            self.uses += 1
            parameters, body = self.macros[word]
            inner = dict(zip(parameters, operands, strict=True))
            for label in re.findall(r"@\w+", "\n".join(line for _, line in body)):
                inner.setdefault(label, f"{label[1:]}__{self.uses}")
            for self.line, line in body:
                self.read(line, inner, depth + 1)

    def link(self) -> Program:
        """Names become places; the command that halts is appended."""
        last, code = len(self.code), []
        for i, (line, a, b, c) in enumerate(self.code):
            self.line = line
            require(not b.startswith("#"), f"{b} is a constant and cannot be written to: name a cell")
            target = {"next": i + 1, "halt": last}.get(c, self.labels.get(c))
            require(target is not None, f"unknown label {c!r}{did_you_mean(c, self.labels)}")
            read, changed = self.cell(a), self.cell(b)
            harmless = read == ZERO and changed <= MINUS_ONE
            require(changed > MINUS_ONE or harmless, f"{b} must keep its value: name another cell to write to")
            code.append((read, changed, target))
        return Program(self.bits, tuple(self.memory), (*code, (ZERO, MINUS_ONE, last)), self.cells)

    def cell(self, name: str) -> int:
        """A cell by name, list[index] with a constant index, or #number, for which a cell is made on first use."""
        if name.startswith("#"):
            value = self.number(name[1:])
            return self.cells[f"#{value}"] if f"#{value}" in self.cells else self.new_cell(f"#{value}", value)
        if match := re.fullmatch(r"(\w+)\[(\w+)\]", name):
            name = f"{match[1]}[{self.number(match[2])}]"
            size = sum(c.startswith(f"{match[1]}[") for c in self.cells)
            inside = name in self.cells or not size
            require(inside, f"{name} is out of range, {match[1]} has {size} cells, 0 to {size - 1}")
        require(name in self.cells, f"unknown cell {name!r}{did_you_mean(name, self.cells)}")
        return self.cells[name]
