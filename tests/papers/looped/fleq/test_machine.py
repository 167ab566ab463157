"""The FLEQ machine against the interpreter, and programs that compute and learn."""

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.program import encode, fleq, interpret, run
from entp_papers.looped.fleq.random_programs import random_fleq

LINEAR = algorithms.linear_functions()


def matrices(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    """Values to 1e-4 of the largest; the branches exactly."""
    program = random_fleq(3, 12, seed, LINEAR)
    expected, found = interpret(program, 60), run(program, steps=60)
    assert found.lines == expected.lines
    for name, value in expected.items[-1].items():
        assert float((found[name] - value).abs().max()) <= 1e-4 * max(1.0, float(value.abs().max()))


@pytest.mark.parametrize(
    "functions,layers,heads",
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
    fast, slow = run(program), run(program, fast=False)
    assert fast.lines == slow.lines and float((fast["C"] - slow["C"]).abs().max()) < 1e-9


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
    with pytest.raises(ConfigError, match="commands = 2: the program has"):
        encode(program.machine(), [fleq("y = add(y, one)\ny = add(y, one)", 2, {"y": 0.0}, LINEAR)])


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


@pytest.mark.parametrize("n,ridge", [(2, 0.1), (3, 0.0), (5, 0.0)])
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


@pytest.mark.parametrize(
    "text,message",
    [
        ("y = ad(y, y)", "line 1: unknown function 'ad'; did you mean 'add'"),
        ("y = add(y, z)", "line 1: unknown item 'z'"),
        ("\nif y <= 0 goto lop\nloop:", "line 2: unknown label 'lop'; did you mean 'loop'"),
        ("y + y", "line 1: 'y \\+ y' is not understood"),
        ("zero = add(y, y)", "zero must keep its value"),
        ("y = add(y, y) [4x1]", "4x1: must be from 1x1 to 2x2"),
        ("a: a: y = add(y, y)", "label 'a' exists already"),
    ],
)
def test_texts_that_are_no_programs(text, message):
    with pytest.raises(ConfigError, match=message):
        fleq(text, 2, {"y": 0.0}, LINEAR)


@pytest.mark.parametrize(
    "items,message",
    [
        ({"zero": 1.0}, "item 'zero' exists"),
        ({"y": torch.ones(3)}, "does not fit into 2 × 2"),
        ({"y": 1e5}, "too large: must be below 4096"),
        ({"y": np.nan}, "not finite"),
    ],
)
def test_impossible_items(items, message):
    with pytest.raises(ConfigError, match=message):
        fleq("", 2, items, LINEAR)


def test_programs_that_do_not_halt():
    program = fleq("loop: if zero <= 0 goto loop", 1, {}, LINEAR)
    for call in (interpret, lambda p, s: run(p, steps=s)):
        with pytest.raises(ConfigError, match="no halt within 5"):
            call(program, 5)
