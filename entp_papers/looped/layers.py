"""The paper's Transformer layer (eq. 1), and layers whose weights are written by name.

    Attn(X) = X + Σ_h V_h X softmax(λ_h X^T K_h^T Q_h X)          (1a)
    f(X)    = Attn(X) + W_2 relu(W_1 Attn(X) + b_1) + b_2         (1b)

No LayerNorm, no 1/√width, no causal mask: an encoder. The paper writes a token as a column of X,
here it is a row of x_BTD. V_h has the rank of the values that a head copies and is stored as two
factors, ``value`` and ``out``.

``Rows`` names the coordinates of a token (the paper's rows of X), ``Terms`` is a linear function of
a token or a direction in its state: weights by coordinate, or one coordinate with a weight of 1.
The feed-forward half can add only ReLUs of linear functions, so a value is moved as relu(x) -
relu(-x), or on a condition as relu(x + G (open - 1)) - relu(-x + G (open - 1)): with ``open`` = 1
this is x up to the rounding of G, with 0 it is 0 as long as |x| <= G.

Letters: B batch, T tokens, D width, H heads, K key width, V value width, F hidden units, R tokens
except the first.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from entp_lib.model import parameter_count
from entp_lib.validation import one_of

BOUND = 4096.0  # the G of gates: data must stay below. A power of 2: integers pass exactly
Terms = dict[int, float] | int
Pairs = list[tuple[Terms, Terms]]  # queries with their keys, or values with their targets


class Attention(nn.Module):
    """Softmax attention (1a); ``temperature_H11`` is the paper's λ, which multiplies the scores."""

    def __init__(self, width: int, heads: int, key_width: int, value_width: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * key_width, bias=False)
        self.key = nn.Linear(width, heads * key_width, bias=False)
        self.value = nn.Linear(width, heads * value_width, bias=False)
        self.out = nn.Linear(heads * value_width, width, bias=False)
        self.register_buffer("temperature_H11", torch.ones(heads, 1, 1))

    def queries_and_keys(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Compute queries and keys, both (B, H, T, K)."""
        return tuple(
            m(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.query, self.key)
        )

    def weights(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        """Compute attention weights (B, H, T, T), query by key; every row sums to 1."""
        q_BHTK, k_BHTK = self.queries_and_keys(x_BTD)
        s_BHTT = q_BHTK @ k_BHTK.mT * self.temperature_H11
        if pattern == "causal":
            s_BHTT = s_BHTT + torch.full_like(s_BHTT, -torch.inf).triu(1)
        return s_BHTT.softmax(-1)

    def forward(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        """Add attention to x. ``restricted`` is linear in T: see ``attend_restricted``."""
        one_of("pattern", pattern, ("full", "causal", "restricted"))
        v_BHTV = self.value(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        if pattern == "restricted":
            read_BHTV = self.attend_restricted(x_BTD, v_BHTV)
        else:
            read_BHTV = self.weights(x_BTD, pattern) @ v_BHTV
        return x_BTD + self.out(read_BHTV.transpose(1, 2).flatten(2))

    def attend_restricted(self, x_BTD: Tensor, v_BHTV: Tensor) -> Tensor:
        """Attend where token 0 sees all and every other token sees itself and token 0 (§5.2).

        λ is applied to finished scores: sums of ±1 are exact, and ties must stay ties.
        """
        q_BHTK, k_BHTK = self.queries_and_keys(x_BTD)
        top_BH1V = (q_BHTK[:, :, :1] @ k_BHTK.mT * self.temperature_H11).softmax(-1) @ v_BHTV
        own_BHR1 = (q_BHTK[:, :, 1:] * k_BHTK[:, :, 1:]).sum(-1, keepdim=True)
        to_scratchpad_BHR1 = q_BHTK[:, :, 1:] @ k_BHTK[:, :, :1].mT
        scores_BHR2 = torch.cat([to_scratchpad_BHR1, own_BHR1], -1)
        weights = (scores_BHR2 * self.temperature_H11).softmax(-1)
        rest_BHRV = weights[..., :1] @ v_BHTV[:, :, :1] + weights[..., 1:] * v_BHTV[:, :, 1:]
        return torch.cat([top_BH1V, rest_BHRV], 2)


class FeedForward(nn.Module):
    """x + W_2 relu(W_1 x + b_1) + b_2 (1b)."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.fc_in = nn.Linear(width, hidden)
        self.fc_out = nn.Linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD + self.fc_out(torch.relu(self.fc_in(x_BTD)))


class SparseFeedForward(nn.Module):
    """A ``FeedForward`` that reads and writes only coordinates whose weights are not zero.

    If every unit reads and writes the same single coordinate, as in error correction, no matrix is
    needed: the units of a coordinate are applied one after the other.
    """

    def __init__(self, dense: FeedForward):
        super().__init__()
        w_in_FD, b_in_F, w_out_DF, b_out_D = (p.detach() for p in dense.parameters())
        read_FD = w_in_FD != 0
        written_FD = w_out_DF.T != 0
        reads_D = read_FD.any(0)
        writes_D = written_FD.any(0) | (b_out_D != 0)
        self.register_buffer("reads", reads_D.nonzero()[:, 0])
        self.register_buffer("writes", writes_D.nonzero()[:, 0])
        self.register_buffer("bias_out", b_out_D[writes_D])
        alone = read_FD.equal(written_FD) and bool((read_FD.sum(1) == 1).all())
        self.by_coordinate = alone and reads_D.equal(writes_D)
        if not self.by_coordinate:
            self.register_buffer("w_in", w_in_FD[:, reads_D].T.contiguous())
            self.register_buffer("b_in", b_in_F.clone())
            self.register_buffer("w_out", w_out_DF[writes_D].T.contiguous())
            return
        units = []
        for d in self.reads:
            own = read_FD[:, d]
            units.append(torch.stack([w_in_FD[own, d], b_in_F[own], w_out_DF[d, own]], 1))
        # weight, bias and weight of every coordinate's units, those that it lacks with 0
        padded = nn.utils.rnn.pad_sequence(units)
        self.register_buffer("units", padded.movedim(-1, 0).contiguous())

    def forward(self, x_BTD: Tensor) -> Tensor:
        z = x_BTD[..., self.reads]
        if self.by_coordinate:
            change = self.bias_out.expand_as(z).clone()
            for w_in, b_in, w_out in zip(*self.units, strict=True):
                change.addcmul_(torch.addcmul(b_in, z, w_in).relu_(), w_out)
        else:
            hidden = torch.addmm(self.b_in, z.flatten(0, 1), self.w_in).relu_()
            change = torch.addmm(self.bias_out, hidden, self.w_out).view(*x_BTD.shape[:2], -1)
        return x_BTD.index_add(-1, self.writes, change)


class Layer(nn.Module):
    """One Transformer layer and its purpose in words. Either half may be missing."""

    def __init__(self, attention: Attention | None, feed_forward: nn.Module | None, purpose: str):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.purpose = purpose

    def forward(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        if self.attention is not None:
            x_BTD = self.attention(x_BTD, pattern)
        return x_BTD if self.feed_forward is None else self.feed_forward(x_BTD)


class Stack(nn.Module):
    """Layers one after the other, as planned; one call is one pass of the loop."""

    def __init__(
        self, plans: Iterable["LayerPlan"], width: int, dtype: torch.dtype = torch.float64
    ):
        super().__init__()
        self.layers = nn.ModuleList(plan.build(width, dtype) for plan in plans)
        self.width = width
        self.dtype = dtype

    def forward(self, x_BTD: Tensor, pattern: str = "full") -> Tensor:
        for layer in self.layers:
            x_BTD = layer(x_BTD, pattern)
        return x_BTD

    def sparse(self) -> "Stack":
        """Return the same function with every ``FeedForward`` sparse; attention is shared."""
        thin = Stack([], self.width, self.dtype)
        for layer in self.layers:
            sparse = layer.feed_forward and SparseFeedForward(layer.feed_forward)
            thin.layers.append(Layer(layer.attention, sparse, layer.purpose))
        return thin

    def size(self) -> dict[str, int]:
        """Count layers, heads (of the layer that has most), width, hidden units and weights."""
        return {
            "layers": len(self.layers),
            "heads": max((m.heads for m in self.modules() if isinstance(m, Attention)), default=0),
            "width": self.width,
            "hidden": max(
                (m.fc_in.out_features for m in self.modules() if isinstance(m, FeedForward)),
                default=0,
            ),
            "weights": parameter_count(self, embeddings=True),
        }

    def weights_hash(self) -> str:
        """Return sixteen hexadecimal digits that change with any weight."""
        weights = (tensor.numpy().tobytes() for tensor in self.state_dict().values())
        return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


class Rows(dict[str, range]):
    """Coordinates by name, in the order of their addition; ``width`` counts them all."""

    def __init__(self, **sizes: int):
        super().__init__()
        self.width = 0
        self.add(**sizes)

    def take(self, *sizes: int) -> list[range]:
        """Append coordinates without names and return their ranges."""
        found = []
        for size in sizes:
            found.append(range(self.width, self.width + size))
            self.width += size
        return found

    def add(self, **sizes: int) -> None:
        """Append coordinates under new names."""
        self.update(zip(sizes, self.take(*sizes.values()), strict=True))


def paired(first: Iterable[int], second: Iterable[int], weight: float = 1.0) -> Pairs:
    """Pair the entries of two ranges: (weight · first_i, second_i)."""
    return [({x: weight}, y) for x, y in zip(first, second, strict=True)]


def times(terms: Terms, factor: float = 1.0) -> dict[int, float]:
    """Multiply a linear function by a number; return its weights."""
    weights = {terms: 1.0} if isinstance(terms, int) else terms
    return {i: factor * w for i, w in weights.items()}


class LayerPlan:
    """One layer while it is being written; ``build`` makes the matrices.

    ``heads`` has (scores, values, temperature) and ``units`` (source, bias, target).
    """

    def __init__(self, purpose: str):
        self.purpose = purpose
        self.heads: list[tuple[Pairs, Pairs, float]] = []
        self.units: list[tuple[Terms, float, Terms]] = []
        self.constant: dict[int, float] = {}

    def head(self, scores: Pairs, values: Pairs, temperature: float) -> None:
        """Add a head: Σ query · key are its scores before λ."""
        self.heads.append((scores, values, temperature))

    def unit(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add relu(source + bias) times ``target``."""
        self.units.append((source, bias, target))

    def add(
        self, source: Terms, target: Terms, gates: Sequence[int] = (), bound: float = BOUND
    ) -> None:
        """Add the linear ``source`` times ``target`` where every gate is 1, nothing where one is 0.

        The gates are coordinates that the source does not read, which is at most ``bound``.
        """
        for sign in (1.0, -1.0):
            opened = times(source, sign) | dict.fromkeys(gates, bound)
            self.unit(opened, times(target, sign), bound * -len(gates))

    def scale(self, rows: Iterable[int], factor: float) -> None:
        """Multiply each of the rows."""
        for i in rows:
            self.add(i, {i: factor - 1})

    def clear(self, rows: Iterable[int]) -> None:
        """Set each of the rows to 0."""
        self.scale(rows, 0.0)

    def step(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add ``target`` where the integer source + bias is at least 0."""
        self.unit(source, target, bias + 1.0)
        self.unit(source, times(target, -1.0), bias)

    def build(self, width: int, dtype: torch.dtype = torch.float64) -> Layer:
        """Build the layer's matrices, zero where nothing was written; an empty half is None."""
        attention = feed_forward = None
        if self.heads:
            key_width = max(len(scores) for scores, _, _ in self.heads)
            value_width = max(len(values) for _, values, _ in self.heads)
            attention = zeroed(Attention(width, len(self.heads), key_width, value_width), dtype)
            for h, (scores, values, temperature) in enumerate(self.heads):
                attention.temperature_H11[h] = temperature
                for k, (query, key) in enumerate(scores, h * key_width):
                    put(attention.query.weight[k], query)
                    put(attention.key.weight[k], key)
                for v, (value, target) in enumerate(values, h * value_width):
                    put(attention.value.weight[v], value)
                    put(attention.out.weight[:, v], target)
        if self.units or self.constant:
            feed_forward = zeroed(FeedForward(width, len(self.units)), dtype)
            for f, (source, bias, target) in enumerate(self.units):
                put(feed_forward.fc_in.weight[f], source)
                feed_forward.fc_in.bias[f] = bias
                put(feed_forward.fc_out.weight[:, f], target)
            put(feed_forward.fc_out.bias, self.constant)
        return Layer(attention, feed_forward, self.purpose)

    def apply_to(self, *parts: Tensor) -> Tensor:
        """Apply the feed-forward half to tokens (..., D) in fp32, given part by part."""
        x = torch.cat(parts, -1).float()
        return self.build(x.shape[-1], torch.float32).feed_forward(x)


def put(vector: Tensor, terms: Terms) -> None:
    """Write the weights of ``terms`` into a vector over coordinates."""
    weights = times(terms)
    vector.numpy()[list(weights)] = list(weights.values())


def zeroed(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return the module in ``dtype`` with weights of 0 that need no gradient."""
    module = module.to(dtype).requires_grad_(False)
    for p in module.parameters():
        p.zero_()
    return module


def transcribe(stack: Stack) -> Callable[[ndarray], ndarray]:
    """Write equation (1) in numpy, a token per column as in the paper: the oracle of the tests."""

    def apply(x_DT: ndarray) -> ndarray:
        for layer in stack.layers:
            y_DT = x_DT.copy()
            attention = layer.attention
            ff = layer.feed_forward
            if attention is not None:
                q, k, v, out = (p.numpy() for p in attention.parameters())
                heats = attention.temperature_H11.numpy()
                heads = (np.split(part, len(heats)) for part in (q, k, v, out.T))
                for heat, q_KD, k_KD, v_VD, out_VD in zip(heats, *heads, strict=True):
                    s_TT = heat * ((k_KD @ x_DT).T @ (q_KD @ x_DT))
                    s_TT = np.exp(s_TT - s_TT.max(0))
                    y_DT += out_VD.T @ (v_VD @ x_DT) @ (s_TT / s_TT.sum(0))
            if ff is not None:
                w_1, b_1, w_2, b_2 = (p.numpy() for p in ff.parameters())
                y_DT += w_2 @ np.maximum(w_1 @ y_DT + b_1[:, None], 0) + b_2[:, None]
            x_DT = y_DT
        return x_DT

    return apply
