"""The weights of finished runs: saved, found again, and put into the model that another run starts from."""

import json
from pathlib import Path

import torch
from torch import nn

from entp_lib.config import RunConfig, canonical_json, config_from, to_dict
from entp_lib.models import build_model
from entp_lib.strict import ConfigError, require
from entp_lib.tasks import Task
from entp_lib.training.tensors import check_tensors, damaged, read_tensors, save_tensors

SHAPE = ("n_layers", "n_heads", "width", "positions", "input_dim", "output_dim")  # what two runs must share
TABLES = ("embedding.weight", "positions.weight")  # that may have further rows


def save_weights(path: Path, config: RunConfig, model: nn.Module, name: str) -> None:
    """The weights alone, with the configuration and the run's ``name`` ("experiment/id") in the header. Atomic."""
    header = {"config": canonical_json(to_dict(config)), "run": name}
    save_tensors(path, dict(model.named_parameters()), header)


def trained_model(path: Path, name: str = "") -> tuple[RunConfig, nn.Module]:
    """The configuration and the model that a file of weights holds, ready for evaluation.

    DamagedFileError where the file is damaged, does not hold exactly the weights of its configuration, or is not
    that of the run ``name``, where one is given.
    """
    tensors, header = read_tensors(path, {"config", "run"})
    if name and header["run"] != name:
        raise damaged(path, f"holds the weights of {header['run']}, not those of {name} (renamed?)")
    try:
        config = config_from(json.loads(header["config"]))
    except ConfigError as error:
        raise damaged(path, f"is of a configuration that this version does not know ({error})") from error
    model = build_model(config.model)
    check_tensors(path, tensors, dict(model.named_parameters()))
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(tensors[key])
    return config, model.eval()


@torch.no_grad()
def start_from(path: Path, config: RunConfig, task: Task, model: nn.Module) -> None:
    """Fill the model of ``config`` with the weights in ``path``; the optimiser starts afresh.

    Rows that only its own tables have, for the task's added tokens and for later positions, stay as initialised.
    ConfigError where the shapes differ, or where tokens that are not added ones lie above the other vocabulary;
    DamagedFileError where the file is damaged or not that of the run which ``config.start_from`` names.
    """
    given, source = trained_model(path, config.start_from)
    ours, theirs = config.model, given.model
    for name in SHAPE:
        mine, other = getattr(ours, name), getattr(theirs, name)
        require(mine == other, f"{name} = {mine}: the weights of {config.start_from} have {other}")
    known = ours.vocab_size - task.added_tokens
    require(
        known == theirs.vocab_size,
        f"vocab_size = {ours.vocab_size}, of which the task adds {task.added_tokens}: ids up to {known - 1} should be "
        f"those of {config.start_from}, whose vocabulary has {theirs.vocab_size}; use the same tokenizer",
    )
    tensors = dict(source.named_parameters())
    for name, p in model.named_parameters():
        rows = min(len(p), len(tensors[name])) if name in TABLES else len(p)
        p[:rows] = tensors[name][:rows].to(p)
