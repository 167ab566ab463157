"""Function blocks: contract and size; their errors are in ``test_studies``. FLEQ: machine and
programs.
"""

import pytest
import torch
from mistakes import named, refused

from entp_papers.looped import algorithms, blocks
from entp_papers.looped.block_studies import FILLING, MAKERS, BlockStack, violations
from entp_papers.looped.fleq_programs import encode, fleq, interpret, random_fleq, run

LINEAR = algorithms.linear_functions()
ENTRYWISE = "σ of every entry"


@pytest.mark.parametrize(
    ("name", "heads"),
    [("A^T B, two heads", 2), ("σ(A)", 3), ("√A", 51), ("diagonal", 1), (ENTRYWISE, 1)],
)
def test_blocks_that_no_claim_is_about_keep_their_contract_with_so_many_heads(name, heads):
    maker = blocks.entrywise_sigmoid_block if name == ENTRYWISE else MAKERS[name]
    found = violations(maker, 3)
    filled = found.pop("padding") > 1e-6  # functions of 0 that are not 0 fill the padding
    assert filled == (name in (*FILLING, ENTRYWISE))
    assert max(found.values()) < 1e-7
    assert BlockStack(maker, 3).block.heads == heads


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
    with refused("no halt"):
        run(endless)
    assert run(endless, must_halt=False).lines == [0] * 6


def read(line):
    return fleq(line, 1, {"y": 1.0}, LINEAR)


test_mistakes_are_named = named(
    (lambda: read("y = ad(y, one)"), "function = 'ad': must be one of"),
    (lambda: read("y = add(z, one)"), "item = 'z': must be one of"),
    (lambda: read("if y <= 0 goto on"), "label = 'on': must be one of"),
    (lambda: read("a: y = add(y, one)\na: y = add(y, one)"), "label 'a': is there already"),
    (lambda: fleq("y = add(y, one)", 1, {"y": torch.eye(2)}, LINEAR), "an item of shape"),
    (lambda: run(fleq("y = add(y, y)", 1, {"y": 3000.0}, LINEAR)), "values beyond 4096"),
    (lambda: blocks.inverse_sum(0), "m = 0: must be at least 1"),
    (lambda: blocks.signed_inverse_sum(10, 5, 1), "low = 5, high = 1: must be"),
    (lambda: blocks.graded_sqrt_sum(9, -1), "high = -1: must be above 0"),
    (
        lambda: algorithms.newton_inverse(torch.ones(2, 3), 3, "printed"),
        r"A of shape \(2, 3\): must be",
    ),
    (lambda: algorithms.newton_inverse(torch.eye(2), 3, "foo"), "start = 'foo': must be one of"),
)


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
