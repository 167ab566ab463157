"""The most that a model can recall which does not see everything, computed exactly.

A model that sees only a key, the same for several items with different answers, is right at most on the commonest
answer of each key. Attention among the shuffled rows of a batch adds nothing to that: which other rows there are says
nothing about the relation of one's own.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable

import numpy as np

from entp_lib.validation import require

# Table 3: triplets trained on, and how many of them were recalled.
TABLE_3 = {50_000: 46_811, 60_000: 55_455, 70_000: 63_773, 80_000: 71_706, 90_000: 78_517, 100_000: 86_776}
ONE_LAYER = {100_000: 88_240}  # §3.2.3, width 16: the most that the paper recalls of so many


def ceiling(keys: Iterable[Hashable], answers: Iterable[Hashable]) -> float:
    """Largest share of items that a function of the key alone gets right: sum of each key's commonest answer, / n."""
    counts: dict[Hashable, Counter] = defaultdict(Counter)
    for key, answer in zip(keys, answers, strict=True):
        counts[key][answer] += 1
    total = sum(sum(c.values()) for c in counts.values())
    require(total > 0, "no items: a ceiling needs at least one")
    return sum(max(c.values()) for c in counts.values()) / total


def concept_ceiling(triplets_P3: np.ndarray) -> float:
    """What a model that never sees the relation can recall of the triplets."""
    return ceiling(triplets_P3[:, 0].tolist(), triplets_P3[:, 2].tolist())


def walk_ceiling(tokens_WT: np.ndarray) -> float:
    """What a model that sees all before a node can recall of the walks: equal beginnings may go on differently."""
    items = [
        (tuple(row[:place]), row[place])
        for row in tokens_WT.tolist()
        for place in range(2, len(row), 2)
        if row[place] != 0
    ]
    return ceiling(*zip(*items, strict=True))


def expected_ceiling(concepts: float, size):
    """Expected share of different concepts among ``size`` triplets over so many equally likely concepts.

    C (1 - exp(-n / C)) / n: the ceiling of a model that sees the concept alone, where the targets of a concept differ.
    """
    size = np.asarray(size, float)
    return concepts * -np.expm1(-size / concepts) / size


def fitted_concepts(recalled: Iterable[tuple[int, float]] = (*TABLE_3.items(), *ONE_LAYER.items())) -> float:
    """The smallest number of concepts under which no published number of recalled triplets lies above the ceiling.

    ``recalled``: pairs of triplets trained on and recalled. A ceiling through their middle would lie below some.
    """
    from scipy import optimize

    def exceeded(log_concepts: float, size: float, count: float) -> float:
        return float(expected_ceiling(np.exp(log_concepts), size)) - count / size

    return max(float(np.exp(optimize.brentq(exceeded, 5.0, 25.0, args=pair))) for pair in recalled)
