"""A knowledge graph as triplets and walks (§2.2), synthetic or real, and ceilings of its recall.

The paper's graph is SNOMED, which needs a licence. Here are a synthetic graph with the traits that
matter for memorising (few relations for most concepts and many for some, about thirty relation
types, several targets for some pairs), and three small real graphs that the ``pykeen`` package has
as plain files. They are read from its folder without importing it.

A ceiling is the largest share that any model with restricted input can recall: a model that sees
only a key, which several items with different answers share, is right at most on each key's most
frequent answer. Attention among the shuffled rows of a batch adds nothing, because the other rows
say nothing about a row's own relation.

Letters: M triplets, P pairs (concept, relation), W walks, T tokens.
"""

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from entp_lab.configs import Json
from entp_lab.frames import published
from entp_lib.validation import require

PARTS = ("train.txt", "valid.txt", "test.txt")
ONE_LAYER = {100_000: 88_240}  # §3.2.3, width 16: triplets, and the most that the paper recalls


@dataclass(frozen=True)
class Graph:
    """Different triplets (M, 3) of concept, relation and target; concepts and targets share ids."""

    triplets: np.ndarray
    n_concepts: int
    n_relations: int

    @property
    def facts(self) -> Json:
        """Return sizes and a checksum of the triplets, for a record."""
        return {
            "concepts": self.n_concepts,
            "relations": self.n_relations,
            "triplets": len(self.triplets),
            "pairs": len(np.unique(self.triplets[:, :2], axis=0)),
            "checksum": hashlib.sha256(
                np.ascontiguousarray(self.triplets, dtype="<i8").tobytes()
            ).hexdigest()[:16],
        }


def load(source: str, traits: Json | None, seed: int) -> Graph:
    """Return the graph called ``source``: ``synthetic`` with its traits, or a real one."""
    return synthetic(seed, **(traits or {})) if source == "synthetic" else real(source)


def zipf(count: int) -> np.ndarray:
    """Return the chances of ``count`` ranks, proportional to 1 / rank."""
    weights = np.arange(1, count + 1, dtype=float) ** -1.0
    return weights / weights.sum()


def synthetic(
    seed: int = 0,
    concepts: int = 3600,
    relations: int = 30,
    relations_per_concept: float = 3.0,
    several: float = 0.3,
) -> Graph:
    """Draw a graph from its traits; relations, targets and relations per concept follow Zipf's law.

    ``relations_per_concept`` is a mean; ``several`` is the chance of each further target of a pair.
    """
    generator = np.random.default_rng(seed)
    popularity = zipf(concepts)[generator.permutation(concepts)]
    numbers = np.arange(1, relations + 1)
    frequent = zipf(relations)
    # chances of having 1, 2, … relations: Zipf's times x^number; bisection finds the x that gives
    # the mean
    low = -20.0
    high = 20.0
    for _ in range(80):
        middle = (low + high) / 2
        chances = frequent * np.exp(middle * (numbers - numbers.mean()))
        chances /= chances.sum()
        if (chances * numbers).sum() < relations_per_concept:
            low = middle
        else:
            high = middle
    found = set()
    for concept in range(concepts):
        count = generator.choice(numbers, p=chances)
        for relation in generator.choice(relations, size=count, replace=False, p=frequent):
            targets = generator.geometric(1 - several)
            for target in generator.choice(concepts, size=targets, p=popularity):
                found.add((concept, relation, target))
    return Graph(np.array(sorted(found)), concepts, relations)


def real(name: str) -> Graph:
    """Read all parts of Kinships, Nations or UMLS: text files of three columns separated by tabs.

    ConfigError if the package ``pykeen``, which has them, is not installed.
    """
    package = importlib.util.find_spec("pykeen")  # finds the package without importing it
    require(
        package is not None,
        f"graph = {name!r}: its files come with the package pykeen, which is not installed",
    )
    folder = Path(package.submodule_search_locations[0]) / "datasets" / name
    rows = {
        tuple(line.split("\t"))
        for part in PARTS
        for line in (folder / part).read_text("utf-8").splitlines()
    }
    names = sorted({concept for a, _, b in rows for concept in (a, b)})
    concepts = {name: number for number, name in enumerate(names)}
    relations = {name: number for number, name in enumerate(sorted({r for _, r, _ in rows}))}
    triplets = sorted((concepts[a], relations[r], concepts[b]) for a, r, b in rows)
    return Graph(np.array(triplets), len(concepts), len(relations))


