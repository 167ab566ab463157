"""Compute of runs, and budgets at which a decoder is compared with ENTP: equal steps, and equal multiply-adds.

A third arm, ``longer``, is planned and stored, and no figure or table shows it: a decoder that sends as many tokens
through its layers as ENTP does by its definition. This library computes less than that, so that ``longer`` has more
multiply-adds than ENTP.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from entp_lab.configs import RunConfig, StudyConfig, canonical_json, lengthened
from entp_lab.registry import build_task
from entp_lib import costs
from entp_lib.architectures import ARCHITECTURES
from entp_lib.config import ModelConfig
from entp_lib.tasks import Task
from entp_lib.validation import one_of

# Arms of decoders, as records' labels call them.
EQUAL_FORWARDS = "longer"  # with as many tokens through the layers as ENTP; stored and not shown
EQUAL_OPERATIONS = "operations"  # with the multiply-adds of ENTP
SAME_PREFIXES = "same prefixes"  # that learns from ENTP's prefixes, where those are few
MORE_STEPS = "more steps"  # with more steps than ENTP, and still less compute

# Of (ENTP's run, another): the factor by which the other's steps are multiplied until it has spent as much.
Budget = Callable[[RunConfig, RunConfig], float]
# tokens of a training sequence, lengths of a few's scored prefixes
Lengths = tuple[int, Sequence[Sequence[int]]]


def token_forwards(model: ModelConfig | str, scored_BT: Tensor) -> int:
    """Count the tokens that one pass sends through the stack: B·T, or the prefixes' total length.

    ``model`` is a configuration, or an architecture's name. ENTP is counted as it is defined, one full pass per prefix,
    and so is the authors' hybrid. Where a configuration says how many layers are full, each layer is counted by itself:
    their mean, to the nearest token. Records have this in their curves.
    """
    name = model if isinstance(model, str) else model.architecture
    one_of("architecture", name, ARCHITECTURES)
    once = scored_BT.numel()
    if ARCHITECTURES[name].causal_layers is None:
        return once
    lengths_T = torch.arange(1, scored_BT.shape[1] + 1, device=scored_BT.device)
    anew = int((scored_BT * lengths_T).sum())
    if isinstance(model, str) or model.full_layers is None:
        return anew
    causal = model.n_layers - model.full_layers
    return round((causal * once + model.full_layers * anew) / model.n_layers)


def prefixes_of(task: Task) -> Lengths:
    """Return the tokens of a training sequence of ``task``, and the lengths of the scored prefixes of a few."""
    scored_BT = task.scored_sample()
    return scored_BT.shape[1], [(row_T.nonzero()[:, 0] + 1).tolist() for row_T in scored_BT]


@functools.lru_cache(maxsize=64)
def scored_lengths(task: str, params: str) -> Lengths:
    """Return ``prefixes_of`` a task by its name and the JSON of its parameters."""
    return prefixes_of(build_task(task, json.loads(params)))


def sequence_operations(model: ModelConfig, lengths: Lengths) -> float:
    """Return the multiply-adds of training on one sequence.

    Those of the matrix products (``entp_lib.costs``), ENTP as this library computes it, and twice as many again for the
    gradient; evaluation is left out.
    """
    tokens, rows = lengths
    return 3.0 * sum(costs.training_pass(model, row, tokens) for row in rows) / len(rows)


@functools.cache
def operations_of(model: ModelConfig, task: str, params: str) -> float:
    """Return ``sequence_operations`` of a model on a task by its name and the JSON of its parameters."""
    return sequence_operations(model, scored_lengths(task, params))


def training_operations(config: RunConfig) -> float:
    """Count the multiply-adds of a whole run, forward and backward."""
    each = operations_of(config.model, config.task, canonical_json(config.task_params))
    return each * config.train.batch_size * config.train.steps


def step_operations(config: RunConfig | StudyConfig) -> float:
    """Return the multiply-adds of a training step, NaN for a study, whose cost is not known."""
    if isinstance(config, StudyConfig):
        return math.nan
    return training_operations(config) / config.train.steps


def compute_ratio(task: Task) -> float:
    """Count the tokens that an ENTP step sends through the layers, over a decoder's."""
    scored_BT = task.scored_sample()
    return token_forwards("entp", scored_BT) / token_forwards("decoder", scored_BT)


def layer_tokens(config: RunConfig) -> float:
    """Count the tokens that the layers get for each token of a sequence: 1 if causal, else all its scored prefixes."""
    tokens, rows = scored_lengths(config.task, canonical_json(config.task_params))
    full = config.model.recomputed_layers
    return (config.model.n_layers - full) + full * (sum(map(sum, rows)) / (tokens * len(rows)))


def equal_forwards(entp: RunConfig, own: RunConfig) -> float:
    """Return the budget of as many tokens through the layers, for a decoder or a stack with some full layers."""
    return layer_tokens(entp) / layer_tokens(own)


def equal_operations(entp: RunConfig, own: RunConfig) -> float:
    """Return the budget of as many multiply-adds, as ``training_operations`` counts them."""
    return training_operations(entp) / training_operations(own)


def on_budget(budget: Budget, entp: RunConfig, own: RunConfig) -> RunConfig:
    """Stretch the schedule of ``own`` by a budget's factor: decay and evaluations with the steps, warm-up as it is."""
    return replace(own, train=lengthened(own.train, budget(entp, own)))
