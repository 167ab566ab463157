"""The primer's layers, rightly built: post-norm encoders and decoders on the library's attention (§2.1, §3.1).

The library's own models are pre-norm, as GPT-2 is. These are the printed ones, x = LN(x + sublayer(x)), which BERT has
too; what is missing in print is here: an order of axes that mixes tokens, masks that fit, positions, embeddings.

Letters: B batch, T tokens, D width, F hidden width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.config import ModelConfig
from entp_lib.experiments.studies import at_least
from entp_lib.models.transformer import Attention
from entp_lib.validation import check_types, require

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


@dataclass(frozen=True)
class Shape:
    """A stack of post-norm layers. ``input_norm``: a LayerNorm behind the embeddings, as BERT has it.

    ``max_length``: rows of the table of learned positions; 0 for a stack that has no positions, as printed.
    """

    n_layers: int
    n_heads: int
    width: int
    hidden: int
    vocab_size: int
    max_length: int
    causal: bool = False
    activation: Literal["relu", "gelu"] = "relu"
    norm_eps: float = 1e-5
    input_norm: bool = False

    def __post_init__(self):
        check_types(self)
        self.attention_config()
        at_least(1, hidden=self.hidden, vocab_size=self.vocab_size)
        require(self.max_length >= 0, f"max_length = {self.max_length}: must be 1 or more, or 0 for no positions")

    def attention_config(self) -> ModelConfig:
        """The shape of the library's attention. ConfigError where heads do not divide the width."""
        sizes = (self.n_layers, self.n_heads, self.width, self.vocab_size, max(1, self.max_length))
        return ModelConfig("decoder" if self.causal else "entp", *sizes)


def attention_mask(length: int, causal: bool, visible_BT: Tensor | None) -> Tensor | None:
    """Who sees whom, boolean (B or 1, 1, T, T), True where attention is allowed; None where all see all.

    ``visible_BT``: False for padding, which nobody sees. Raises ValueError for another shape, and where a token would
    see nothing: a softmax over nothing has no value, and a large negative number in place of minus infinity would give
    all hidden tokens the same weight.
    """
    mask = None
    if visible_BT is not None:
        kind = f"visible of shape {tuple(visible_BT.shape)} and type {visible_BT.dtype}"
        if visible_BT.dim() != 2 or visible_BT.shape[1] != length or visible_BT.dtype != torch.bool:
            raise ValueError(f"{kind}: must be boolean (B, {length})")
        mask = visible_BT[:, None, None].expand(-1, 1, length, length)
    if causal:
        tril = torch.ones(1, 1, length, length, dtype=torch.bool, device=getattr(mask, "device", None)).tril()
        mask = tril if mask is None else mask & tril
    if mask is not None and not mask.any(-1).all():
        row, _, token = (~mask.any(-1)).nonzero()[0].tolist()
        raise ValueError(f"token {token} of row {row} sees no token at all: no attention can be computed for it")
    return mask


class Layer(nn.Module):
    """LN(x + attention(x)), then LN(x + MLP(x)): the printed encoder layer (ReLU) and decoder layer (GELU)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.attention = Attention(shape.attention_config())
        self.norm_1, self.norm_2 = (nn.LayerNorm(shape.width, shape.norm_eps) for _ in range(2))
        self.fc_in, self.fc_out = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)
        self.activation = ACTIVATIONS[shape.activation]

    def forward(self, x_BTD: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, D); ``mask`` as ``attention_mask`` makes it."""
        q, k, v = self.attention.project(x_BTD)
        x_BTD = self.norm_1(x_BTD + self.attention(q, k, v, mask, causal=False))
        return self.norm_2(x_BTD + self.fc_out(self.activation(self.fc_in(x_BTD))))


class Stack(nn.Module):
    """Embeddings, learned positions, post-norm layers: an encoder, or a decoder where ``shape.causal``."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab_size, shape.width)
        self.positions = nn.Embedding(shape.max_length, shape.width) if shape.max_length else None
        self.input_norm = nn.LayerNorm(shape.width, shape.norm_eps) if shape.input_norm else nn.Identity()
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layers))

    def forward(self, tokens_BT: Tensor, visible_BT: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, D). Raises ValueError for texts beyond the table, and as ``attention_mask`` does."""
        length = tokens_BT.shape[1]
        if self.positions is not None and length > self.shape.max_length:
            raise ValueError(f"{length} tokens: beyond the {self.shape.max_length} positions of this stack")
        mask = attention_mask(length, self.shape.causal, visible_BT)
        x_BTD = self.embedding(tokens_BT)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions.weight[:length]
        x_BTD = self.input_norm(x_BTD)
        for layer in self.layers:
            x_BTD = layer(x_BTD, mask)
        return x_BTD


def random_stack(shape: Shape, seed: int) -> Stack:
    """A stack in double precision, ready for evaluation, whose weights are large enough for every part to matter."""
    stack, generator = Stack(shape), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in stack.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * (0.3 if p.dim() == 1 else 2.0 / p.shape[1] ** 0.5))
            if p.dim() == 1:
                p.add_(0.5)
    return stack.double().eval()
