"""FLEQ programs as text or at random, their interpreter, and running them on the machine.

    product = mul(A, B)             mem[product] = A^T B
    count = add(count, one)
    if count <= 0 goto loop         the branch alone
    count = add(count, one); if count <= 0 goto loop        both in one command
    e = sub(o, y) [1x1]             d_h × d_w: rows and columns beyond are read and written as 0

Labels are ``name:``. A function of one argument takes it as A, with ``zero`` as B. The items zero,
one and nowhere exist in every program: flags that always and never jump, and a place for unused
results. The last command halts.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from entp_lab.studies import gaussians, largest, seeded
from entp_lib.validation import ConfigError, one_of, require
from entp_papers.looped.assembler import LABEL
from entp_papers.looped.fleq_machine import FleqMachine, FleqShape, Frame, Functions
from entp_papers.looped.layers import BOUND

CALL = re.compile(r"(\w+)\s*=\s*(\w+)\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)\s*(?:\[(\d+)x(\d+)\])?")
BRANCH = re.compile(r"if\s+(\w+)\s*<=\s*0\s+goto\s+(\w+)")
RESERVED = {"zero": 0.0, "one": 1.0, "nowhere": 0.0}
MOST_STEPS = 2000
CHUNK = 25  # programs that run in one batch
LARGEST = 30.0  # the largest entry while a random program runs; products square their inputs


class Command(NamedTuple):
    """FLEQ(a, b, c, function, flag, goto, height, width): items by name, the line by number."""

    function: str
    a: str
    b: str
    c: str
    flag: str
    goto: int
    height: int
    width: int


@dataclass(frozen=True)
class FleqProgram:
    """Commands, the initial items (d, d) by name, and the functions of the machine it is for."""

    d: int
    items: Mapping[str, Tensor]
    code: tuple[Command, ...]
    functions: Functions

    @property
    def shape(self) -> FleqShape:
        return FleqShape(self.d, len(self.items), len(self.code))

    @property
    def last(self) -> int:
        return len(self.code) - 1

    def machine(self, one_head: bool = False) -> FleqMachine:
        """Build a machine that the program fits."""
        return FleqMachine(self.shape, self.functions, one_head)


def square(value: Tensor | float, d: int) -> Tensor:
    """Pad a number, a vector (a column) or a matrix to (d, d) with 0."""
    x = torch.column_stack([torch.as_tensor(value, dtype=torch.float64)])
    require(max(x.shape) <= d, f"an item of shape {tuple(x.shape)}: d = {d}")
    return torch.nn.functional.pad(x, (0, d - x.shape[1], 0, d - x.shape[0]))


def fleq(
    text: str, d: int, items: Mapping[str, Tensor | float], functions: Functions
) -> FleqProgram:
    """Parse a program; items that it writes and that are not given begin as 0.

    A flag is a whole number (Theorem 2). Raises ConfigError for a line that is neither a call nor a
    branch nor both, a label that is there already, an item larger than ``d``, and a name that is no
    label, function or item.
    """
    labels = {}
    statements = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        while match := LABEL.match(line):
            require(match[1] not in {*labels, "halt"}, f"label {match[1]!r}: is there already")
            labels[match[1]] = len(statements)
            line = line[match.end() :]
        if line:
            statements.append(line)
    labels["halt"] = len(statements)
    written = [call[1] for line in statements for call in CALL.finditer(line)]
    values = dict.fromkeys([*RESERVED, *items, *written], 0.0) | RESERVED | dict(items)
    held = {name: square(value, d) for name, value in values.items()}
    nothing = Command(next(iter(functions)), "zero", "zero", "nowhere", "one", 0, d, d)
    code = []
    for line in statements:
        command = nothing
        for part in map(str.strip, line.split(";")):
            if call := CALL.fullmatch(part):
                c, function, a, b, height, width = call.groups()
                one_of("function", function, functions)
                command = Command(
                    function, a, b or "zero", c, "one", 0, int(height or d), int(width or d)
                )
            elif jump := BRANCH.fullmatch(part):
                one_of("label", jump[2], labels)
                command = command._replace(flag=jump[1], goto=labels[jump[2]])
            else:
                raise ConfigError(
                    f"{line!r} is not understood: c = f(a, b), or if flag <= 0 goto label"
                )
        for name in (command.a, command.b, command.flag):
            one_of("item", name, held)
        code.append(command)
    return FleqProgram(d, held, (*code, nothing._replace(flag="zero", goto=len(code))), functions)


@dataclass(frozen=True)
class FleqRun:
    """Items after every command, from the start on, and the line before each command."""

    items: list[dict[str, Tensor]]
    lines: list[int]

    def __getitem__(self, name: str) -> Tensor:
        return self.items[-1][name]

    def written(self, program: FleqProgram, name: str) -> list[Tensor]:
        """Return an item after every command that writes to it."""
        pairs = zip(self.lines, self.items[1:], strict=False)
        return [items[name] for line, items in pairs if program.code[line].c == name]


def interpret(program: FleqProgram) -> FleqRun:
    """Run a program by calling the exact functions until it halts."""
    d = program.d
    frame = Frame(d)
    exact = {name: maker(frame).exact for name, maker in program.functions.items()}
    items = dict(program.items)
    line = 0
    seen = [items]
    lines = [0]
    while line != program.last:
        command = program.code[line]
        mask = (torch.arange(d) < command.height)[:, None] & (torch.arange(d) < command.width)
        value = exact[command.function](items[command.a] * mask, items[command.b] * mask)
        # beyond the mask a function may not be finite
        items = items | {command.c: torch.where(mask, value, 0.0)}
        line = command.goto if items[command.flag][0, 0] <= 0 else line + 1
        seen.append(items)
        lines.append(line)
    return FleqRun(seen, lines)


def encode(machine: FleqMachine, programs: list[FleqProgram]) -> Tensor:
    """Encode programs as states (B, T, D), padded with items of 0 and commands that halt."""
    shape = machine.shape
    memory = torch.zeros(len(programs), shape.items, shape.d, shape.d, dtype=torch.float64)
    commands = torch.zeros(len(programs), shape.commands, 8, dtype=torch.long)
    functions = list(machine.blocks)
    for p, program in enumerate(programs):
        names = list(program.items)
        memory[p, : len(names)] = torch.stack(list(program.items.values()))
        for i in range(shape.commands):
            function, *items, goto, height, width = program.code[min(i, program.last)]
            goto = shape.commands - 1 if goto == program.last else goto
            places = map(names.index, items)
            commands[p, i] = torch.tensor([*places, goto, functions.index(function), height, width])
    return machine.encode(memory, commands)


@torch.inference_mode()
def run(
    program: FleqProgram, machine: FleqMachine | None = None, must_halt: bool = True
) -> FleqRun:
    """Run on the machine's sparse form until it halts.

    If it does not halt within ``MOST_STEPS``, or a value is not below ``BOUND``, raise ConfigError;
    without ``must_halt``, return the run so far, which ends where a value is not finite.
    """
    machine = machine or program.machine()
    stack = machine.sparse()
    x = encode(machine, [program])
    seen = [dict(program.items)]
    lines = [0]
    while lines[-1] != program.last:
        x = stack(x)
        held = machine.memory(x)[0]
        ends = len(lines) > MOST_STEPS or not x.isfinite().all()
        require(
            not must_halt or not (ends or largest(held) >= BOUND),
            f"after {len(lines)} steps no halt, or values beyond {BOUND:g}",
        )
        if ends:
            break
        lines.append(min(int(machine.counters(x)), program.last))
        seen.append(dict(zip(program.items, held, strict=False)))
    return FleqRun(seen, lines)


@torch.inference_mode()
def run_together(programs: list[FleqProgram], machine: FleqMachine, name: str) -> Tensor:
    """Run programs that differ in numbers alone until they halt; return an item of each by name.

    The result is (programs, d, d).
    """
    stack = machine.sparse()
    last = programs[0].last
    place = list(programs[0].items).index(name)
    found = []
    for x in encode(machine, programs).split(CHUNK):
        for _ in range(MOST_STEPS):
            x = stack(x)
            if halted := (machine.counters(x) >= last).all():
                break
        require(
            halted and x.isfinite().all(),
            f"no halt within {MOST_STEPS} steps, or values beyond {BOUND:g}",
        )
        found.append(machine.memory(x)[:, place])
    return torch.cat(found)


def random_fleq(
    d: int, commands: int, seed: int, functions: Functions, apart: bool = False
) -> FleqProgram:
    """Draw a program: calls, some of them with a forward branch, in a loop of three rounds.

    Programs whose values grow beyond ``LARGEST``, by the interpreter, are drawn again. ``apart``
    writes the same program with every branch as a command of its own (Corollary 1).
    """
    names = [f"m{i}" for i in range(4)]
    for attempt in range(1000):
        draw = random.Random(f"{seed} {attempt}")
        generator = seeded(1000 * seed + attempt)
        items = {name: gaussians(generator, d, d) / d for name in names}
        lines = ["loop:"]
        for i in range(commands - 1):
            target = draw.choice(names)
            function = draw.choice(list(functions))
            call = f"{target} = {function}({draw.choice(names)}, {draw.choice(names)})"
            flag = draw.choice(("sign", "one"))
            jump = f"; if {flag} <= 0 goto at_{draw.randint(i + 1, commands - 1)}"
            lines.append(f"at_{i}: {call}{jump if draw.random() < 0.3 else ''}")
        lines.append(f"at_{commands - 1}: count = add(count, one); if count <= 0 goto loop")
        items |= {"count": -2.0, "sign": float(draw.choice((-1, 1)))}
        text = "\n".join(lines)
        program = fleq(text.replace("; if", "\nif") if apart else text, d, items, functions)
        if max(largest(v) for held in interpret(program).items for v in held.values()) <= LARGEST:
            return program
    raise RuntimeError(
        f"no program of {commands} commands whose values stay below {LARGEST} was found"
    )
