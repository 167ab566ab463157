"""The machine against the interpreter, bit for bit, and what Lemma 4 says of its size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.looped import Shape, SubleqMachine, compare, machine
from entp_papers.looped import programs as library
from entp_papers.looped.interpreter import interpret
from entp_papers.looped.program import states
from entp_papers.looped.programs import random_program
from entp_papers.looped.transcription import transcribe

DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("shape", [Shape(4, 5, 6), Shape(16, 12, 9), Shape(9, 40, 20)])
def test_random_programs_are_exact_after_every_pass(shape, dtype, fast):
    on = SubleqMachine(shape, dtype)
    found = compare(on, [random_program(shape, seed) for seed in range(20)], 25, fast=fast)
    assert (found.wrong_passes, found.deviation, found.passes) == (0, 0.0, 500)


@settings(max_examples=25)
@given(st.integers(2, 20), st.integers(3, 9), st.integers(1, 8), st.integers(0, 10**6))
def test_any_shape(bits, cells, commands, seed):
    shape = Shape(bits, cells, commands)
    assert compare(SubleqMachine(shape), [random_program(shape, seed)], 12).wrong_passes == 0


@pytest.mark.parametrize("pattern", ["full", "restricted"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_restricted_attention_computes_the_same(pattern, dtype):
    shape = Shape(8, 10, 10)
    on = SubleqMachine(shape, dtype)
    assert compare(on, [random_program(shape, s) for s in range(10)], 20, pattern).wrong_passes == 0


def test_the_machine_equals_its_transcription():
    shape = Shape(6, 6, 5)
    on = SubleqMachine(shape)
    x = states(on, [random_program(shape, 1)])
    np.testing.assert_allclose(transcribe(on)(x[0].numpy().T).T, on(x)[0].numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_halting_is_a_fixed_point(dtype):
    program = library.multiply(3, 2)
    on = machine(program, dtype)
    x = states(on, [program])
    for _ in range(interpret(program, 100).steps):
        x = on(x)
    assert int(on.counters(x)) == program.last
    assert torch.equal(on(x), x)


def test_weights_run_any_program_of_their_shape():
    shape = Shape(8, 8, 9)
    on = SubleqMachine(shape)
    before = on.weights_hash()
    assert compare(on, [random_program(shape, seed) for seed in range(5)], 10).wrong_passes == 0
    assert on.weights_hash() == before == SubleqMachine(shape).weights_hash()


@pytest.mark.parametrize("bits,cells,commands", [(4, 5, 5), (16, 60, 60), (8, 400, 20)])
def test_layers_heads_and_width(bits, cells, commands):
    shape = Shape(bits, cells, commands)
    size, L = SubleqMachine(shape).size(), shape.pointer
    assert (size["layers"], size["heads"]) == (9, 2)
    assert size["width"] == (8 * L + 3 * bits + 1) + (3 * L + 2 * bits + 1 + L)  # the paper's rows, then ours


def test_states_are_read_back_as_they_were_written():
    shape = Shape(7, 9, 6)
    on, made = SubleqMachine(shape), [random_program(shape, seed) for seed in range(4)]
    x = states(on, made)
    assert on.words(x).tolist() == [list(p.memory) for p in made]
    assert on.commands(x).tolist() == [list(map(list, p.code)) for p in made]
    assert on.counters(x).tolist() == [0] * 4
    assert x.shape == (4, shape.tokens, on.width)


def test_states_hold_minus_one_zero_and_one_only():
    shape = Shape(5, 6, 6)
    on = SubleqMachine(shape, torch.float32)
    x = states(on, [random_program(shape, seed) for seed in range(6)])
    for _ in range(10):
        x = on(x)
        assert set(x.unique().tolist()) == {-1.0, 0.0, 1.0}


def test_too_cold_a_softmax_computes_nonsense():
    shape = Shape(8, 10, 10)
    made = [random_program(shape, s) for s in range(10)]
    assert compare(SubleqMachine(shape, heat=1.0), made, 10, exact=False).wrong_programs == 10
    assert compare(SubleqMachine(shape, heat=12.0), made, 10, exact=False).wrong_programs == 0


def test_wider_words_need_a_hotter_softmax():
    """Each adder multiplies errors by 2^bits: what is enough for words of 4 bits is not for 16."""
    wrong = {}
    for bits in (4, 16):
        shape = Shape(bits, 10, 10)
        made = [random_program(shape, s) for s in range(40)]
        wrong[bits] = compare(SubleqMachine(shape, heat=8.0), made, 10, exact=False).wrong_programs
    assert wrong[4] == 0 < wrong[16]


@pytest.mark.parametrize("name", ["flag", "write", "branch"])
def test_formulas_as_printed_fail(name):
    shape = Shape(8, 8, 8)
    made = [random_program(shape, s) for s in range(10)]
    assert compare(SubleqMachine(shape, printed=[name]), made, 20, exact=False).wrong_programs > 0


@pytest.mark.parametrize(
    "arguments,message",
    [((1, 3, 2), "bits = 1"), ((21, 3, 2), "bits = 21"), ((8, 1, 2), "cells = 1"), ((8, 3, 0), "commands = 0")],
)
def test_impossible_shapes(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Shape(*arguments)


def test_impossible_options():
    with pytest.raises(ConfigError, match="heat"):
        SubleqMachine(Shape(8, 3, 2), heat=0.0)
    with pytest.raises(ConfigError, match="must be one of flag, write, branch"):
        SubleqMachine(Shape(8, 3, 2), printed=["flags"])
