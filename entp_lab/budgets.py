"""Compute of runs, and the budgets at which a decoder is compared with ENTP: equal steps, and equal multiply-adds.

A third arm, ``longer``, is planned and stored but shown in no figure or table: a decoder that sends as many tokens
through its layers as ENTP does by its definition. This library computes ENTP with less work, so that ``longer`` has
more multiply-adds than ENTP.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from entp_lab.configs import RunConfig, StudyConfig, canonical_json
from entp_lab.registry import build_task
from entp_lib import costs
from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.tasks import Task

# Arms of decoders, as records' labels call them.
EQUAL_FORWARDS = "longer"  # as many tokens through the layers as ENTP; stored but not shown
EQUAL_OPERATIONS = "operations"  # as many multiply-adds as ENTP
SAME_PREFIXES = "same prefixes"  # trained on the same few prefixes as ENTP
MORE_STEPS = "more steps"  # more steps than ENTP, but still less compute

# From ENTP's run and another one: the factor on the other's steps that gives both the same budget.
Budget = Callable[[RunConfig, RunConfig], float]
# tokens of a training sequence, and for a few sequences the lengths of their scored prefixes
Lengths = tuple[int, Sequence[Sequence[int]]]


def token_forwards(model: ModelConfig, scored_BT: Tensor) -> int:
    """Count the tokens that one pass sends through the stack: B·T, or the prefixes' total length.

    ENTP and the authors' hybrid are counted as defined, one full pass per prefix. If a configuration sets
    ``full_layers``, the count is the mean over its layers, rounded to a token. Records have this count in their curves.
    """
    once = scored_BT.numel()
    if ARCHITECTURES[model.architecture].causal_layers is None:
        return once
    lengths_T = torch.arange(1, scored_BT.shape[1] + 1, device=scored_BT.device)
    anew = int((scored_BT * lengths_T).sum())
    full = model.full_layers or model.n_layers
    return round(((model.n_layers - full) * once + full * anew) / model.n_layers)


def prefixes_of(task: Task) -> Lengths:
    """Return the tokens of a training sequence of ``task``, and for a few sequences the lengths of scored prefixes."""
    return scored_prefixes(task.scored_sample())


def scored_prefixes(scored_BT: Tensor) -> Lengths:
    """Return the tokens of a sequence, and for each sequence the lengths of its scored prefixes."""
    return scored_BT.shape[1], [(row_T.nonzero()[:, 0] + 1).tolist() for row_T in scored_BT]


@functools.lru_cache(maxsize=64)
def scored_lengths(task: str, params: str) -> Lengths:
    """Return ``prefixes_of`` a task, given by its name and its parameters as JSON."""
    return prefixes_of(build_task(task, json.loads(params)))


def sequence_operations(model: ModelConfig, lengths: Lengths) -> float:
    """Return the multiply-adds of training on one sequence.

    They are those of the matrix products (``entp_lib.costs``, ENTP as this library computes it), and twice as many
    again for the gradient. Evaluation is left out.
    """
    tokens, rows = lengths
    return 3.0 * sum(costs.training_pass(model, row, tokens) for row in rows) / len(rows)


@functools.cache
def operations_of(model: ModelConfig, task: str, params: str) -> float:
    """Return ``sequence_operations`` of a model on a task, given by its name and its parameters as JSON."""
    return sequence_operations(model, scored_lengths(task, params))


def training_operations(config: RunConfig) -> float:
    """Count the multiply-adds of a whole run, forward and backward."""
    each = operations_of(config.model, config.task, canonical_json(config.task_params))
    return each * config.train.batch_size * config.train.steps


def step_operations(config: RunConfig | StudyConfig) -> float:
    """Return the multiply-adds of a training step; NaN for a study, whose cost is unknown."""
    if isinstance(config, StudyConfig):
        return math.nan
    return training_operations(config) / config.train.steps


def compute_ratio(lengths: Lengths) -> float:
    """Return the tokens that an ENTP step sends through the layers, divided by those of a decoder's step."""
    tokens, rows = lengths
    return sum(map(sum, rows)) / (tokens * len(rows))


def layer_tokens(config: RunConfig) -> float:
    """Count, over all layers, the tokens computed per token of a sequence: 1 if causal, else all scored prefixes."""
    ratio = compute_ratio(scored_lengths(config.task, canonical_json(config.task_params)))
    full = config.model.recomputed_layers
    return (config.model.n_layers - full) + full * ratio


def equal_forwards(entp: RunConfig, own: RunConfig) -> float:
    """Return the budget of equally many tokens through the layers; ``own`` is a decoder, or has some full layers."""
    return layer_tokens(entp) / layer_tokens(own)
