"""Random FLEQ programs whose values stay small: what the machine is compared with its interpreter on."""

import random
from collections.abc import Mapping

import torch

from entp_lib.validation import require
from entp_papers.looped.fleq.frame import Maker
from entp_papers.looped.fleq.program import FleqProgram, fleq, interpret

ITEMS = 4
LARGEST = 30.0  # of any entry on the way: products square what they are given


def random_fleq(d: int, commands: int, seed: int, functions: Mapping[str, Maker], apart: bool = False) -> FleqProgram:
    """A program of so many commands: calls, some of them with a branch ahead, and a loop of three rounds around all.

    Programs whose values grow beyond ``LARGEST``, by the interpreter, are drawn again. ``apart`` writes the same
    program with every branch as a command of its own (Corollary 1).
    """
    require(commands >= 2, f"commands = {commands}: must be at least 2")
    names = [f"m{i}" for i in range(ITEMS)]
    for attempt in range(1000):
        draw = random.Random(f"{seed} {attempt}")
        generator = torch.Generator().manual_seed(1000 * seed + attempt)
        items = {name: torch.randn(d, d, generator=generator, dtype=torch.float64) / d for name in names}
        lines = ["loop:"]
        for i in range(commands - 1):
            call = f"{draw.choice(names)} = {draw.choice(list(functions))}({draw.choice(names)}, {draw.choice(names)})"
            jump = f"; if {draw.choice(('sign', 'one'))} <= 0 goto at_{draw.randint(i + 1, commands - 1)}"
            lines.append(f"at_{i}: {call}{jump if draw.random() < 0.3 else ''}")
        lines.append(f"at_{commands - 1}: count = add(count, one); if count <= 0 goto loop")
        extra = {"count": -2.0, "sign": float(draw.choice((-1, 1)))}
        text = "\n".join(lines)
        program = fleq(text.replace("; if", "\nif") if apart else text, d, items | extra, functions)
        largest = max(float(v.abs().max()) for held in interpret(program).items for v in held.values())
        if largest <= LARGEST:
            return program
    raise RuntimeError(f"no program of {commands} commands whose values stay below {LARGEST} was found")
