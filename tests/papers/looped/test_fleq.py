"""Function blocks: contract, size, errors of products and of sums of sigmoids. FLEQ: machine, programs, learning."""

import math

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.blocks import (
    SIGMOID,
    diagonal_block,
    inverse_sum,
    multiple_block,
    product_block,
    selected_block,
    sigmoid_block,
    sqrt_sum,
    sum_block,
    transpose_block,
)
from entp_papers.looped.fleq.frame import BlockStack, Frame, padding_error, violations
from entp_papers.looped.fleq.programs import encode, fleq, interpret, random_fleq, run

LINEAR = algorithms.linear_functions()


def matrices(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# maker, layers, heads by d, tolerance of its error
BLOCKS = {
    "add": (sum_block(), 2, lambda d: 1, 1e-9),
    "sub": (sum_block(-1.0), 2, lambda d: 1, 1e-9),
    "percentage": (multiple_block(0.01), 2, lambda d: 1, 1e-9),
    "transpose": (transpose_block(), 4, lambda d: 1, 1e-8),
    "diagonal": (diagonal_block(), 2, lambda d: 1, 1e-9),
    "mul": (product_block(), 2, lambda d: 1, 1e-4),
    "mul_aa": (product_block("a", "a"), 2, lambda d: 1, 1e-4),
    "mul_ba": (product_block("b", "a"), 2, lambda d: 1, 1e-4),
    "mul_bb": (product_block("b", "b"), 2, lambda d: 1, 1e-4),
    "mul_two_heads": (product_block(delta=1e-5, symmetric=True), 2, lambda d: 2, 1e-7),
    "sigmoid": (sigmoid_block(SIGMOID), 2, lambda d: d, 1e-9),
    "sqrt": (sigmoid_block(sqrt_sum(20), 1), 2, lambda d: 21, 1e-9),
}


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", BLOCKS)
def test_contract(name, d):
    maker, layers, heads, tolerance = BLOCKS[name]
    found = violations(maker, d)
    assert found.pop("error") < tolerance
    assert found.pop("previous") < max(1e-9, 3 * tolerance / 100)
    assert max(found.values()) < 1e-9
    block = BlockStack(maker, d).block
    assert (block.layers, block.heads) == (layers, heads(d))


@pytest.mark.parametrize("name", ["add", "sub", "percentage", "transpose", "diagonal", "mul"])
def test_padding_changes_nothing(name):
    assert padding_error(BLOCKS[name][0], 2, 5) < 10 * BLOCKS[name][3]


@pytest.mark.parametrize(("name", "most"), [("mul", 15), ("transpose", 12), ("add", 6)])
def test_width_is_linear_in_d(name, most):
    sizes = {d: BlockStack(BLOCKS[name][0], d).size()["width"] for d in (2, 4, 8, 16)}
    assert sizes[16] <= most * 16 and sizes[16] - sizes[8] == 2 * (sizes[8] - sizes[4])


def test_sums_are_exact_for_integers():
    a, b = torch.randint(-1000, 1000, (2, 5, 3, 3), generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(BlockStack(sum_block(), 3).apply(a, b), a + b)
    assert torch.equal(BlockStack(sum_block(-1.0), 3).apply(a, b), a - b)


def product_error(delta, dtype=torch.float64, symmetric=False, sink=50.0):
    stack = BlockStack(product_block(delta=delta, sink=sink, symmetric=symmetric), 4, dtype)
    a, b = torch.rand(2, 20, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(2).sub(1)
    return float((stack.apply(a, b).double() - a.transpose(1, 2) @ b).abs().max())


def test_product_error_is_linear_in_delta_then_rounding():
    """Slope +1 above its best δ, where half of δ s² is lost; slope -1 below, where rounding is."""
    large = {delta: product_error(delta) for delta in (1e-3, 1e-4, 1e-5)}
    assert large[1e-3] / large[1e-4] == pytest.approx(10, rel=0.05)
    assert large[1e-4] / large[1e-5] == pytest.approx(10, rel=0.05)
    assert product_error(1e-10) > 10 * product_error(1e-8)
    assert product_error(1e-7) < 1e-5


def test_two_heads_make_the_product_quadratic_in_delta():
    assert product_error(1e-2, symmetric=True) / product_error(1e-3, symmetric=True) == pytest.approx(100, rel=0.05)
    assert product_error(1e-5, symmetric=True) < 1e-8


def test_products_need_double_precision_and_a_high_sink():
    assert product_error(1e-3, torch.float32) > 1e-4 > product_error(1e-5)
    assert product_error(1e-4, sink=10.0) > 100 * product_error(1e-4, sink=30.0)


def test_sigmoid_is_exact():
    x = torch.linspace(-8, 8, 9, dtype=torch.float64).view(1, 3, 3)
    y = BlockStack(sigmoid_block(SIGMOID), 3).apply(x, x)
    torch.testing.assert_close(y, torch.sigmoid(x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("m", [1, 50])
def test_lemma_5(m):
    """e selects one of three functions of two numbers; heads are m, layers 3."""
    draw = np.random.default_rng(m)
    stack = BlockStack(selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2))), 3)
    e = torch.zeros(3, 3, 3, dtype=torch.float64)
    e[range(3), range(3), 0] = 1.0
    x = matrices(3, 3, 3)
    after, exact = stack(stack.encode(e, x, x)), stack.block.exact(e, x)[:, 0, 0]
    torch.testing.assert_close(stack.matrix(after, "c")[:, 0, 0], exact, rtol=0, atol=1e-10 * m)
    assert float((stack.matrix(after, "a") - e).abs().max()) < 1e-12
    assert float((stack.matrix(after, "b") - x).abs().max()) < 1e-12
    assert all(after[..., r.start : r.stop].abs().max() < 1e-10 for r in stack.block.temporary)
    assert (stack.block.layers, stack.block.heads) == (3, m)


def test_staircases_converge_like_one_over_m():
    x = np.linspace(0.1, 10, 4001)
    errors = {
        m: (np.abs(sqrt_sum(m)(x) - np.sqrt(x)).max(), np.abs(inverse_sum(m)(x) - 1 / x).max()) for m in (30, 300)
    }
    for low, high in zip(errors[300], errors[30], strict=True):
        assert math.log10(high / low) > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    """Values to 1e-4 of the largest; the branches exactly."""
    program = random_fleq(3, 12, seed, LINEAR)
    expected, found = interpret(program, 60), run(program, steps=60)
    assert found.lines == expected.lines
    for name, value in expected.items[-1].items():
        assert float((found[name] - value).abs().max()) <= 1e-4 * max(1.0, float(value.abs().max()))


@pytest.mark.parametrize(
    ("functions", "layers", "heads"),
    [(LINEAR, 13, 4), (algorithms.calculator_functions(10), 11, 26), (algorithms.learning_functions(), 13, 8)],
)
def test_layers_are_nine_and_those_of_the_deepest_block(functions, layers, heads):
    program = fleq("", 3, {}, functions)
    machine = program.machine()
    assert machine.size()["layers"] == 9 + max(block.layers for block in machine.blocks) == layers
    assert machine.size()["heads"] == heads


def test_weights_run_any_program():
    program = random_fleq(2, 8, 0, LINEAR)
    machine = program.machine()
    before = machine.weights_hash()
    other = random_fleq(2, 8, 1, LINEAR)
    assert other.shape == program.shape
    run(program, machine, 60), run(other, machine, 60)
    assert machine.weights_hash() == before == other.machine().weights_hash()


def test_sparse_form_is_the_same_function():
    program = fleq("C = mul(A, A)\nC = transp(C)", 2, {"A": matrices(2, 2), "C": 0.0}, LINEAR)
    machine = program.machine()
    thin, x, y = machine.sparse(), *[encode(machine, [program])] * 2
    for _ in range(2):
        x, y = machine(x), thin(y)
    torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


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


def test_masks_of_height_and_width():
    a = matrices(3, 3)
    found = run(fleq("C = add(A, A) [2x1]", 3, {"A": a, "C": a}, LINEAR))["C"]
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[:2, :1] = 2 * a[:2, :1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_padding_to_a_larger_machine():
    program, large = fleq("y = add(y, one)", 2, {"y": 1.0}, LINEAR), random_fleq(2, 9, 0, LINEAR)
    machine = large.machine()
    x = encode(machine, [program, large])
    for _ in range(12):
        x = machine(x)
    assert float(machine.memory(x)[0, 3, 0, 0]) == 2.0


@pytest.mark.parametrize("values", [(1.0, 2.0, 0.5, 0.8), (0.3, 0.4, 0.2, 1.5)])
def test_calculator(values):
    program = algorithms.calculator(values, algorithms.calculator_functions(100))
    a, b, c, d = values
    exact = (1 / ((a + b - c) * d)) ** 0.5 / 100
    assert float(interpret(program)["t"][0, 0]) == pytest.approx(exact)
    assert float(run(program)["t"][0, 0]) == pytest.approx(exact, abs=1e-3)


def test_division():
    program = algorithms.one_operation("div", 3.0, 2.0, algorithms.calculator_functions(200))
    assert float(run(program)["t"][0, 0]) == pytest.approx(1.5, abs=0.03)


def test_newton_inverse_and_the_printed_start():
    a = matrices(4, 4, seed=3)
    a /= a.norm()
    good = run(algorithms.newton_inverse(a, 14, LINEAR))["X"]
    assert float((a @ good - torch.eye(4)).norm()) < 1e-3
    symmetric = a @ a.T / (a @ a.T).norm() + 0.2 * torch.eye(4)
    printed = run(algorithms.newton_inverse(symmetric, 10, LINEAR, "printed", 0.3))["X"]
    assert float((symmetric @ printed - torch.eye(4)).norm()) < 1e-3


def test_power_iteration():
    q, _ = torch.linalg.qr(matrices(4, 4))
    a = q @ torch.diag(torch.tensor([1.0, 0.6, 0.4, 0.1], dtype=torch.float64)) @ q.T
    start = torch.ones(4, dtype=torch.float64) / 2
    b = run(algorithms.power_iteration(a, start, 12, algorithms.power_functions(40)))["b"][:, 0]
    assert abs(float(q[:, 0] @ b / b.norm())) > 0.999


def test_gradient_descent_on_linear_regression():
    x, y = matrices(2, 3), matrices(3, seed=1)
    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(5):
        w = w - 0.1 * x @ (x.T @ w - y)
    found = run(algorithms.linear_regression(x, y, 0.1, 5, LINEAR))["w"]
    torch.testing.assert_close(found[:2, 0], w, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("n", "ridge"), [(2, 0.1), (3, 0.0), (5, 0.0)])
def test_least_squares(n, ridge):
    x, y = matrices(3, n, seed=2), matrices(n, seed=1)
    w = torch.linalg.solve(x @ x.T + ridge * torch.eye(3), x @ y)
    found = run(algorithms.least_squares(x, y, 25, LINEAR, ridge))["w"][:, 0]
    torch.testing.assert_close(found, w, rtol=0, atol=1e-3)


def test_back_propagation_equals_autograd():
    w, v = matrices(3, 2), matrices(3, seed=1)
    samples = [(matrices(2, seed=s), float(s - 4)) for s in (3, 4)]
    found = run(algorithms.back_propagation(w, v, samples, 0.3, 2, algorithms.learning_functions()))
    w, v = w.requires_grad_(), v.requires_grad_()
    for x, y in samples * 2:
        loss = (v @ torch.sigmoid(w @ x) - y) ** 2 / 2
        dw, dv = torch.autograd.grad(loss, (w, v))
        w, v = (w - 0.3 * dw).detach().requires_grad_(), (v - 0.3 * dv).detach().requires_grad_()
    torch.testing.assert_close(found["Wt"][:2, :3].T, w.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found["v"][:3, 0], v.detach(), rtol=0, atol=1e-5)


ENDLESS = "loop: if zero <= 0 goto loop"


def program(text, **items):
    return fleq(text, 2, items or {"y": 0.0}, LINEAR)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: product_block("x"), "left = 'x'"),
        (lambda: product_block(delta=0.0), "delta = 0.0"),
        (lambda: product_block(sink=-1.0), "sink = -1.0"),
        (lambda: sum_block(2.0), "sign = 2.0"),
        (lambda: sqrt_sum(1), "m = 1"),
        (lambda: Frame(0, 4), "d = 0"),
        (lambda: Frame(2, 6), "tokens = 6"),
        (lambda: transpose_block()(Frame(4, 13), "t"), "tokens = 13"),
        (lambda: sigmoid_block(SIGMOID, 3)(Frame(2, 7), "s"), "rows = 3"),
        (lambda: program("y = ad(y, y)"), "line 1: .*'ad'; did you mean 'add'"),
        (lambda: program("y = add(y, z)"), "line 1: unknown item 'z'"),
        (lambda: program("\nif y <= 0 goto lop\nloop:"), "line 2: .*'lop'; did you mean 'loop'"),
        (lambda: program("y + y"), "line 1: 'y \\+ y'"),
        (lambda: program("zero = add(y, y)"), "line 1: zero"),
        (lambda: program("y = add(y, y) [4x1]"), "line 1: 4x1"),
        (lambda: program("a: a: y = add(y, y)"), "line 1: label 'a'"),
        (lambda: program("", zero=1.0), "item 'zero'"),
        (lambda: program("", y=torch.ones(3)), "2 × 2"),
        (lambda: program("", y=1e5), "4096"),
        (lambda: program("", y=np.nan), "finite"),
        (lambda: encode(program("").machine(), [program("y = add(y, one)")]), "commands = 1"),
        (lambda: interpret(program(ENDLESS), 5), "5 steps"),
        (lambda: run(program(ENDLESS), steps=5), "5 passes"),
    ],
)
def test_mistakes_are_named(call, name):
    with pytest.raises(ConfigError, match=name):
        call()
