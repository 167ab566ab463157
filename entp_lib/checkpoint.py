"""Files of tensors with texts in the header and a checksum over both: weights of finished runs, and checkpoints.

They are safetensors: nothing is pickled, and a hostile file is refused before it takes more memory than it has itself.
A checkpoint has weights and moments as tensors, and everything else about a run in progress in the header.
"""

import hashlib
import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from entp_lib.config import TrainConfig
from entp_lib.files import write_atomically
from entp_lib.training import TrainingState, learned
from entp_lib.validation import ConfigError

SUFFIX = ".weights.safetensors"
VALUES = ("step", "seconds", "best_loss", "evals_since_best", "curves", "kept")  # of a state, beside its tensors
NEEDED = {"step", "curves", "kept"}  # the rest may have come later
COUNTS = {"step", "evals_since_best", "seconds", "token_forwards", "wall_seconds", "cpu_seconds"}
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of a parameter
Weights = dict[str, Tensor]


class DamagedFileError(ConfigError):
    """A file of tensors that is damaged or belongs to another run: its ``path``, and ``why`` it cannot be used."""

    def __init__(self, path: Path, why: str):
        weights = str(path).endswith(SUFFIX)
        self.path, self.reason, self.why = Path(path), why, f"{'weights' if weights else 'checkpoint'} {path} {why}"
        super().__init__(f"{self.why}; delete it to {'have them made again' if weights else 'start afresh'}")

    def __reduce__(self) -> tuple:
        return type(self), (self.path, self.reason)  # a worker's error is pickled


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors and the texts of ``header`` with a checksum over both. Atomic. Raises OSError."""
    alone = {}
    for name, tensor in tensors.items():  # safetensors refuses a view of a larger storage
        tensor = tensor.detach().cpu().contiguous()
        alone[name] = tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
    header = {**header, "checksum": checksum(alone, header)}
    write_atomically(path, safetensors.torch.save(alone, metadata=header))


def read_tensors(path: Path, header_names: set[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header, of just these names, of ``save_tensors``; DamagedFileError if a single bit is another."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe would be read for ever
        raise DamagedFileError(path, "is no regular file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            header = file.metadata() or {}
    except (safetensors.SafetensorError, OSError, UnicodeError) as error:
        raise DamagedFileError(path, f"cannot be read ({error})") from error
    claimed = header.pop("checksum", None)
    if set(header) != header_names or claimed != checksum(tensors, header):
        raise DamagedFileError(path, "is damaged: its checksum does not match its content")
    return tensors, header


def check_tensors(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """DamagedFileError unless names, shapes and types of ``tensors`` are exactly those of ``expected``."""
    for what, names in (("lacks", set(expected) - set(tensors)), ("has the unknown", set(tensors) - set(expected))):
        if names:
            raise DamagedFileError(path, f"{what} {min(names)}")
    for name, mine in expected.items():
        given = tensors[name]
        if mine.shape != given.shape or mine.dtype != given.dtype:
            kinds = [f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in (given, mine)]
            raise DamagedFileError(path, f"has {name} as {kinds[0]} where the model has {kinds[1]}")


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """SHA-256 over the header's texts and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(dict(header), sort_keys=True).encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(json.dumps([name, str(t.dtype), list(t.shape)]).encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(path: Path, state: TrainingState, config: str, extra: Mapping[str, Any]) -> None:
    """Write a run in progress: weights and moments as tensors, the rest as JSON in the header. Atomic. Raises OSError.

    ``config``: a text that tells the run from others. ``extra``: plain values of the caller's own to find again.
    """
    tensors = {"loss_sum": state.loss_sum}
    for name, p in learned(state.model).items():
        tensors[f"model.{name}"] = p
        tensors |= {f"optimizer.{key}.{name}": value for key, value in state.optimizer.state[p].items()}
    for rule, weights in state.kept_weights.items():
        tensors |= {f"kept.{rule}.{name}": p for name, p in weights.items()}
    values = {name: getattr(state, name) for name in VALUES} | dict(extra)
    save_tensors(path, tensors, {"config": config, "state": json.dumps(values)})


def read_checkpoint(path: Path, config: str) -> tuple[Weights, dict[str, Any]]:
    """Return tensors and values of a checkpoint; DamagedFileError where it is damaged, or not of ``config``."""
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != config:
        raise DamagedFileError(path, "belongs to another configuration")
    return tensors, json.loads(header["state"])


def load_checkpoint(path: Path, state: TrainingState, config: str, extra: Collection[str] = ()) -> dict[str, Any]:
    """Fill ``state`` from ``save_checkpoint``'s file and return the values of the names ``extra`` that it has.

    DamagedFileError, and nothing is filled, where no run of this configuration can have left it.
    """
    tensors, values = read_checkpoint(path, config)
    try:
        if missing := NEEDED - set(values):
            raise ValueError(f"{min(missing)} is missing")
        if unknown := set(values) - {*VALUES, *extra}:
            raise ValueError(f"{min(unknown)} is unknown")
        check_values(values, state.config)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    step, kept, parameters = values["step"], values["kept"], learned(state.model)
    expected: Weights = {"loss_sum": torch.zeros((), dtype=torch.float64)}
    for name, p in parameters.items():
        expected[f"model.{name}"] = p
        if step:
            expected |= {f"optimizer.{key}.{name}": torch.tensor(0.0) if key == "step" else p for key in MOMENTS}
        expected |= {f"kept.{rule}.{name}": p for rule in kept}
    check_tensors(path, tensors, expected)
    if any(t.item() != step for name, t in tensors.items() if name.startswith("optimizer.step.")):
        raise DamagedFileError(path, f"has an optimiser at another step than {step}")
    for name in VALUES:
        setattr(state, name, values.get(name, getattr(state, name)))
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[f"model.{name}"])
            if step:  # AdamW counts steps in a tensor that lies where its fused kernel wants it
                moments = {key: tensors[f"optimizer.{key}.{name}"].to(p.device) for key in MOMENTS}
                state.optimizer.state[p].update(moments)
        state.loss_sum.copy_(tensors["loss_sum"])
    for rule in kept:
        state.kept_weights[rule] = {name: tensors[f"kept.{rule}.{name}"].to(p.device) for name, p in parameters.items()}
    return {name: values[name] for name in extra if name in values}


def check_values(values: Mapping[str, Any], config: TrainConfig) -> None:
    """Raise ValueError where a run of ``config`` cannot have these values in its checkpoint."""
    for name in COUNTS & set(values):
        value = values[name]
        is_number = type(value) is int or (type(value) is float and name.endswith("seconds"))
        if not (is_number and 0 <= value < math.inf):
            raise ValueError(f"{name} = {value!r}")
    step, every = values["step"], config.eval_every
    if step > config.steps:
        raise ValueError(f"step = {step} of {config.steps}")
    points = {len(curve) for curve in values["curves"].values()}
    due = step // every + (step == config.steps and step % every > 0)
    if points != ({due} if due else set()):
        raise ValueError(f"curves of {sorted(points)} points at step {step}, which has {due}")
