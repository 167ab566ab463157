"""Counter machines compiled to SUBLEQ (footnote 2): with unbounded words, two counters are enough to be universal.

A counter program is a list of instructions, by line:

    ("inc", counter, to)              add 1, go to line ``to``
    ("dec", counter, to, if_zero)     go to ``if_zero`` if the counter is 0, else subtract 1 and go to ``to``

A line number equal to the length of the list halts. The supplied text ends before the paper's Appendix C: this is our
compiler. With words of N bits the machine has finitely many states, so that universality needs N to grow.
"""

from collections.abc import Mapping, Sequence

from entp_lib.validation import require
from entp_papers.looped.assembler import assemble
from entp_papers.looped.program import Program

Instruction = tuple

# x := 2 x, by way of y
DOUBLE = (("dec", "x", 1, 3), ("inc", "y", 2), ("inc", "y", 0), ("dec", "y", 4, 5), ("inc", "x", 3))
# q := x div 3, x := x mod 3
THIRD = (
    ("dec", "x", 1, 6),
    ("dec", "x", 2, 4),
    ("dec", "x", 3, 5),
    ("inc", "q", 0),
    ("inc", "x", 6),
    ("inc", "x", 4),
)
# x := x / 2 if x is even, else 3 x + 1, the half and the triple grown side by side
COLLATZ = (
    ("dec", "x", 1, 8),  # two at a time: half += 1, triple += 6
    ("inc", "triple", 2),
    ("inc", "triple", 3),
    ("inc", "triple", 4),
    ("dec", "x", 5, 12),  # was odd
    ("inc", "triple", 6),
    ("inc", "triple", 7),
    ("inc", "triple", 15),
    ("dec", "half", 9, 10),  # was even: x := half
    ("inc", "x", 8),
    ("dec", "triple", 10, 11),
    ("dec", "half", 11, 16),
    ("inc", "triple", 13),  # 3 x + 1
    ("dec", "triple", 14, 11),
    ("inc", "x", 13),
    ("inc", "half", 0),
)


def check_counters(code: Sequence[Instruction], counters: Mapping[str, int]) -> None:
    """Raise ConfigError for an unknown instruction or counter, a line that does not exist, a negative start."""
    for i, (name, counter, *targets) in enumerate(code):
        require(
            (name, len(targets)) in (("inc", 1), ("dec", 2)),
            f"instruction {i}: {code[i]}: must be ('inc', counter, to) or ('dec', counter, to, if_zero)",
        )
        require(
            counter in counters, f"instruction {i}: counter {counter!r} has no start; there are {', '.join(counters)}"
        )
        for target in targets:
            require(0 <= target <= len(code), f"instruction {i}: line {target}: must be from 0 to {len(code)}")
    for name, value in counters.items():
        require(value >= 0, f"{name} = {value}: a counter starts at 0 or more")


def run_counters(code: Sequence[Instruction], counters: Mapping[str, int], steps: int = 100_000) -> dict[str, int]:
    """The counters when the program halts, by a plain loop. Raises ConfigError where it has not after ``steps``."""
    check_counters(code, counters)
    held, line = dict(counters), 0
    for _ in range(steps):
        if line == len(code):
            return held
        name, counter, to, *if_zero = code[line]
        if name == "inc":
            held[counter] += 1
        elif held[counter] == 0:
            to = if_zero[0]
        else:
            held[counter] -= 1
        line = to
    require(line == len(code), f"no halt within {steps} steps; at line {line} with {held}")
    return held


def compile_counters(code: Sequence[Instruction], counters: Mapping[str, int], bits: int = 16) -> Program:
    """The SUBLEQ program: two commands for ``inc``, three for ``dec``. Counters are cells of the same names."""
    check_counters(code, counters)
    lines = [f"bits {bits}", *(f"cell {name} = {value}" for name, value in counters.items())]

    def label(line: int) -> str:
        return "halt" if line == len(code) else f"line_{line}"

    for i, (name, counter, to, *if_zero) in enumerate(code):
        lines.append(f"line_{i}:")
        if name == "inc":
            lines.append(f"subleq MINUS_ONE {counter}\ngoto {label(to)}")
        else:
            lines.append(
                f"subleq ZERO {counter} {label(if_zero[0])}\nsubleq #1 {counter} {label(to)}\ngoto {label(to)}"
            )
    return assemble("\n".join(lines))