def pairs(graph: Graph, size: int, seed: int = 0) -> np.ndarray:
    """Draw ``size`` triplets (P, 3) with different (concept, relation) (§2.2.2).

    ConfigError if there are fewer. Of several targets one is drawn. A smaller set is the first part
    of a larger one.
    """
    generator = np.random.default_rng(seed)
    shuffled = graph.triplets[generator.permutation(len(graph.triplets))]
    _, first = np.unique(shuffled[:, :2], axis=0, return_index=True)
    require(size <= len(first), f"size = {size}: the graph has {len(first)} pairs")
    return shuffled[generator.permutation(first)[:size]]


def walks(graph: Graph, count: int, seed: int = 0) -> np.ndarray:
    """Draw walks, (W, 11) tokens node, edge, node, …, padded with 0 (§2.2.3).

    Every edge may be walked backwards, under a separate label. A walk visits no node twice, and
    ends after a number of edges drawn from 3 to 5, or where no new neighbour is left. The paper
    first cuts out the subgraph within five edges of the start; a walk of at most five edges never
    leaves it, so that is not done here. Tokens: 0 for padding, then concepts, relations, and
    relations backwards.
    """
    generator = np.random.default_rng(seed)
    neighbours = [[] for _ in range(graph.n_concepts)]
    for concept, relation, target in graph.triplets.tolist():
        neighbours[concept].append((relation, target))
        neighbours[target].append((graph.n_relations + relation, concept))
    tokens = np.zeros((count, 11), dtype=np.int64)
    for row in tokens:
        node = generator.integers(graph.n_concepts)
        row[0] = 1 + node
        visited = {node}
        for edge in range(generator.integers(3, 6)):
            onward = [step for step in neighbours[node] if step[1] not in visited]
            if not onward:
                break
            relation, node = onward[generator.integers(len(onward))]
            visited.add(node)
            row[2 * edge + 1] = 1 + graph.n_concepts + relation
            row[2 * edge + 2] = 1 + node
    return tokens


def ceiling(keys: Iterable[Hashable], answers: Iterable[Hashable]) -> float:
    """Return the largest share that a function of the key can get right.

    It is the counts of each key's most frequent answer, summed, over the number of items.
    """
    counts = Counter(zip(keys, answers, strict=True))
    # in ascending order, so that the last answer of a key, which stays, is the most frequent
    right = {key: count for (key, _), count in reversed(counts.most_common())}
    return sum(right.values()) / counts.total()


def walk_ceiling(tokens_WT: np.ndarray) -> float:
    """Return the largest share of nodes that can be told from all tokens before them.

    Walks with equal beginnings may go on differently.
    """
    items = [
        (tuple(row[:place]), row[place])
        for row in tokens_WT.tolist()
        for place in range(2, len(row), 2)
        if row[place] != 0
    ]
    return ceiling(*zip(*items, strict=True))


def expected_ceiling(concepts: float, size):
    """Return C (1 - exp(-n / C)) / n for C ``concepts`` and n = ``size`` triplets.

    This is the expected share of different concepts if all are equally likely: the ceiling of a
    model that sees only the concept, if a concept's targets all differ.
    """
    return concepts * -np.expm1(-size / concepts) / size


def fitted_concepts() -> float:
    """Return the fewest concepts for which no published recall is above ``expected_ceiling``.

    A ceiling through the middle of the published numbers would be below some of them.
    """
    from scipy import special

    table = published("compact", "triplets")
    sizes = np.array([*table["triplets"], *ONE_LAYER], float)
    inverse_shares = sizes / [*table["recalled"], *ONE_LAYER.values()]
    # u = n / C of a ceiling (1 - exp(-u)) / u that is the share
    per_concept = inverse_shares + special.lambertw(-inverse_shares * np.exp(-inverse_shares)).real
    return float((sizes / per_concept).max())
