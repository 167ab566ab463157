"""Prompts against their definitions: layout, distributions, curricula, and what the zero predictor
scores.
"""

import dataclasses
import itertools
import math

import pytest
import torch

from entp_lib.evaluation import constant_baseline
from entp_lib.tasks import InContext, generator_for
from entp_lib.tasks.in_context import FUNCTIONS

SMALL = dict(dims=6, points=9, hidden=8, depth=3)


def drawn(task, size):
    return task.pairs(generator_for("cpu", 0), size)


@pytest.mark.parametrize("function", list(FUNCTIONS))
def test_a_batch_shows_every_pair_but_the_last_y(function):
    task = InContext(function, **SMALL)
    x, y = drawn(task, 7)
    batch = task.batch(generator_for("cpu", 0), 7)
    assert (task.length, task.input_dim) == (17, 6)
    assert torch.equal(batch.inputs_BT[:, ::2], x)
    assert torch.equal(batch.inputs_BT[:, 1::2, 0], y[:, :-1])
    assert not batch.inputs_BT[:, 1::2, 1:].any()
    assert batch.scored_BT.tolist() == [[n % 2 == 0 for n in range(17)]] * 7
    assert torch.equal(batch.targets_N, y.flatten())
    assert batch.prompt_lengths_B.tolist() == [1] * 7


@pytest.mark.parametrize(("function", "sparsity"), [("linear", 6), ("sparse", 2)])
def test_a_linear_function_is_one_of_a_prompt_and_uses_all_coordinates_alike(function, sparsity):
    x, y = drawn(InContext(function, dims=6, points=9, sparsity=2), 3000)
    w = torch.linalg.lstsq(x.double(), y.double()[..., None]).solution
    assert ((x.double() @ w)[..., 0] - y).abs().max() < 1e-4
    used = w[..., 0].abs() > 1e-3
    assert (used.sum(1) == sparsity).float().mean() > 0.98  # a weight may be small by chance
    assert used.float().mean(0).tolist() == pytest.approx([sparsity / 6] * 6, abs=0.04)
    assert w[used].var().item() == pytest.approx(1, rel=0.1)
    assert len(w.flatten(1).unique(dim=0)) == 3000


@pytest.mark.parametrize("depth", [1, 3])
def test_a_tree_is_walked_as_the_paper_says(depth):
    """By hand, with the numbers that the generator gives: splits first, then leaves."""
    task = InContext("tree", dims=4, points=5, depth=depth)
    x = torch.randn(20, 5, 4)
    y = FUNCTIONS["tree"](task, x, generator_for("cpu", 3))
    generator = generator_for("cpu", 3)
    splits = torch.randint(4, (20, 2**depth - 1), generator=generator)
    leaves = torch.randn(20, 2**depth, generator=generator)
    for b, n in itertools.product(range(20), range(5)):
        path = 0  # the turns as binary digits
        for level in range(depth):
            split = int(splits[b, 2**level - 1 + path])
            path = 2 * path + int(x[b, n, split] > 0)
        assert y[b, n] == leaves[b, path]
    assert set(splits.flatten().tolist()) == {0, 1, 2, 3}


def test_a_network_is_two_layers_with_relu():
    task = InContext("network", dims=3, points=5, hidden=4)
    x = torch.randn(6, 5, 3)
    generator = generator_for("cpu", 3)
    into = torch.randn(6, 3, 4, generator=generator)
    out = torch.randn(6, 4, generator=generator)
    expected = torch.stack([(x[b] @ into[b]).clamp(min=0) @ out[b] for b in range(6)])
    plain = FUNCTIONS["network"](
        dataclasses.replace(task, output_scale="none"), x, generator_for("cpu", 3)
    )
    scaled = FUNCTIONS["network"](task, x, generator_for("cpu", 3))
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(scaled, expected * math.sqrt(2 / 4))


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        ("linear", {}),
        ("sparse", dict(noise=2.0)),
        ("sparse", dict(curriculum_every=100)),
        ("network", dict(prompts="orthogonal")),
        ("network", dict(output_scale="none")),
        ("tree", dict(prompts="scaled", factor=3.0)),
    ],
    ids=str,
)
def test_the_zero_predictor_scores_one_after_normalising(function, changes):
    task = InContext(function, **{**SMALL, **changes}).at_step(1)
    _, y = drawn(task, 20_000)
    assert y.square().mean().item() / task.normaliser == pytest.approx(1, rel=0.05)
    assert constant_baseline(task, 500, 1)["loss"] / task.normaliser == pytest.approx(1, rel=0.25)


@pytest.mark.parametrize("points", [3, 6, 15])
def test_orthogonal_prompts_are_orthogonal_in_blocks(points):
    """By our definition, which is not that of Garg et al.: theirs have Gaussian x's and only the
    query orthogonal.
    """
    task = InContext(dims=6, points=points, prompts="orthogonal")
    x, _ = drawn(task, 2000)
    for start in range(0, points, 6):
        block = x[:, start : start + 6]
        gram = block @ block.transpose(1, 2)
        assert (gram - 6 * torch.eye(block.shape[1])).abs().max() < 1e-4
    assert x.mean(0).abs().max() < 0.15  # no preferred direction
    assert x[:, 0].square().mean(0).tolist() == pytest.approx([1] * 6, abs=0.1)


def test_scaled_and_noisy_prompts_are_standard_ones_changed():
    x, y = drawn(InContext(**SMALL), 5000)
    wide, far = drawn(InContext(**SMALL, prompts="scaled", factor=3.0), 5000)
    torch.testing.assert_close(wide, 3 * x)
    torch.testing.assert_close(far, 3 * y)
    same, noisy = drawn(InContext(**SMALL, noise=0.5), 5000)
    assert torch.equal(x, same)
    assert (noisy - y).std().item() == pytest.approx(0.5, rel=0.05)
    # noise is shown and scored
    batch = InContext(**SMALL, noise=0.5).batch(generator_for("cpu", 0), 50)
    assert torch.equal(batch.inputs_BT[:, 1::2, 0], batch.targets_BT[:, ::2][:, :-1])


@pytest.mark.parametrize(
    ("function", "points"),
    [("linear", [40, 11, 11, 13, 39, 40]), ("tree", [100, 26, 26, 31, 96, 100])],
)
def test_a_curriculum_grows_dimensions_and_points(function, points):
    assert InContext(function).at_step(1) == InContext(function)
    task = InContext(function, curriculum_every=2000)
    stages = [task, *(task.at_step(step) for step in (1, 2000, 2001, 28_001, 30_001))]
    assert [stage.used_dims for stage in stages] == [20, 5, 5, 6, 19, 20]
    assert [stage.points for stage in stages] == points
    assert stages[-1].batch(generator_for("cpu", 0), 2).inputs_BT.shape[1] == task.length
    x, _ = drawn(stages[3], 50)
    assert not x[..., 6:].any()
    assert x[..., :6].all()
