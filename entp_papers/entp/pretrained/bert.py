"""One run of Figure 3's fourth curve: a BERT body trained with ENTP on Count3, its twins, by the library's own loop."""

from typing import Any

import torch

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.records.resuming import trained
from entp_lib.tasks import build_task, seed_from
from entp_lib.validation import from_dict, one_of, require
from entp_papers.entp.pretrained import weights
from entp_papers.entp.pretrained.adapter import Adapted, symbol_tokens

STARTS = ("pretrained", "random")
READ_INS = ("tokens", "fresh")


def encoder_study(
    model: str,
    start: str,
    architecture: str,
    read_in: str,
    layers: int,
    task: dict[str, Any],
    train_config: dict[str, Any],
    seed: int,
    token_budget: int = 1024,
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train a body of ``model`` on a counting task: (metrics, curves) as a training run's record has them.

    ``start``: its trained weights, or random ones of the same architecture drawn from ``seed``. ``read_in``: symbols
    as the model's own tokens, or by fresh embeddings. ``layers``: how many of its first layers are used, 0 for all.
    Raises ConfigError for anything that cannot be.
    """
    one_of("start", start, STARTS)
    one_of("read_in", read_in, READ_INS)
    config = run_config(model, architecture, task, train_config, seed, layers)
    body = weights.encoder(model, None if start == "pretrained" else seed_from("body", seed))
    keep_layers(body, layers)
    tokens = None
    if read_in == "tokens":
        tokens = symbol_tokens(weights.read("AutoTokenizer", model), config.model.vocab_size)
    adapted = Adapted(
        body,
        architecture,
        config.model.vocab_size,
        tokens=tokens,
        seed=seed_from("read_in", seed),
        token_budget=token_budget,
    )
    outcome = trained(config, model=adapted)
    facts = {
        "steps": outcome.state.step,
        "token_forwards": outcome.state.token_forwards,
        "train_seconds": outcome.state.seconds,
        "cpu_seconds": outcome.state.cpu_seconds,
        "parameters": sum(p.numel() for p in adapted.parameters() if p.requires_grad),
    }
    return outcome.metrics | facts, outcome.state.curves


def run_config(
    model: str, architecture: str, task: dict[str, Any], train_config: dict[str, Any], seed: int, layers: int
) -> RunConfig:
    """What the training loop wants to know of the run: the body's shape stands in the place of a model's."""
    shape = weights.read("AutoConfig", model)
    depth = layers or shape.num_hidden_layers
    require(
        0 <= layers <= shape.num_hidden_layers,
        f"layers = {layers}: {model!r} has {shape.num_hidden_layers}; 0 means all of them",
    )
    built = build_task("counting", task)
    config = ModelConfig(
        architecture, depth, shape.num_attention_heads, shape.hidden_size, built.vocab_size, built.length
    )
    schedule = from_dict(TrainConfig, train_config)
    return RunConfig("pretrained_encoder", "quick", "counting", task, config, schedule, seed, seed)


def keep_layers(body: torch.nn.Module, layers: int) -> None:
    """Cut the body to its first layers, 0 for all; ConfigError where it has no list of layers."""
    if not layers:
        return
    for part, name in (("encoder", "layer"), ("transformer", "layer"), ("", "layers")):
        holder = getattr(body, part, None) if part else body
        if holder is not None and isinstance(getattr(holder, name, None), torch.nn.ModuleList):
            setattr(holder, name, getattr(holder, name)[:layers])
            return
    require(False, f"layers = {layers}: no list of layers was found in a {body.config.model_type!r}; use 0 for all")
