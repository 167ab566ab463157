"""Models that memorise a knowledge graph, and the two studies of them: triplets and walks.

There are three ways to feed a triplet (concept, relation) → target to the same layers. The authors'
public scripts stack ``torch.nn.TransformerDecoderLayer`` with its default order of dimensions, pass
a batch of shape (batch, 2, width), and read the first position. The layers take the first dimension
for the sequence: the rows of a batch attend to one another, and the two tokens of a row never meet.
So the relation cannot reach the output.

- ``published``: the wiring of these scripts.
- ``described``: attention within each row, read at its last token, as in the paper's text.
- ``concept``: each concept by itself, equivalent to the published wiring without its noise.

Letters: B batch, T tokens (2 of a triplet), D width, V vocabulary, P triplets, W walks, N scored
nodes.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab import resume as resuming
from entp_lab.configs import Json
from entp_lab.statistics import first_at
from entp_lab.studies import Study, descend, largest, seeded
from entp_lib.config import ModelConfig
from entp_lib.model import Block, Transformer, build_model, parameter_count
from entp_lib.tasks.base import generator_for, seed_from
from entp_lib.validation import one_of
from entp_papers.compact import graph

# Between the two maps of a feed-forward layer; softmax runs over the features, RReLU draws its
# slopes in training.
ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "rrelu": nn.RReLU,
    "softmax": partial(nn.Softmax, dim=-1),
}
RATE = 1e-3  # of Adam, §2.2.4


class TripletModel(nn.Module):
    """Logits of the target, (B, V), from concept and relation ids, by one of three wirings.

    All wirings have the same parameters. Initial weights come from torch's global generator, as in
    torch's own layers, which must be seeded before.
    """

    def __init__(
        self,
        n_concepts: int,
        n_relations: int,
        wiring: str = "described",
        n_layers: int = 1,
        n_heads: int = 4,
        width: int = 64,
        activation: str = "relu",
    ):
        super().__init__()
        one_of("wiring", wiring, ("published", "described", "concept"))
        self.wiring = wiring
        self.n_concepts = n_concepts
        self.embedding = nn.Embedding(n_concepts + n_relations, width)
        self.positions = nn.Embedding(2, width)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                width,
                n_heads,
                4 * width,
                dropout=0.0,
                activation=ACTIVATIONS[activation](),
                batch_first=wiring != "published",
            )
            for _ in range(n_layers)
        )
        self.output = nn.Linear(width, n_concepts)

    def forward(self, pairs_B2: Tensor) -> Tensor:
        """Return logits (B, V) for pairs of concept and relation ids, each counted from 0."""
        tokens_BT = pairs_B2 + torch.tensor([0, self.n_concepts])
        x_BTD = self.embedding(tokens_BT) + self.positions.weight
        if self.wiring == "concept":
            x_BTD = x_BTD[:, :1]
        mask = None
        if self.wiring == "described":
            mask = torch.ones(2, 2, dtype=torch.bool).triu(1)
        for layer in self.layers:
            # a decoder layer also attends to a memory: the public scripts pass its own input
            x_BTD = layer(x_BTD, x_BTD, tgt_mask=mask, memory_mask=mask)
        return self.output(x_BTD[:, 1 if self.wiring == "described" else 0])


def relation_gradient(model: TripletModel, pairs_B2: Tensor) -> float:
    """Return the largest derivative of a random sum of all logits by any relation's embedding."""
    logits_BV = model(pairs_B2)
    noise_BV = torch.randn(logits_BV.shape, generator=seeded(0))
    (gradient,) = torch.autograd.grad((logits_BV * noise_BV).sum(), model.embedding.weight)
    return largest(gradient[model.n_concepts :])


@torch.no_grad()
def change_by_batch_mates(model: TripletModel, pairs_B2: Tensor) -> float:
    """Return the largest change of the first row's logits when only the other rows change."""
    half = len(pairs_B2) // 2
    others = torch.cat([pairs_B2[:1], pairs_B2[half + 1 : 2 * half]])
    return largest(model(pairs_B2[:half])[0], model(others)[0])


