"""Reachability in a graph of two cycles (the authors use 1000 node names, one token each).

Edges in random order, then the two nodes asked about. States walk from the first node, one node each; the last has
the answer beside it: 1 where the second node was met, 0 where the walk came back.

    v3>v1;v1>v3;v2>v4;v4>v2;v3?v4;:v3#v1#v3;0.
"""

from dataclasses import dataclass

import numpy as np

from entp_lib.validation import check_types, require
from entp_papers.scratchpad.problems.base import Problem, Symbols


@dataclass(frozen=True)
class TwoCycles(Problem):
    """Two cycles of ``size`` nodes each, named at random out of ``names``; half of the questions have the answer 1."""

    names: int = 1000

    def __post_init__(self):
        check_types(self)
        require(self.names >= 4, f"names = {self.names}: must be at least 4, for two cycles of two")

    @property
    def symbols(self) -> Symbols:
        return (*">;?01", *(f"v{i}" for i in range(self.names)))

    def question(self, size: int, generator: np.random.Generator) -> tuple[Symbols, tuple[Symbols, ...]]:
        require(2 <= size <= self.names // 2, f"cycles of {size}: must be 2 to {self.names // 2}, half of the names")
        nodes = [f"v{i}" for i in generator.choice(self.names, 2 * size, replace=False)]
        cycles = nodes[:size], nodes[size:]
        edges = [(a, b) for cycle in cycles for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
        shuffled = [edges[i] for i in generator.permutation(len(edges))]
        target = nodes[generator.integers(1, size) if generator.integers(2) else size]
        text = [symbol for a, b in shuffled for symbol in (a, ">", b, ";")]
        return (*text, nodes[0], "?", target, ";"), ()

    def next_state(self, question: Symbols, state: Symbols | None) -> Symbols:
        source, target = question[-4], question[-2]
        if state is None:
            return (source,)
        following = dict(zip(question[:-4:4], question[2:-4:4], strict=True))
        node = following[state[0]]
        return (node, ";", str(int(node == target))) if node in (source, target) else (node,)

    def is_last(self, state: Symbols) -> bool:
        return len(state) > 1

    def answer(self, state: Symbols) -> Symbols:
        if len(state) != 3 or state[1] != ";":
            raise ValueError(f"{''.join(state)!r}: not the last state")
        return state[-1:]

    def solve(self, question: Symbols, given: tuple[Symbols, ...]) -> Symbols:
        reached, edges = {question[-4]}, set(zip(question[:-4:4], question[2:-4:4], strict=True))
        while more := {b for a, b in edges if a in reached} - reached:
            reached |= more
        return (str(int(question[-2] in reached)),)
