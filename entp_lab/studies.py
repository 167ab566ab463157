"""Common parts of the papers' studies: plans, frames of records, curves from rows, and larger weights."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from entp_lab.configs import StudyConfig, TierName
from entp_lab.experiment import PlannedRun, planned_study
from entp_lab.store import Record, Records
from entp_lib.training import TrainingError, set_learning_rate
from entp_lib.validation import Json, require

Study = tuple[Json, dict[str, list]]  # what a study returns: metrics and curves


def at_least(least: int, **values: int) -> None:
    """Raise ConfigError, which names parameter and value, for a parameter below ``least``."""
    for name, value in values.items():
        require(value >= least, f"{name} = {value}: must be at least {least}")


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    """Turn rows into curves: a list per name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def largest(x: Any, y: Any = 0.0) -> float:
    """Return the largest absolute difference between two arrays or tensors; of one, its largest absolute entry.

    Raises ArithmeticError for NaN, which no bound would notice.
    """
    difference = abs(x - y)
    found = float(difference.detach().max() if isinstance(difference, Tensor) else difference.max())
    if math.isnan(found):
        raise ArithmeticError("a difference is not a number")
    return found


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the exponent of the power law of y in x, from their first and last values."""
    return math.log(y[-1] / y[0]) / math.log(x[-1] / x[0])


def seeded(seed: int) -> torch.Generator:
    """Return a CPU generator with a seed."""
    return torch.Generator().manual_seed(seed)


def gaussians(source: int | torch.Generator, *shape: int) -> Tensor:
    """Draw standard normal numbers in fp64, from a generator or a seed."""
    generator = seeded(source) if isinstance(source, int) else source
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def scale_up(model: nn.Module, seed: int) -> nn.Module:
    """Return the model in fp64, in evaluation mode, with weights so large that attention and order matter."""
    generator = seeded(seed)
    for p in model.double().eval().parameters():
        p.mul_(8) if p.dim() > 1 else p.add_(
            torch.randn(p.shape, generator=generator).to(p), alpha=0.3
        )
    return model


def descend(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    parts: Iterable[Tensor],
    rate: float | None = None,
    clip: float | None = None,
) -> float:
    """Make one optimiser step on the sum of ``parts``, losses with a graph each, and return the sum.

    ``rate``: the learning rate of this step, None to keep it. ``clip``: the largest norm of the gradient. Raises
    TrainingError if the sum is not finite.
    """
    if rate is not None:
        set_learning_rate(optimizer, rate)
    total = 0.0
    for part in parts:
        part.backward()
        total += float(part.detach())
    if not math.isfinite(total):
        raise TrainingError(f"the loss is {total}; a lower learning rate may help")
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return total


def plan_studies(
    experiment: str, tiers: Mapping[str, Mapping[str, dict]]
) -> Callable[..., list[PlannedRun]]:
    """Return the plan of studies that draw their own cases; ``tiers``: parameters by tier and study."""

    def plan(tier: TierName, seeds: int = 0) -> list[PlannedRun]:
        found = tiers.get(tier, {}).items()
        return [
            planned_study(experiment, tier, f"{experiment}_{name}", params)
            for name, params in found
        ]

    return plan


def by_study(records: Records) -> dict[str, Record]:
    """Return records by the name of their study, without the experiment's name before it."""
    return {
        record.config.study.removeprefix(f"{record.experiment}_"): record
        for record in records
        if isinstance(record.config, StudyConfig)
    }


def of_study(records: Records, study: str) -> Record:
    """Return the record of a study, named without its experiment. Raises KeyError if it is missing."""
    return by_study(records)[study]


def frame(records: Records, study: str) -> pd.DataFrame:
    """Return a study's curves, a row per case. KeyError where it is missing."""
    return pd.DataFrame(of_study(records, study).curves)


def flat(records: Records, *left_out: str) -> pd.DataFrame:
    """Return a row per record: its labels but those ``left_out``, and the metrics that are numbers or None."""
    return pd.DataFrame(
        {k: v for k, v in r.labels.items() if k not in left_out}
        | {k: v for k, v in r.metrics.items() if isinstance(v, int | float | None)}
        for r in records
    )


def long(records: Records, names: Sequence[str]) -> pd.DataFrame:
    """Return curves of equal length in long form, with their labels: a row per record and point."""
    parts = [pd.DataFrame({**r.labels, **{n: r.curves[n] for n in names}}) for r in records]
    return pd.concat(parts, ignore_index=True)
