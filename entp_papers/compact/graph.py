"""A knowledge graph as triplets and as walks (§2.2), synthetic or a real one, and ceilings of
recall on it.

The paper's graph is SNOMED, which needs a licence. Here are a synthetic graph with the traits that
matter for memorising (few relations for most concepts and many for some, about thirty relation
types, several targets for some pairs), and three small real ones that the ``pykeen`` package holds
as plain files. These are read from its folder without importing it.

A ceiling is the largest share that any model of restricted sight can recall: one that sees only a
key, the same for several items with different answers, is right at most on the commonest answer of
each key. Attention among the shuffled rows of a batch adds nothing to that: which other rows there
are says nothing about the relation of one's own.

Letters: M triplets, P pairs (concept, relation), W walks, T tokens.
"""

import hashlib
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from entp_lab.configs import Json
from entp_lab.frames import published
from entp_lib.validation import require

PARTS = ("train.txt", "valid.txt", "test.txt")
ONE_LAYER = {100_000: 88_240}  # §3.2.3, width 16: the most that the paper recalls of so many


@dataclass(frozen=True)
class Graph:
    """Different triplets (M, 3) of concept, relation and target; concepts and targets share their
    ids.
    """

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
    """Return the graph called ``source``: ``synthetic`` with its traits, or a real one, which has
    none.
    """
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

    ``relations_per_concept`` is a mean; ``several`` the chance of one more target for a pair, again
    and again.
    """
    generator = np.random.default_rng(seed)
    popularity = zipf(concepts)[generator.permutation(concepts)]
    numbers = np.arange(1, relations + 1)
    frequent = zipf(relations)
    # chances of having 1, 2, … relations: Zipf's times x^number, with the x, by bisection, that
    # gives the mean
    low = -20.0
    high = 20.0
    for _ in range(80):
        middle = (low + high) / 2
        chances = frequent * np.exp(middle * (numbers - numbers.mean()))
        chances /= chances.sum()
        low, high = (
            (middle, high) if (chances * numbers).sum() < relations_per_concept else (low, middle)
        )
    found = set()
    for concept in range(concepts):
        count = generator.choice(numbers, p=chances)
        for relation in generator.choice(relations, size=count, replace=False, p=frequent):
            targets = generator.geometric(1 - several)
            for target in generator.choice(concepts, size=targets, p=popularity):
                found.add((concept, int(relation), int(target)))
    return Graph(np.array(sorted(found)), concepts, relations)


def real(name: str) -> Graph:
    """Read Kinships, Nations or UMLS, all parts together: text files of three columns, separated by
    tabs.

    Raises ConfigError where the package ``pykeen`` is not installed, which has them.
    """
    package = importlib.util.find_spec("pykeen")  # finds the package without importing it
    require(
        package is not None,
        f"graph = {name!r}: its files come with the package pykeen, which is not installed",
    )
    folder = Path(package.submodule_search_locations[0]) / "datasets" / name
    rows = set()
    for part in PARTS:
        lines = (folder / part).read_text("utf-8").splitlines()
        rows |= {tuple(line.split("\t")) for line in lines}
    names = sorted({concept for a, _, b in rows for concept in (a, b)})
    concepts = {name: number for number, name in enumerate(names)}
    relations = {name: number for number, name in enumerate(sorted({r for _, r, _ in rows}))}
    triplets = sorted((concepts[a], relations[r], concepts[b]) for a, r, b in rows)
    return Graph(np.array(triplets), len(concepts), len(relations))


def pairs(graph: Graph, size: int, seed: int = 0) -> np.ndarray:
    """Draw ``size`` triplets (P, 3) of different (concept, relation), one target where there are
    several (§2.2.2).

    A smaller set is the first part of a larger one.
    """
    generator = np.random.default_rng(seed)
    shuffled = graph.triplets[generator.permutation(len(graph.triplets))]
    _, first = np.unique(shuffled[:, :2], axis=0, return_index=True)
    return shuffled[generator.permutation(first)[:size]]


def walks(graph: Graph, count: int, seed: int = 0) -> np.ndarray:
    """Draw walks, (W, 11) tokens node, edge, node, …, filled up with 0 (§2.2.3).

    Every edge may be walked backwards, under a label of its own. A walk visits no node twice, and
    ends after a number of edges drawn from 3 to 5 or where no new neighbour is left. The paper
    first cuts out what lies within five edges of the start: a walk of at most five edges never
    leaves that, so it is not done here. Tokens: 0 fills up, then concepts, then relations, then
    relations backwards.
    """
    generator = np.random.default_rng(seed)
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(graph.n_concepts)]
    for concept, relation, target in graph.triplets.tolist():
        neighbours[concept].append((relation, target))
        neighbours[target].append((graph.n_relations + relation, concept))
    tokens = np.zeros((count, 11), dtype=np.int64)
    for row in tokens:
        node = int(generator.integers(graph.n_concepts))
        row[0] = 1 + node
        visited = {node}
        for edge in range(int(generator.integers(3, 6))):
            onward = [step for step in neighbours[node] if step[1] not in visited]
            if not onward:
                break
            relation, node = onward[int(generator.integers(len(onward)))]
            visited.add(node)
            row[2 * edge + 1] = 1 + graph.n_concepts + relation
            row[2 * edge + 2] = 1 + node
    return tokens


def ceiling(keys: Iterable[Hashable], answers: Iterable[Hashable]) -> float:
    """Return the most that a function of the key can get right: each key's most frequent answer,
    summed, over n.
    """
    counts = defaultdict(Counter)
    for key, answer in zip(keys, answers, strict=True):
        counts[key][answer] += 1
    right = sum(max(of_key.values()) for of_key in counts.values())
    return right / sum(of_key.total() for of_key in counts.values())


def walk_ceiling(tokens_WT: np.ndarray) -> float:
    """Return the most nodes of walks that all before them tells: equal beginnings may go on
    differently.
    """
    items = [
        (tuple(row[:place]), row[place])
        for row in tokens_WT.tolist()
        for place in range(2, len(row), 2)
        if row[place] != 0
    ]
    return ceiling(*zip(*items, strict=True))


def expected_ceiling(concepts: float, size):
    """Return the expected share of different concepts among ``size`` triplets over equally likely
    concepts.

    C (1 - exp(-n / C)) / n: the ceiling of a model that sees the concept alone, where a concept's
    targets differ.
    """
    size = np.asarray(size, float)
    return concepts * -np.expm1(-size / concepts) / size


def fitted_concepts() -> float:
    """Return the fewest concepts under which no published number of recalled triplets is above the
    ceiling.

    A ceiling through the middle of them would lie below some.
    """
    from scipy import special

    table = published("compact", "triplets")
    sizes = np.array([*table["triplets"], *ONE_LAYER], float)
    inverse_shares = sizes / [*table["recalled"], *ONE_LAYER.values()]
    # u = n / C of a ceiling (1 - exp(-u)) / u that is the share
    per_concept = inverse_shares + special.lambertw(-inverse_shares * np.exp(-inverse_shares)).real
    return float((sizes / per_concept).max())
