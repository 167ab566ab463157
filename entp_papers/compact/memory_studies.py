"""Capacity for random sequences as records: functions of JSON arguments that return (metrics, curves).

``model`` and ``schedule`` hold the fields of ``MemoryConfig`` and ``Schedule``. Runs differ in weights, library and
order, all from ``seed`` and the run's number; runs of one seed have the same library whatever the model.
"""

from typing import Any

import torch

from entp_lib.validation import from_dict, require
from entp_papers.compact import chance, memory_model, shatter, side_by_side
from entp_papers.compact.memory_model import MemoryConfig
from entp_papers.compact.side_by_side import Schedule

MOST_PENDING = 2  # sizes in a row that no run recalls whole before the search for the largest library ends


def capacity_study(
    model: dict[str, Any], schedule: dict[str, Any], library: int, runs: int = 3, seed: int = 0
) -> tuple[dict[str, Any], dict[str, list]]:
    """Maximum attainable capacity: the most sequences of a large library that are recalled at any count (§3.1).

    Metrics: ``capacity`` by run, the ``best`` of them (what the paper reports), ``offset`` of guessing,
    ``above_chance`` (best less offset), ``parameters``, ``memories_per_parameter``. Curves: mean count and
    loss by epoch.
    """
    cfg, plan = configs(model, schedule)
    outcome = side_by_side.train(cfg, plan, libraries(cfg, library, runs, seed), seeds(runs, seed))
    best, offset = int(outcome.best_R.max()), chance.chance_offset(library, cfg.symbols)
    parameters = memory_model.parameter_count(cfg)
    metrics = {
        "capacity": outcome.best_R.tolist(),
        "best": best,
        "offset": offset,
        "above_chance": best - offset,
        "parameters": parameters,
        "memories_per_parameter": best / parameters,
        "epochs": outcome.epochs_C[-1],
        "steps": outcome.epochs_C[-1] * -(-library // plan.batch_size),
        "stopped_by_patience": int((outcome.ended_R > 0).sum()),
    }
    curves = {
        "epoch": outcome.epochs_C,
        "right": outcome.right_RC.double().mean(0).tolist(),
        "loss": outcome.losses_RC.double().mean(0).tolist(),
    }
    return metrics, curves


def largest_library_study(
    model: dict[str, Any], schedule: dict[str, Any], sizes: list[int], runs: int = 3, seed: int = 0
) -> tuple[dict[str, Any], dict[str, list]]:
    """Maximum library size: the largest of ``sizes`` that is recalled whole, each trained afresh (§3.1).

    Sizes are tried upwards until two in a row are recalled by no run. A smaller library is the first part of a larger
    one. Metrics: ``largest`` by run (0 for none) and the ``best``; curves: sequences recalled by size, best run.
    """
    cfg, plan = configs(model, {"until_all": True, **schedule})
    require(len(sizes) >= 1 and sizes == sorted(set(sizes)), f"sizes = {sizes}: must be ascending, at least one")
    largest_R, pending, tried, recalled = torch.zeros(runs, dtype=torch.long), 0, [], []
    for size in sizes:
        outcome = side_by_side.train(cfg, plan, libraries(cfg, size, runs, seed), seeds(runs, seed))
        whole_R = outcome.best_R == size
        largest_R = torch.where(whole_R, size, largest_R)
        pending = 0 if whole_R.any() else pending + 1
        tried.append(size)
        recalled.append(int(outcome.best_R.max()))
        if pending == MOST_PENDING:
            break
    metrics = {
        "largest": largest_R.tolist(),
        "best": int(largest_R.max()),
        "parameters": memory_model.parameter_count(cfg),
        "bounded": pending == MOST_PENDING,
    }
    return metrics, {"size": tried, "right": recalled}


def shatter_study(
    model: dict[str, Any], schedule: dict[str, Any], library: int = 16, runs: int = 200, seed: int = 0
) -> tuple[dict[str, Any], dict[str, list]]:
    """Epochs until a small library is recalled whole, over many runs, and the negative binomial for them (figure 8).

    Metrics: ``fit`` of maximum likelihood to the runs that got there (None where fewer than 50 did, or all after nearly
    as many epochs), (r, p) by ``moments``, ``unfinished`` runs, and ``mean_best``, the sequences recalled at best.
    Curves: their epochs, sorted.
    """
    cfg, plan = configs(model, {"until_all": True, "count_every": 1, **schedule})
    outcome = side_by_side.train(cfg, plan, libraries(cfg, library, runs, seed), seeds(runs, seed))
    done_R = outcome.ended_R > 0
    epochs = sorted(outcome.ended_R[done_R].tolist())
    enough = len(epochs) >= 50 and shatter.spreads(epochs)
    metrics = {
        "runs": runs,
        "unfinished": runs - len(epochs),
        "fit": vars(shatter.fit(epochs)) if enough else None,
        "moments": list(shatter.by_moments(epochs)) if enough else None,
        "parameters": memory_model.parameter_count(cfg),
        "mean_best": float(outcome.best_R.double().mean()),
        "limit": plan.passes(library),
    }
    return metrics, {"epochs": epochs}


def configs(model: dict[str, Any], schedule: dict[str, Any]) -> tuple[MemoryConfig, Schedule]:
    """Both configurations, checked."""
    return from_dict(MemoryConfig, model, "model."), from_dict(Schedule, schedule, "schedule.")


def seeds(runs: int, seed: int) -> list[int]:
    """A seed for each run, different from those of every other seed below a thousand runs."""
    require(1 <= runs <= 1000, f"runs = {runs}: must be from 1 to 1000")
    return [1000 * seed + run for run in range(runs)]


def libraries(cfg: MemoryConfig, library: int, runs: int, seed: int) -> torch.Tensor:
    """(R, K, length), a library for each run."""
    require(library >= 1, f"library = {library}: must hold at least 1 sequence")
    return torch.stack([side_by_side.random_library(cfg, library, s) for s in seeds(runs, seed)])
