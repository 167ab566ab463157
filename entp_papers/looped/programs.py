"""Programs for the SUBLEQ machine: arithmetic, lists, Count3, random ones, counter machines.

Memory and commands are apart and no command computes an address, so a list is walked by moving it
past a fixed cell, or by writing the loop out. Every function returns a ``Program`` whose results
are cells by name.

A counter program (footnote 2: with unbounded words, two counters are enough to be universal) is a
list by line:

    ("inc", counter, to)             add 1, go to line ``to``
    ("dec", counter, to, if_zero)    go to ``if_zero`` if it is 0, else subtract 1 and go to ``to``

A line number equal to the length of the list halts. The supplied text ends before the paper's
Appendix C: this is our compiler. With words of N bits the machine has finitely many states, so that
universality needs N to grow.
"""

import random
from collections.abc import Mapping, Sequence

from entp_papers.looped.assembler import assemble
from entp_papers.looped.subleq import MINUS_ONE, ZERO, Program, Shape

BITS = 16  # of a word

# Parts of programs; t is a cell that any of them may overwrite.


def add(source: str, target: str) -> str:
    """Write target += source."""
    return f"clear t\nsubleq {source} t\nsubleq t {target}\n"


def move(source: str, target: str) -> str:
    """Write target := source."""
    return f"clear {target}\n{add(source, target)}"


def to_if_not_negative(target: str, cell: str) -> str:
    """Go to the target if the cell is at least 0; t becomes minus the cell."""
    return f"clear t\nsubleq {cell} t {target}\n"


# Arithmetic by name; the cells that a text does not declare are its arguments.
ARITHMETIC = {
    # y := x + y
    "add": add("x", "y"),
    # product := x y for y > 0 by repeated addition: five commands with the one that halts, as short
    # as it gets
    "multiply": """
        cell product
        cell minus_x
            subleq x minus_x
        loop:
            subleq minus_x product
            subleq #1 y halt
            goto loop
    """,
    # quotient and remainder of x >= 0 by y > 0
    "divide": f"""
        cell quotient
        cell remainder
        cell minus_y
            {move("x", "remainder")}
            subleq y minus_y
        loop:
            subleq y remainder low
            subleq MINUS_ONE quotient
            goto loop
        low:
            {to_if_not_negative("exact", "remainder")}
            subleq minus_y remainder
            halt
        exact:
            subleq MINUS_ONE quotient
    """,
    # result := n!
    "factorial": f"""
        cell result = 1
        cell product
        cell count
        loop:
            subleq ZERO n halt
            clear product
            {move("n", "count")}
        inner:
            {add("result", "product")}
            subleq #1 count ready
            goto inner
        ready:
            {move("product", "result")}
            subleq #1 n halt
            goto loop
    """,
    # a := the n-th Fibonacci number, 0 for n = 0
    "fibonacci": f"""
        cell a
        cell b = 1
        cell both
        loop:
            subleq ZERO n halt
            {move("a", "both")}
            {add("b", "both")}
            {move("b", "a")}
            {move("both", "b")}
            subleq #1 n halt
            goto loop
    """,
    # x := greatest common divisor of x > 0 and y > 0, by subtraction
    "gcd": f"""
        cell difference
        loop:
            {move("x", "difference")}
            subleq y difference not_greater
            subleq y x
            goto loop
        not_greater:
            {to_if_not_negative("halt", "difference")}
            subleq x y
            goto loop
    """,
}


def written(bits: int, cells: Mapping[str, int | Sequence[int]], text: str) -> Program:
    """Assemble a program over cells and lists of cells with their initial values."""
    lines = [f"bits {bits}"]
    for name, value in cells.items():
        if isinstance(value, int):
            lines.append(f"cell {name} = {value}")
        else:
            lines.append(f"cell {name}[{len(value)}] = {' '.join(map(str, value))}")
    return assemble("\n".join([*lines, text, *["cell t"] * ("clear t\n" in text)]))


def arithmetic(name: str, bits: int = BITS, **arguments: int) -> Program:
    """Assemble a program of ``ARITHMETIC``; its arguments are cells of the same names."""
    return written(bits, arguments, ARITHMETIC[name])


