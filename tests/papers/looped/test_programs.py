"""The assembler and its errors, and programs: right by the interpreter for many inputs, on the
machine for a few.
"""

import functools
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


LISTS = """
cell a = 1
cell b[2] = 2 0
subleq ZERO a out
clear b[0]
out: subleq #3 a
"""


MISTAKES = {
    "cell a\nsubleq a a lop\nloop: halt": "line 2: label = 'lop': .*; did you mean 'loop'",
    "celll a = 1": "line 1: command = 'celll': .*; did you mean 'cell'",
    "loop: cell a = 1": "line 1: 'cell' behind a label",
    "cell a[2]\nsubleq a[2] a[0]": r"line 2: a\[2\] is out of range, a has 2 cells, 0 to 1",
    "cell a = b": "line 1: 'b' is no number",
    "bits 4\ncell a = 8": "line 2: a = 8",
    "cell a\nsubleq a #1": "line 2: #1",
    "cell a\ncell a": "line 2: 'a'",
    "cell a[2] = 1": "line 1: a has 2 cells",
    "cell a[0]": r"line 1: a\[0\]",
    "cell a\nhalt: clear a": "line 2: label 'halt'",
    "bits 21": "line 1: bits 21",
    "cell a\ngoto": "line 2: goto takes 1",
    "cell a\nsubleq a ZERO": "line 2: ZERO",
}
test_mistakes_are_named = named(
    *((functools.partial(assemble, text), message) for text, message in MISTAKES.items()),
    (lambda: assemble(MULTIPLY).cell("z"), "cell = 'z'"),
    (lambda: run(arithmetic("multiply", x=6, y=3)).attention(10), "step = 10"),
)


positive = st.integers(1, 30)


def final(program, *cells):
    history = interpret(program, 60_000)
    assert history.lines[-1] == program.last
    return [history.memories[-1][program.cell(c)] for c in cells]


def test_texts_compute_what_they_say():
    multiply = assemble(MULTIPLY)
    assert multiply.bits == 12
    assert final(multiply, "product", "x") == [63, 7]
    assert final(assemble(LISTS), "a", "b[0]", "b[1]") == [-2, 0, 0]


@settings(max_examples=30)
@given(st.integers(0, 30), positive)
def test_arithmetic(x, y):
    assert final(arithmetic("add", x=x, y=y), "y") == [x + y]
    assert final(arithmetic("multiply", x=x, y=y), "product") == [x * y]
    assert final(arithmetic("divide", x=x, y=y), "quotient", "remainder") == [x // y, x % y]


@settings(max_examples=30)
@given(positive, positive)
def test_common_divisors(x, y):
    assert final(arithmetic("gcd", x=x, y=y), "x") == [math.gcd(x, y)]


@settings(max_examples=20)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6), st.integers(-50, 50))
def test_lists(values, key):
    cells = [f"list[{i}]" for i in range(len(values))]
    assert final(library.reverse(values), *cells) == values[::-1]
    assert final(library.sort(values), *cells) == sorted(values)
    for asked in (key, values[-1]):
        place = values.index(asked) if asked in values else -1
        assert final(library.search(values, asked), "place") == [place]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_count3(values):
    assert final(library.count3(values), "count") == [count3(values)]


@settings(max_examples=20)
@given(st.integers(0, 25))
def test_counter_machines(x):
    double = compile_counters(DOUBLE, {"x": x, "y": 0})
    third = compile_counters(THIRD, {"x": x, "q": 0})
    collatz = compile_counters(COLLATZ, {"x": x, "half": 0, "triple": 0})
    assert final(double, "x") == [2 * x]
    assert final(third, "q", "x") == [x // 3, x % 3]
    assert final(collatz, "x") == [3 * x + 1 if x % 2 else x // 2]


def test_a_program_that_does_not_halt_says_where_it_is():
    program = assemble("cell a = 5\nloop: subleq #1 a loop\ngoto loop")
    with pytest.raises(ConfigError, match="7 steps: at line 1 of 0 to 2, with a = 1") as caught:
        run(program, steps=7)
    assert len(caught.value._render_traceback_()) == 1  # in a notebook, one line


# The machine against the interpreter, bit for bit; Lemma 4 on its size; the machine under a causal
# mask.


@settings(max_examples=20)
@given(st.integers(2, 20), st.integers(3, 9), st.integers(1, 8), st.integers(0, 10**6))
def test_any_shape(bits, cells, commands, seed):
    shape = Shape(bits, cells, commands)
    assert compare(SubleqMachine(shape), random_programs(shape, 1, seed), 12, fast=False).wrong == 0


MASKED = SubleqMachine(Shape(6, 6, 6))
PROGRAMS = random_programs(MASKED.shape, 12)


@pytest.mark.parametrize("place", ["first", "last"])
def test_full_attention_runs_the_machine_wherever_the_scratchpad_stands(place):
    found = masked_run(MASKED, PROGRAMS, 8, "full", place)
    assert found["fetched"] == found["computed"] == 1
    assert found["memory"] == pytest.approx(1.0)
    assert found["counter"] == pytest.approx(1.0)


@pytest.mark.parametrize(("place", "fetched"), [("first", 0), ("last", 1)])
def test_a_causal_mask_stops_the_machine(place, fetched):
    """Scratchpad first: no command is fetched. Last: the difference is computed, and never
    written.
    """
    found = masked_run(MASKED, PROGRAMS, 8, "causal", place)
    assert found["fetched"] == fetched
    assert place == "first" or found["computed"] == 1
    assert compare(MASKED, PROGRAMS, 8, "causal", fast=False).wrong
    assert found["changed"] == 0
    assert found["memory"] < 0.5


def test_the_benchmark_runs():
    assert thousand_programs(programs=3, steps=2, chunk=2) > 0
