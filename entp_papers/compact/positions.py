"""Eleven positional schemes (§2.4.3, §3.4.2), and a Transformer with any of them.

A scheme may add to the token embeddings, rotate queries and keys, or add a bias to the attention
scores before the softmax. Causal attention only looks back; in ENTP every token but a prefix's last
also looks ahead, so a scheme must handle distances of both signs: T5 has separate buckets for
tokens ahead, RoPE rotates by the signed difference, and ALiBi, Kerple and FIRE take the absolute
distance. Position ids are counted from 0.

All weights but a scheme's are those of the shared model. ENTP runs every scored prefix in a
separate row, with padding masked out, and reads the last layer only at the prefix's end; that is
fast enough for sequences as short as sums.

Letters: B batch, T tokens, N scored prefixes, D width, H heads, K head width, V vocabulary.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lab.studies import seeded
from entp_lib.config import ModelConfig
from entp_lib.model import Transformer
from entp_lib.positions import alibi_slopes

T5_BUCKETS = 32
T5_FARTHEST = 128
RANDOM_RANGE = 4  # randomised ids are below this many times the longest sequence
FIRE_HIDDEN = 32
SYMMETRIC_FARTHEST = 4


class Scheme(nn.Module):
    """No positions, the base of the other schemes. ``ids``: the source of position ids."""

    ids = "index"

    def __init__(self, cfg: ModelConfig):
        super().__init__()
        self.build(cfg)

    def build(self, cfg: ModelConfig) -> None:
        """Make the parameters and buffers of the scheme for a model."""

    def embed(self, x_BTD: Tensor, ids_BT: Tensor) -> Tensor:
        """Add positions to token embeddings."""
        return x_BTD

    def turn(self, x_BHTK: Tensor) -> Tensor:
        """Rotate queries or keys by their position."""
        return x_BHTK

    def bias(self, distance_TT: Tensor, ids_BT: Tensor) -> Tensor | None:
        """Return the bias of the scores, (H, T, T) or (B, H, T, T) by query and key, or None.

        It depends on i - j or on position ids.
        """
        return None


class Learned(Scheme):
    """A learned vector per position, added to the embedding; positions beyond those of training
    keep their initial values.
    """

    ranges = 1  # ids are below this many times the longest sequence

    def build(self, cfg):
        self.table = nn.Embedding(self.ranges * cfg.max_length, cfg.width)

    def embed(self, x_BTD, ids_BT):
        return x_BTD + self.table(ids_BT)


class Randomised(Learned):
    """A learned vector per id; ids are a sorted random choice below four times the longest text."""

    ids = "random"
    ranges = RANDOM_RANGE


class Coupled(Learned):
    """A learned vector per id, which digits of equal significance share (position coupling)."""

    ids = "coupled"


class Sinusoidal(Scheme):
    """Sines and cosines of wavelengths from 2π to 10,000 · 2π, at the scale of the learned
    embeddings.
    """

    def embed(self, x_BTD, ids_BT):
        width = x_BTD.shape[-1]
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
        angles = ids_BT[..., None] * rates
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]
        return x_BTD + 0.02 * math.sqrt(2) * waves.to(x_BTD)


class T5(Scheme):
    """A learned bias per bucket of distance: single distances first, then logarithmic ones up to
    128.

    If attention is not causal, half of the buckets are for tokens ahead.
    """

    def build(self, cfg):
        self.causal = cfg.architecture == "decoder"
        self.table = nn.Embedding(T5_BUCKETS, cfg.n_heads)

    def bias(self, distance_TT, ids_BT):
        return self.table(self.buckets(distance_TT.long())).permute(2, 0, 1)

    def buckets(self, back_TT: Tensor) -> Tensor:
        """Return the bucket of each distance, (T, T), backwards counted positive."""
        count = T5_BUCKETS
        offset = 0
        if self.causal:
            back_TT = back_TT.clamp_min(0)
        else:
            count //= 2
            offset = (back_TT < 0) * count
            back_TT = back_TT.abs()
        exact = count // 2
        far = (
            torch.log(back_TT.clamp_min(1) / exact)
            / math.log(T5_FARTHEST / exact)
            * (count - exact)
        )
        return offset + torch.where(
            back_TT < exact, back_TT, (exact + far.long()).clamp_max(count - 1)
        )


class Alibi(Scheme):
    """-m |i - j| with a slope m for each head, as in ``entp_lib.positions``; nothing is learned."""

    def build(self, cfg):
        self.register_buffer("slopes", torch.tensor(alibi_slopes(cfg.n_heads)), persistent=False)

    def bias(self, distance_TT, ids_BT):
        return -self.slopes[:, None, None] * distance_TT.abs()


class Kerple(Scheme):
    """-r_1 log(1 + r_2 |i - j|) with learned r_1, r_2 > 0 of each head (KerpleLog)."""

    def build(self, cfg):
        self.raw = nn.Parameter(torch.zeros(2, cfg.n_heads))  # softplus keeps them above 0

    def bias(self, distance_TT, ids_BT):
        r_1, r_2 = F.softplus(self.raw)[..., None, None]
        return -r_1 * torch.log1p(r_2 * distance_TT.abs())


class Fire(Scheme):
    """MLP(log(c |i - j| + 1) / log(c max(i, L) + 1)) with learned c, L > 0: distance relative to
    the query's position.

    The MLP has 32 hidden ReLU units and gives a bias per head. Here i counts from 1 and L itself is
    learned; the official code counts from 0 and learns a multiplier of a fixed L.
    """

    def build(self, cfg):
        self.hidden = nn.Linear(1, FIRE_HIDDEN)
        self.out = nn.Linear(FIRE_HIDDEN, cfg.n_heads)
        self.raw_c = nn.Parameter(torch.tensor(0.1))
        self.raw_L = nn.Parameter(torch.tensor(cfg.max_length / 4))

    def bias(self, distance_TT, ids_BT):
        c = self.raw_c.abs() + 1e-6
        threshold = self.raw_L.abs()
        query_T1 = distance_TT[:, :1] + 1
        far = torch.log1p(c * torch.maximum(query_T1, threshold))
        ratio_TT = torch.log1p(c * distance_TT.abs()) / far
        return self.out(F.relu(self.hidden(ratio_TT[..., None]))).permute(2, 0, 1)


class Symmetric(Scheme):
    """A learned bias per difference of significance, cut off at four digits, for each head.

    Digits of the same power of ten have distance 0, whichever number they belong to, and nothing
    else distinguishes positions. ``$``, whose id is 0, is far from every digit. The paper
    says of its source (Sabbaghi et al., 2024) that digits are aligned by their significance; the
    form of the bias is ours.
    """

    ids = "coupled"

    def build(self, cfg):
        self.table = nn.Embedding(2 * SYMMETRIC_FARTHEST + 1, cfg.n_heads)

    def bias(self, distance_TT, ids_BT):
        far = SYMMETRIC_FARTHEST
        places_BT = ids_BT.masked_fill(ids_BT == 0, -2 * far)
        apart_BTT = (places_BT[:, :, None] - places_BT[:, None]).clamp(-far, far)
        return self.table(apart_BTT + far).permute(0, 3, 1, 2)


class Rope(Scheme):
    """Queries and keys rotated in pairs of dimensions, so that scores depend on the difference of
    their positions.
    """

    def turn(self, x_BHTK):
        length, size = x_BHTK.shape[2:]
        rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000) / size))
        angles_TK = (torch.arange(length)[:, None] * rates).to(x_BHTK)
        cos = angles_TK.cos()
        sin = angles_TK.sin()
        even = x_BHTK[..., ::2]
        odd = x_BHTK[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


SCHEMES = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "t5": T5,
    "alibi": Alibi,
    "kerple": Kerple,
    "fire": Fire,
    "rope": Rope,
    "none": Scheme,
    "randomised": Randomised,
    "coupled": Coupled,
    "symmetric": Symmetric,
}


def random_ids(batch: int, length: int, longest: int, generator: torch.Generator) -> Tensor:
    """Choose ``length`` ids below four times ``longest`` for each row, sorted, (B, T)."""
    top = RANDOM_RANGE * longest
    return torch.rand(batch, top, generator=generator).argsort(-1)[:, :length].sort(-1).values


class PositionedTransformer(Transformer):
    """``model(tokens_BT, scored_BT, ids_BT) -> logits_NV`` after each scored position, in row-major
    order.

    ``ids_BT``: position ids of schemes that use them; None for 0, 1, 2, … Weights depend on
    ``seed`` only, and those of the blocks not on the scheme.
    """

    def __init__(self, cfg: ModelConfig, positions: str, seed: int):
        super().__init__(replace(cfg, positions="none"), seed)
        self.causal = cfg.architecture == "decoder"
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            self.scheme = SCHEMES[positions](cfg)
            if hasattr(self.scheme, "table"):
                self.scheme.table.weight.normal_(0.0, 0.02, generator=seeded(seed + 1))

    def forward(self, tokens_BT: Tensor, scored_BT: Tensor, ids_BT: Tensor | None = None) -> Tensor:
        length = tokens_BT.shape[1]
        if ids_BT is None:
            ids_BT = torch.arange(length).expand_as(tokens_BT)
        x = self.scheme.embed(self.embedding(tokens_BT), ids_BT)  # (B, T, D); for ENTP (N, T, D)
        rows_N, ends_N = scored_BT.nonzero(as_tuple=True)
        place_T = torch.arange(length)
        distance_TT = place_T[:, None] - place_T
        if self.causal:
            hidden = distance_TT < 0
        else:  # (N, 1, 1, T)
            x = x[rows_N]
            hidden = (place_T > ends_N[:, None])[:, None, None]
        mask = torch.zeros(hidden.shape, dtype=x.dtype).masked_fill(hidden, -math.inf)
        bias = self.scheme.bias(distance_TT.to(x.dtype), ids_BT)
        if bias is not None:
            mask = mask + (bias[rows_N] if bias.dim() == 4 and not self.causal else bias)
        for block in self.blocks if self.causal else self.blocks[:-1]:
            q, k, v = self.project(block, x)
            x = block.residual(x, block.attention(q, k, v, mask, False))
        if self.causal:
            x_ND = x[scored_BT]
        else:  # the last layer, with only the query of each prefix's end
            last = self.blocks[-1]
            here_N = torch.arange(len(rows_N))
            q, k, v = self.project(last, x)
            mask = mask if bias is None else mask[here_N, :, ends_N][:, :, None]
            attended = last.attention(q[here_N, :, ends_N][:, :, None], k, v, mask, False)[:, 0]
            x_ND = last.residual(x[here_N, ends_N], attended)
        return self.head(self.ln_f(x_ND))

    def project(self, block: nn.Module, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = block.attention.project(block.ln_1(x_BTD))
        return self.scheme.turn(q), self.scheme.turn(k), v