def reverse(values: Sequence[int]) -> Program:
    """Reverse a list: list := the values in reverse."""
    pairs = [(f"list[{i}]", f"list[{len(values) - 1 - i}]") for i in range(len(values) // 2)]
    swaps = (move(first, "u") + move(second, first) + move("u", second) for first, second in pairs)
    return written(BITS, {"list": values, "u": 0}, "".join(swaps))


def search(values: Sequence[int], key: int) -> Program:
    """Search a list: place := the first index at which ``key`` is, or -1."""
    text = "".join(
        f"""
            {move(f"list[{i}]", "difference")}
            subleq key difference maybe_{i}
            goto not_{i}
        maybe_{i}:
            {to_if_not_negative(f"found_{i}", "difference")}
            goto not_{i}
        found_{i}:
            {move(f"#{i}", "place")}
            halt
        not_{i}:
        """
        for i in range(len(values))
    )
    return written(BITS, {"list": values, "key": key, "place": -1, "difference": 0}, text)


def sort(values: Sequence[int]) -> Program:
    """Sort a list by bubble sort. Differences of values must fit into a word."""
    text = "".join(
        f"""
            {move(f"list[{i}]", "u")}
            subleq list[{i + 1}] u fine_{last}_{i}
            {move(f"list[{i}]", "u")}
            {move(f"list[{i + 1}]", f"list[{i}]")}
            {move("u", f"list[{i + 1}]")}
        fine_{last}_{i}:
        """
        for last in range(len(values) - 1, 0, -1)
        for i in range(last)
    )
    return written(BITS, {"list": values, "u": 0}, text)


def count3(values: Sequence[int]) -> Program:
    """Compute Count3 of the values, #{(i, j): x_i + x_j + x_n = 0 (mod n)} mod n.

    Two copies of the list are turned past their first cells, one in a loop within the other.
    """
    n = len(values)

    def turn(name: str) -> str:
        moves = "".join(move(f"{name}[{i + 1}]", f"{name}[{i}]") for i in range(n - 1))
        return move(f"{name}[0]", "u") + moves + move("u", f"{name}[{n - 1}]")

    def reduce(cell: str, label: str) -> str:  # cell := cell mod n for cell >= 0
        return f"""
        {label}_again:
            subleq #{n} {cell} {label}_low
            goto {label}_again
        {label}_low:
            {to_if_not_negative(f"{label}_done", cell)}
            subleq #-{n} {cell}
        {label}_done:
        """

    cells = {"x": values, "y": [0] * n, "last": 0, "i": n, "j": n, "sum": 0, "count": 0, "u": 0}
    text = f"""
        residues:
            {reduce("x[0]", "residue")}
            {turn("x")}
            subleq #1 i counted
            goto residues
        counted:
            {move(f"x[{n - 1}]", "last")}
            {"".join(move(f"x[{i}]", f"y[{i}]") for i in range(n))}
            {move(f"#{n}", "i")}
        outer:
            {move(f"#{n}", "j")}
        inner:
            {move("x[0]", "sum")}
            {add("y[0]", "sum")}
            {add("last", "sum")}
            {reduce("sum", "sum")}
            subleq ZERO sum hit
            goto miss
        hit:
            subleq MINUS_ONE count
        miss:
            {turn("y")}
            subleq #1 j turned
            goto inner
        turned:
            {turn("x")}
            subleq #1 i finished
            goto outer
        finished:
            {reduce("count", "count")}
    """
    return written(10, cells, text)


def random_programs(shape: Shape, count: int, seed: int = 0) -> list[Program]:
    """Draw programs, each from a random seed; cells 0 and 1 are never written to."""
    bits, cells, commands = shape
    half = 1 << (bits - 1)
    last = commands - 1
    made = []
    for draw in map(random.Random, range(seed, seed + count)):
        memory = [draw.randrange(-half, half) for _ in range(cells - 2)]
        code = [
            (draw.randrange(cells), draw.randrange(2, cells), draw.randrange(commands))
            for _ in range(last)
        ]
        made.append(Program(bits, (0, -1, *memory), (*code, (ZERO, MINUS_ONE, last))))
    return made


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


def compile_counters(code: Sequence[tuple], counters: Mapping[str, int]) -> Program:
    """Compile a counter program to SUBLEQ: two commands for ``inc``, three for ``dec``."""
    label = [*(f"line_{i}" for i in range(len(code))), "halt"]
    lines = []
    for i, (name, counter, *targets) in enumerate(code):
        if name == "inc":
            lines.append(f"line_{i}: subleq MINUS_ONE {counter}")
        else:
            lines.append(f"line_{i}: subleq ZERO {counter} {label[targets[1]]}")
            lines.append(f"subleq #1 {counter} {label[targets[0]]}")
        lines.append(f"goto {label[targets[0]]}")
    return written(BITS, counters, "\n".join(lines))