class ActivatedBlock(Block):
    """x + attention(LN(x)), then x + MLP(LN(x)) with any of ``ACTIVATIONS``."""

    def __init__(self, cfg: ModelConfig, activation: str):
        super().__init__(cfg)
        self.activation = ACTIVATIONS[activation]()

    def residual(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.fc_out(self.activation(self.fc_in(self.ln_2(x))))


def walk_model(cfg: ModelConfig, activation: str, seed: int) -> Transformer:
    """Build the library's model, with the same initial weights for every activation."""
    network = build_model(cfg, seed)
    if activation != "gelu":
        network.blocks = nn.ModuleList(ActivatedBlock(cfg, activation) for _ in range(cfg.n_layers))
        network.init_weights(seed)
    return network


def fit(
    network: nn.Module,
    name: str,
    items: int,
    predict: Callable[[Tensor], tuple[Tensor, Tensor]],
    counted: Callable[[int], Iterable[Tensor]],
    epochs: int,
    batch_size: int,
    seed: int,
) -> dict[str, list]:
    """Train with Adam over shuffled batches of items; return curves of loss and recall.

    Recall is counted every two epochs. ``predict``: (logits (N, V), targets (N,)) of some items;
    ``counted``: by epoch, the batches in which recall is counted; ``name`` and ``seed`` set the
    order of items.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    curves = {"epoch": [], "accuracy": [], "loss": []}
    for epoch in resuming.steps(curves, epochs, network, optimizer):
        network.train()
        total = 0.0
        scored = right = 0
        for pick in torch.randperm(items, generator=generator_for("cpu", name, seed, epoch)).split(
            batch_size
        ):
            logits_NV, targets_N = predict(pick)
            loss = descend(network, optimizer, [F.cross_entropy(logits_NV, targets_N)])
            total += loss * len(targets_N)
            scored += len(targets_N)
        if epoch % 2 == 0 or epoch == epochs:
            network.eval()
            with torch.no_grad():
                for pick in counted(epoch):
                    logits_NV, targets_N = predict(pick)
                    right += int((logits_NV.argmax(-1) == targets_N).sum())
            curves["epoch"].append(epoch)
            curves["accuracy"].append(right / scored)
            curves["loss"].append(total / scored)
    network.eval()
    return curves


def triplets_study(
    source: str,
    size: int,
    model: Json,
    epochs: int,
    batch_size: int,
    traits: Json | None = None,
    seed: int = 0,
) -> Study:
    """Train on ``size`` triplets (0: all) and count the triplets recalled (§2.2.5).

    They are counted in shuffled batches, every two epochs. Metrics: ``accuracy`` at the end and
    ``best``, ``recalled``, the ``concept_ceiling``, ``relation_gradient`` and
    ``change_by_batch_mates`` of the trained model, ``epochs_to_99`` % of all triplets (None:
    never). Curves by epoch.
    """
    found = graph.load(source, traits, seed)
    facts = found.facts
    items_P3 = torch.tensor(graph.pairs(found, size or facts["pairs"], seed))

    def shuffled(epoch: int) -> Iterable[Tensor]:  # rows may attend to one another
        generator = generator_for("cpu", "recall", seed, epoch)
        return torch.randperm(len(items_P3), generator=generator).split(batch_size)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_from("triplets", seed))
        network = TripletModel(found.n_concepts, found.n_relations, **model)
        curves = fit(
            network,
            "triplets",
            len(items_P3),
            lambda pick: (network(items_P3[pick, :2]), items_P3[pick, 2]),
            shuffled,
            epochs,
            batch_size,
            seed,
        )
    sample = items_P3[:64, :2]
    best = max(curves["accuracy"])
    metrics = {
        "triplets": len(items_P3),
        "accuracy": curves["accuracy"][-1],
        "best": best,
        "recalled": round(best * len(items_P3)),
        "concept_ceiling": graph.ceiling(items_P3[:, 0].tolist(), items_P3[:, 2].tolist()),
        "relation_gradient": relation_gradient(network, sample),
        "change_by_batch_mates": change_by_batch_mates(network, sample),
        "epochs_to_99": first_at(curves, "accuracy", 0.99, "epoch"),
        "parameters": parameter_count(network, embeddings=True),
        "graph": facts,
    }
    return metrics, curves


def walks_study(
    source: str,
    walks: int,
    architecture: str,
    n_layers: int,
    width: int,
    n_heads: int,
    epochs: int,
    batch_size: int,
    traits: Json | None,
    seed: int,
    activation: str = "gelu",
) -> Study:
    """Train on walks and count the nodes recalled (§2.2.3).

    Every node but the first is predicted from all tokens before it. ``activation``: one of
    ``ACTIVATIONS``, between the two maps of the feed-forward layer. Metrics: the number of
    ``predictions`` and of those ``per_walk``, ``accuracy`` at the end and ``best``, the ``ceiling``
    due to walks with a common beginning, ``epochs_to_99`` % of that ceiling. Curves by epoch.
    """
    found = graph.load(source, traits, seed)
    tokens_WT = torch.tensor(graph.walks(found, walks, seed=seed))
    ceiling = graph.walk_ceiling(tokens_WT.numpy())
    length = tokens_WT.shape[1] - 1
    # padding, concepts, relations forwards and backwards
    vocabulary = 1 + found.n_concepts + 2 * found.n_relations
    cfg = ModelConfig(architecture, n_layers, n_heads, width, vocabulary, length)
    network = walk_model(cfg, activation, seed_from("walks", seed))
    scored_WT = (tokens_WT[:, 1:] != 0) & (torch.arange(length) % 2 == 1)  # nodes, not edges
    kept = scored_WT.any(1)  # a walk from a node without neighbours predicts nothing
    tokens_WT = tokens_WT[kept]
    scored_WT = scored_WT[kept]

    def predict(pick: Tensor) -> tuple[Tensor, Tensor]:
        scored = scored_WT[pick]
        return network(tokens_WT[pick, :-1], scored), tokens_WT[pick, 1:][scored]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_from("slopes", seed))  # slopes of a randomised activation
        walks_in_order = torch.arange(len(tokens_WT)).split(512)
        curves = fit(
            network,
            "walks",
            len(tokens_WT),
            predict,
            lambda epoch: walks_in_order,
            epochs,
            batch_size,
            seed,
        )
    predictions = int(scored_WT.sum())
    metrics = {
        "walks": walks,
        "predictions": predictions,
        "per_walk": predictions / walks,
        "accuracy": curves["accuracy"][-1],
        "best": max(curves["accuracy"]),
        "ceiling": ceiling,
        "epochs_to_99": first_at(curves, "accuracy", 0.99 * ceiling, "epoch"),
        "graph": found.facts,
    }
    return metrics, curves
