"""Classical learners against numpy, scikit-learn and what theory says of them."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

from entp_lib.evaluation import evaluate
from entp_lib.tasks import InContext, generator_for
from entp_papers.entp.in_context import baselines
from entp_papers.entp.in_context.baselines import BASELINES, baselines_study, missing, predictions


def prompts(function="linear", size=20, **changes):
    task = InContext(function, **{**dict(dims=4, points=7, hidden=8, depth=2), **changes})
    x, y = task.pairs(generator_for("cpu", "p"), size)
    return task, x.double(), y.double()


@pytest.mark.parametrize("name", [n for n in BASELINES if n not in missing()])
def test_predictions_start_at_zero_and_see_no_later_pair(name):
    """Nor any other prompt, nor the y they predict."""
    task, x, y = prompts(BASELINES[name].functions[-1], 5, points=5)
    found = predictions(name, x, y, task)
    assert found.shape == (5, 5) and not found[:, 0].any() and torch.isfinite(found).all()
    moved_x, moved_y = x.clone(), y.clone()
    moved_x[:, 4], moved_y[:, 3:] = 9, 9
    moved_x[1], moved_y[1] = 9, 9
    other = predictions(name, moved_x, moved_y, task)
    rest = [0, 2, 3, 4]
    torch.testing.assert_close(other[rest, :4], found[rest, :4])
    assert not torch.allclose(other[rest, 4], found[rest, 4])


def of_scikit_learn(model, x, y, query):
    return model.fit(x, y).predict(query[None])[0]


@pytest.mark.parametrize(
    ("name", "changes", "reference"),
    [
        ("least squares", {}, lambda x, y, query: np.linalg.pinv(x) @ y @ query),
        ("averaging", {}, lambda x, y, query: (y[:, None] * x).mean(0) @ query),
        ("ridge", {}, partial(of_scikit_learn, Ridge(1.0, fit_intercept=False))),
        ("ridge", dict(noise=0.5), partial(of_scikit_learn, Ridge(0.25, fit_intercept=False))),
        (
            "3 nearest neighbours",
            dict(function="tree"),
            lambda x, y, query: of_scikit_learn(KNeighborsRegressor(min(3, len(x))), x, y, query),
        ),
    ],
)
def test_learners_are_their_formula_or_scikit_learns(name, changes, reference):
    task, x, y = prompts(size=4, **changes)
    found = predictions(name, x, y, task)
    for b in range(4):
        for i in range(1, 7):
            expected = reference(x[b, :i].numpy(), y[b, :i].numpy(), x[b, i].numpy())
            assert float(found[b, i]) == pytest.approx(float(expected), abs=1e-9)


def test_least_squares_before_d_examples_leaves_the_unseen_directions():
    """With i random examples of d dimensions the error is (d - i)/d of that of 0, and none from d
    on.
    """
    task, x, y = prompts(size=20_000)
    errors = (predictions("least squares", x, y, task) - y).square().mean(0) / task.normaliser
    assert errors[4:].max() < 1e-8
    assert errors[:4].tolist() == pytest.approx([1, 3 / 4, 1 / 2, 1 / 4], rel=0.06)


def test_lasso_needs_fewer_examples_than_dimensions_where_one_coordinate_counts():
    task, x, y = prompts("sparse", 100, dims=12, points=9, sparsity=1)
    last = {
        n: float((predictions(n, x, y, task) - y).square().mean(0)[-1])
        for n in ("Lasso, α = 0.01", "least squares")
    }
    assert last["Lasso, α = 0.01"] < 0.2 * last["least squares"]
    zero = predictions("Lasso, α = 1", x, 0.01 * y, task)
    assert not zero.any()  # a penalty that outweighs every y


def test_trees_fit_their_examples_as_far_as_their_depth_allows():
    task, x, y = prompts("tree", 10, depth=1)
    x[:, 6] = x[:, 2]  # asked again for an x that was shown
    again = predictions("greedy tree, any depth", x, y, task)[:, 6]
    torch.testing.assert_close(again, y[:, 2])
    for b in range(10):
        shown_x, shown_y = x[b, :6].expand(6, -1, -1), y[b, :6].expand(6, -1)
        assert len(baselines.greedy_tree(True, shown_x, shown_y, x[b, :6], task).unique()) <= 2


def test_a_trained_network_learns_a_network():
    task, x, y = prompts("network", 30, dims=2, points=20)
    errors = (predictions("trained network", x, y, task) - y).square().mean(0) / y.square().mean()
    assert errors[-5:].mean() < 0.4 * errors[1:3].mean()


def test_a_study_has_the_prompts_that_models_are_scored_on():
    """The zero predictor, which every learner is with no examples, scores the same there."""

    class Zero(torch.nn.Module):
        def forward(self, inputs, scored, prompt_lengths):
            return torch.zeros(int(scored.sum()), 1)

    params = dict(dims=3, points=4)
    _, curves = baselines_study(params, prompts=300, costly_prompts=1, seed=7)
    for kind, task in {
        "standard": InContext(**params),
        **InContext(**params).reported_apart(),
    }.items():
        scores = evaluate(Zero(), task, 300, 7, "final", detailed=True)
        for ours, theirs in (("", "loss_by_position"), (" | error", "error_by_position")):
            expected = scores[theirs][0] / task.normaliser
            assert curves[f"{kind} | least squares{ours}"][0] == pytest.approx(expected, rel=1e-5)
    assert math.isclose(curves["standard | least squares"][3], 0, abs_tol=1e-9)
