"""Weights and checkpoints: files of tensors, with text in the header and a checksum over both.

They are safetensors: nothing is pickled, and a hostile file is refused before it takes more memory
than its own size. A checkpoint holds weights and optimiser moments as tensors, and everything else
about a run in progress in the header.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from entp_lib.files import write_atomically
from entp_lib.training import TrainingState, trainable_parameters
from entp_lib.validation import (
    ConfigError,
    Json,
    check_intervals,
    check_types,
    from_dict,
)

SUFFIX = ".weights.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # Adam's state of a parameter
Weights = dict[str, Tensor]
Extra = TypeVar("Extra")


@dataclass(frozen=True)
class Values:
    """Training state in a checkpoint's header; older checkpoints lack the last three fields."""

    step: int
    curves: Json
    kept: Json
    seconds: float = 0.0
    best_loss: float = math.inf
    evals_since_best: int = 0

    def __post_init__(self):
        check_types(self)
        check_intervals(
            self, dict.fromkeys(("step", "seconds", "evals_since_best"), "[0, inf)")
        )


class DamagedFileError(ConfigError):
    """A file of tensors that is damaged or of another run; ``why`` says what is wrong."""

    def __init__(self, path: Path, reason: str):
        is_weights = str(path).endswith(SUFFIX)
        self.path = path
        self.why = f"{'weights' if is_weights else 'checkpoint'} {path} {reason}"
        self.remedy = "have them made again" if is_weights else "start afresh"

    # no text is given to super().__init__: worker processes pickle errors by their arguments
    def __str__(self) -> str:
        return f"{self.why}; delete it to {self.remedy}"


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], header: dict[str, str]
) -> None:
    """Write tensors and the texts of ``header``, with a checksum over both, atomically."""
    # clones, since safetensors refuses tensors that share a storage
    own = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    header = {**header, "checksum": checksum(own, header)}
    write_atomically(path, safetensors.torch.save(own, metadata=header))


def read_tensors(path: Path, header_names: set[str]) -> tuple[Weights, dict[str, str]]:
    """Return tensors and header; DamagedFileError for a changed bit or other header names."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would never end
            raise DamagedFileError(path, "is no regular file")
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            header = file.metadata() or {}
    except (safetensors.SafetensorError, OSError, UnicodeError) as error:
        raise DamagedFileError(path, f"cannot be read ({error})") from error
    claimed = header.pop("checksum", None)
    if set(header) != header_names or claimed != checksum(tensors, header):
        raise DamagedFileError(
            path, "is damaged: its checksum does not match its content"
        )
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
            raise DamagedFileError(
                path, f"has {name} as {given} where the model has {wanted}"
            )


def checksum(tensors: Mapping[str, Tensor], header: dict[str, str]) -> str:
    """Return the SHA-256 over the header's texts and each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), tensor.shape]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(path: Path, state: TrainingState, config: str, extra: Json) -> None:
    """Write a run in progress: weights and moments as tensors, the rest as JSON in the header.

    ``config``: text that identifies the run. ``extra``: the caller's own JSON values. Buffers of a
    module (a BatchNorm's) are left out. Atomic.
    """
    tensors = {"loss_sum": state.loss_sum.cpu().double()}
    for name, p in trainable_parameters(state.model).items():
        tensors[f"model.{name}"] = p
        for key, value in state.optimizer.state[p].items():
            tensors[f"optimizer.{key}.{name}"] = value
    for rule, weights in state.kept_weights.items():
        tensors |= {f"kept.{rule}.{name}": p for name, p in weights.items()}
    values = {name: getattr(state, name) for name in Values.__annotations__} | extra
    save_tensors(path, tensors, {"config": config, "state": json.dumps(values)})


def load_checkpoint(
    path: Path, state: TrainingState, config: str, extra: type[Extra]
) -> Extra:
    """Fill ``state`` from a checkpoint; return its further values as the dataclass ``extra``.

    Raises DamagedFileError and fills nothing if the file is of another run or incomplete.
    """
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != config:
        raise DamagedFileError(path, "belongs to another configuration")
    try:
        written = dict(json.loads(header["state"]))
        names = extra.__annotations__.keys() & written.keys()
        found = from_dict(extra, {name: written.pop(name) for name in names})
        values = from_dict(Values, written)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise DamagedFileError(
            path, f"has a state that no run can be in ({error})"
        ) from error
    parameters = trainable_parameters(state.model)
    check_tensors(path, tensors, expected_tensors(parameters, values, tensors))
    for name, value in vars(values).items():
        setattr(state, name, value)
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[f"model.{name}"])
            if f"optimizer.step.{name}" in tensors:  # else it has had no gradient
                # the fused AdamW needs its step counter on the parameter's device
                state.optimizer.state[p] = {
                    key: tensors[f"optimizer.{key}.{name}"].to(p.device)
                    for key in MOMENTS
                }
        state.loss_sum.copy_(tensors["loss_sum"])
    for rule in state.kept:
        state.kept_weights[rule] = {
            name: tensors[f"kept.{rule}.{name}"].to(p.device)
            for name, p in parameters.items()
        }
    return found


def expected_tensors(
    parameters: Mapping[str, Tensor], values: Values, tensors: Weights
) -> Weights:
    """Return tensors with the names, shapes and types that a checkpoint with these values has.

    The optimiser has moments of a parameter that has had a gradient.
    """
    expected: Weights = {"loss_sum": torch.zeros((), dtype=torch.float64)}
    for name, p in parameters.items():
        expected[f"model.{name}"] = p
        expected |= {f"kept.{rule}.{name}": p for rule in values.kept}
        for key in MOMENTS if f"optimizer.step.{name}" in tensors else ():
            expected[f"optimizer.{key}.{name}"] = (
                torch.tensor(0.0, dtype=torch.float32) if key == "step" else p
            )
    return expected
