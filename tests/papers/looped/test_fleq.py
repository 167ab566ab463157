"""Function blocks: contract, size, errors of products and of sums of sigmoids. FLEQ: machine, programs, learning."""

import numpy as np
import pytest
import torch
from mistakes import named

from entp_papers.looped.fleq import algorithms, blocks
from entp_papers.looped.fleq.frame import BlockStack, Frame, padding_error, violations
from entp_papers.looped.fleq.programs import encode, fleq, interpret, random_fleq, run

LINEAR = algorithms.linear_functions()


def matrices(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# maker, layers, heads by d, tolerance of its error
BLOCKS = {
    "add": (blocks.linear_block(1.0, 1.0), 2, lambda d: 1, 1e-9),
    "sub": (blocks.linear_block(1.0, -1.0), 2, lambda d: 1, 1e-9),
    "percentage": (blocks.linear_block(0.01), 2, lambda d: 1, 1e-9),
    "transpose": (blocks.transpose_block(), 4, lambda d: 1, 1e-8),
    "diagonal": (blocks.diagonal_block(), 2, lambda d: 1, 1e-9),
    "mul": (blocks.product_block(), 2, lambda d: 1, 1e-4),
    "mul_ba": (blocks.product_block("b", "a"), 2, lambda d: 1, 1e-4),
    "mul_bb": (blocks.product_block("b", "b"), 2, lambda d: 1, 1e-4),
    "mul_two_heads": (blocks.product_block(delta=1e-5, symmetric=True), 2, lambda d: 2, 1e-7),
    "sigmoid": (blocks.sigmoid_block(blocks.SIGMOID), 2, lambda d: d, 1e-9),
    "sqrt": (blocks.sigmoid_block(blocks.sqrt_sum(20), 1), 2, lambda d: 21, 1e-9),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_keep_their_contract(name, d=3):
    maker, layers, heads, tolerance = BLOCKS[name]
    found, block = violations(maker, d), BlockStack(maker, d).block
    assert found.pop("error") < tolerance
    assert found.pop("previous") < max(1e-9, 3 * tolerance / 100)
    assert max(found.values()) < 1e-9
    assert (len(block.plans), block.heads) == (layers, heads(d))
    if name not in ("sigmoid", "sqrt"):  # they fill the padding with f(0)
        assert padding_error(maker, d, d + 2) < 10 * tolerance


def product_error(delta, dtype=torch.float64, symmetric=False, sink=50.0):
    stack = BlockStack(blocks.product_block(delta=delta, sink=sink, symmetric=symmetric), 4, dtype)
    a, b = torch.rand(2, 20, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(2).sub(1)
    return float((stack.apply(a, b).double() - a.mT @ b).abs().max())


def test_product_error_is_linear_in_delta_then_rounding():
    """Slope +1 above its best δ, where half of δ s² is lost; slope -1 below, where rounding is. Two heads: δ²."""
    assert product_error(1e-3) / product_error(1e-4) == pytest.approx(10, rel=0.05)
    assert product_error(1e-10) > 10 * product_error(1e-8) and product_error(1e-7) < 1e-5
    assert product_error(1e-2, symmetric=True) / product_error(1e-3, symmetric=True) == pytest.approx(100, rel=0.05)
    assert product_error(1e-5, symmetric=True) < 1e-8
    assert product_error(1e-3, torch.float32) > 1e-4 > product_error(1e-5)
    assert product_error(1e-4, sink=10.0) > 100 * product_error(1e-4, sink=30.0)


def test_lemma_5(m=50):
    """e selects one of three functions of two numbers; heads are m, layers 3."""
    draw = np.random.default_rng(m)
    stack = BlockStack(blocks.selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2))), 3)
    e = torch.zeros(3, 3, 3, dtype=torch.float64)
    e[range(3), range(3), 0] = 1.0
    x = matrices(3, 3, 3)
    after, exact = stack(stack.encode(e, x, x)), stack.block.exact(e, x)[:, 0, 0]
    torch.testing.assert_close(stack.matrix(after, "c")[:, 0, 0], exact, rtol=0, atol=1e-10 * m)
    for role, held in (("a", e), ("b", x)):
        assert float((stack.matrix(after, role) - held).abs().max()) < 1e-12
    assert all(after[..., r.start : r.stop].abs().max() < 1e-10 for r in stack.block.temporary)
    assert (len(stack.block.plans), stack.block.heads) == (3, m)


@pytest.mark.parametrize(
    ("functions", "layers", "heads"),
    [(LINEAR, 13, 4), (algorithms.calculator_functions(10), 11, 26), (algorithms.learning_functions(), 13, 8)],
)
def test_layers_are_nine_and_those_of_the_deepest_block(functions, layers, heads):
    machine = fleq("", 3, {}, functions).machine()
    assert machine.size()["layers"] == 9 + max(len(block.plans) for block in machine.blocks) == layers
    assert machine.size()["heads"] == heads


def test_weights_run_any_program_of_their_shape_and_smaller_ones():
    one, other = random_fleq(2, 8, 0, LINEAR), random_fleq(2, 8, 1, LINEAR)
    machine = one.machine()
    assert other.shape == one.shape and machine.weights_hash() == other.machine().weights_hash()
    small = fleq("y = add(y, one)", 2, {"y": 1.0}, LINEAR)
    thin, x = machine.sparse(), encode(machine, [small, one, other])
    y = x
    for _ in range(6):
        x, y = machine(x), thin(y)
    assert float(machine.memory(x)[0, 3, 0, 0]) == 2.0
    torch.testing.assert_close(x, y, rtol=0, atol=1e-9)  # the sparse form is the same function


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


def test_newton_inverse_and_the_printed_start():
    a = matrices(4, 4, seed=3)
    a /= a.norm()
    good = run(algorithms.newton_inverse(a, 14, LINEAR))["X"]
    assert float((a @ good - torch.eye(4)).norm()) < 1e-3
    symmetric = a @ a.T / (a @ a.T).norm() + 0.2 * torch.eye(4)
    printed = run(algorithms.newton_inverse(symmetric, 14, LINEAR, "printed"))["X"]
    assert float((symmetric @ printed - torch.eye(4)).norm()) < 1e-3


ENDLESS = "loop: if zero <= 0 goto loop"


def program(text, **items):
    return fleq(text, 2, items or {"y": 0.0}, LINEAR)


test_mistakes_are_named = named(
    (lambda: blocks.product_block("x"), "left = 'x'"),
    (lambda: blocks.product_block(delta=0.0), "delta = 0.0"),
    (lambda: blocks.linear_block(1.0, 2.0), "sign = 2.0"),
    (lambda: blocks.transpose_block()(Frame(4, 13), "t"), "tokens = 13"),
    (lambda: blocks.sigmoid_block(blocks.SIGMOID, 3)(Frame(2, 7), "s"), "rows = 3"),
    (lambda: program("y = ad(y, y)"), "line 1: .*'ad'; did you mean 'add'"),
    (lambda: program("y = add(y, z)"), "line 1: unknown item 'z'"),
    (lambda: program("zero = add(y, y)"), "line 1: zero"),
    (lambda: program("y = add(y, y) [4x1]"), "line 1: 4x1"),
    (lambda: program("", y=torch.ones(3)), "2 × 2"),
    (lambda: encode(program("").machine(), [program("y = add(y, one)")]), "commands = 1"),
    (lambda: interpret(program(ENDLESS), 5), "5 steps"),
    (lambda: run(program(ENDLESS), steps=5), "5 passes"),
)
