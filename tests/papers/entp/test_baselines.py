"""Classical learners against numpy, scikit-learn and what theory says of them."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso, Ridge
from sklearn.neighbors import KNeighborsRegressor

from entp_lib.evaluation import evaluate
from entp_lib.tasks import InContext, generator_for
from entp_papers.entp.in_context.baselines import BASELINES, baselines_study, missing, predictions


def prompts(function="linear", size=20, **changes):
    task = InContext(function, **(dict(dims=4, points=7, hidden=8, depth=2) | changes))
    x, y = task.pairs(generator_for("cpu", "p"), size)
    return task, x.double(), y.double()


@pytest.mark.parametrize("name", [n for n in BASELINES if n not in missing()])
def test_predictions_start_at_zero_and_see_no_later_pair(name):
    """Nor any other prompt, nor the y they predict."""
    task, x, y = prompts(BASELINES[name].functions[-1], 5, points=5)
    found = predictions(name, x, y, task)
    assert found.shape == (5, 5)
    assert not found[:, 0].any()
    assert torch.isfinite(found).all()
    x[:, 4] = 9
    y[:, 3:] = 9
    x[0] = 9
    y[0] = 9
    other = predictions(name, x, y, task)
    torch.testing.assert_close(other[1:, :4], found[1:, :4])
    assert not torch.allclose(other[1:, 4], found[1:, 4])


def of_scikit_learn(model, x, y, query):
    return model.fit(x, y).predict(query[None])[0]


@pytest.mark.parametrize(
    ("name", "changes", "reference"),
    [
        ("least squares", {}, lambda x, y, query: np.linalg.pinv(x) @ y @ query),
        ("averaging", {}, lambda x, y, query: (y[:, None] * x).mean(0) @ query),
        (
            "Lasso, α = 0.1",
            dict(function="sparse"),
            partial(of_scikit_learn, Lasso(0.1, fit_intercept=False, max_iter=100_000)),
        ),
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
    x = x.numpy()
    y = y.numpy()
    for b, i in itertools.product(range(4), range(1, 7)):
        expected = reference(x[b, :i], y[b, :i], x[b, i])
        assert float(found[b, i]) == pytest.approx(expected, abs=1e-9)


def test_trees_fit_their_examples_as_far_as_their_depth_allows():
    task, x, y = prompts("tree", 10, depth=1)
    x[:, 6] = x[:, 2]  # asked again for an x that was shown
    again = predictions("greedy tree, any depth", x, y, task)[:, 6]
    torch.testing.assert_close(again, y[:, 2])
    for x_nd, y_n in zip(x[:, :6], y[:, :6], strict=True):
        shown_x = x_nd.expand(6, -1, -1)
        shown_y = y_n.expand(6, -1)
        found = BASELINES["greedy tree"].rule(shown_x, shown_y, x_nd, task)
        assert len(found.unique()) <= 2


class Zero(torch.nn.Module):
    def forward(self, inputs, scored, prompt_lengths):
        return torch.zeros(int(scored.sum()), 1)


def test_a_study_has_the_prompts_that_models_are_scored_on():
    """The zero predictor, which every learner is with no examples, scores the same there."""
    params = dict(dims=3, points=4)
    task = InContext(**params)
    others = [other.normaliser / task.normaliser for other in task.reported_apart().values()]
    assert others == pytest.approx([4, 1, 1.05])
    _, curves = baselines_study(params, prompts=300, costly_prompts=1, seed=7)
    for kind, tested in {"standard": task, **task.reported_apart()}.items():
        scores = evaluate(Zero(), tested, 300, 7, "final", detailed=True)
        first = {"": "loss_by_position", " | error": "error_by_position"}
        for curve, score in first.items():
            expected = scores[score][0] / tested.normaliser
            assert curves[f"{kind} | least squares{curve}"][0] == pytest.approx(expected, rel=1e-5)
    assert curves["standard | least squares"][3] == pytest.approx(0, abs=1e-9)
