"""Programs for the SUBLEQ machine: arithmetic, lists, Count3, random ones, and counter machines compiled to SUBLEQ.

Memory and commands are apart and no command computes an address, so a list is walked by moving it past a fixed cell,
or by writing the loop out. Every function returns a ``Program`` whose results are cells by name.

A counter program (footnote 2: with unbounded words, two counters are enough to be universal) is a list by line:

    ("inc", counter, to)              add 1, go to line ``to``
    ("dec", counter, to, if_zero)     go to ``if_zero`` if the counter is 0, else subtract 1 and go to ``to``

A line number equal to the length of the list halts. The supplied text ends before the paper's Appendix C: this is our
compiler. With words of N bits the machine has finitely many states, so that universality needs N to grow.
"""

import random
from collections.abc import Mapping, Sequence

from entp_lib.validation import one_of, require
from entp_papers.looped.assembler import assemble
from entp_papers.looped.subleq import MINUS_ONE, ZERO, Program, Shape

# t is a cell that any macro may overwrite.
MACROS = """
cell t
macro add from to           # to += from
    clear t
    subleq from t
    subleq t to
end
macro move from to          # to := from
    clear to
    add from to
end
macro increment a
    subleq MINUS_ONE a
end
macro to_if_not_negative target a   # t becomes -a
    clear t
    subleq a t target
end
"""
# Arithmetic by name; the cells that a text does not declare are its arguments.
ARITHMETIC = {
    # y := x + y
    "add": "add x y",
    # product := x y for y > 0 by repeated addition: five commands with the one that halts, as short as it gets
    "multiply": """
        cell product
        cell minus_x
            subleq x minus_x
        loop:
            subleq minus_x product
            subleq #1 y halt
            goto loop
    """,
    # of x >= 0 by y > 0
    "divide": """
        cell quotient
        cell remainder
        cell minus_y
            move x remainder
            subleq y minus_y
        loop:
            subleq y remainder low
            increment quotient
            goto loop
        low:
            to_if_not_negative exact remainder
            subleq minus_y remainder
            halt
        exact:
            increment quotient
    """,
    # result := n!
    "factorial": """
        cell result = 1
        cell product
        cell count
        loop:
            subleq ZERO n halt
            clear product
            move n count
        inner:
            add result product
            subleq #1 count ready
            goto inner
        ready:
            move product result
            subleq #1 n halt
            goto loop
    """,
    # a := the n-th Fibonacci number, 0 for n = 0
    "fibonacci": """
        cell a
        cell b = 1
        cell both
        loop:
            subleq ZERO n halt
            move a both
            add b both
            move b a
            move both b
            subleq #1 n halt
            goto loop
    """,
    # x := greatest common divisor of x > 0 and y > 0, by subtraction
    "gcd": """
        cell difference
        loop:
            move x difference
            subleq y difference not_greater
            subleq y x
            goto loop
        not_greater:
            to_if_not_negative halt difference
            subleq x y
            goto loop
    """,
}


def written(bits: int, cells: Mapping[str, int | Sequence[int]], text: str, macros: str = MACROS) -> Program:
    """The program of a text over cells and lists of cells, with their initial values, and ``macros``."""
    lines = [f"bits {bits}"]
    for name, value in cells.items():
        if isinstance(value, int):
            lines.append(f"cell {name} = {value}")
        else:
            lines.append(f"cell {name}[{len(value)}] = {' '.join(map(str, value))}")
    return assemble("\n".join([*lines, text, macros]))


def arithmetic(name: str, bits: int = 16, **arguments: int) -> Program:
    """A program of ``ARITHMETIC`` on its arguments, the cells of the same names."""
    one_of("name", name, ARITHMETIC)
    return written(bits, arguments, ARITHMETIC[name], "" if name == "multiply" else MACROS)


