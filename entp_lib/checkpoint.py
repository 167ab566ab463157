"""Files of tensors with texts in the header and a checksum over both: weights, and checkpoints.

They are safetensors: nothing is pickled, and a hostile file is refused before it takes more memory
than it has itself. A checkpoint has weights and moments as tensors, and everything else about a run
in progress in the header.
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
from entp_lib.validation import ConfigError, matches

SUFFIX = ".weights.safetensors"
# The values of a state beside its tensors, with their types.
VALUES = {
    "step": int,
    "curves": dict[str, Any],
    "kept": dict[str, Any],
    "seconds": float,
    "best_loss": float,
    "evals_since_best": int,
}
OPTIONAL = {"seconds", "best_loss", "evals_since_best"}  # which older checkpoints may lack
# Values of callers, where they have them.
EXTRA_VALUES = {
    "token_forwards": int,
    "wall_seconds": float,
    "cpu_seconds": float,
    "processes": list,
}
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of a parameter
Weights = dict[str, Tensor]


class DamagedFileError(ConfigError):
    """A file of tensors that is damaged or of another run; ``why`` it cannot be used."""

    def __init__(self, path: Path, reason: str):
        is_weights = str(path).endswith(SUFFIX)
        remedy = "have them made again" if is_weights else "start afresh"
        self.path = Path(path)
        self.reason = reason
        self.why = f"{'weights' if is_weights else 'checkpoint'} {path} {reason}"
        super().__init__(f"{self.why}; delete it to {remedy}")

    def __reduce__(self) -> tuple:
        return type(self), (self.path, self.reason)  # a worker's error is pickled


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors and the texts of ``header`` with a checksum over both. Atomic."""
    alone = {}
    for name, tensor in tensors.items():  # safetensors refuses a view of a larger storage
        tensor = tensor.detach().cpu().contiguous()
        is_view = tensor.untyped_storage().nbytes() != tensor.nbytes
        alone[name] = tensor.clone() if is_view else tensor
    header = {**header, "checksum": checksum(alone, header)}
    write_atomically(path, safetensors.torch.save(alone, metadata=header))


def read_tensors(path: Path, header_names: set[str]) -> tuple[Weights, dict[str, str]]:
    """Return tensors and header, of just these names; DamagedFileError for a single other bit."""
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be read for ever
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


def check_tensors(
    path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Raise DamagedFileError unless names, shapes and types are exactly the expected ones."""

    def kind(tensor: Tensor) -> str:
        return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"

    if missing := set(expected) - set(tensors):
        raise DamagedFileError(path, f"lacks {min(missing)}")
    if unknown := set(tensors) - set(expected):
        raise DamagedFileError(path, f"has the unknown {min(unknown)}")
    for name, tensor in tensors.items():
        given = kind(tensor)
        wanted = kind(expected[name])
        if given != wanted:
            raise DamagedFileError(path, f"has {name} as {given} where the model has {wanted}")


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Return the SHA-256 over the header's texts and each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(dict(header), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(
    path: Path, state: TrainingState, config: str, extra: Mapping[str, Any]
) -> None:
    """Write a run in progress: weights and moments as tensors, the rest as JSON in the header.

    ``config`` tells the run from others; ``extra`` has plain values of the caller's. Atomic.
    """
    tensors = {"loss_sum": state.loss_sum}
    for name, p in learned(state.model).items():
        tensors[f"model.{name}"] = p
        for key, value in state.optimizer.state[p].items():
            tensors[f"optimizer.{key}.{name}"] = value
    for rule, weights in state.kept_weights.items():
        tensors |= {f"kept.{rule}.{name}": p for name, p in weights.items()}
    values = {name: getattr(state, name) for name in VALUES} | dict(extra)
    save_tensors(path, tensors, {"config": config, "state": json.dumps(values)})


def read_checkpoint(path: Path, config: str) -> tuple[Weights, dict[str, Any]]:
    """Return a checkpoint's tensors and values; DamagedFileError if it is not of ``config``."""
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != config:
        raise DamagedFileError(path, "belongs to another configuration")
    return tensors, json.loads(header["state"])


def load_checkpoint(
    path: Path, state: TrainingState, config: str, extra: Collection[str] = ()
) -> dict[str, Any]:
    """Fill ``state`` from a checkpoint and return the values of the names ``extra`` that it has.

    DamagedFileError, and nothing is filled, where no run of this configuration can have left it.
    """
    tensors, values = read_checkpoint(path, config)
    try:
        check_values(values, state.config, extra)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    parameters = learned(state.model)
    check_tensors(path, tensors, expected_tensors(parameters, values))
    for name in parameters if values["step"] else ():
        if tensors[f"optimizer.step.{name}"].item() != values["step"]:
            raise DamagedFileError(path, f"has an optimiser at another step than {values['step']}")
    for name in VALUES:
        setattr(state, name, values.get(name, getattr(state, name)))
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[f"model.{name}"])
            if state.step:  # AdamW counts steps in a tensor that lies where its kernel wants it
                moments = {key: tensors[f"optimizer.{key}.{name}"].to(p.device) for key in MOMENTS}
                state.optimizer.state[p].update(moments)
        state.loss_sum.copy_(tensors["loss_sum"])
    for rule in state.kept:
        weights = {name: tensors[f"kept.{rule}.{name}"] for name in parameters}
        state.kept_weights[rule] = {
            name: x.to(state.loss_sum.device) for name, x in weights.items()
        }
    return {name: values[name] for name in extra if name in values}


