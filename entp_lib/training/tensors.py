"""Files of tensors: safetensors with texts in the header and a checksum over everything. Nothing is pickled."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from entp_lib.files import write_atomically
from entp_lib.validation import ConfigError


class DamagedFileError(ConfigError):
    """A file of tensors that is damaged or belongs to another run: its ``path``, and ``why`` it cannot be used."""

    def __init__(self, message: str, path: Path, why: str):
        super().__init__(message)
        self.path, self.why = Path(path), why

    def __reduce__(self) -> tuple:
        return type(self), (str(self), self.path, self.why)  # a worker's error is pickled


def save_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors and the texts of ``header`` with a checksum over both. Atomic. Raises OSError."""
    tensors = {name: owned(t.detach().cpu().contiguous()) for name, t in tensors.items()}
    header = {**header, "checksum": checksum(tensors, header)}
    write_atomically(path, safetensors.torch.save(tensors, metadata=header))


def owned(tensor: Tensor) -> Tensor:
    """A tensor with a storage of its own, without which safetensors refuses it; itself where it has one."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read_tensors(path: Path, header_names: set[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a file that ``save_tensors`` wrote with just these names in its header.

    DamagedFileError where the file is missing or unreadable, or where a single bit is not as it was written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe would be read for ever
        raise damaged(path, "is no regular file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            header = file.metadata() or {}
    except (safetensors.SafetensorError, OSError, UnicodeError) as error:
        raise damaged(path, f"cannot be read ({error})") from error
    claimed = header.pop("checksum", None)
    if set(header) != header_names or claimed != checksum(tensors, header):
        raise damaged(path, "is damaged: its checksum does not match its content")
    return tensors, header


def check_tensors(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """DamagedFileError unless names, shapes and types of ``tensors`` are exactly those of ``expected``."""
    for what, names in (("lacks", set(expected) - set(tensors)), ("has the unknown", set(tensors) - set(expected))):
        if names:
            raise damaged(path, f"{what} {min(names)}")
    for name, wanted in expected.items():
        for what in ("shape", "dtype"):
            mine, given = getattr(wanted, what), getattr(tensors[name], what)
            if mine != given:
                kinds = [str(tuple(k) if what == "shape" else k).removeprefix("torch.") for k in (given, mine)]
                raise damaged(path, f"has {name} as {kinds[0]} where the model has {kinds[1]}")


def damaged(path: Path, why: str) -> DamagedFileError:
    """The error that says what is wrong with a file of tensors."""
    weights = Path(path).name.endswith(".weights.safetensors")
    kind, after = ("weights", "have them made again") if weights else ("checkpoint", "start this run afresh")
    return DamagedFileError(f"{kind} {path} {why}; delete it to {after}", path, f"{kind} {path} {why}")


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """SHA-256 over the header's texts and every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(dict(header), sort_keys=True).encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(json.dumps([name, str(t.dtype), list(t.shape)]).encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
