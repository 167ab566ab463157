"""Ten ways to tell a Transformer where its tokens are (§2.4.3), each an entry of ``SCHEMES``.

A scheme may add to the token embeddings, turn queries and keys, or add a bias to the attention scores before the
softmax. Causal attention only looks back; in ENTP every token but a prefix's last also looks ahead, so distance needs
a sign or none: T5 has buckets of its own for what lies ahead, RoPE turns by the signed difference, ALiBi, Kerple and
FIRE take the absolute distance. Ids are counted from 0 and come from ``position_ids``.

Letters: B batch, T tokens, D width, H heads, K head width.
"""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entp_lib.models.positions.alibi import slopes
from entp_lib.strict import one_of, require

T5_BUCKETS, T5_FARTHEST = 32, 128
RANDOM_RANGE = 4  # randomised ids come from so many times the longest sequence
FIRE_HIDDEN = 32


class Scheme(nn.Module):
    """No positions; what the other schemes change. ``ids``: where position ids come from."""

    ids = "index"

    def __init__(self, width: int, n_heads: int, longest: int, causal: bool):
        super().__init__()
        self.width, self.n_heads, self.longest, self.causal = width, n_heads, longest, causal

    def embed(self, x_BTD: Tensor, ids_BT: Tensor) -> Tensor:
        """Token embeddings with positions added."""
        return x_BTD

    def turn(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys turned by their place."""
        return x_BHTK

    def bias(self, length: int) -> Tensor | None:
        """What is added to the scores, (H, T, T) by query and key, or None."""
        return None


class Learned(Scheme):
    """A learned vector per place, added to the embedding; places beyond those of training keep their first values."""

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        self.table = nn.Embedding(self.places(longest), width)

    def places(self, longest: int) -> int:
        return longest

    def embed(self, x_BTD, ids_BT):
        return x_BTD + self.table(ids_BT)


class Randomised(Learned):
    """A learned vector per id, ids being a sorted random choice from a range four times the longest sequence."""

    ids = "random"

    def places(self, longest: int) -> int:
        return RANDOM_RANGE * longest


class Coupled(Learned):
    """A learned vector per id, digits of equal significance sharing theirs (position coupling)."""

    ids = "coupled"


class Sinusoidal(Scheme):
    """Sines and cosines of wavelengths from 2π to 10,000 · 2π, at the scale of the learned embeddings."""

    def embed(self, x_BTD, ids_BT):
        rates = torch.exp(torch.arange(0, self.width, 2, device=x_BTD.device) * (-math.log(10_000) / self.width))
        angles = ids_BT[..., None] * rates
        waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., : self.width]
        return x_BTD + 0.02 * math.sqrt(2) * waves.to(x_BTD)


class T5(Scheme):
    """A learned bias per bucket of distance: single distances first, then logarithmic ones up to 128.

    Where attention is not causal, half of the buckets are for what lies ahead.
    """

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        self.table = nn.Embedding(T5_BUCKETS, n_heads)

    def bias(self, length):
        return self.table(buckets(length, self.causal, self.table.weight.device)).permute(2, 0, 1)


@lru_cache
def buckets(length: int, causal: bool, device: torch.device | None = None) -> Tensor:
    """T5's bucket of each query and key, (T, T)."""
    place = torch.arange(length, device=device)
    back = place[:, None] - place
    count, offset = T5_BUCKETS, torch.zeros_like(back)
    if causal:
        back = back.clamp_min(0)
    else:
        count //= 2
        offset, back = (back < 0) * count, back.abs()
    exact = count // 2
    far = torch.log(back.clamp_min(1) / exact) / math.log(T5_FARTHEST / exact) * (count - exact)
    return offset + torch.where(back < exact, back, (exact + far.long()).clamp_max(count - 1))


@lru_cache
def distances(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """|i - j|, (T, T)."""
    place = torch.arange(length, device=device, dtype=dtype)
    return (place[:, None] - place).abs()


@lru_cache
def rotations(length: int, size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of RoPE's angles, (T, K / 2), for heads of width K = ``size``."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10_000) / size))
    angles = (torch.arange(length, device=device)[:, None] * rates).to(dtype)
    return angles.cos(), angles.sin()


class Alibi(Scheme):
    """-m |i - j| with a slope m for each head, as in ``entp_lib.models.positions.alibi``; nothing is learned."""

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        self.register_buffer("slopes", torch.tensor(slopes(n_heads)), persistent=False)

    def bias(self, length):
        return -self.slopes[:, None, None] * distances(length, self.slopes.dtype, self.slopes.device)


class Kerple(Scheme):
    """-r_1 log(1 + r_2 |i - j|) with learned r_1, r_2 > 0 of each head (KerpleLog)."""

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        self.raw = nn.Parameter(torch.zeros(2, n_heads))  # softplus keeps them above 0

    def bias(self, length):
        r_1, r_2 = F.softplus(self.raw)[..., None, None]
        return -r_1 * torch.log1p(r_2 * distances(length, self.raw.dtype, self.raw.device))


class Fire(Scheme):
    """MLP(log(c |i - j| + 1) / log(c max(i, L) + 1)) with learned c, L > 0: distance relative to the query's place.

    ReLU MLP of 32 hidden units, a bias per head. Here i counts from 1 and L itself is learned; the official code
    counts from 0 and learns a multiplier of a fixed L.
    """

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        self.hidden, self.out = nn.Linear(1, FIRE_HIDDEN), nn.Linear(FIRE_HIDDEN, n_heads)
        self.raw_c = nn.Parameter(torch.tensor(0.1))
        self.raw_L = nn.Parameter(torch.tensor(float(longest) / 4))

    def bias(self, length):
        c, threshold = self.raw_c.abs() + 1e-6, self.raw_L.abs()
        query = torch.arange(1, length + 1, device=self.raw_c.device, dtype=self.raw_c.dtype)[:, None]
        far = torch.log1p(c * torch.maximum(query, threshold))
        ratio_TT = torch.log1p(c * distances(length, self.raw_c.dtype, self.raw_c.device)) / far
        return self.out(F.relu(self.hidden(ratio_TT[..., None]))).permute(2, 0, 1)


class Rope(Scheme):
    """Queries and keys turned in pairs of dimensions by their place, so that scores depend on the difference."""

    def __init__(self, width, n_heads, longest, causal):
        super().__init__(width, n_heads, longest, causal)
        head_width = width // n_heads
        require(head_width % 2 == 0, f"width / n_heads = {head_width}: must be even for rope")

    def turn(self, x_BHTK):
        length, size = x_BHTK.shape[2:]
        cos, sin = rotations(length, size, x_BHTK.dtype, x_BHTK.device)
        even, odd = x_BHTK[..., ::2], x_BHTK[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


SCHEMES: dict[str, type[Scheme]] = {
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
}


def build_scheme(name: str, width: int, n_heads: int, longest: int, causal: bool) -> Scheme:
    """The named scheme. Raises ConfigError for another name and where the width does not fit."""
    one_of("positions", name, SCHEMES)
    return SCHEMES[name](width, n_heads, longest, causal)


def random_ids(batch: int, length: int, longest: int, generator: torch.Generator) -> Tensor:
    """Sorted random choices of ``length`` ids below four times ``longest``, (B, T), one for each row."""
    top = RANDOM_RANGE * longest
    require(1 <= length <= top, f"{length} tokens: randomised ids go up to {top}")
    return torch.rand(batch, top, generator=generator).argsort(-1)[:, :length].sort(-1).values