def expected_tensors(parameters: Mapping[str, Tensor], values: Mapping[str, Any]) -> Weights:
    """Return tensors of the names, shapes and types that a checkpoint with these values has."""
    expected: Weights = {"loss_sum": torch.zeros((), dtype=torch.float64)}
    for name, p in parameters.items():
        expected[f"model.{name}"] = p
        expected |= {f"kept.{rule}.{name}": p for rule in values["kept"]}
        for key in MOMENTS if values["step"] else ():
            expected[f"optimizer.{key}.{name}"] = torch.tensor(0.0) if key == "step" else p
    return expected


def check_values(values: dict[str, Any], config: TrainConfig, extra: Collection[str]) -> None:
    """Raise ValueError where a run of ``config`` cannot have these values in its checkpoint."""
    kinds = VALUES | {name: EXTRA_VALUES.get(name, Any) for name in extra}
    if missing := set(VALUES) - OPTIONAL - set(values):
        raise ValueError(f"{min(missing)} is missing")
    if unknown := set(values) - set(kinds):
        raise ValueError(f"{min(unknown)} is unknown")
    for name, value in values.items():
        is_count = kinds[name] in (int, float) and name != "best_loss"
        if not matches(value, kinds[name]) or (is_count and not 0 <= value < math.inf):
            raise ValueError(f"{name} = {value!r:.40}")
    if not all(isinstance(process, dict) for process in values.get("processes", ())):
        raise ValueError("processes are no dictionaries")
    check_curves(values, config)


def check_curves(values: dict[str, Any], config: TrainConfig) -> None:
    """Raise ValueError where curves and kept weights do not fit the step."""
    for rule, kept in values["kept"].items():
        is_whole = set(kept) == {"step", "score"} and matches(kept["step"], int)
        if not (is_whole and matches(kept["score"], float)):
            raise ValueError(f"kept.{rule} = {kept!r:.40}")
    step = values["step"]
    every = config.eval_every
    if step > config.steps:
        raise ValueError(f"step = {step} of {config.steps}")
    points = {len(curve) for curve in values["curves"].values()}
    due = step // every + (step == config.steps and step % every > 0)
    if points != ({due} if due else set()):
        raise ValueError(f"curves of {sorted(points)} points at step {step}, which has {due}")
    for name, curve in values["curves"].items():
        if not all(matches(value, float) for value in curve):
            raise ValueError(f"curves.{name} holds what is no number")
