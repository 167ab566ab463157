"""Weights written by name: heads and ReLU units over named coordinates, which become matrices.

``Rows`` names the coordinates of a token (the paper's rows of X). ``Terms`` is a linear function of a token or a
direction in its state: weights by coordinate. Everything that is added is linear or a ReLU of something linear, so a
value is moved as relu(x) - relu(-x), and moved on a condition as relu(x + G (open - 1)) - relu(-x + G (open - 1)): with
``open`` = 1 this is x up to the rounding of G, with 0 it is 0 as long as |x| <= G.

Letters: D width, H heads, K key width, V value width, F hidden units.
"""

from collections.abc import Iterable, Sequence

import torch

from entp_lib.validation import require
from entp_papers.looped.layers import Attention, FeedForward, Layer

Terms = dict[int, float]


class Rows:
    """Names of coordinates, in the order in which they were added; ``sizes`` are the first ones."""

    def __init__(self, **sizes: int):
        self.places: dict[str, range] = {}
        self.width = 0
        self.add(**sizes)

    def add(self, **sizes: int) -> list[range]:
        """The next coordinates, so many under each name. Raises ConfigError for a name that is taken."""
        for name, size in sizes.items():
            require(name not in self.places, f"rows {name!r} exist already")
            self.places[name] = range(self.width, self.width + size)
            self.width += size
        return [self.places[name] for name in sizes]

    def __getitem__(self, name: str) -> range:
        return self.places[name]

    def slice(self, name: str) -> slice:
        """The coordinates of a name, as an index of the last axis of a state."""
        return slice(self.places[name].start, self.places[name].stop)


def same(*rows: Iterable[int]) -> list[Terms]:
    """One Terms per place, each the sum of the rows at that place: ``same(a, b)[i]`` is a_i + b_i."""
    return [dict.fromkeys(places, 1.0) for places in zip(*rows, strict=True)]


def paired(first: Iterable[int], second: Iterable[int], weight: float = 1.0) -> list[tuple[Terms, Terms]]:
    """(weight · first_i, second_i) by place: queries with their keys, or values with their targets."""
    return [({x: weight}, {y: 1.0}) for x, y in zip(first, second, strict=True)]


class LayerPlan:
    """One layer while it is being written; ``build`` makes the matrices.

    ``heads`` has (scores, values, temperature) and ``units`` (source, bias, target).
    """

    def __init__(self, purpose: str):
        self.purpose = purpose
        self.heads: list[tuple[list[tuple[Terms, Terms]], list[tuple[Terms, Terms]], float]] = []
        self.units: list[tuple[Terms, float, Terms]] = []
        self.constant: Terms = {}

    def head(self, scores: list[tuple[Terms, Terms]], values: list[tuple[Terms, Terms]], temperature: float) -> None:
        """A head: Σ query · key are its scores before λ; each (value, target) adds the mean of value to target."""
        self.heads.append((scores, values, temperature))

    def unit(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add relu(source + bias) times ``target``."""
        self.units.append((source, bias, target))

    def add(self, source: Terms, target: Terms) -> None:
        """Add the linear ``source`` times ``target``."""
        self.unit(source, target)
        self.unit({i: -w for i, w in source.items()}, {i: -w for i, w in target.items()})

    def scale(self, rows: Iterable[int], factor: float) -> None:
        """Multiply each of the rows."""
        for i in rows:
            self.add({i: 1.0}, {i: factor - 1})

    def clear(self, rows: Iterable[int]) -> None:
        """Set each of the rows to 0."""
        self.scale(rows, 0.0)

    def add_where(self, source: Terms, target: Terms, gates: Sequence[int], bound: float) -> None:
        """Add ``source`` times ``target`` where every gate is 1; 0 where one is 0, if |source| <= ``bound``."""
        for sign in (1.0, -1.0):
            terms = {i: sign * w for i, w in source.items()}
            for i in dict.fromkeys(gates):
                terms[i] = terms.get(i, 0.0) + bound
            self.unit(terms, {i: sign * w for i, w in target.items()}, -bound * len(gates))

    def step(self, source: Terms, target: Terms, bias: float = 0.0) -> None:
        """Add ``target`` where the integer source + bias is at least 0."""
        self.unit(source, target, bias + 1.0)
        self.unit(source, {i: -w for i, w in target.items()}, bias)

    def build(self, width: int, dtype: torch.dtype = torch.float64) -> Layer:
        """The layer's matrices, zero where nothing was written."""
        return Layer(self.build_attention(width, dtype), self.build_feed_forward(width, dtype), self.purpose)

    def on(self, *parts: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """The feed-forward half on tokens (..., D) whose coordinates are given part by part."""
        x = torch.cat([part.to(dtype) for part in parts], -1)
        return self.build_feed_forward(x.shape[-1], dtype)(x)

    def build_attention(self, width: int, dtype: torch.dtype = torch.float64) -> Attention | None:
        """Query, key, value and output matrices; None without heads."""
        if not self.heads:
            return None
        key_width = max(len(scores) for scores, _, _ in self.heads)
        value_width = max(len(values) for _, values, _ in self.heads)
        attention = zeroed(Attention(width, len(self.heads), key_width, value_width), dtype)
        for h, (scores, values, temperature) in enumerate(self.heads):
            attention.temperature_H[h] = temperature
            for k, (query, key) in enumerate(scores, h * key_width):
                put(attention.query.weight[k], query)
                put(attention.key.weight[k], key)
            for v, (value, target) in enumerate(values, h * value_width):
                put(attention.value.weight[v], value)
                put(attention.out.weight[:, v], target)
        return attention

    def build_feed_forward(self, width: int, dtype: torch.dtype = torch.float64) -> FeedForward | None:
        """Both matrices and biases; None without units and constants."""
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
