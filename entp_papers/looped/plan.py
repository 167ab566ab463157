"""Weights written by name: what a layer is to do becomes heads and ReLU units, and these become matrices.

``Rows`` names the coordinates of a token (the paper's rows of X). ``Terms`` is a linear function of a token or a
direction in its state: weights by coordinate. Everything that is added is linear or a ReLU of something linear, so a
value is moved as relu(x) - relu(-x), and moved on a condition as relu(x + G (open - 1)) - relu(-x + G (open - 1)): with
``open`` = 1 this is x up to the rounding of G, with 0 it is 0 as long as |x| <= G.

Letters: D width, H heads, K key width, V value width, F hidden units.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from entp_lib.validation import require
from entp_papers.looped.layers import Attention, FeedForward, Layer

Terms = dict[int, float]


class Rows:
    """Names of coordinates, in the order in which they were added."""

    def __init__(self):
        self.places: dict[str, range] = {}
        self.width = 0

    def add(self, name: str, size: int = 1) -> range:
        """The next ``size`` coordinates, under ``name``. Raises ConfigError for a name that is taken."""
        require(name not in self.places, f"rows {name!r} exist already")
        self.places[name] = range(self.width, self.width + size)
        self.width += size
        return self.places[name]

    def __getitem__(self, name: str) -> range:
        return self.places[name]

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def slice(self, *names: str) -> slice:
        """The coordinates of names that lie beside each other."""
        first, last = self.places[names[0]], self.places[names[-1]]
        return slice(first.start, last.stop)


def same(*rows: Iterable[int], weight: float = 1.0) -> list[Terms]:
    """One Terms per place, each the sum of the rows at that place: ``same(a, b)[i]`` is a_i + b_i."""
    return [dict.fromkeys(places, weight) for places in zip(*rows, strict=True)]


@dataclass
class Head:
    """Σ query · key are its scores before λ; each (value, target) adds the mean of value to target."""

    scores: list[tuple[Terms, Terms]]
    values: list[tuple[Terms, Terms]]
    temperature: float


@dataclass
class LayerPlan:
    """One layer while it is being written; ``build`` makes the matrices."""

    says: str
    heads: list[Head] = field(default_factory=list)
    units: list[tuple[Terms, float, Terms]] = field(default_factory=list)
    constant: Terms = field(default_factory=dict)

    def head(self, scores: list[tuple[Terms, Terms]], values: list[tuple[Terms, Terms]], temperature: float) -> None:
        self.heads.append(Head(scores, values, temperature))

    def unit(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add relu(source + bias) times ``target``."""
        self.units.append((source, bias, target))

    def add(self, source: Terms, target: Terms) -> None:
        """Add the linear ``source`` times ``target``."""
        negative = {i: -w for i, w in source.items()}
        self.unit(source, target)
        self.unit(negative, {i: -w for i, w in target.items()})

    def scale(self, rows: Iterable[int], factor: float) -> None:
        """Multiply each of the rows."""
        for i in rows:
            self.add({i: 1.0}, {i: factor - 1})

    def clear(self, rows: Iterable[int]) -> None:
        """Set each of the rows to 0."""
        self.scale(rows, 0.0)

    def add_where(self, source: Terms, target: Terms, gates: Sequence[int], bound: float) -> None:
        """Add ``source`` times ``target`` where every gate is 1; 0 where one is 0, if |source| <= ``bound``."""
        gate = dict.fromkeys(gates, bound)
        bias = -bound * len(gates)
        for sign in (1.0, -1.0):
            terms = {i: sign * w for i, w in source.items()}
            for i, w in gate.items():
                terms[i] = terms.get(i, 0.0) + w
            self.unit(terms, {i: sign * w for i, w in target.items()}, bias)

    def step(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add ``target`` where the integer source + bias is at least 0."""
        self.unit(source, target, bias + 1.0)
        self.unit(source, {i: -w for i, w in target.items()}, bias)

    def take(self, other: "LayerPlan") -> None:
        """Do what ``other`` does as well, in the same layer."""
        self.heads += other.heads
        self.units += other.units
        for i, w in other.constant.items():
            self.constant[i] = self.constant.get(i, 0.0) + w

    def build(self, width: int, dtype: torch.dtype = torch.float64) -> Layer:
        """The layer's matrices, zero where nothing was written."""
        return Layer(self.build_attention(width, dtype), self.build_feed_forward(width, dtype), self.says)

    def build_attention(self, width: int, dtype: torch.dtype) -> Attention | None:
        if not self.heads:
            return None
        key_width = max(len(h.scores) for h in self.heads)
        value_width = max(len(h.values) for h in self.heads)
        attention = zeroed(Attention(width, len(self.heads), key_width, value_width), dtype)
        query, key = attention.query.weight, attention.key.weight
        for h, head in enumerate(self.heads):
            attention.temperature_H[h] = head.temperature
            for k, (query_terms, key_terms) in enumerate(head.scores, h * key_width):
                put(query[k], query_terms)
                put(key[k], key_terms)
            for v, (value_terms, target) in enumerate(head.values, h * value_width):
                put(attention.value.weight[v], value_terms)
                put(attention.out.weight[:, v], target)
        return attention

    def build_feed_forward(self, width: int, dtype: torch.dtype) -> FeedForward | None:
        if not self.units and not self.constant:
            return None
        ff = zeroed(FeedForward(width, len(self.units)), dtype)
        for f, (source, bias, target) in enumerate(self.units):
            put(ff.fc_in.weight[f], source)
            ff.fc_in.bias[f] = bias
            put(ff.fc_out.weight[:, f], target)
        put(ff.fc_out.bias, self.constant)
        return ff


def put(vector: torch.Tensor, terms: Terms) -> None:
    """Write the weights of ``terms`` into a vector over coordinates."""
    if terms:
        vector[list(terms)] = torch.tensor(list(terms.values()), dtype=vector.dtype)


def zeroed(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """The module in ``dtype`` with weights of 0 that ask for no gradient."""
    module = module.to(dtype).requires_grad_(False)
    for p in module.parameters():
        p.zero_()
    return module
