"""Files of tensors with texts in the header and a checksum over both: weights of finished runs, and checkpoints.

They are safetensors: nothing is pickled, and a hostile file is refused before it takes more memory than it has itself.
A checkpoint has weights and moments as tensors, and everything else about a run in progress in the header.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from entp_lib.config import RunConfig, canonical_json, config_from, config_id, to_dict
from entp_lib.files import write_atomically
from entp_lib.models import build_model
from entp_lib.tasks import Task
from entp_lib.validation import ConfigError, require

SHAPE = ("n_layers", "n_heads", "width", "positions", "input_dim", "output_dim")  # what two runs must share
VERSIONS = range(1, 100)  # of experiments, one of which names the run
TABLES = ("embedding.weight", "positions.weight")  # that may have further rows
SUFFIX = ".weights.safetensors"
NEEDED = {"step", "token_forwards", "curves", "kept"}  # of a checkpoint's state; the rest may have come later
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


def save_weights(path: Path, config: RunConfig, model: nn.Module, name: str) -> None:
    """The weights alone, with the configuration and the run's ``name`` ("experiment/id") in the header. Atomic."""
    header = {"config": canonical_json(to_dict(config)), "run": name}
    save_tensors(path, dict(model.named_parameters()), header)


def trained_model(path: Path, name: str = "") -> tuple[RunConfig, nn.Module]:
    """The configuration and the model that a file of weights holds, ready for evaluation.

    DamagedFileError where it does not hold exactly the weights of its configuration, finite ones, or is not that of the
    run ``name``, where one is given; it takes no more memory than the file has.
    """
    tensors, header = read_tensors(path, {"config", "run"})
    if name and header["run"] != name:
        raise DamagedFileError(path, f"holds the weights of {header['run']}, not those of {name} (renamed?)")
    try:
        config = config_from(json.loads(header["config"]))
        require(isinstance(config, RunConfig), "it is a study's")
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedFileError(path, f"is of a configuration that this version does not know ({error})") from error
    if header["run"] not in (f"{config.experiment}/{config_id(config, version)}" for version in VERSIONS):
        raise DamagedFileError(path, f"names the run {header['run']}, whose configuration is another one than its own")
    shape, width = config.model, next((len(t) for n, t in tensors.items() if n == "ln_f.weight" and t.dim()), 0)
    sizes = f"width = {shape.width}, n_layers = {shape.n_layers}, vocab_size = {shape.vocab_size}"
    if shape.width != width or shape.n_layers > len(tensors):
        raise DamagedFileError(path, f"has {len(tensors)} tensors of width {width}, its configuration {sizes}")
    try:
        expected = dict(build_model(shape, device="meta").named_parameters())  # without their memory
    except (RuntimeError, ConfigError) as error:
        raise DamagedFileError(path, f"is of a configuration that no model has ({sizes}: {error})") from error
    check_tensors(path, tensors, expected)
    for key, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise DamagedFileError(path, f"has values in {key} that are not finite")
    model = build_model(shape)
    model.load_state_dict(tensors, strict=False)  # which has buffers, too
    return config, model.eval()


@torch.no_grad()
def start_from(path: Path, config: RunConfig, task: Task, model: nn.Module) -> None:
    """Fill the model of ``config`` with the weights in ``path``.

    Rows that only its own tables have, for the task's added tokens and for later positions, stay as initialised.
    ConfigError where shapes or vocabularies do not fit, DamagedFileError where ``path`` is not ``config.start_from``.
    """
    given, source = trained_model(path, config.start_from)
    ours, theirs = config.model, given.model
    for name in SHAPE:
        mine, other = getattr(ours, name), getattr(theirs, name)
        require(mine == other, f"{name} = {mine}: the weights of {config.start_from} have {other}")
    known, right = ours.vocab_size - task.added_tokens, f"whose vocabulary has {theirs.vocab_size}"
    right = f"ids up to {known - 1} should be those of {config.start_from}, {right}; use the same tokenizer"
    added = f"vocab_size = {ours.vocab_size}, of which the task adds {task.added_tokens}"
    require(known == theirs.vocab_size, f"{added}: {right}")
    tensors = dict(source.named_parameters())
    for name, p in model.named_parameters():
        rows = min(len(p), len(tensors[name])) if name in TABLES else len(p)
        p[:rows] = tensors[name][:rows].to(p)


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


def read_state(path: Path, config: str) -> tuple[Weights, dict[str, Any]]:
    """Tensors and state of a checkpoint; DamagedFileError where it is damaged, or not of ``config``, as JSON."""
    tensors, header = read_tensors(path, {"config", "state"})
    if header["config"] != config:
        raise DamagedFileError(path, "belongs to another configuration")
    return tensors, json.loads(header["state"])


def load_checkpoint(path: Path, config: RunConfig, model, optimizer, loss_sum: Tensor, kept: dict) -> State:
    """Fill model, optimiser, sums and kept weights; DamagedFileError, and nothing is filled, for a wrong file."""
    tensors, values = read_state(path, canonical_json(to_dict(config)))
    try:
        state = State(**values)
        if missing := NEEDED - set(values):
            raise ValueError(f"{min(missing)} is missing")
        state.check(config)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(path, f"has a state that no run can be in ({error})") from error
    expected, parameters = {"loss_sum": torch.zeros((), dtype=torch.float64)}, learned(model)
    for name, p in parameters.items():
        expected[f"model.{name}"] = p
        if state.step:
            expected |= {f"optimizer.{key}.{name}": torch.tensor(0.0) if key == "step" else p for key in MOMENTS}
        expected |= {f"kept.{rule}.{name}": p for rule in state.kept}
    check_tensors(path, tensors, expected)
    if any(t.item() != state.step for name, t in tensors.items() if name.startswith("optimizer.step.")):
        raise DamagedFileError(path, f"has an optimiser at another step than {state.step}")
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[f"model.{name}"])
            if state.step:  # AdamW counts steps in a tensor that lies where its fused kernel wants it
                optimizer.state[p].update({key: tensors[f"optimizer.{key}.{name}"].to(p.device) for key in MOMENTS})
        loss_sum.copy_(tensors["loss_sum"])
    for rule in state.kept:
        kept[rule] = {name: tensors[f"kept.{rule}.{name}"].to(p.device) for name, p in parameters.items()}
    return state
