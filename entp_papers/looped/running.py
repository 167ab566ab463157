"""Running SUBLEQ programs: in plain Python, on the machine, or many at once on both.

Letters: B batch, T tokens, D width, C cells, S steps.
"""

from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from entp_lab.studies import largest
from entp_lib.validation import ConfigError, require
from entp_papers.looped.circuits import to_signed, wrap
from entp_papers.looped.subleq import MINUS_ONE, Program, SubleqMachine, states

PLACES = ("first", "last")  # of the scratchpad among the tokens


class History(NamedTuple):
    """Memory and line before the first step and after every step."""

    memories: list[tuple[int, ...]]
    lines: list[int]


def interpret(program: Program, steps: int, stay: bool = False, at_zero: bool = True) -> History:
    """Run at most ``steps`` commands in Python; with ``stay`` exactly as many, halted or not.

    Words wrap around mod 2^bits. ``at_zero``: whether a result of 0 branches, as one below 0 does.
    """
    memory = list(program.memory)
    line = 0
    memories = [program.memory]
    lines = [0]
    for _ in range(steps):
        if line == program.last and not stay:
            break
        a, b, c = program.code[line]
        memory[b] = wrap(memory[b] - memory[a], program.bits)
        branches = memory[b] <= 0 if at_zero else memory[b] < 0
        line = c if branches else line + 1
        memories.append(tuple(memory))
        lines.append(line)
    return History(memories, lines)


class Trace:
    """States, memories and lines of a run, before the first pass and after each one.

    ``table`` is the run as a DataFrame, ``attention`` the weights of one step.
    """

    def __init__(self, program: Program, machine: SubleqMachine, states: list[Tensor]):
        self.program = program
        self.machine = machine
        self.states = states
        seen = torch.cat(states)
        self.memories = [tuple(words) for words in machine.words(seen).tolist()]
        self.lines = machine.counters(seen).tolist()
        self.steps = len(states) - 1

    def __getitem__(self, cell: str) -> int:
        """Return the final value of a named cell."""
        return self.memories[-1][self.program.cell(cell)]

    def table(self) -> pd.DataFrame:
        """Return the line and all named cells, except constants, by step."""
        columns = {"line": self.lines}
        for cell, place in self.program.cells.items():
            if place > MINUS_ONE and not cell.startswith("#"):
                columns[cell] = [memory[place] for memory in self.memories]
        return pd.DataFrame(columns).rename_axis("step")

    def attention(self, step: int) -> dict[str, Tensor]:
        """Compute attention weights (H, T, T) in pass ``step``, by purpose of the layer."""
        require(1 <= step <= self.steps, f"step = {step}: the run has steps 1 to {self.steps}")
        x = self.states[step - 1]
        found = {}
        for layer in self.machine.layers:
            if layer.attention is not None:
                found[layer.purpose] = layer.attention.weights(x)[0]
            x = layer(x)
        return found


@torch.inference_mode()
def run(program: Program, steps: int = 10_000) -> Trace:
    """Run a program on a machine of its shape until it halts.

    ConfigError, with its line and memory so far, if it has not halted after ``steps`` passes.
    """
    machine = SubleqMachine(program.shape)
    x = states(machine, [program])
    seen = [x]
    while (line := int(machine.counters(x))) != program.last:
        if len(seen) > steps:
            values = zip(program.cells, machine.words(x)[0].tolist(), strict=False)
            cells = [f"{name} = {value}" for name, value in values][2:]  # not ZERO, MINUS_ONE
            some = ", ".join(cells[:8] + ["…"] * (len(cells) > 8))
            raise ConfigError(
                f"no halt within {steps} steps: at line {line} of 0 to {program.last}, "
                f"with {some}. "
                "Give a larger limit if the program is to run for longer."
            )
        x = machine(x)
        seen.append(x)
    return Trace(program, machine, seen)


