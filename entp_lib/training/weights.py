"""The weights of finished runs: saved, found again, and put into the model that another run starts from."""

import json
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from entp_lib.config import RunConfig, canonical_json, config_from, to_dict
from entp_lib.files import write_atomically
from entp_lib.models import build_model
from entp_lib.strict import ConfigError, require
from entp_lib.tasks import Task

SHAPE = ("n_layers", "n_heads", "width", "positions", "input_dim", "output_dim")  # what two runs must share
TABLES = ("embedding.weight", "positions.weight")  # that may have further rows


def save_weights(path: Path, config: RunConfig, model: nn.Module) -> None:
    """The weights alone, with the configuration in the header. Atomic."""
    tensors = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    header = {"config": canonical_json(to_dict(config))}
    write_atomically(path, safetensors.torch.save(tensors, metadata=header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a safetensors file. ConfigError where it is missing or damaged."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as error:
        raise ConfigError(f"checkpoint {path} cannot be read ({error}); delete it to start this run afresh") from error


def trained_model(path: Path) -> tuple[RunConfig, nn.Module]:
    """The configuration and the model that a file of weights holds, ready for evaluation."""
    tensors, header = read_tensors(path)
    config = config_from(json.loads(header["config"]))
    model = build_model(config.model)
    model.load_state_dict(tensors)
    return config, model.eval()


@torch.no_grad()
def start_from(path: Path, config: RunConfig, task: Task, model: nn.Module) -> None:
    """Fill the model of ``config`` with the weights in ``path``; the optimiser starts afresh.

    Rows that only its own tables have, for the task's added tokens and for later positions, stay as initialised.
    ConfigError where the shapes differ, or where tokens that are not added ones lie above the other vocabulary.
    """
    tensors, header = read_tensors(path)
    ours, theirs = config.model, config_from(json.loads(header["config"])).model
    for name in SHAPE:
        mine, given = getattr(ours, name), getattr(theirs, name)
        require(mine == given, f"{name} = {mine}: the weights of {config.start_from} have {given}")
    known = ours.vocab_size - task.added_tokens
    require(
        known == theirs.vocab_size,
        f"vocab_size = {ours.vocab_size}, of which the task adds {task.added_tokens}: ids up to {known - 1} should be "
        f"those of {config.start_from}, whose vocabulary has {theirs.vocab_size}; use the same tokenizer",
    )
    for name, p in model.named_parameters():
        rows = min(len(p), len(tensors[name])) if name in TABLES else len(p)
        p[:rows] = tensors[name][:rows].to(p)
