"""Memorising a knowledge graph as records: functions of JSON arguments that return (metrics, curves)."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.records import resuming
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.training.flat import FlatAdam
from entp_lib.validation import from_dict, require
from entp_papers.compact import ceilings, graph
from entp_papers.compact.activated import walk_model
from entp_papers.compact.wirings import TripletConfig, TripletModel, change_by_batch_mates, relation_gradient

RATE = 1e-3  # of Adam, §2.2.4


def load(source: str, traits: dict[str, Any], seed: int) -> graph.Graph:
    """The graph called ``source``: ``synthetic`` with its traits, or a real one."""
    if source == "synthetic":
        return graph.synthetic(from_dict(graph.Synthetic, traits, "traits."), seed)
    require(not traits, f"traits = {traits}: only the synthetic graph has traits")
    return graph.real(source)


def triplets_study(
    source: str,
    size: int,
    model: dict[str, Any],
    epochs: int = 100,
    batch_size: int = 128,
    traits: dict[str, Any] | None = None,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train on ``size`` triplets (0: all) and count those recalled, in shuffled batches, every two epochs (§2.2.5).

    Metrics: ``accuracy`` at the end and ``best``, ``recalled``, the ``concept_ceiling``, ``relation_gradient`` and
    ``change_by_batch_mates`` of the trained model, ``epochs_to_99`` % of all triplets (None: never). Curves by epoch.
    """
    check_schedule(epochs, batch_size)
    cfg = from_dict(TripletConfig, model, "model.")
    found = load(source, traits or {}, seed)
    available = len(np.unique(found.triplets[:, :2], axis=0))
    items_P3 = torch.tensor(graph.pairs(found, size or available, seed))
    require(len(items_P3) >= 4, f"size = {len(items_P3)}: must be at least 4 triplets, to see whether rows mix")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_from("triplets", seed))
        network = TripletModel(cfg, found.n_concepts, found.n_relations)
        curves = fit_triplets(network, items_P3, epochs, batch_size, seed)
    network.eval()
    sample = items_P3[:64, :2]
    metrics = {
        "triplets": len(items_P3),
        "accuracy": curves["accuracy"][-1],
        "best": max(curves["accuracy"]),
        "recalled": round(max(curves["accuracy"]) * len(items_P3)),
        "concept_ceiling": ceilings.concept_ceiling(items_P3.numpy()),
        "relation_gradient": relation_gradient(network, sample),
        "change_by_batch_mates": change_by_batch_mates(network, sample),
        "epochs_to_99": first_epoch(curves, 0.99),
        "parameters": sum(p.numel() for p in network.parameters()),
        **facts(found),
    }
    return metrics, curves


