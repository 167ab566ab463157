"""Classical learners on the prompts of ``InContext``, for comparison (§7.2, appendix C.2; after
Garg et al., 2022).

A rule gets the first i pairs and the next x of every prompt and predicts its y: (B, i, d), (B, i),
(B, d) to (B,). With no examples every learner predicts 0. Estimators of scikit-learn and xgboost
are fitted prompt by prompt.

Letters: B prompts, N points, i examples, d dimensions, h hidden units.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from entp_lab.configs import Json
from entp_lab.studies import Study, seeded
from entp_lib.evaluation import evaluation_batches
from entp_lib.tasks import InContext, build_task
from entp_lib.validation import one_of, require

Rule = Callable[[Tensor, Tensor, Tensor, InContext], Tensor]
LASSO_ALPHAS = (1.0, 0.1, 0.01, 0.001, 0.0001)


def least_squares(x_Bid: Tensor, y_Bi: Tensor, query_Bd: Tensor, task: InContext) -> Tensor:
    """Predict w·x with the shortest w of those that fit best."""
    w_Bd = (torch.linalg.pinv(x_Bid) @ y_Bi[..., None])[..., 0]
    return (w_Bd * query_Bd).sum(1)


def ridge(x_Bid: Tensor, y_Bi: Tensor, query_Bd: Tensor, task: InContext) -> Tensor:
    """Predict w·x with the penalty α|w|².

    α is the variance of the noise, which is best for linear functions, or 1 without noise.
    """
    gram_Bdd = x_Bid.mT @ x_Bid + (task.noise**2 or 1.0) * torch.eye(
        x_Bid.shape[2], dtype=x_Bid.dtype
    )
    return (torch.linalg.solve(gram_Bdd, (x_Bid.mT @ y_Bi[..., None])[..., 0]) * query_Bd).sum(1)


def averaging(x_Bid: Tensor, y_Bi: Tensor, query_Bd: Tensor, task: InContext) -> Tensor:
    """Predict w·x with w the mean of y x."""
    return ((y_Bi[..., None] * x_Bid).mean(1) * query_Bd).sum(1)


def neighbours(x_Bid: Tensor, y_Bi: Tensor, query_Bd: Tensor, task: InContext) -> Tensor:
    """Return the mean y of the three nearest examples, or of as many as there are."""
    distance_Bi = (x_Bid - query_Bd[:, None]).norm(dim=2)
    return y_Bi.gather(1, distance_Bi.topk(min(3, y_Bi.shape[1]), largest=False).indices).mean(1)


def trained_network(x_Bid: Tensor, y_Bi: Tensor, query_Bd: Tensor, task: InContext) -> Tensor:
    """Predict with a network of the task's shape, trained on the examples.

    Training takes 100 steps of Adam at a learning rate of 5e-3. All prompts are trained in
    parallel. The network has no biases, because the functions have none; the network of Garg et al.
    has them.
    """
    generator = seeded(0)

    def uniform(*shape: int) -> Tensor:
        start = torch.rand(*shape, generator=generator, dtype=x_Bid.dtype) * 2 - 1
        # divided by the square root of the number of inputs
        return (start / math.sqrt(shape[1])).requires_grad_()

    into_Bdh = uniform(*query_Bd.shape, task.hidden)
    out_Bh1 = uniform(len(query_Bd), task.hidden, 1)
    optimizer = torch.optim.Adam([into_Bdh, out_Bh1], lr=5e-3)
    for _ in range(100):
        loss = (((x_Bid @ into_Bdh).relu() @ out_Bh1)[..., 0] - y_Bi).square().mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return ((query_Bd[:, None] @ into_Bdh).relu() @ out_Bh1)[:, 0, 0]


def fitted(
    make: Callable[[InContext], Any],
    x_Bid: Tensor,
    y_Bi: Tensor,
    query_Bd: Tensor,
    task: InContext,
) -> Tensor:
    """Predict with a scikit-learn estimator, a fresh one for each prompt."""
    import sklearn
    from sklearn.exceptions import ConvergenceWarning

    prompts = zip(x_Bid.numpy(), y_Bi.numpy(), query_Bd.numpy(), strict=True)
    # The skipped checks would take half the time of such small fits.
    with (
        sklearn.config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        # Lasso with a small α may not converge; it is scored as it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = [float(make(task).fit(x, y).predict(query[None])[0]) for x, y, query in prompts]
    return torch.tensor(found, dtype=x_Bid.dtype)


def lasso(alpha: float, task: InContext) -> Any:
    """Make an estimator of w·x with the penalty α|w|₁ and no intercept."""
    from sklearn.linear_model import Lasso

    return Lasso(alpha, fit_intercept=False, max_iter=100_000)


def greedy_tree(limited: bool, task: InContext) -> Any:
    """Make a regression tree that is split greedily.

    Splitting ends at the task's depth if ``limited``, else when every example is fitted.
    """
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(max_depth=task.depth if limited else None, random_state=0)


def boosting(task: InContext) -> Any:
    """Make gradient-boosted trees at the defaults of xgboost."""
    from xgboost import XGBRegressor

    return XGBRegressor(n_jobs=1)


class Baseline(NamedTuple):
    """A learner: its rule, the function classes it is drawn for, the library it needs, and whether
    it is costly.
    """

    rule: Rule
    functions: tuple[str, ...]
    library: str = "torch"
    costly: bool = False


BASELINES = {
    "least squares": Baseline(least_squares, ("linear", "sparse", "network", "tree")),
    "ridge": Baseline(ridge, ("linear", "network")),
    "averaging": Baseline(averaging, ("linear", "sparse")),
    "3 nearest neighbours": Baseline(neighbours, ("linear", "sparse", "network", "tree")),
    **{
        f"Lasso, α = {alpha:g}": Baseline(
            partial(fitted, partial(lasso, alpha)), ("sparse",), "sklearn", costly=True
        )
        for alpha in LASSO_ALPHAS
    },
    "trained network": Baseline(trained_network, ("network",), costly=True),
    "greedy tree": Baseline(
        partial(fitted, partial(greedy_tree, True)), ("tree",), "sklearn", costly=True
    ),
    "greedy tree, any depth": Baseline(
        partial(fitted, partial(greedy_tree, False)), ("tree",), "sklearn", costly=True
    ),
    "gradient boosting (xgboost)": Baseline(
        partial(fitted, boosting), ("tree",), "xgboost", costly=True
    ),
}


def missing() -> Json:
    """Return the baselines that cannot run here, and why."""
    return {
        name: f"{b.library} is not installed"
        for name, b in BASELINES.items()
        if not find_spec(b.library)
    }


def predictions(name: str, x_BNd: Tensor, y_BN: Tensor, task: InContext) -> Tensor:
    """Predict each y from the pairs before it, (B, N); the first prediction is 0.

    ConfigError for an unknown name.
    """
    one_of("baseline", name, BASELINES)
    x_BNd = x_BNd.double()
    y_BN = y_BN.double()
    found = [
        BASELINES[name].rule(x_BNd[:, :i], y_BN[:, :i], x_BNd[:, i], task)
        for i in range(1, x_BNd.shape[1])
    ]
    return torch.stack([torch.zeros_like(y_BN[:, 0]), *found], 1)


def baselines_study(task: Json, prompts: int, costly_prompts: int, seed: int) -> Study:
    """Measure the error of every baseline of a task's function class, by number of examples.

    Errors are squared and divided by the normaliser. The prompts are those on which a run with this
    ``data_seed`` is finally scored on a CPU, if ``prompts`` is its ``final_eval_sequences``; costly
    learners get the first ``costly_prompts``. Curves: "<prompts> | <baseline>", and the same with
    " | error", its standard error over prompts. Metrics: ``prompts`` by baseline, and ``missing``.
    """
    base = build_task("in_context", task)
    require(
        1 <= costly_prompts <= prompts,
        f"costly_prompts = {costly_prompts}: must be 1 to prompts = {prompts}",
    )
    absent = {
        name: why for name, why in missing().items() if base.function in BASELINES[name].functions
    }
    metrics = {"prompts": {}, "missing": absent}
    curves = {"examples": list(range(base.points))}
    tasks = {"standard": base, **base.reported_apart()}
    names = [n for n, b in BASELINES.items() if base.function in b.functions and n not in absent]
    for kind, shown in tasks.items():
        drawn = list(evaluation_batches(shown, prompts, "cpu", "evaluate", seed, "final"))
        inputs_BTd, targets_BT = (
            torch.cat([getattr(b, part) for b in drawn]) for part in ("inputs_BT", "targets_BT")
        )
        for name in names:
            count = costly_prompts if BASELINES[name].costly else prompts
            x_BNd = inputs_BTd[:count, ::2]
            y_BN = targets_BT[:count, ::2].double()
            errors_BN = (predictions(name, x_BNd, y_BN, shown) - y_BN).square() / shown.normaliser
            curves[f"{kind} | {name}"] = errors_BN.mean(0).tolist()
            curves[f"{kind} | {name} | error"] = (
                errors_BN.std(0, correction=0) / math.sqrt(count)
            ).tolist()
            metrics["prompts"][name] = count
    return metrics, curves
