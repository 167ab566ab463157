"""Three ways to feed a triplet (concept, relation) → target to the same layers.

The authors' public scripts stack ``torch.nn.TransformerDecoderLayer`` with its default order of dimensions, hand it a
batch of shape (batch, 2, width), and read the first place. The layers take the first dimension for the sequence: the
rows of a batch attend to one another, and the two tokens of a row never meet. So the relation cannot reach the output.

- ``published``: that.
- ``described``: attention within each row, read at its last token, as the paper's text has it.
- ``concept``: the concept alone, by itself: what the published wiring amounts to, without the noise.

Letters: B batch, T = 2 tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.validation import check_types, require

ACTIVATIONS = ("relu", "gelu", "rrelu", "softmax")


@dataclass(frozen=True)
class TripletConfig:
    """Shape of a triplet model. ``architecture`` matters to the described wiring: a decoder masks, ENTP does not."""

    wiring: Literal["described", "published", "concept"] = "described"
    architecture: Literal["decoder", "entp"] = "decoder"
    n_layers: int = 1
    n_heads: int = 4
    width: int = 64
    activation: Literal["relu", "gelu", "rrelu", "softmax"] = "relu"

    def __post_init__(self):
        check_types(self)
        for name in ("n_layers", "n_heads", "width"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: must be at least 1")
        require(self.width % self.n_heads == 0, f"width = {self.width} is not divisible by n_heads = {self.n_heads}")


class FeedForwardActivation(nn.Module):
    """The named function between the two maps of a feed-forward layer; softmax runs over the features."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        if self.name == "softmax":
            return F.softmax(x, dim=-1)
        if self.name == "rrelu":
            return F.rrelu(x, training=self.training)
        return {"relu": F.relu, "gelu": F.gelu}[self.name](x)


class TripletModel(nn.Module):
    """Logits of the target, (B, V), from concept and relation ids; every wiring has the same parameters.

    Initial weights come from torch's global generator, as those of its layers do: seed it before.
    """

    def __init__(self, cfg: TripletConfig, n_concepts: int, n_relations: int):
        super().__init__()
        self.cfg, self.n_concepts = cfg, n_concepts
        self.embedding = nn.Embedding(n_concepts + n_relations, cfg.width)
        self.positions = nn.Embedding(2, cfg.width)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                cfg.width,
                cfg.n_heads,
                dim_feedforward=4 * cfg.width,
                dropout=0.0,
                activation=FeedForwardActivation(cfg.activation),
                batch_first=cfg.wiring != "published",
            )
            for _ in range(cfg.n_layers)
        )
        self.output = nn.Linear(cfg.width, n_concepts)

    def forward(self, pairs_B2: Tensor) -> Tensor:
        """``pairs_B2``: concept and relation ids, each counted from 0."""
        tokens_BT = pairs_B2 + torch.tensor([0, self.n_concepts], device=pairs_B2.device)
        x_BTD = self.embedding(tokens_BT) + self.positions.weight
        if self.cfg.wiring == "concept":
            x_BTD = x_BTD[:, :1]
        causal = self.cfg.wiring == "described" and self.cfg.architecture == "decoder"
        mask = torch.ones(2, 2, dtype=torch.bool, device=x_BTD.device).triu(1) if causal else None
        for layer in self.layers:
            # a decoder layer also attends to a memory, for which the public scripts hand it its own input
            x_BTD = layer(x_BTD, x_BTD, tgt_mask=mask, memory_mask=mask)
        place = 1 if self.cfg.wiring == "described" else 0
        return self.output(x_BTD[:, place])


def relation_gradient(model: TripletModel, pairs_B2: Tensor) -> float:
    """Largest derivative of any logit's sum with respect to any relation's embedding: 0 where relations are unseen."""
    model.zero_grad(set_to_none=True)
    logits_BV = model(pairs_B2)
    generator = torch.Generator().manual_seed(0)
    (logits_BV * torch.randn(logits_BV.shape, generator=generator)).sum().backward()
    gradient = model.embedding.weight.grad[model.n_concepts :].abs().max()
    model.zero_grad(set_to_none=True)
    return float(gradient)


@torch.no_grad()
def change_by_batch_mates(model: TripletModel, pairs_B2: Tensor) -> float:
    """Largest change of the first row's logits when only the other rows change: 0 where rows do not mix."""
    half = len(pairs_B2) // 2
    require(half >= 2, f"{len(pairs_B2)} pairs: must be at least 4")
    one, other = (torch.cat([pairs_B2[:1], rest]) for rest in (pairs_B2[1:half], pairs_B2[half + 1 : 2 * half]))
    return float((model(one)[0] - model(other)[0]).abs().max())