def fit_triplets(network: TripletModel, items_P3, epochs: int, batch_size: int, seed: int) -> dict[str, list]:
    """Adam on the cross-entropy of the target; the curves by epoch."""
    optimizer = FlatAdam(network.parameters(), lr=RATE)
    curves: dict[str, list] = {"epoch": [], "accuracy": [], "loss": []}
    for epoch in resuming.steps(resuming.Progress(curves), epochs, network, optimizer):
        network.train()
        order = torch.randperm(len(items_P3), generator=generator_for("cpu", "triplets", seed, epoch))
        total = 0.0
        for pick in order.split(batch_size):
            loss = F.cross_entropy(network(items_P3[pick, :2]), items_P3[pick, 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(pick)
        if epoch % 2 == 0 or epoch == epochs:
            curves["epoch"].append(epoch)
            curves["accuracy"].append(recall(network, items_P3, batch_size, seed, epoch))
            curves["loss"].append(total / len(items_P3))
    return curves


@torch.no_grad()
def recall(network: TripletModel, items_P3, batch_size: int, seed: int, epoch: int) -> float:
    """Share of triplets whose target has the largest logit. Batches are shuffled: rows may look at one another."""
    network.eval()
    order = torch.randperm(len(items_P3), generator=generator_for("cpu", "recall", seed, epoch))
    right = sum(int((network(items_P3[p, :2]).argmax(-1) == items_P3[p, 2]).sum()) for p in order.split(batch_size))
    return right / len(items_P3)


def walks_study(
    source: str,
    walks: int,
    architecture: str,
    n_layers: int = 1,
    width: int = 64,
    n_heads: int = 4,
    epochs: int = 60,
    batch_size: int = 128,
    traits: dict[str, Any] | None = None,
    seed: int = 0,
    activation: str = "gelu",
) -> tuple[dict[str, Any], dict[str, list]]:
    """Train on walks, every node but the first predicted from all tokens before it, and count those recalled (§2.2.3).

    ``activation``: one of ``ACTIVATIONS``, between the two maps of the feed-forward layer.
    Metrics: ``predictions`` and as many ``per_walk``, ``accuracy`` at the end and ``best``, the ``ceiling`` that walks
    with a common beginning leave, ``epochs_to_99`` % of that ceiling. Curves by epoch.
    """
    check_schedule(epochs, batch_size)
    found = load(source, traits or {}, seed)
    tokens = graph.walks(found, walks, seed=seed)
    tokens_WT = torch.tensor(tokens)
    length = tokens_WT.shape[1] - 1
    cfg = ModelConfig(architecture, n_layers, n_heads, width, graph.walk_vocabulary(found), length)
    network = walk_model(cfg, activation, seed_from("walks", seed))
    wanted_WT = torch.zeros(len(tokens_WT), length, dtype=torch.bool)
    wanted_WT[:, 1::2] = tokens_WT[:, 2::2] != 0
    kept = wanted_WT.any(1)  # a walk from a node without neighbours predicts nothing
    tokens_WT, wanted_WT = tokens_WT[kept], wanted_WT[kept]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_from("slopes", seed))  # of a randomised activation
        curves = fit_walks(network, tokens_WT, wanted_WT, epochs, batch_size, seed)
    ceiling = ceilings.walk_ceiling(tokens)
    metrics = {
        "walks": walks,
        "predictions": int(wanted_WT.sum()),
        "per_walk": int(wanted_WT.sum()) / walks,
        "accuracy": curves["accuracy"][-1],
        "best": max(curves["accuracy"]),
        "ceiling": ceiling,
        "epochs_to_99": first_epoch(curves, 0.99 * ceiling),
        **facts(found),
    }
    return metrics, curves


def fit_walks(
    network: nn.Module, tokens_WT: Tensor, wanted_WT: Tensor, epochs: int, batch_size: int, seed: int
) -> dict[str, list]:
    """Adam on the cross-entropy of the wanted nodes; the curves by epoch."""
    optimizer = FlatAdam(network.parameters(), lr=RATE)
    curves: dict[str, list] = {"epoch": [], "accuracy": [], "loss": []}
    for epoch in resuming.steps(resuming.Progress(curves), epochs, network, optimizer):
        network.train()
        order = torch.randperm(len(tokens_WT), generator=generator_for("cpu", "walks", seed, epoch))
        total = 0.0
        for pick in order.split(batch_size):
            wanted = wanted_WT[pick]
            logits = network(tokens_WT[pick, :-1], wanted, None)
            loss = F.cross_entropy(logits, tokens_WT[pick, 1:][wanted])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * int(wanted.sum())
        if epoch % 2 == 0 or epoch == epochs:
            curves["epoch"].append(epoch)
            curves["accuracy"].append(walk_recall(network, tokens_WT, wanted_WT))
            curves["loss"].append(total / int(wanted_WT.sum()))
    return curves


@torch.no_grad()
def walk_recall(network: nn.Module, tokens_WT: Tensor, wanted_WT: Tensor) -> float:
    """Share of the wanted nodes that have the largest logit."""
    network.eval()
    right = 0
    for tokens, wanted in zip(tokens_WT.split(512), wanted_WT.split(512), strict=True):
        right += int((network(tokens[:, :-1], wanted, None).argmax(-1) == tokens[:, 1:][wanted]).sum())
    return right / int(wanted_WT.sum())


def first_epoch(curves: dict[str, list], accuracy: float) -> int | None:
    """The first epoch with at least so much accuracy."""
    return next((e for e, a in zip(curves["epoch"], curves["accuracy"], strict=True) if a >= accuracy), None)


def facts(found: graph.Graph) -> dict[str, Any]:
    """What a record says of its graph."""
    return {
        "graph": {
            "concepts": found.n_concepts,
            "relations": found.n_relations,
            "triplets": len(found.triplets),
            "pairs": len(np.unique(found.triplets[:, :2], axis=0)),
            "checksum": found.checksum,
        }
    }


def check_schedule(epochs: int, batch_size: int) -> None:
    require(epochs >= 1, f"epochs = {epochs}: must be at least 1")
    require(batch_size >= 1, f"batch_size = {batch_size}: must be at least 1")
