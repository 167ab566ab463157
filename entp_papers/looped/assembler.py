"""An assembler for SUBLEQ with cells, constants, labels and macros, and a disassembler.

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
from dataclasses import dataclass, field

from entp_lib.validation import ConfigError
from entp_papers.looped.program import MINUS_ONE, ZERO, Program
from entp_papers.looped.words import MOST_BITS, check_word

DEEPEST = 20  # macros within macros
NAME = re.compile(r"@?[A-Za-z_]\w*")
CELL = re.compile(r"cell\s+([A-Za-z_]\w*)(?:\[(\w+)\])?(?:\s*=\s*(.+))?")
CONST = re.compile(r"const\s+([A-Za-z_]\w*)\s*=\s*(\S+)")
WORDS = ("subleq", "goto", "halt", "clear")


class AssemblyError(ConfigError):
    """A text that is no program; the message starts with the line it is about."""


@dataclass
class Macro:
    parameters: list[str]
    body: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Assembly:
    """What has been read so far."""

    bits: int = 16
    memory: list[int] = field(default_factory=lambda: [0, -1])
    cells: dict[str, int] = field(default_factory=lambda: {"ZERO": ZERO, "MINUS_ONE": MINUS_ONE})
    constants: dict[str, int] = field(default_factory=dict)
    macros: dict[str, Macro] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    code: list[tuple[int, str, str, str]] = field(default_factory=list)
    uses: int = 0


def assemble(text: str) -> Program:
    """The program that ``text`` describes. Raises AssemblyError, which names the line and what would be right."""
    state = Assembly()
    collecting: tuple[str, int] | None = None
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#(\s.*)?$", "", line.rstrip()).strip()
        if not line:
            continue
        word = line.split()[0]
        if collecting:
            if word == "end":
                collecting = None
            else:
                state.macros[collecting[0]].body.append((number, line))
        elif word == "macro":
            collecting = (declare_macro(state, number, line), number)
        elif word in ("cell", "const", "bits"):
            declare(state, number, line)
        else:
            statements.append((number, line))
    if collecting:
        raise AssemblyError(f"line {collecting[1]}: macro {collecting[0]!r} has no end")
    for number, line in statements:
        read_statement(state, number, line, {}, 0)
    return link(state)


def number_of(state: Assembly, line: int, text: str) -> int:
    """A number or a constant's name."""
    if text in state.constants:
        return state.constants[text]
    try:
        return int(text, 0)
    except ValueError:
        raise AssemblyError(
            f"line {line}: {text!r} is neither a number nor a constant{near(text, state.constants)}"
        ) from None


def near(name: str, known: Iterable[str]) -> str:
    """'; did you mean …?' where a known name is near."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def declare(state: Assembly, line: int, text: str) -> None:
    """``bits``, ``cell`` and ``const``."""
    if match := CONST.fullmatch(text):
        name_is_free(state, line, match[1])
        state.constants[match[1]] = number_of(state, line, match[2])
    elif match := CELL.fullmatch(text):
        name, size, values = match.groups()
        count = number_of(state, line, size) if size else 1
        given = [number_of(state, line, v) for v in re.split(r"[\s,]+", values)] if values else []
        if count < 1 or len(given) not in (0, count):
            raise AssemblyError(
                f"line {line}: {name} has {count} cells and {len(given)} values: give all of them or none"
            )
        for i, value in enumerate(given or [0] * count):
            name_is_free(state, line, f"{name}[{i}]" if size else name)
            new_cell(state, line, f"{name}[{i}]" if size else name, value)
    elif match := re.fullmatch(r"bits\s+(\S+)", text):
        state.bits = number_of(state, line, match[1])
        if not 2 <= state.bits <= MOST_BITS:
            raise AssemblyError(f"line {line}: bits {state.bits}: must be from 2 to {MOST_BITS}")
        if len(state.memory) > 2:
            raise AssemblyError(f"line {line}: bits must come before the first cell")
    else:
        raise AssemblyError(
            f"line {line}: {text!r} is not understood: cell name = value, const NAME = number, or bits N"
        )


def name_is_free(state: Assembly, line: int, name: str) -> None:
    if name in state.cells or name in state.constants:
        raise AssemblyError(f"line {line}: {name!r} exists already")


def new_cell(state: Assembly, line: int, name: str, value: int) -> int:
    try:
        check_word(f"line {line}: {name}", value, state.bits)
    except ConfigError as error:
        raise AssemblyError(str(error)) from None
    state.cells[name] = len(state.memory)
    state.memory.append(value)
    return state.cells[name]


def declare_macro(state: Assembly, line: int, text: str) -> str:
    _, *names = text.split()
    if not names or not all(NAME.fullmatch(n) for n in names):
        raise AssemblyError(f"line {line}: {text!r} is not understood: macro name parameter parameter …")
    if names[0] in (*WORDS, *state.macros):
        raise AssemblyError(f"line {line}: {names[0]!r} exists already")
    state.macros[names[0]] = Macro(names[1:])
    return names[0]


def read_statement(state: Assembly, line: int, text: str, given: dict[str, str], depth: int) -> None:
    """Labels, commands and uses of macros; ``given`` replaces a macro's parameters and local labels."""
    while match := re.match(r"(@?[A-Za-z_]\w*)\s*:\s*", text):
        label = given.get(match[1], match[1])
        if label in state.labels:
            raise AssemblyError(f"line {line}: label {label!r} exists already")
        state.labels[label] = len(state.code)
        text = text[match.end() :]
    if not text:
        return
    word, *operands = text.split()
    operands = [given.get(o, o) for o in operands]
    if word in WORDS:
        state.code.append((line, *command(line, word, operands)))
        return
    if word not in state.macros:
        raise AssemblyError(f"line {line}: unknown command {word!r}{near(word, (*WORDS, *state.macros))}")
    macro = state.macros[word]
    if len(operands) != len(macro.parameters):
        raise AssemblyError(f"line {line}: {word} takes {len(macro.parameters)} operands, {len(operands)} are given")
    if depth == DEEPEST:
        raise AssemblyError(f"line {line}: macro {word!r} uses macros more than {DEEPEST} deep: does it use itself?")
    state.uses += 1
    inner = dict(zip(macro.parameters, operands, strict=True))
    for _, body in macro.body:
        for label in re.findall(r"@\w+", body):
            inner.setdefault(label, f"{label[1:]}__{state.uses}")
    for number, body in macro.body:
        read_statement(state, number, body, inner, depth + 1)


