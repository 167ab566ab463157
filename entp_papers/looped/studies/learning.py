"""Learning inside the loop, beside the same algorithm in torch: regression, back-propagation, least squares."""

import torch
from torch import Tensor

from entp_lib.validation import require
from entp_papers.looped.fleq import algorithms
from entp_papers.looped.fleq.program import run, run_together
from entp_papers.looped.studies.exact import Study, columns


def gaussians(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def regression_study(features: int, examples: int, steps: int, rate: float, data_seed: int = 0) -> Study:
    """Gradient descent on linear regression: loss and weights by step, the program's beside torch's autograd."""
    x, truth = gaussians(data_seed, features, examples), gaussians(data_seed + 1, features)
    y = x.T @ truth + 0.1 * gaussians(data_seed + 2, examples)
    program = algorithms.linear_regression(x, y, rate, steps, algorithms.linear_functions())
    machine = program.machine()
    found = [w[:features, 0] for w in run(program, machine, 10 * steps + 10).written(program, "w")]
    w = torch.zeros(features, dtype=torch.float64, requires_grad=True)
    rows: list[dict] = []
    for step, mine in enumerate(found, 1):
        (gradient,) = torch.autograd.grad(((x.T @ w - y) ** 2).sum() / 2, w)
        w = (w - rate * gradient).detach().requires_grad_()
        loss = float(((x.T @ mine - y) ** 2).sum() / 2)
        rows.append(
            {
                "step": step,
                "loss": loss,
                "loss_torch": float(((x.T @ w.detach() - y) ** 2).sum() / 2),
                "difference": float((mine - w.detach()).abs().max()),
            }
        )
    metrics = {
        "largest_difference": max(r["difference"] for r in rows),
        "loss_first": float((y**2).sum() / 2),
        "loss_last": rows[-1]["loss"],
        "size": machine.size() | {"tokens": machine.tokens},
    }
    return metrics, columns(rows)


def back_propagation_study(
    inputs: int, hidden: int, samples: int, rounds: int, rate: float, data_seed: int = 0
) -> Study:
    """Back-propagation of a two-layer network by the program, step by step beside torch's autograd (Lemma 15).

    A row per step: the largest difference of any weight of W and of v, and the mean loss over all samples, with the
    program's weights and with torch's.
    """
    require(samples >= 1, f"samples = {samples}: must be at least 1")
    w, v = gaussians(data_seed, hidden, inputs), gaussians(data_seed + 1, hidden)
    x = gaussians(data_seed + 2, samples, inputs)
    target_w, target_v = gaussians(data_seed + 3, hidden, inputs), gaussians(data_seed + 4, hidden)
    y = torch.sigmoid(x @ target_w.T) @ target_v
    pairs = list(zip(x, y.tolist(), strict=True))
    program = algorithms.back_propagation(w, v, pairs, rate, rounds, algorithms.learning_functions())
    machine = program.machine()
    history = run(program, machine, 25 * samples * rounds + 10)
    found_w, found_v = history.written(program, "Wt"), history.written(program, "v")

    def loss(w: Tensor, v: Tensor) -> float:
        return float(((torch.sigmoid(x @ w.T) @ v - y) ** 2).mean() / 2)

    first = loss(w, v)
    rows: list[dict] = []
    for step, (mine_w, mine_v) in enumerate(zip(found_w, found_v, strict=True)):
        w, v = w.detach().requires_grad_(), v.detach().requires_grad_()
        one_x, one_y = pairs[step % samples]
        dw, dv = torch.autograd.grad((v @ torch.sigmoid(w @ one_x) - one_y) ** 2 / 2, (w, v))
        w, v = (w - rate * dw).detach(), (v - rate * dv).detach()
        mine_w, mine_v = mine_w[:inputs, :hidden].T, mine_v[:hidden, 0]
        rows.append(
            {
                "step": step + 1,
                "difference_w": float((mine_w - w).abs().max()),
                "difference_v": float((mine_v - v).abs().max()),
                "loss": loss(mine_w, mine_v),
                "loss_torch": loss(w, v),
            }
        )
    metrics = {
        "largest_difference": max(max(r["difference_w"], r["difference_v"]) for r in rows),
        "loss_first": first,
        "loss_last": rows[-1]["loss"],
        "passes": len(history.lines) - 1,
        "size": machine.size() | {"tokens": machine.tokens},
    }
    return metrics, columns(rows)


def least_squares_study(
    dimension: int, most_examples: int, prompts: int, rounds: int, ridge: float = 0.1, data_seed: int = 0
) -> Study:
    """In-context linear regression by the inverse program (X7): (w · x - prediction)² / d by number of examples.

    x and w are standard normal and y = w · x without noise, as in the in-context task. The program computes
    (X X^T + ridge I)^-1 X y: with fewer than d examples there is no inverse without a ridge, and Newton doubles errors
    in directions that X does not have. A row per number of examples: the mean squared error over prompts by the
    program, by the same formula exactly, and by ordinary least squares (the shortest w); and the largest difference of
    the program's predictions from the formula's.
    """
    require(ridge > 0, f"ridge = {ridge}: must be above 0")
    functions, rows = algorithms.linear_functions(symmetric=True, delta=1e-5), []
    eye = torch.eye(dimension, dtype=torch.float64)
    for n in range(1, most_examples + 1):
        programs, solved, shortest, news, answers = [], [], [], [], []
        for p in range(prompts):
            x = gaussians(10**5 * data_seed + p, dimension, most_examples + 1)
            w = gaussians(10**5 * data_seed + p + 50_000, dimension)
            seen, y = x[:, :n], w @ x[:, :n]
            # halved, so that X X^T stays small; ridge and all, that gives the same weights
            programs.append(algorithms.least_squares(seen / 2, y / 2, rounds, functions, ridge / 4))
            solved.append(torch.linalg.solve(seen @ seen.T + ridge * eye, seen @ y))
            shortest.append(torch.linalg.lstsq(seen.T, y, driver="gelsd").solution)
            news.append(x[:, n])
            answers.append(w @ x[:, n])
        found = run_together(programs, programs[0].machine(), "w")[:, :, 0]
        new_Bd, answer_B = torch.stack(news), torch.stack(answers)
        by = {"program": found, "exact": torch.stack(solved), "shortest": torch.stack(shortest)}
        said = {name: (w_Bd * new_Bd).sum(1) for name, w_Bd in by.items()}
        errors = {name: float(((value - answer_B) ** 2).mean() / dimension) for name, value in said.items()}
        difference = float((said["program"] - said["exact"]).abs().max())
        rows.append({"examples": n, **errors, "difference": difference})
    return {"largest_difference": max(r["difference"] for r in rows), "prompts": prompts}, columns(rows)
