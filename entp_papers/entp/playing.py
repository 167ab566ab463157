"""Data of the interactive pieces: answers and attention of trained models.

``results/play/`` keeps what takes weights, which git does not keep: ``python -m entp_papers.entp.playing`` makes it
from the weights of the runs it names. It decides no claim.

Letters: T tokens, H heads, V vocabulary.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entp_lib import paths
from entp_lib.config import ModelConfig
from entp_lib.files import read_text, write_atomically
from entp_lib.models import Transformer, costs
from entp_lib.records.store import Record, Store
from entp_lib.tasks import Counting, build_task
from entp_lib.tasks.counting import next_symbols
from entp_papers.entp.count3 import COUNT3
from entp_papers.entp.rasp.constructed import constructed_count3, run_by_layer

TIER, SEED = "overnight", 0
EXAMPLE = (3, 1, 4, 1)  # continued by Count3; one of its pictures is the slider's
SHOWN = ("decoder", "prefix_decoder", "entp")


def runs() -> list[Record]:
    """The records whose models the pieces show: Count3 at its plateau, seed 0, one of each architecture."""
    store = Store(read_only=True)
    planned = [r for r in COUNT3.plan(TIER, 1) if r.labels["arm"] in SHOWN and r.labels["task"] == "count3"]
    found = (store.find(run.config, COUNT3.version) for run in planned)
    return [record for record in found if record is not None]


@torch.no_grad()
def answers(task: Counting, model: Transformer) -> dict[str, str]:
    """Every seed continued by Count3, and what the model answers after each scored prefix: a digit a seed, in order.

    By prefix length; seeds in the order of their digits. The task must have at most ten symbols and positions.
    """
    seeds_BS = torch.tensor(list(itertools.product(range(task.symbols), repeat=task.seed_length)))
    x = seeds_BS
    while x.shape[1] < task.length:
        x = torch.cat([x, next_symbols(x, 3)[:, None]], 1)
    wanted_T = torch.arange(1, task.length + 1) >= task.first_scored
    found = []
    for rows_BT in x.split(500):
        prompts_B = torch.full((len(rows_BT),), task.seed_length)
        logits_NV = model(rows_BT, wanted_T.expand(len(rows_BT), -1), prompts_B)
        found.append(logits_NV.argmax(-1).view(len(rows_BT), -1))
    predicted = torch.cat(found)
    lengths = range(task.first_scored, task.length + 1)
    return {str(n): "".join(map(str, predicted[:, k].tolist())) for k, n in enumerate(lengths)}


@torch.no_grad()
def attention(model: Transformer, tokens_T: Tensor) -> list[Tensor]:
    """Attention of every layer, (H, T, T), on one whole sequence; causal where the model is a decoder.

    A decoder's on a prefix is the upper left part of that on the sequence; ENTP's on a prefix is another.
    """
    x = model.embed(tokens_T[None])
    causal = not model.cfg.recomputed_layers
    hidden = torch.ones(len(tokens_T), len(tokens_T), dtype=torch.bool).triu(1)
    found = []
    for block in model.blocks:
        q, k, _ = block.attention.project(block.ln_1(x))
        scores = (q @ k.transpose(-1, -2))[0] / q.shape[-1] ** 0.5
        found.append((scores.masked_fill(hidden, -torch.inf) if causal else scores).softmax(-1))
        x = block(x, causal=causal)
    return found


def by_prefix(model: Transformer, tokens_T: Tensor) -> list[list[list[list[list[int]]]]]:
    """Attention in whole per cent on every prefix: prefix, layer, head, row, column."""
    prefixes = (tokens_T[:n] for n in range(1, len(tokens_T) + 1))
    return [[(100 * a_HTT).round().int().tolist() for a_HTT in attention(model, x)] for x in prefixes]


def example(length: int) -> Tensor:
    """The sequence whose attention is shown, (length,)."""
    x = torch.tensor([EXAMPLE])
    while x.shape[1] < length:
        x = torch.cat([x, next_symbols(x, 3)[:, None]], 1)
    return x[0]


def constructed_by_prefix(tokens_T: Tensor) -> list:
    """As ``by_prefix`` for the model whose weights are written by hand (Lemma 6.3)."""
    model = constructed_count3(len(tokens_T), 9)
    traces = (run_by_layer(model, tokens_T[:n]) for n in range(1, len(tokens_T) + 1))
    return [[(100 * layer.attention_HTT).round().int().tolist() for layer in trace] for trace in traces]


def collect() -> dict[str, dict[str, Any]]:
    """Both tables, from the weights of the runs. ConfigError names the command that makes missing weights."""
    from entp_lib.records.loading import load_model

    records = runs()
    task = build_task(records[0].config.task, records[0].config.task_params)
    tokens_T, models, maps = example(task.length), [], []
    for record in records:
        name = f"{record.experiment}/{record.id}"
        model, kind = load_model(name), record.config.model.architecture
        about = {"run": name, "architecture": kind, "tier": TIER, "token_accuracy": record.metrics["token_accuracy"]}
        models.append(about | {"answers": answers(task, model)})
        if kind != "prefix_decoder":  # whose prompt is another part of the sequence for every prompt length
            maps.append({"name": kind, "run": name, "maps": by_prefix(model, tokens_T)})
    maps.append({"name": "constructed", "run": "weights by hand", "maps": constructed_by_prefix(tokens_T)})
    shape = {"length": task.length, "seed_length": task.seed_length, "symbols": task.symbols}
    seeds_BS = torch.tensor(list(itertools.product(range(task.symbols), repeat=task.seed_length)))
    kept = "".join("1" if held else "0" for held in task.is_held_out(seeds_BS).tolist())
    return {
        "count3": shape | {"first_scored": task.first_scored, "held_out": kept, "models": models},
        "attention": {"tokens": tokens_T.tolist(), "models": maps},
    }


def sequence_cost(kind: str, tokens: int, width: int, layers: int) -> int:
    """Multiply-adds of all next tokens of a sequence, the output layer left out (``entp_lib.models.costs``)."""
    shape = dict(n_layers=layers, n_heads=1, width=width, vocab_size=1, max_length=tokens)
    cfg = ModelConfig(kind, **shape)
    each = costs.encoder_token if kind == "entp" else costs.decoder_token
    return sum(each(cfg, n) - costs.head(cfg) for n in range(1, tokens + 1))


def folder() -> Path:
    """Where both tables lie, as part of the project."""
    return paths.of_repository("results") / "play"


def stored(name: str) -> dict[str, Any]:
    """A table: ``count3`` or ``attention``. ConfigError where it is missing."""
    return json.loads(read_text(folder() / f"{name}.json"))


def main() -> None:
    """Write both tables."""
    for name, table in collect().items():
        write_atomically(folder() / f"{name}.json", (json.dumps(table, separators=(",", ":")) + "\n").encode())


if __name__ == "__main__":
    main()
