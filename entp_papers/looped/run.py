"""Running programs on the machine: one with its trace, many at once beside the interpreter."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.interpreter import StepLimit, interpret
from entp_papers.looped.program import Program, states
from entp_papers.looped.subleq import Shape, SubleqMachine


def machine(program: Program | Shape, dtype: torch.dtype = torch.float64, **options) -> SubleqMachine:
    """The machine for a program, or for a shape that several programs share; options as in ``SubleqMachine``."""
    return SubleqMachine(program.shape if isinstance(program, Program) else program, dtype, **options)


@dataclass
class Trace:
    """What a run went through: memory and line before the first pass and after each one, and the states.

    ``table`` is the run as a DataFrame, ``show`` one step in words, ``attention`` the weights of one step.
    """

    program: Program
    machine: SubleqMachine
    states: list[Tensor]
    memories: list[tuple[int, ...]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def __post_init__(self):
        seen = torch.cat(self.states)
        self.memories = [tuple(words) for words in self.machine.words(seen).tolist()]
        self.lines = self.machine.counters(seen).tolist()

    @property
    def steps(self) -> int:
        return len(self.states) - 1

    def __getitem__(self, cell: str | int) -> int:
        """The final value of a cell, by name or place."""
        return self.memories[-1][self.program.cell(cell)]

    def table(self, cells: Sequence[str] | None = None) -> pd.DataFrame:
        """Line and cells by step; all named cells that are no constants, or those asked for."""
        cells = cells or [c for c in self.program.cells if not c.startswith("#") and self.program.cells[c] > 1]
        rows = [{c: memory[self.program.cell(c)] for c in cells} for memory in self.memories]
        return pd.DataFrame(rows).assign(line=self.lines)[["line", *cells]].rename_axis("step")

    def show(self, step: int) -> str:
        """What pass ``step``, counted from 1, did."""
        require(1 <= step <= self.steps, f"step = {step}: the run has steps 1 to {self.steps}")
        before, after, line = self.memories[step - 1], self.memories[step], self.lines[step - 1]
        names = {place: name for name, place in self.program.cells.items()}
        a, b, _ = self.program.code[line]
        branch = "at most 0" if after[b] <= 0 else "positive"
        return (
            f"step {step}, line {line}: {names.get(b, b)} = {before[b]} - {before[a]} ({names.get(a, a)}) = {after[b]}"
            f", {branch}: to line {self.lines[step]}"
        )

    def attention(self, step: int) -> dict[str, Tensor]:
        """Attention weights (H, T, T), query by key, of every layer that attends in pass ``step``, by what it does."""
        require(1 <= step <= self.steps, f"step = {step}: the run has steps 1 to {self.steps}")
        x, found = self.states[step - 1], {}
        for layer in self.machine.layers:
            if layer.attention is not None:
                found[layer.says] = layer.attention.weights(x)[0]
            x = layer(x)
        return found


@torch.inference_mode()
def run(program: Program, on: SubleqMachine | None = None, steps: int = 10_000, pattern: str = "full") -> Trace:
    """Run a program until it halts. Raises StepLimit, which carries the state, after ``steps`` passes."""
    on = on or machine(program)
    program = program.padded(on.shape)
    x = states(on, [program])
    seen = [x]
    while int(on.counters(x)) != program.last:
        if len(seen) > steps:
            raise StepLimit(steps, tuple(on.words(x)[0].tolist()), int(on.counters(x)), program)
        x = on(x, pattern)
        seen.append(x)
    return Trace(program, on, seen)


@dataclass(frozen=True)
class Comparison:
    """Programs beside the interpreter: how many passes agreed in every coordinate, of how many.

    ``first_wrong`` has by program the first pass that differs, 0 for none; ``deviation`` is the largest difference of
    a coordinate, before the first pass that differs as well as in it.
    """

    programs: int
    passes: int
    wrong_programs: int
    wrong_passes: int
    deviation: float
    first_wrong: tuple[int, ...]


@torch.inference_mode()
def compare(
    on: SubleqMachine,
    programs: list[Program],
    steps: int,
    pattern: str = "full",
    exact: bool = True,
    fast: bool = False,
) -> Comparison:
    """Run ``programs`` for ``steps`` passes each beside the interpreter, comparing after every pass.

    ``exact`` compares the whole state, every coordinate of every token, bit for bit; otherwise every memory word and
    the counter are read and compared. A program that halts goes on in its last command. ``fast`` uses the machine's
    sparse form.
    """
    programs = [p.padded(on.shape) for p in programs]
    x = states(on, programs)
    code = torch.tensor([p.code for p in programs])
    histories = [interpret(p, steps, stay=True) for p in programs]
    memories = torch.tensor([h.memories for h in histories])
    lines = torch.tensor([h.lines for h in histories])
    stack = on.sparse() if fast else on
    agreed = torch.ones(len(programs), steps, dtype=torch.bool)
    deviation = 0.0
    for t in range(1, steps + 1):
        x = stack(x, pattern)
        if exact:
            difference = (x - on.encode(memories[:, t], code, lines[:, t])).abs().amax((1, 2))
            agreed[:, t - 1] = difference == 0
            deviation = max(deviation, float(difference.max()))
        else:
            agreed[:, t - 1] = (on.words(x) == memories[:, t]).all(1) & (on.counters(x) == lines[:, t])
    first = torch.where(agreed.all(1), 0, (~agreed).int().argmax(1) + 1)
    return Comparison(
        programs=len(programs),
        passes=agreed.numel(),
        wrong_programs=int((~agreed.all(1)).sum()),
        wrong_passes=int((~agreed).sum()),
        deviation=deviation,
        first_wrong=tuple(first.tolist()),
    )