def command(line: int, word: str, operands: list[str]) -> tuple[str, str, str]:
    """(a, b, c) as they are written, for each of the commands."""
    wanted = {"subleq": (2, 3), "goto": (1,), "halt": (0,), "clear": (1,)}[word]
    if len(operands) not in wanted:
        raise AssemblyError(
            f"line {line}: {word} takes {' or '.join(map(str, wanted))} operands, {len(operands)} are given"
        )
    if word == "goto":
        return "ZERO", "MINUS_ONE", operands[0]
    if word == "halt":
        return "ZERO", "MINUS_ONE", "halt"
    if word == "clear":
        return operands[0], operands[0], "next"
    return operands[0], operands[1], operands[2] if len(operands) == 3 else "next"


def link(state: Assembly) -> Program:
    """Names become places; the command that halts is appended."""
    last = len(state.code)
    code = []
    for i, (line, a, b, c) in enumerate(state.code):
        if b.startswith("#"):
            raise AssemblyError(f"line {line}: {b} is a constant and cannot be written to: name a cell")
        target = {"next": i + 1, "halt": last}.get(c, state.labels.get(c))
        if target is None:
            raise AssemblyError(f"line {line}: unknown label {c!r}{near(c, state.labels)}")
        code.append((cell_of(state, line, a), cell_of(state, line, b), target))
    try:
        return Program(
            state.bits, tuple(state.memory), (*code, (ZERO, MINUS_ONE, last)), dict(state.cells), dict(state.labels)
        )
    except AssemblyError:
        raise
    except ConfigError as error:
        raise AssemblyError(str(error)) from None


def cell_of(state: Assembly, line: int, name: str) -> int:
    """A cell by name, list[index] with a constant index, or #number, for which a cell is made on first use."""
    if name.startswith("#"):
        value = number_of(state, line, name[1:])
        return state.cells[f"#{value}"] if f"#{value}" in state.cells else new_cell(state, line, f"#{value}", value)
    if match := re.fullmatch(r"(\w+)\[(\w+)\]", name):
        name = f"{match[1]}[{number_of(state, line, match[2])}]"
        if name not in state.cells and f"{match[1]}[0]" in state.cells:
            size = sum(c.startswith(f"{match[1]}[") for c in state.cells)
            raise AssemblyError(f"line {line}: {name} is out of range, {match[1]} has {size} cells, 0 to {size - 1}")
    if name not in state.cells:
        raise AssemblyError(f"line {line}: unknown cell {name!r}{near(name, state.cells)}")
    return state.cells[name]


def disassemble(program: Program) -> str:
    """A text that assembles to the same program, with its names where it has any."""
    names = {place: name for name, place in program.cells.items() if NAME.fullmatch(name)}
    names |= {ZERO: "ZERO", MINUS_ONE: "MINUS_ONE"}
    labels = {place: name for name, place in program.lines.items()}
    labels |= {i: f"line_{i}" for _, _, i in program.code if i not in labels}
    lines = [f"bits {program.bits}"]
    for i, value in enumerate(program.memory[2:], 2):
        names.setdefault(i, f"cell_{i}")
        lines.append(f"cell {names[i]} = {value}")
    for i, (a, b, c) in enumerate(program.code[:-1]):
        if i in labels:
            lines.append(f"{labels[i]}:")
        target = "halt" if c == program.last else "next" if c == i + 1 else labels[c]
        lines.append(f"    subleq {names[a]} {names[b]} {target}")
    return "\n".join(lines) + "\n"
