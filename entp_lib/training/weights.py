"""The weights of finished runs: saved, found again, and put into the model that another run starts from."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from entp_lib.config import ModelConfig, RunConfig, canonical_json, config_from, config_id, to_dict
from entp_lib.models import build_model
from entp_lib.tasks import Task
from entp_lib.training.tensors import check_tensors, damaged, read_tensors, save_tensors
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

    DamagedFileError where the file is damaged, does not hold exactly the weights of its configuration, finite ones, or
    is not that of the run ``name``, where one is given; it takes no more memory than the file has.
    """
    tensors, header = read_tensors(path, {"config", "run"})
    if name and header["run"] != name:
        raise damaged(path, f"holds the weights of {header['run']}, not those of {name} (renamed?)")
    try:
        config = config_from(json.loads(header["config"]))
        require(isinstance(config, RunConfig), "it is a study's")
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged(path, f"is of a configuration that this version does not know ({error})") from error
    if header["run"] not in (f"{config.experiment}/{config_id(config, version)}" for version in VERSIONS):
        raise damaged(path, f"names the run {header['run']}, whose configuration is another one than its own")
    check_tensors(path, tensors, expected_tensors(path, config.model, tensors))
    for key, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise damaged(path, f"has values in {key} that are not finite")
    model = build_model(config.model)
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(tensors[key])
    return config, model.eval()


def expected_tensors(path: Path, cfg: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of a model by name, without their memory; DamagedFileError where ``tensors`` are of other sizes."""
    width = next((len(t) for name, t in tensors.items() if name == "ln_f.weight" and t.dim()), 0)
    sizes = f"width = {cfg.width}, n_layers = {cfg.n_layers}, vocab_size = {cfg.vocab_size}"
    if cfg.width != width or cfg.n_layers > len(tensors):
        raise damaged(path, f"has {len(tensors)} tensors for a width of {width}, its configuration {sizes}")
    try:
        return dict(build_model(cfg, device="meta").named_parameters())
    except (RuntimeError, ConfigError) as error:
        raise damaged(path, f"is of a configuration that no model has ({sizes}: {error})") from error


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
