"""The assembler and its errors, and programs: right by the interpreter for many inputs, on the
machine for a few.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from benchmarks.looped import thousand_programs
from entp_lib.tasks.counting import count3
from entp_lib.validation import ConfigError
from entp_papers.looped import programs as library
from entp_papers.looped.assembler import assemble
from entp_papers.looped.programs import (
    COLLATZ,
    DOUBLE,
    THIRD,
    arithmetic,
    compile_counters,
    random_programs,
)
from entp_papers.looped.running import compare, interpret, masked_run, run
from entp_papers.looped.subleq import Shape, SubleqMachine

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


def test_lists_numbers_and_labels():
    program = assemble(
        """
        cell a = 1
        cell b[2] = 2 0
        subleq ZERO a out
        clear b[0]
        out: subleq #3 a
        """
    )
    assert program.code == ((0, 2, 2), (3, 3, 2), (5, 2, 3), (0, 1, 3))
    assert program.memory == (0, -1, 1, 2, 0, 3)


test_mistakes_are_named = named(
    (
        lambda: assemble("cell a\nsubleq a a lop\nloop: halt"),
        "line 2: .*'lop'; did you mean 'loop'",
    ),
    (lambda: assemble("celll a = 1"), "line 1: unknown command 'celll'; did you mean 'cell'"),
    (lambda: assemble("loop: cell a = 1"), "line 1: 'cell' behind a label"),
    (lambda: assemble("cell a[2]\nsubleq a[2] a[0]"), r"line 2: a\[2\] is out of range"),
    (lambda: assemble("cell a = b"), "line 1: 'b' is no number"),
    (lambda: assemble("bits 4\ncell a = 8"), "line 2: a = 8"),
    (lambda: assemble("cell a\nsubleq a #1"), "line 2: #1"),
    (lambda: assemble("cell a\ncell a"), "line 2: 'a'"),
    (lambda: assemble("cell a[2] = 1"), "line 1: a has 2 cells"),
    (lambda: assemble("cell a[0]"), r"line 1: a\[0\]"),
    (lambda: assemble("cell a\nhalt: clear a"), "line 2: label 'halt'"),
    (lambda: assemble("bits 21"), "line 1: bits 21"),
    (lambda: assemble("cell a\ngoto"), "line 2: goto takes 1"),
    (lambda: assemble("cell a\nsubleq a ZERO"), "line 2: ZERO"),
    (lambda: assemble(MULTIPLY).cell("z"), "cell = 'z'"),
    (lambda: run(arithmetic("multiply", x=6, y=3)).attention(10), "step = 10"),
)


small = st.integers(0, 30)
positive = st.integers(1, 30)
lists = st.lists(st.integers(-50, 50), min_size=1, max_size=6)


def final(program, *cells):
    history = interpret(program, 60_000)
    assert history.lines[-1] == program.last
    return [history.memories[-1][program.cell(c)] for c in cells]


@settings(max_examples=30)
@given(small, positive)
def test_arithmetic(x, y):
    assert final(arithmetic("add", x=x, y=y), "y") == [x + y]
    assert final(arithmetic("multiply", x=x, y=y), "product") == [x * y]
    assert final(arithmetic("divide", x=x, y=y), "quotient", "remainder") == [x // y, x % y]
    assert final(arithmetic("gcd", x=x + 1, y=y), "x") == [math.gcd(x + 1, y)]


@settings(max_examples=20)
@given(lists, st.integers(-50, 50))
def test_lists(values, key):
    cells = [f"list[{i}]" for i in range(len(values))]
    assert final(library.reverse(values), *cells) == values[::-1]
    assert final(library.sort(values), *cells) == sorted(values)
    for scored in (key, values[-1]):
        assert final(library.search(values, scored), "place") == [
            values.index(scored) if scored in values else -1
        ]


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


def test_a_program_that_does_not_halt_says_where_it_is():
    program = assemble("cell a = 5\nloop: subleq #1 a loop\ngoto loop")
    with pytest.raises(ConfigError, match="7 steps: at line 1 of 0 to 2, with a = 1") as caught:
        run(program, steps=7)
    assert caught.value._render_traceback_() == [
        f"ConfigError: {caught.value}"
    ]  # in a notebook, one line


# The machine against the interpreter, bit for bit; Lemma 4 on its size; the machine under a causal
# mask.


@settings(max_examples=20)
@given(st.integers(2, 20), st.integers(3, 9), st.integers(1, 8), st.integers(0, 10**6))
def test_any_shape(bits, cells, commands, seed):
    shape = Shape(bits, cells, commands)
    assert compare(SubleqMachine(shape), random_programs(shape, 1, seed), 12).wrong == 0


MASKED = SubleqMachine(Shape(6, 6, 6))


@pytest.mark.parametrize(
    ("pattern", "place", "fetched", "computed", "changes"),
    [
        ("full", "first", 1, 1, True),
        ("full", "last", 1, 1, True),
        ("causal", "first", 0, None, False),
        ("causal", "last", 1, 1, False),
    ],
)
def test_a_causal_mask_stops_the_machine(pattern, place, fetched, computed, changes):
    """Scratchpad first: no command is fetched. Last: the difference is computed, and never
    written.
    """
    found = masked_run(MASKED, random_programs(MASKED.shape, 12), 8, pattern, place)
    assert found["fetched"] == fetched and (found["changed"] > 0) == changes
    assert computed is None or found["computed"] == computed
    right = found["memory"], found["counter"]
    assert right == (pytest.approx(1.0), pytest.approx(1.0)) if changes else found["memory"] < 0.5


def test_the_benchmark_runs():
    assert thousand_programs(programs=3, steps=2, chunk=2) > 0
