"""Checkpoints: weights and moments as safetensors, everything else about a run in progress in the header."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.config import RunConfig, canonical_json, to_dict
from entp_lib.models import build_model
from entp_lib.training.tensors import DamagedFileError, check_tensors, damaged, read_tensors, save_tensors
from entp_lib.training.weights import save_weights

Weights = dict[str, Tensor]
NEEDED = ("step", "token_forwards", "curves", "kept")
MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class State:
    """Everything about a run in progress except weights and optimiser: what a checkpoint's header holds."""

    step: int = 0
    seconds: float = 0.0  # of training steps alone, evaluation left out
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0  # what the processor gave of the wall seconds
    token_forwards: int = 0
    best_loss: float = math.inf
    evals_since_best: int = 0
    curves: dict[str, list] = field(default_factory=dict)
    kept: dict[str, dict[str, float]] = field(default_factory=dict)  # by checkpoint rule: its step and score
    processes: list[dict[str, Any]] = field(default_factory=list)  # that worked on the run, in order

    def has_ended(self, config: RunConfig) -> bool:
        """Whether the run has made its last step, lost its patience or reached the loss that ends it."""
        train, losses = config.train, self.curves.get("loss", [])
        reached = train.stop_loss is not None and bool(losses) and losses[-1] <= train.stop_loss
        return self.step >= train.steps or 0 < train.patience <= self.evals_since_best or reached


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name: those that are not frozen."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def save_checkpoint(path: Path, config, model, optimizer, loss_sum: Tensor, state: State, kept: dict) -> None:
    """Weights and moments as safetensors, the state as JSON in the header, a checksum over both. Atomic."""
    tensors = {f"model.{name}": p for name, p in learned(model).items()}
    for name, p in learned(model).items():
        for key, value in optimizer.state[p].items():
            tensors[f"optimizer.{key}.{name}"] = value
    tensors["loss_sum"] = loss_sum
    tensors |= {f"kept.{rule}.{name}": p for rule, weights in kept.items() for name, p in weights.items()}
    save_tensors(path, tensors, {"config": canonical_json(to_dict(config)), "state": json.dumps(vars(state))})


def load_checkpoint(path: Path, config, model, optimizer, loss_sum: Tensor, kept: dict[str, Weights]) -> State:
    """Fill model, optimiser, sums and kept weights.

    DamagedFileError, and nothing is filled, where the file is another run's or damaged.
    """
    state, tensors = read_checkpoint(path, config, model)
    with torch.no_grad():
        for name, p in learned(model).items():
            p.copy_(tensors[f"model.{name}"])
            # AdamW counts steps in a tensor that lives where its fused kernel wants it
            if state.step:
                moments = {key: tensors[f"optimizer.{key}.{name}"].to(p.device) for key in ("step", *MOMENTS)}
                optimizer.state[p].update(moments)
        loss_sum.copy_(tensors["loss_sum"])
    for rule in state.kept:
        kept[rule] = {name: tensors[f"kept.{rule}.{name}"].to(p.device) for name, p in learned(model).items()}
    return state


def read_checkpoint(path: Path, config: RunConfig, model: nn.Module) -> tuple[State, Weights]:
    """State and tensors of the checkpoint of ``config``, whose model has the shapes of ``model``.

    DamagedFileError where it is damaged, belongs to another configuration, or does not hold exactly what a run of
    ``config`` leaves: every tensor with its shape and type, and a state that such a run can be in.
    """
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != canonical_json(to_dict(config)):
        raise damaged(path, "belongs to another configuration")
    try:
        state = state_from(json.loads(header["state"]), config)
    except (ValueError, TypeError) as error:
        raise damaged(path, f"has a state that no run can be in ({error})") from error
    parameters = learned(model)
    expected = {f"model.{name}": p for name, p in parameters.items()}
    if state.step:
        count = torch.tensor(0.0, dtype=torch.float32)
        expected |= {f"optimizer.step.{name}": count for name in parameters}
        expected |= {f"optimizer.{key}.{name}": p for name, p in parameters.items() for key in MOMENTS}
    expected["loss_sum"] = torch.zeros((), dtype=torch.float64)
    expected |= {f"kept.{rule}.{name}": p for rule in state.kept for name, p in parameters.items()}
    check_tensors(path, tensors, expected)
    if any(tensors[f"optimizer.step.{name}"].item() != state.step for name in parameters if state.step):
        raise damaged(path, f"has an optimiser at another step than {state.step}")
    return state, tensors


def checkpoint_step(path: Path) -> int:
    """The step that a checkpoint was written at; -1 where there is none, or a damaged one."""
    try:
        return int(json.loads(read_tensors(path, {"config", "state"})[1]["state"])["step"])
    except (DamagedFileError, ValueError, KeyError, TypeError):
        return -1


def state_from(values: dict[str, Any], config: RunConfig) -> State:
    """The state that ``values`` describe; ValueError or TypeError where a run of ``config`` cannot be in it."""
    state = State(**values)
    missing = set(NEEDED) - set(values)  # others may have come later than the checkpoint
    if missing:
        raise ValueError(f"{min(missing)} is missing")
    for name in ("step", "token_forwards", "evals_since_best"):
        if type(getattr(state, name)) is not int or getattr(state, name) < 0:
            raise ValueError(f"{name} = {getattr(state, name)!r}")
    for name in ("seconds", "wall_seconds", "cpu_seconds"):
        if type(getattr(state, name)) not in (int, float) or not 0 <= getattr(state, name) < math.inf:
            raise ValueError(f"{name} = {getattr(state, name)!r}")
    if state.step > config.train.steps:
        raise ValueError(f"step = {state.step} of {config.train.steps}")
    every, points = config.train.eval_every, {len(curve) for curve in state.curves.values()}
    due = state.step // every + (state.step == config.train.steps and state.step % every > 0)
    if points != ({due} if due else set()):
        raise ValueError(f"curves of {sorted(points)} points at step {state.step}, which has {due}")
    return state


def weights_from_checkpoint(checkpoint: Path, path: Path, config: RunConfig, name: str) -> bool:
    """Write the weights of the finished run ``name`` from the checkpoint of its end, if it is that.

    Returns whether it was; DamagedFileError as ``read_checkpoint``.
    """
    model = build_model(config.model)
    state, tensors = read_checkpoint(checkpoint, config, model)
    if not state.has_ended(config):
        return False
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(tensors[f"model.{key}"])
    save_weights(path, config, model, name)
    return True
