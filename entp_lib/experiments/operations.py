"""Multiply-adds of planned training runs, counted from their configurations as this library computes them."""

import functools
import json

from entp_lib.config import RunConfig
from entp_lib.models import costs
from entp_lib.tasks import build_task


@functools.lru_cache(maxsize=64)
def wanted_lengths(task: str, params: str) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Tokens of a training sequence, and the lengths of the wanted prefixes of a few."""
    wanted_BT = build_task(task, json.loads(params)).wanted_sample()
    return wanted_BT.shape[1], tuple(tuple((row_T.nonzero()[:, 0] + 1).tolist()) for row_T in wanted_BT)


def training_operations(config: RunConfig) -> float:
    """Multiply-adds of a whole run, forward and backward; ENTP as this library computes it, not as it is defined.

    Those of the matrix products (``entp_lib.models.costs``), twice as many again for the gradient; evaluation is left
    out.
    """
    cfg = config.model
    tokens, rows = wanted_lengths(config.task, json.dumps(config.task_params, sort_keys=True))
    each = sum(costs.training_pass(cfg, row, tokens) for row in rows) / len(rows)
    return 3.0 * each * config.train.batch_size * config.train.steps
