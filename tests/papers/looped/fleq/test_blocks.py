"""Function blocks: the common contract, their sizes, the error of products and of sums of sigmoids."""

import math

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.looped.fleq.arithmetic import diagonal_block, multiple_block, sum_block, transpose_block
from entp_papers.looped.fleq.contract import padding_error, violations
from entp_papers.looped.fleq.frame import BlockStack, Frame
from entp_papers.looped.fleq.product import product_block
from entp_papers.looped.fleq.sigmoids import (
    SIGMOID,
    inverse_sum,
    selected_block,
    sigmoid_block,
    sqrt_sum,
)

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


@pytest.mark.parametrize("d", [1, 2, 3, 5])
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


@pytest.mark.parametrize("name,most", [("mul", 15), ("transpose", 12), ("add", 6)])
def test_width_is_linear_in_d(name, most):
    sizes = {d: BlockStack(BLOCKS[name][0], d).size()["width"] for d in (2, 4, 8, 16)}
    assert sizes[16] <= most * 16 and sizes[16] - sizes[8] == 2 * (sizes[8] - sizes[4])


def test_sums_are_exact_for_integers():
    a, b = torch.randint(-1000, 1000, (2, 5, 3, 3), generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(BlockStack(sum_block(), 3).apply(a, b), a + b)
    assert torch.equal(BlockStack(sum_block(-1.0), 3).apply(a, b), a - b)


def product_error(delta, dtype=torch.float64, symmetric=False, sink=50.0):
    stack = BlockStack(product_block(delta=delta, sink=sink, symmetric=symmetric), 4, dtype=dtype)
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


@pytest.mark.parametrize("m", [1, 7, 200])
def test_lemma_5(m):
    """e selects one of three functions of two numbers; heads are m, layers 3."""
    draw = np.random.default_rng(m)
    maker = selected_block(draw.normal(size=(3, m)), draw.normal(size=(3, m, 2)))
    stack = BlockStack(maker, 3)
    e = torch.zeros(3, 3, 3, dtype=torch.float64)
    e[range(3), range(3), 0] = 1.0
    x = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    after = stack(stack.encode(e, x, x))
    torch.testing.assert_close(
        stack.matrix(after, "c")[:, 0, 0], stack.block.exact(e, x)[:, 0, 0], rtol=0, atol=1e-10 * max(1, m)
    )
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
    both = inverse_sum(300, both_signs=True)
    assert np.abs(both(-x) + 1 / x).max() < 0.01 and np.abs(both(x) - 1 / x).max() < 0.01


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: product_block("x"), "left = 'x'"),
        (lambda: product_block(delta=0.0), "delta = 0.0"),
        (lambda: product_block(sink=-1.0), "sink = -1.0"),
        (lambda: sum_block(2.0), "sign = 2.0"),
        (lambda: sqrt_sum(1), "m = 1"),
        (lambda: Frame(0, 4), "d = 0"),
        (lambda: Frame(2, 6), "tokens = 6: must be at least 3 d \\+ 1 = 7"),
        (lambda: transpose_block()(Frame(4, 13), "t"), "a transpose needs d² \\+ 1 = 17"),
        (lambda: sigmoid_block(SIGMOID, 3)(Frame(2, 7), "s"), "rows = 3"),
    ],
)
def test_impossible_blocks(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
