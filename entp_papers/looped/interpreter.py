"""SUBLEQ in plain Python: the oracle that the machine is compared with."""

from dataclasses import dataclass

from entp_papers.looped.program import Program
from entp_papers.looped.words import wrap


class StepLimit(RuntimeError):
    """A program did not halt within its step limit. ``memory`` and ``line`` are its state so far."""

    def __init__(self, steps: int, memory: tuple[int, ...], line: int, program: Program):
        self.steps, self.memory, self.line = steps, memory, line
        names = {cell: name for name, cell in program.cells.items()}
        held = ", ".join(f"{names.get(i, i)} = {value}" for i, value in list(enumerate(memory))[2:10])
        more = ", …" if len(memory) > 10 else ""
        super().__init__(
            f"no halt within {steps} steps: at line {line} of 0 to {program.last}, with {held}{more}. "
            "Give a larger limit if the program is to run for longer."
        )


@dataclass(frozen=True)
class History:
    """Memory and line before the first step and after every step; ``halted`` says whether the last line was reached."""

    memories: list[tuple[int, ...]]
    lines: list[int]
    halted: bool

    @property
    def steps(self) -> int:
        return len(self.lines) - 1


def step(program: Program, memory: list[int], line: int) -> int:
    """Execute the command at ``line``: changes ``memory`` and returns the next line. Words wrap around mod 2^bits."""
    a, b, c = program.code[line]
    memory[b] = wrap(memory[b] - memory[a], program.bits)
    return c if memory[b] <= 0 else line + 1


def interpret(program: Program, steps: int, stay: bool = False) -> History:
    """Run at most ``steps`` commands; with ``stay``, exactly so many, going on in the command that halts."""
    memory, line = list(program.memory), 0
    memories, lines = [program.memory], [0]
    for _ in range(steps):
        if line == program.last and not stay:
            break
        line = step(program, memory, line)
        memories.append(tuple(memory))
        lines.append(line)
    return History(memories, lines, line == program.last)


def result(program: Program, steps: int = 10_000) -> History:
    """Run until the program halts. Raises StepLimit, which carries the state, if it has not after ``steps``."""
    history = interpret(program, steps)
    if not history.halted:
        raise StepLimit(history.steps, history.memories[-1], history.lines[-1], program)
    return history