def interpreted(
    machine: SubleqMachine, programs: list[Program], steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Interpret programs padded to a machine.

    Returns memories (B, S + 1, C), commands (B, I, 3) and lines (B, S + 1).
    """
    programs = [p.padded(machine.shape) for p in programs]
    histories = [interpret(p, steps, stay=True) for p in programs]
    return (
        torch.tensor([h.memories for h in histories]),
        torch.tensor([p.code for p in programs]),
        torch.tensor([h.lines for h in histories]),
    )


class Comparison(NamedTuple):
    """Passes, wrong ones, the largest deviation, and each program's first wrong pass or 0."""

    passes: int
    wrong: int
    deviation: float
    first_wrong: list[int]

    @property
    def wrong_programs(self) -> int:
        return sum(first > 0 for first in self.first_wrong)


@torch.inference_mode()
def compare(
    machine: SubleqMachine,
    programs: list[Program],
    steps: int,
    pattern: str = "full",
    exact: bool = True,
    fast: bool = True,
) -> Comparison:
    """Run ``programs`` for ``steps`` passes each, comparing with the interpreter after every pass.

    ``exact`` compares the whole state, every coordinate of every token, bit for bit; otherwise
    every memory word and the counter are read and compared. A program that halts goes on in its
    last command. ``fast`` uses the machine's sparse form, otherwise its dense one.
    """
    memories, code, lines = interpreted(machine, programs, steps)
    x = machine.encode(memories[:, 0], code, lines[:, 0])
    stack = machine.sparse() if fast else machine
    agreed = torch.ones(len(programs), steps, dtype=torch.bool)
    deviation = 0.0
    for t in range(1, steps + 1):
        x = stack(x, pattern)
        if exact:
            difference = (x - machine.encode(memories[:, t], code, lines[:, t])).abs().amax((1, 2))
            agreed[:, t - 1] = difference == 0
            deviation = max(deviation, largest(difference))
        else:
            agreed[:, t - 1] = (machine.words(x) == memories[:, t]).all(1) & (
                machine.counters(x) == lines[:, t]
            )
    first = torch.where(agreed.all(1), 0, (~agreed).int().argmax(1) + 1)
    return Comparison(agreed.numel(), int((~agreed).sum()), deviation, first.tolist())


@torch.inference_mode()
def masked_run(
    machine: SubleqMachine, programs: list[Program], steps: int, pattern: str, place: str
) -> dict[str, float]:
    """Run the machine with its scratchpad first or last, under full or causal attention.

    The order of tokens does not matter to full attention, since positions are written in the
    tokens. A causal mask lets a token see only itself and earlier tokens. With the scratchpad
    first, it sees nothing but itself: no command is ever fetched. With the scratchpad last, it sees
    all, but no memory token sees it: results are computed and never written.

    All programs run for ``steps`` passes. ``memory`` and ``counter`` are the shares of passes after
    which they are right; ``changed`` is the share of passes that changed any word. ``fetched`` is
    the share of programs for which, in the first pass, layer 1 brought the right command to the
    scratchpad, ``computed`` the share for which layer 5 had the right difference there.
    """
    turn = PLACES.index(place)
    rows = machine.rows
    memories, code, lines = interpreted(machine, programs, steps)
    x = machine.encode(memories[:, 0], code, lines[:, 0])
    before = memories[:, 0]
    command = x[:, 1 + machine.shape.cells, rows["command"]]
    x = x.roll(-turn, 1)
    difference = memories[:, 1].gather(1, code[:, 0, 1:2])[:, 0]
    found = dict.fromkeys(("fetched", "computed", "memory", "counter", "changed"), 0.0)

    def share(right_B: Tensor) -> float:
        return float(right_B.double().mean())

    for t in range(1, steps + 1):
        for i, layer in enumerate(machine.layers):
            x = layer(x, pattern)
            if t == 1 and i == 0:
                current = x[:, -turn, rows["current"]]
                found["fetched"] = share(((current - command).abs() < 0.1).all(1))
            if t == 1 and i == 4:
                word = x[:, -turn, rows["copy_b"]]
                found["computed"] = share(
                    (to_signed(word) == difference) & (word.abs() > 0.5).all(1)
                )
        state = x.roll(turn, 1)
        words = machine.words(state)
        found["memory"] += share((words == memories[:, t]).all(1)) / steps
        found["counter"] += share(machine.counters(state) == lines[:, t]) / steps
        found["changed"] += share((words != before).any(1)) / steps
        before = words
    return found
