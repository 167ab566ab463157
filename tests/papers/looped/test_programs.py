"""The assembler and its errors, and programs: right by the interpreter for many inputs, on the machine for a few."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from entp_lib.tasks.counting import count3
from entp_papers.looped import programs as library
from entp_papers.looped.assembler import assemble
from entp_papers.looped.programs import COLLATZ, DOUBLE, THIRD, compile_counters
from entp_papers.looped.running import StepLimit, compare, interpret, run
from entp_papers.looped.subleq import Program, Shape

MULTIPLY = """
bits 12
cell x = 7      # a comment
cell y = 0x9
cell product
cell minus_x
    subleq x minus_x
loop:
    subleq minus_x product
    subleq #1 y halt
    goto loop
"""


def test_places_and_lines():
    program = assemble(MULTIPLY)
    assert program.bits == 12
    assert program.memory == (0, -1, 7, 9, 0, 0, 1)
    assert program.code == ((2, 5, 1), (5, 4, 2), (6, 3, 4), (0, 1, 1), (0, 1, 4))
    assert program.cell("product") == 4


def test_lists_and_macros_with_labels_and_parameters_of_their_own():
    program = assemble(
        """
        cell a = 1
        const LIMIT = 3
        cell b[2] = 2 0
        macro skip x
            subleq ZERO x @out
            clear x
        @out:
        end
        macro twice x y
            skip x
            skip y
        end
        twice a b[0]
        subleq #LIMIT a
        """
    )
    assert program.code == ((0, 2, 2), (2, 2, 2), (0, 3, 4), (3, 3, 4), (5, 2, 5), (0, 1, 5))
    assert program.memory == (0, -1, 1, 2, 0, 3)


test_mistakes_are_named = named(
    (lambda: assemble("cell a\nsubleq a a lop\nloop: halt"), "line 2: .*'lop'; did you mean 'loop'"),
    (lambda: assemble("celll a = 1"), "line 1: unknown command 'celll'; did you mean 'cell'"),
    (lambda: assemble("bits 4\ncell a = 8"), "line 2: a = 8"),
    (lambda: assemble("cell a\nsubleq a #1"), "line 2: #1"),
    (lambda: assemble("cell a\ncell a"), "line 2: 'a'"),
    (lambda: assemble("cell a[2] = 1"), "line 1: a has 2 cells"),
    (lambda: assemble("bits 21"), "line 1: bits 21"),
    (lambda: assemble("macro m x\nhalt"), "line 1: macro 'm'"),
    (lambda: assemble("macro m x\nm x\nend\nm 1"), "macro 'm'"),
    (lambda: assemble("macro m x\nend\nm"), "line 3: m takes 1"),
    (lambda: Program(8, (0, -1), ((0, 2, 0), (0, 1, 1))), "line 0: cell 2"),
    (lambda: Program(8, (0, -1, 0), ((0, 2, 0),)), "last command"),
    (lambda: Program(8, (0, 0, 0), ((0, 1, 0),)), "cells 0 and 1"),
    (lambda: assemble(MULTIPLY).padded(Shape(12, 3, 8)), "cells = 3"),
    (lambda: assemble(MULTIPLY).cell("z"), "cell 'z'"),
    (lambda: compile_counters((("inc", "y", 1),), {"x": 0}), "counter 'y'"),
    (lambda: compile_counters((("inc", "x", 2),), {"x": 0}), "line 2"),
    (lambda: run(library.multiply(6, 3)).show(10), "step = 10"),
)


small, positive = st.integers(0, 30), st.integers(1, 30)
lists = st.lists(st.integers(-50, 50), min_size=1, max_size=6)


def final(program, *cells):
    history = interpret(program, 60_000)
    assert history.halted
    return [history.memories[-1][program.cell(c)] for c in cells]


@settings(max_examples=30)
@given(small, positive)
def test_arithmetic(x, y):
    assert final(library.add(x, y), "y") == [x + y]
    assert final(library.multiply(x, y), "product") == [x * y]
    assert final(library.divide(x, y), "quotient", "remainder") == [x // y, x % y]
    assert final(library.gcd(x + 1, y), "x") == [math.gcd(x + 1, y)]


def test_loops_within_loops():
    for n, fibonacci in enumerate((0, 1, 1, 2, 3, 5, 8, 13)):
        assert final(library.factorial(n), "result") == [math.factorial(n)]
        assert final(library.fibonacci(n), "a") == [fibonacci]


@settings(max_examples=20)
@given(lists, st.integers(-50, 50))
def test_lists(values, key):
    cells = [f"list[{i}]" for i in range(len(values))]
    assert final(library.reverse(values), *cells) == values[::-1]
    assert final(library.sort(values), *cells) == sorted(values)
    for wanted in (key, values[-1]):
        assert final(library.search(values, wanted), "place") == [values.index(wanted) if wanted in values else -1]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_count3(values):
    assert final(library.count3(values), "count") == [count3(values)]


@settings(max_examples=20)
@given(st.integers(0, 25))
def test_counter_machines(x):
    for code, starts, expected in (
        (DOUBLE, {"x": x, "y": 0}, {"x": 2 * x}),
        (THIRD, {"x": x, "q": 0}, {"q": x // 3, "x": x % 3}),
        (COLLATZ, {"x": x, "half": 0, "triple": 0}, {"x": x // 2 if x % 2 == 0 else 3 * x + 1}),
    ):
        assert final(compile_counters(code, starts), *expected) == list(expected.values())


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (library.reverse([3, 1, 2]), 12),
        (library.sort([3, 1, 2]), 40),
        (compile_counters(COLLATZ, {"x": 3, "half": 0, "triple": 0}, 8), 40),
    ],
)
def test_the_machine_runs_them(program, steps):
    assert compare(program.machine(), [program], steps).wrong_passes == 0


def test_a_trace_shows_the_run():
    program = library.multiply(6, 3)
    trace = run(program)
    assert trace["product"] == 18 and trace.steps == interpret(program, 100).steps == 9
    table = trace.table()
    assert table["product"].tolist()[-1] == 18 and table["line"].tolist() == trace.lines
    assert trace.show(2) == "step 2, line 1: product = 0 - -6 (minus_x) = 6, positive: to line 2"
    weights = trace.attention(2)
    assert len(weights) == 3
    for matrix in weights.values():
        assert matrix.sum(-1).sub(1).abs().max() < 1e-12
    fetched = weights["fetch the command that the counter points to"][0, 0]
    assert fetched.topk(2).indices.tolist() in ([0, 9], [9, 0])  # itself and the command at line 1, token 1 + 7 + 1


def test_a_program_that_does_not_halt_says_where_it_is():
    program = assemble("cell a = 5\nloop: subleq #1 a loop\ngoto loop")
    with pytest.raises(StepLimit, match="7 steps: at line 1 of 0 to 2, with a = 1") as caught:
        run(program, steps=7)
    assert caught.value.memory[2] == 1 and caught.value.line == 1
