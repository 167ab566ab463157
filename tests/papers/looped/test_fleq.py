"""Function blocks: contract and size; their errors are in ``test_studies``. FLEQ: machine and
programs.
"""

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped import algorithms, blocks
from entp_papers.looped.block_studies import FILLING, MAKERS, BlockStack, violations
from entp_papers.looped.fleq_programs import encode, fleq, interpret, random_fleq, run
from entp_papers.looped.one_head_studies import sum_in_one_head

LINEAR = algorithms.linear_functions()
TOLERANCES = {
    "A^T": 1e-8,
    "A^T B": 1e-4,
    "B^T A": 1e-4,
    "A^T A": 1e-4,
    "B^T B": 1e-4,
    "A^T B, two heads": 1e-7,
}
HEADS = {"A^T B, two heads": 2, "σ(A)": 3, "√A": 51}


@pytest.mark.parametrize("name", MAKERS)
def test_blocks_keep_their_contract(name, d=3):
    tolerance = TOLERANCES.get(name, 1e-9)
    found = violations(MAKERS[name], d)
    block = BlockStack(MAKERS[name], d).block
    assert found.pop("error") < tolerance
    assert found.pop("previous") < max(1e-9, 3 * tolerance / 100)
    assert (found.pop("padding") < 10 * tolerance) != (name in FILLING)
    assert max(found.values()) < 1e-9
    assert (len(block.plans), block.heads) == (4 if name == "A^T" else 2, HEADS.get(name, 1))


@pytest.mark.parametrize(
    ("functions", "layers", "heads"),
    [
        (LINEAR, 13, 4),
        (algorithms.calculator_functions(10), 11, 26),
        (algorithms.learning_functions(), 13, 8),
    ],
)
def test_layers_are_nine_and_those_of_the_deepest_block(functions, layers, heads):
    machine = fleq("", 3, {}, functions).machine()
    assert (
        machine.size()["layers"] == 9 + max(len(block.plans) for block in machine.blocks) == layers
    )
    assert machine.size()["heads"] == heads


def test_one_head_runs_what_many_heads_run():
    """The scores of all blocks are added, and those of blocks that were not chosen are 0."""
    functions = algorithms.learning_functions(blocks.entrywise_sigmoid_block())
    for seed in range(2):
        program = random_fleq(3, 8, seed, functions)
        machine = program.machine(one_head=True)
        expected = interpret(program)
        found = run(program, machine)
        assert machine.size()["heads"] == 1 and machine.size()["layers"] == 13
        assert found.lines == expected.lines
        for name in program.items:
            torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-3)


def test_a_sigmoid_of_every_entry_keeps_the_contract():
    found = violations(blocks.entrywise_sigmoid_block(), 3)
    assert found.pop("padding") == pytest.approx(0.5)  # σ(0) fills the padding
    assert max(found.values()) < 1e-9


@pytest.mark.parametrize("m", [1, 5, 20])
def test_one_head_sums_any_sigmoids(m):
    draw = np.random.default_rng(m)
    f = blocks.SigmoidSum(*draw.normal(size=(3, m)))
    x = draw.normal(size=7)
    found, stack = sum_in_one_head(f, x)
    np.testing.assert_allclose(found, f(x), rtol=0, atol=1e-10)
    assert stack.size()["heads"] == 1


def test_weights_run_any_program_of_their_shape_and_smaller_ones():
    one = random_fleq(2, 8, 0, LINEAR)
    other = random_fleq(2, 8, 1, LINEAR)
    machine = one.machine()
    assert other.shape == one.shape and machine.weights_hash() == other.machine().weights_hash()
    small = fleq("y = add(y, one)", 2, {"y": 1.0}, LINEAR)
    sparse = machine.sparse()
    x = encode(machine, [small, one, other])
    y = x
    for _ in range(6):
        x = machine(x)
        y = sparse(y)
    assert float(machine.memory(x)[0, 3, 0, 0]) == 2.0
    torch.testing.assert_close(x, y, rtol=0, atol=1e-9)  # the sparse form is the same function


def test_a_program_that_does_not_halt_is_an_error(monkeypatch):
    monkeypatch.setattr("entp_papers.looped.fleq_programs.MOST_STEPS", 5)
    endless = fleq("loop: if zero <= 0 goto loop", 1, {}, LINEAR)
    with pytest.raises(ConfigError, match="no halt"):
        run(endless)
    assert run(endless, must_halt=False).lines == [0] * 6


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("y = ad(y, one)", "function = 'ad'"),
        ("y = add(z, one)", "item = 'z'"),
        ("if y <= 0 goto on", "label = 'on'"),
    ],
)
def test_unknown_names_are_refused(line, what):
    with pytest.raises(ConfigError, match=f"{what}: must be one of"):
        fleq(line, 1, {"y": 1.0}, LINEAR)


def test_calls_and_branches_apart_and_together():
    text = """
    loop:
        x = add(x, one)
        if x <= 0 goto loop
        y = add(y, one); if zero <= 0 goto end
        y = sub(y, y)
    end:
        y = add(y, y)
    """
    program = fleq(text, 1, {"x": -2.0, "y": 4.0}, LINEAR)
    found = run(program)
    assert found.lines == interpret(program).lines == [0, 1, 0, 1, 0, 1, 2, 4, 5]
    assert float(found["x"]) == 1 and float(found["y"]) == 10
