"""The machine against the interpreter, bit for bit; Lemma 4 on its size; the machine under a causal mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import named

from benchmarks.looped import thousand_programs
from entp_papers.looped.programs import multiply, random_programs
from entp_papers.looped.running import compare, interpret, masked_run
from entp_papers.looped.subleq import Shape, SubleqMachine, states


@pytest.mark.parametrize(
    ("pattern", "fast", "shape", "dtype"),
    [
        ("full", False, Shape(4, 5, 6), torch.float64),
        ("full", True, Shape(16, 12, 9), torch.float32),
        ("full", True, Shape(9, 40, 20), torch.float64),
        ("restricted", False, Shape(8, 10, 10), torch.float32),
    ],
)
def test_random_programs_are_exact_after_every_pass(shape, fast, pattern, dtype):
    on = SubleqMachine(shape, dtype)
    before = on.weights_hash()
    found = compare(on, random_programs(shape, 20), 25, pattern, fast=fast)
    assert (found.wrong_passes, found.deviation, found.passes) == (0, 0.0, 500)
    assert on.weights_hash() == before == SubleqMachine(shape, dtype).weights_hash()


@settings(max_examples=20)
@given(st.integers(2, 20), st.integers(3, 9), st.integers(1, 8), st.integers(0, 10**6))
def test_any_shape(bits, cells, commands, seed):
    shape = Shape(bits, cells, commands)
    assert compare(SubleqMachine(shape), random_programs(shape, 1, seed), 12).wrong_passes == 0


def test_halting_is_a_fixed_point():
    program = multiply(3, 2)
    on = program.machine(torch.float32)
    x = states(on, [program])
    for _ in range(interpret(program, 100).steps):
        x = on(x)
    assert int(on.counters(x)) == program.last
    assert torch.equal(on(x), x)


def test_states_are_read_back_and_hold_minus_one_zero_and_one_only():
    on = SubleqMachine(Shape(7, 9, 6), torch.float32)
    made = random_programs(on.shape, 4)
    x = states(on, made)
    assert x.shape == (4, on.shape.tokens, on.width)
    assert on.words(x).tolist() == [list(p.memory) for p in made] and on.counters(x).tolist() == [0] * 4
    for _ in range(10):
        x = on(x)
        assert set(x.unique().tolist()) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(("bits", "heat", "wrong"), [(4, 8.0, False), (16, 8.0, True)])
def test_wider_words_need_a_hotter_softmax(bits, heat, wrong):
    """Each adder multiplies errors by 2^bits: what is enough for words of 4 bits is not for 16."""
    on = SubleqMachine(Shape(bits, 10, 10), heat=heat)
    assert (compare(on, random_programs(on.shape, 40), 10, exact=False).wrong_programs > 0) == wrong


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
    """Scratchpad first: no command is fetched. Last: the difference is computed, and never written."""
    found = masked_run(MASKED, random_programs(MASKED.shape, 12), 8, pattern, place)
    assert found["fetched"] == fetched and (found["changed"] > 0) == changes
    assert computed is None or found["computed"] == computed
    right = found["memory"], found["counter"]
    assert right == (pytest.approx(1.0), pytest.approx(1.0)) if changes else found["memory"] < 0.5


test_mistakes_are_named = named(
    (lambda: Shape(21, 3, 2), "bits = 21"),
    (lambda: Shape(8, 1, 2), "cells = 1"),
    (lambda: SubleqMachine(Shape(8, 3, 2), heat=0.0), "heat"),
    (lambda: SubleqMachine(Shape(8, 3, 2), printed=["flags"]), "printed"),
    (lambda: masked_run(MASKED, [], 1, "full", "lasst"), "place"),
)


def test_the_benchmark_runs():
    assert thousand_programs(programs=3, steps=2, chunk=2) > 0
