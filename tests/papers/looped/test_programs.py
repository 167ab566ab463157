"""Programs: right by the interpreter for many inputs, and on the machine for a few."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.tasks.counting import count3
from entp_papers.looped import StepLimit, assemble, compare, interpret, machine, run
from entp_papers.looped import programs as library
from entp_papers.looped.interpreter import result
from entp_papers.looped.minsky import COLLATZ, DOUBLE, THIRD, compile_counters, run_counters

small, positive = st.integers(0, 30), st.integers(1, 30)
lists = st.lists(st.integers(-50, 50), min_size=1, max_size=6)


def final(program, *cells):
    memory = result(program, 60_000).memories[-1]
    return [memory[program.cell(c)] for c in cells]


@settings(max_examples=30)
@given(small, positive)
def test_arithmetic(x, y):
    assert final(library.add(x, y), "y") == [x + y]
    assert final(library.multiply(x, y), "product") == [x * y]
    assert final(library.divide(x, y), "quotient", "remainder") == [x // y, x % y]
    assert final(library.gcd(x + 1, y), "x") == [math.gcd(x + 1, y)]


@pytest.mark.parametrize("n", range(8))
def test_loops_within_loops(n):
    assert final(library.factorial(n), "result") == [math.factorial(n)]
    assert final(library.fibonacci(n), "a") == [[0, 1, 1, 2, 3, 5, 8, 13][n]]


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
        held = run_counters(code, starts)
        assert {k: held[k] for k in expected} == expected
        assert final(compile_counters(code, starts), *starts) == [held[k] for k in starts]


@pytest.mark.parametrize(
    "code,counters,message",
    [
        ((("add", "x", 1),), {"x": 0}, "instruction 0"),
        ((("inc", "y", 1),), {"x": 0}, "counter 'y' has no start"),
        ((("inc", "x", 2),), {"x": 0}, "line 2: must be from 0 to 1"),
        ((("inc", "x", 1),), {"x": -1}, "x = -1"),
        ((("inc", "x", 0),), {"x": 0}, "no halt within"),
    ],
)
def test_impossible_counter_programs(code, counters, message):
    with pytest.raises(ValueError, match=message):
        run_counters(code, counters, 100)


@pytest.mark.parametrize(
    "program,steps",
    [
        (library.multiply(7, 9), 28),
        (library.divide(17, 5), 20),
        (library.reverse([3, 1, 2]), 12),
        (library.sort([3, 1, 2]), 40),
        (compile_counters(COLLATZ, {"x": 3, "half": 0, "triple": 0}, 8), 40),
    ],
)
def test_the_machine_runs_them(program, steps):
    assert compare(machine(program), [program], steps).wrong_passes == 0


def test_a_trace_shows_the_run():
    program = library.multiply(6, 3)
    trace = run(program)
    assert trace["product"] == 18 and trace.steps == interpret(program, 100).steps == 9
    table = trace.table()
    assert table["product"].tolist()[-1] == 18 and table["line"].tolist() == trace.lines
    assert list(trace.table(["x"]).columns) == ["line", "x"]
    assert trace.show(2) == "step 2, line 1: product = 0 - -6 (minus_x) = 6, positive: to line 2"
    weights = trace.attention(2)
    assert len(weights) == 3
    for matrix in weights.values():
        assert matrix.sum(-1).sub(1).abs().max() < 1e-12
    fetched = weights["fetch the command that the counter points to"][0, 0]
    assert fetched.topk(2).indices.tolist() in ([0, 9], [9, 0])  # itself and the command at line 1, token 1 + 7 + 1
    with pytest.raises(ValueError, match="step = 10: the run has steps 1 to 9"):
        trace.show(10)


def test_a_program_that_does_not_halt_says_where_it_is():
    program = assemble("cell a = 5\nloop: subleq #1 a loop\ngoto loop")
    for call in (lambda: run(program, steps=7), lambda: result(program, 7)):
        with pytest.raises(StepLimit, match="no halt within 7 steps: at line 1 of 0 to 2, with a = 1") as caught:
            call()
        assert caught.value.memory[2] == 1 and caught.value.line == 1
