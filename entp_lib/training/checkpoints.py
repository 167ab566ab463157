"""Checkpoints: weights and moments as safetensors, everything else about a run in progress in the header."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entp_lib.config import RunConfig, canonical_json, to_dict
from entp_lib.training.weights import DamagedFileError, check_tensors, read_tensors, save_tensors

Weights = dict[str, Tensor]
NEEDED = ("step", "token_forwards", "curves", "kept")
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of a parameter


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

    def check(self, config: RunConfig) -> None:
        """ValueError where a run of ``config`` cannot be in this state."""
        for name in ("step", "token_forwards", "evals_since_best", "seconds", "wall_seconds", "cpu_seconds"):
            value = getattr(self, name)
            whole = type(value) is int or (type(value) is float and name.endswith("seconds"))
            if not (whole and 0 <= value < math.inf):
                raise ValueError(f"{name} = {value!r}")
        if self.step > config.train.steps:
            raise ValueError(f"step = {self.step} of {config.train.steps}")
        every, points = config.train.eval_every, {len(curve) for curve in self.curves.values()}
        due = self.step // every + (self.step == config.train.steps and self.step % every > 0)
        if points != ({due} if due else set()):
            raise ValueError(f"curves of {sorted(points)} points at step {self.step}, which has {due}")


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name: those that are not frozen."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def save_checkpoint(path: Path, config, model, optimizer, loss_sum: Tensor, state: State, kept: dict) -> None:
    """Weights and moments as safetensors, the state as JSON in the header, a checksum over both. Atomic."""
    tensors = {"loss_sum": loss_sum}
    for name, p in learned(model).items():
        tensors[f"model.{name}"] = p
        tensors |= {f"optimizer.{key}.{name}": value for key, value in optimizer.state[p].items()}
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
            if state.step:  # AdamW counts steps in a tensor that lies where its fused kernel wants it
                optimizer.state[p].update({key: tensors[f"optimizer.{key}.{name}"].to(p.device) for key in MOMENTS})
        loss_sum.copy_(tensors["loss_sum"])
    for rule in state.kept:
        kept[rule] = {name: tensors[f"kept.{rule}.{name}"].to(p.device) for name, p in learned(model).items()}
    return state


def read_checkpoint(path: Path, config: RunConfig, model: nn.Module) -> tuple[State, Weights]:
    """State and tensors of the checkpoint of ``config``, whose model has the shapes of ``model``.

    DamagedFileError where the file is damaged, another configuration's, or in a state that no run of it can be in.
    """
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != canonical_json(to_dict(config)):
        raise DamagedFileError(path, "belongs to another configuration")
    try:
        values = json.loads(header["state"])
        state = State(**values)
        if missing := set(NEEDED) - set(values):  # others may have come later than the checkpoint
            raise ValueError(f"{min(missing)} is missing")
        state.check(config)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    expected = {"loss_sum": torch.zeros((), dtype=torch.float64)}
    for name, p in learned(model).items():
        expected[f"model.{name}"] = p
        if state.step:
            expected |= {f"optimizer.{key}.{name}": torch.tensor(0.0) if key == "step" else p for key in MOMENTS}
        expected |= {f"kept.{rule}.{name}": p for rule in state.kept}
    check_tensors(path, tensors, expected)
    if any(t.item() != state.step for name, t in tensors.items() if name.startswith("optimizer.step.")):
        raise DamagedFileError(path, f"has an optimiser at another step than {state.step}")
    return state, tensors
