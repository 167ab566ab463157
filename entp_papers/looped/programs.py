"""Programs for the SUBLEQ machine: arithmetic, lists, Count3, and random ones.

Memory and commands are apart and no command computes an address, so a list is walked by moving it past a fixed cell,
or by writing the loop out. Every function returns a ``Program`` whose results are cells by name.
"""

import random
from collections.abc import Sequence

from entp_lib.validation import require
from entp_papers.looped.assembler import assemble
from entp_papers.looped.program import MINUS_ONE, ZERO, Program
from entp_papers.looped.subleq import Shape

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


def add(x: int, y: int, bits: int = 16) -> Program:
    """y := x + y."""
    return assemble(f"bits {bits}\ncell x = {x}\ncell y = {y}\n{MACROS}\nadd x y\n")


def multiply(x: int, y: int, bits: int = 16) -> Program:
    """product := x · y for y > 0 by repeated addition: five commands with the one that halts, as short as it gets."""
    return assemble(
        f"""bits {bits}
        cell x = {x}
        cell y = {y}
        cell product
        cell minus_x
            subleq x minus_x
        loop:
            subleq minus_x product
            subleq #1 y halt
            goto loop
        """
    )


def divide(x: int, y: int, bits: int = 16) -> Program:
    """quotient and remainder of x >= 0 by y > 0."""
    return assemble(
        f"""bits {bits}
        cell x = {x}
        cell y = {y}
        cell quotient
        cell remainder
        cell minus_y
        {MACROS}
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
        """
    )


def factorial(n: int, bits: int = 16) -> Program:
    """result := n!."""
    return assemble(
        f"""bits {bits}
        cell n = {n}
        cell result = 1
        cell product
        cell count
        {MACROS}
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
        """
    )


def fibonacci(n: int, bits: int = 16) -> Program:
    """a := the n-th Fibonacci number, 0 for n = 0."""
    return assemble(
        f"""bits {bits}
        cell n = {n}
        cell a = 0
        cell b = 1
        cell both
        {MACROS}
        loop:
            subleq ZERO n halt
            move a both
            add b both
            move b a
            move both b
            subleq #1 n halt
            goto loop
        """
    )


def gcd(x: int, y: int, bits: int = 16) -> Program:
    """x := greatest common divisor of x > 0 and y > 0, by subtraction."""
    return assemble(
        f"""bits {bits}
        cell x = {x}
        cell y = {y}
        cell difference
        {MACROS}
        loop:
            move x difference
            subleq y difference not_greater
            subleq y x
            goto loop
        not_greater:
            to_if_not_negative halt difference
            subleq x y
            goto loop
        """
    )


def cell_list(name: str, values: Sequence[int]) -> str:
    return f"cell {name}[{len(values)}] = {' '.join(map(str, values))}\n"


def reverse(values: Sequence[int], bits: int = 16) -> Program:
    """list := the values in reverse."""
    n = len(values)
    swaps = "".join(
        f"move list[{i}] u\nmove list[{n - 1 - i}] list[{i}]\nmove u list[{n - 1 - i}]\n" for i in range(n // 2)
    )
    return assemble(f"bits {bits}\n{cell_list('list', values)}cell u\n{MACROS}{swaps}")


def search(values: Sequence[int], key: int, bits: int = 16) -> Program:
    """place := the first index at which ``key`` is, or -1."""
    lines = []
    for i in range(len(values)):
        lines.append(f"move list[{i}] difference\nsubleq key difference maybe_{i}\ngoto not_{i}")
        lines.append(f"maybe_{i}: to_if_not_negative found_{i} difference\ngoto not_{i}")
        lines.append(f"found_{i}: move #{i} place\nhalt\nnot_{i}:")
    text = "\n".join(lines)
    return assemble(
        f"bits {bits}\n{cell_list('list', values)}cell key = {key}\ncell place = -1\ncell difference\n{MACROS}{text}\n"
    )


def sort(values: Sequence[int], bits: int = 16) -> Program:
    """list := the values in ascending order, by bubble sort. Differences of values must fit into a word."""
    n = len(values)
    order = "".join(f"order list[{i}] list[{i + 1}]\n" for last in range(n - 1, 0, -1) for i in range(last))
    return assemble(
        f"""bits {bits}
        {cell_list("list", values)}
        cell u
        {MACROS}
        macro order a b
            move a u
            subleq b u @fine
            move a u
            move b a
            move u b
        @fine:
        end
        {order}
        """
    )


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
    return assemble(
        f"""bits {bits}
        const N = {n}
        {cell_list("x", values)}
        cell y[{n}]
        cell last
        cell i = {n}
        cell j = {n}
        cell sum
        cell count
        cell u
        {MACROS}
        macro reduce v      # v := v mod N for v >= 0
        @again:
            subleq #N v @low
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
            move #N i
        outer:
            move #N j
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
    )


def random_program(shape: Shape, seed: int) -> Program:
    """Random memory and commands; cells 0 and 1 are read but not written to."""
    draw = random.Random(seed)
    half = 1 << (shape.bits - 1)
    require(shape.cells >= 3, f"cells = {shape.cells}: must be at least 3, for one that can be written to")
    memory = [draw.randrange(-half, half) for _ in range(shape.cells - 2)]
    code = [
        (draw.randrange(shape.cells), draw.randrange(2, shape.cells), draw.randrange(shape.commands))
        for _ in range(shape.commands - 1)
    ]
    halt = (ZERO, MINUS_ONE, shape.commands - 1)
    return Program(shape.bits, (0, -1, *memory), (*code, halt))
