"""Checkpoints: weights and moments as safetensors, everything else about a run in progress in the header."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from entp_lib.config import canonical_json, to_dict
from entp_lib.files import write_atomically
from entp_lib.strict import ConfigError
from entp_lib.training.weights import read_tensors

Weights = dict[str, Tensor]


@dataclass
class State:
    """Everything about a run in progress except weights and optimiser: what a checkpoint's header holds."""

    step: int = 0
    seconds: float = 0.0  # of training steps alone, evaluation left out
    wall_seconds: float = 0.0
    token_forwards: int = 0
    best_loss: float = math.inf
    evals_since_best: int = 0
    curves: dict[str, list] = field(default_factory=dict)
    kept: dict[str, dict[str, float]] = field(default_factory=dict)  # by checkpoint rule: its step and score


def save_checkpoint(path: Path, config, model, optimizer, loss_sum: Tensor, state: State, kept: dict) -> None:
    """Weights and moments as safetensors, the state as JSON in the header; nothing is pickled. Atomic."""
    tensors = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        for key, value in optimizer.state[p].items():
            tensors[f"optimizer.{key}.{name}"] = value
    tensors["loss_sum"] = loss_sum
    tensors |= {f"kept.{rule}.{name}": p for rule, weights in kept.items() for name, p in weights.items()}
    tensors = {name: t.cpu().contiguous() for name, t in tensors.items()}
    header = {"config": canonical_json(to_dict(config)), "state": json.dumps(vars(state))}
    write_atomically(path, safetensors.torch.save(tensors, metadata=header))


def load_checkpoint(path: Path, config, model, optimizer, loss_sum: Tensor, kept: dict[str, Weights]) -> State:
    """Fill model, optimiser, sums and kept weights; ConfigError where the file is another run's or damaged."""
    tensors, header = read_tensors(path)
    if header.get("config") != canonical_json(to_dict(config)):
        raise ConfigError(f"checkpoint {path} belongs to another configuration; delete it or move it away")
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(tensors[f"model.{name}"])
        parameters = dict(model.named_parameters())
        for full in (name for name in tensors if name.startswith("optimizer.")):
            _, key, name = full.split(".", 2)
            moment = tensors[full]
            # AdamW counts steps in a tensor that lives where its fused kernel wants it
            optimizer.state[parameters[name]][key] = moment.to(parameters[name].device)
        loss_sum.copy_(tensors["loss_sum"])
    for full in (name for name in tensors if name.startswith("kept.")):
        _, rule, name = full.split(".", 2)
        kept.setdefault(rule, {})[name] = tensors[full].to(parameters[name].device)
    return State(**json.loads(header["state"]))
