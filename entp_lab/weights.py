"""Weights of finished runs as files, with the configuration and the run's name in the header."""

import json
from pathlib import Path

import torch
from torch import nn

from entp_lab.configs import RunConfig, canonical_json, config_from, config_id, to_dict
from entp_lib.checkpoint import DamagedFileError, check_tensors, read_tensors, save_tensors
from entp_lib.model import build_model
from entp_lib.tasks import Task
from entp_lib.validation import ConfigError, require

SHAPE = ("n_layers", "n_heads", "width", "positions", "input_dim", "output_dim")  # what two runs must share
VERSIONS = range(1, 100)  # of experiments, one of which names the run
TABLES = ("embedding.weight", "positions.weight")  # that may have further rows


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