def reverse(values: Sequence[int], bits: int = 16) -> Program:
    """list := the values in reverse."""
    pairs = [(i, len(values) - 1 - i) for i in range(len(values) // 2)]
    swaps = "".join(f"move list[{i}] u\nmove list[{j}] list[{i}]\nmove u list[{j}]\n" for i, j in pairs)
    return written(bits, {"list": values, "u": 0}, swaps)


def search(values: Sequence[int], key: int, bits: int = 16) -> Program:
    """place := the first index at which ``key`` is, or -1."""
    lines = []
    for i in range(len(values)):
        lines.append(f"move list[{i}] difference\nsubleq key difference maybe_{i}\ngoto not_{i}")
        lines.append(f"maybe_{i}: to_if_not_negative found_{i} difference\ngoto not_{i}")
        lines.append(f"found_{i}: move #{i} place\nhalt\nnot_{i}:")
    return written(bits, {"list": values, "key": key, "place": -1, "difference": 0}, "\n".join(lines))


def sort(values: Sequence[int], bits: int = 16) -> Program:
    """list := the values in ascending order, by bubble sort. Differences of values must fit into a word."""
    macro = """
        macro order a b
            move a u
            subleq b u @fine
            move a u
            move b a
            move u b
        @fine:
        end
    """
    order = [f"order list[{i}] list[{i + 1}]" for last in range(len(values) - 1, 0, -1) for i in range(last)]
    return written(bits, {"list": values, "u": 0}, "\n".join([macro, *order]))


def count3(values: Sequence[int], bits: int = 10) -> Program:
    """count := Count3 of the values, #{(i, j): x_i + x_j + x_n = 0 (mod n)} mod n (the ENTP paper's Algorithm 2).

    Two copies of the list are turned past their first cells, one in a loop within the other.
    """
    n = len(values)
    require(n >= 1, "values is empty: Count3 is of at least one number")

    def turn(name: str) -> str:
        moves = "".join(f"move {name}[{i + 1}] {name}[{i}]\n" for i in range(n - 1))
        return f"move {name}[0] u\n{moves}move u {name}[{n - 1}]\n"

    copies = "".join(f"move x[{i}] y[{i}]\n" for i in range(n))
    cells = {"x": values, "y": [0] * n, "last": 0, "i": n, "j": n, "sum": 0, "count": 0, "u": 0}
    text = f"""
        macro reduce v      # v := v mod n for v >= 0
        @again:
            subleq #{n} v @low
            goto @again
        @low:
            to_if_not_negative @done v
            subleq #-{n} v
        @done:
        end
        residues:
            reduce x[0]
            {turn("x")}
            subleq #1 i counted
            goto residues
        counted:
            move x[{n - 1}] last
            {copies}
            move #{n} i
        outer:
            move #{n} j
        inner:
            move x[0] sum
            add y[0] sum
            add last sum
            reduce sum
            subleq ZERO sum hit
            goto miss
        hit:
            increment count
        miss:
            {turn("y")}
            subleq #1 j turned
            goto inner
        turned:
            {turn("x")}
            subleq #1 i finished
            goto outer
        finished:
            reduce count
    """
    return written(bits, cells, text)


def random_programs(shape: Shape, count: int, seed: int = 0) -> list[Program]:
    """Random memory and commands, from one seed each; cells 0 and 1 are read but not written to."""
    require(shape.cells >= 3, f"cells = {shape.cells}: must be at least 3, for one that can be written to")
    half, last, made = 1 << (shape.bits - 1), shape.commands - 1, []
    for draw in map(random.Random, range(seed, seed + count)):
        memory = [draw.randrange(-half, half) for _ in range(shape.cells - 2)]
        code = [
            (draw.randrange(shape.cells), draw.randrange(2, shape.cells), draw.randrange(shape.commands))
            for _ in range(last)
        ]
        made.append(Program(shape.bits, (0, -1, *memory), (*code, (ZERO, MINUS_ONE, last))))
    return made


# x := 2 x, by way of y
DOUBLE = (("dec", "x", 1, 3), ("inc", "y", 2), ("inc", "y", 0), ("dec", "y", 4, 5), ("inc", "x", 3))
# q := x div 3, x := x mod 3
THIRD = (("dec", "x", 1, 6), ("dec", "x", 2, 4), ("dec", "x", 3, 5), ("inc", "q", 0), ("inc", "x", 6), ("inc", "x", 4))
# x := x / 2 if x is even, else 3 x + 1; the half and the triple grow together
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


def compile_counters(code: Sequence[tuple], counters: Mapping[str, int], bits: int = 16) -> Program:
    """The SUBLEQ program: two commands for ``inc``, three for ``dec``. Counters are cells of the same names.

    Raises ConfigError for an unknown counter, a line that does not exist, a negative start.
    """
    for name, value in counters.items():
        require(value >= 0, f"{name} = {value}: a counter starts at 0 or more")
    label = [*(f"line_{i}" for i in range(len(code))), "halt"]
    lines = []
    for i, (name, counter, *targets) in enumerate(code):
        one_of(f"instruction {i}: counter", counter, counters)
        for line in targets:
            require(0 <= line <= len(code), f"instruction {i}: line {line}: must be from 0 to {len(code)}")
        if name == "inc":
            lines.append(f"line_{i}: subleq MINUS_ONE {counter}")
        else:
            lines.append(f"line_{i}: subleq ZERO {counter} {label[targets[1]]}")
            lines.append(f"subleq #1 {counter} {label[targets[0]]}")
        lines.append(f"goto {label[targets[0]]}")
    return written(bits, counters, "\n".join(lines), macros="")
