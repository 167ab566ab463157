"""The world of CLUTRR (§7.3): 21 relations and their algebra, families, and stories about them.

A relation goes with a pair of people: "b is a's uncle". Relations compose along a chain, a's
father's brother being a's uncle. A label is a kind and the gender of b.

A story asks what its chain of relations composes to. Families have neither half-siblings
nor second marriages, and nobody marries kin. All sentences are this project's own.

Letters: a and b people.
"""

import csv
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from entp_lib.validation import require

FOLDER = Path(__file__).parent
# A row for every kind: its labels for a man and for a woman, and sentences. In each sentence a noun
# says what {b} is to {a}, and so the gender of {b}, and a pronoun says the gender of {a}. There is
# no brother-in-law among the 21 labels, and no sentence about a sister-in-law.
ROWS = list(csv.reader((FOLDER / "kinship.csv").read_text(encoding="utf-8").splitlines()))[1:]
KINDS = {kind: (man or None, woman) for kind, man, woman, *_ in ROWS}
TEMPLATES = {kind: tuple(filter(None, sentences)) for kind, _, _, *sentences in ROWS}
# In the order of their numbers in the published data.
LABELS = (
    "aunt son-in-law grandfather brother sister father mother grandmother uncle daughter-in-law "
    "grandson granddaughter father-in-law mother-in-law nephew son daughter niece husband wife "
    "sister-in-law"
).split()

# The kind that two kinds compose to, if it is certain for three different people. A cell is empty
# if there are several outcomes (a grandparent's child may or may not be a parent), or if the
# outcome is not among the 21 labels (a parent's grandparent).
COMPOSED = pd.read_csv(FOLDER / "compositions.csv", index_col=0).stack().dropna().to_dict()

# Kinds by the kind that they are seen from the other side.
INVERSES = {
    "parent": "child",
    "grandparent": "grandchild",
    "parent's sibling": "sibling's child",
    "parent-in-law": "child-in-law",
    "sibling-in-law": "sibling-in-law",
}

BRIEF = ("{a} met {his} {r} {b}.",)  # for every kind

MEN = (
    "Adam Albert Anton Arthur Ben Boris Carl Cedric Conrad Daniel Dennis Edgar Emil Erik Felix "
    "Frank George Gustav Harold Henry Hugo Igor Ivan Jacob Jonas Kurt Lars Leo Lukas Martin Max "
    "Nils Oliver Oscar Otto Paul Peter Ralph Robert Rupert Simon Stefan Theo Thomas Victor Walter"
).split()
WOMEN = (
    "Ada Agnes Alice Anna Astrid Bella Brigit Carla Cecily Clara Dana Doris Edith Elena Elsa Emma "
    "Eva Flora Frida Greta Hanna Helen Ida Ingrid Irene Jane Julia Karen Laura Lena Lydia Maria "
    "Martha Mona Nina Nora Olga Paula Petra Rosa Ruth Sara Sonja Tessa Vera Wanda"
).split()
SHORT_NAMES = tuple([name for name in names if len(name) <= 4] for names in (MEN, WOMEN))
FAMILIES = 40
FAMILY_SIZE = 30
ATTEMPTS = 1000


class Family:
    """People by number, with their parents (a couple, or none), spouse (or None) and gender.

    ``kinds``: the kind of relation of b to a, for every pair (a, b) that has one. ``pairs``: these
    pairs by label.
    """

    def __init__(self, generator: np.random.Generator, size: int = FAMILY_SIZE):
        """Grow a random family from a couple, by births, marriages and added parents."""
        self.parents: list[tuple[int, ...]] = [(), ()]
        self.spouse: list[int | None] = [1, 0]
        self.female = [False, True]
        while len(self.female) < size:
            someone = int(generator.integers(len(self.female)))
            event = generator.random()
            partner = self.spouse[someone]
            if partner is not None and event < 0.6:
                self.add(bool(generator.integers(2)), parents=(someone, partner))
            elif partner is None and event < 0.6:
                self.spouse[someone] = self.add(not self.female[someone], spouse=someone)
            elif not self.parents[someone] and event > 0.8:
                father = self.add(False)
                mother = self.add(True, spouse=father)
                self.spouse[father] = mother
                self.parents[someone] = (father, mother)
        people = range(len(self.female))
        self.kinds = {
            pair: kind for pair in itertools.permutations(people, 2) if (kind := self.kind(*pair))
        }
        self.pairs: dict[str, list[tuple[int, int]]] = {}
        for pair in self.kinds:
            self.pairs.setdefault(self.label(*pair), []).append(pair)

    def add(self, female: bool, parents: tuple[int, ...] = (), spouse: int | None = None) -> int:
        self.female.append(female)
        self.parents.append(parents)
        self.spouse.append(spouse)
        return len(self.female) - 1

    def kind(self, a: int, b: int) -> str | None:
        """Return the relation of b to a by its definition on the family tree, not by composing."""
        return self.kind_one_way(a, b) or INVERSES.get(self.kind_one_way(b, a))

    def kind_one_way(self, a: int, b: int) -> str | None:
        """Return ``kind``, but None where only its inverse, the relation of a to b, is defined."""

        def of(person: int | None) -> tuple[int, ...]:
            return () if person is None else self.parents[person]

        def siblings(one: int | None, other: int | None) -> bool:
            return one != other and of(one) != () and set(of(one)) == set(of(other))

        partner = self.spouse[a]
        if b == partner:
            return "spouse"
        if b in of(a):
            return "parent"
        if siblings(a, b):
            return "sibling"
        if any(b in of(p) for p in of(a)):
            return "grandparent"
        if any(siblings(b, p) for p in of(a)):
            return "parent's sibling"
        if b in of(partner):
            return "parent-in-law"
        return "sibling-in-law" if siblings(partner, b) else None

    def label(self, a: int, b: int) -> str | None:
        """Return the relation of b to a as one of the 21 labels; None for a brother-in-law."""
        return KINDS[self.kinds[a, b]][self.female[b]]

    @functools.cache  # noqa: B019 - families live as long as the process
    def between(self, a: int, b: int) -> list[int]:
        """Return the people c for whom the relations a–c and c–b compose to the relation a–b."""
        kinds = self.kinds
        people = range(len(self.female))
        return [
            c for c in people if COMPOSED.get((kinds.get((a, c)), kinds.get((c, b)))) == kinds[a, b]
        ]

    def path(self, a: int, b: int, edges: int, generator: np.random.Generator) -> list[int] | None:
        """Find a chain of different people whose relations compose to that of a and b.

        The chain runs from a to b over ``edges`` relations; None if the search gets stuck.
        """
        people = [a, b]
        while len(people) <= edges:
            steps = itertools.pairwise(people)
            detours = [
                (i, c)
                for i, pair in enumerate(steps, 1)
                for c in self.between(*pair)
                if c not in people
            ]
            if not detours:
                return None
            people.insert(*detours[generator.integers(len(detours))])
        return people


@functools.cache
def families() -> list[Family]:
    """Return the families of all stories; the people get new names in every story."""
    generator = np.random.default_rng(0)
    return [Family(generator) for _ in range(FAMILIES)]


class Story(NamedTuple):
    """Sentences with names in brackets, the chain that they tell, and its last person's relation to
    its first.
    """

    text: str
    names: tuple[str, ...]
    relations: tuple[str, ...]
    answer: str


def stories(
    seed: int,
    edges: Sequence[int] = (2, 3, 4),
    labels: Sequence[str] = LABELS,
    brief: bool = False,
    avoid: Collection[str] = (),
) -> Iterator[Story]:
    """Yield stories without end, all with different texts and none in ``avoid``.

    Equal arguments give equal stories. Every pair of an answer from ``labels`` and a number of
    ``edges`` comes once in each round, in random order. Sentences are shuffled; ``brief`` ones have
    one wording, keep their order and use short names. ConfigError if no new story is found.
    """
    generator = np.random.default_rng(seed)
    used = set(avoid)
    pairs = list(itertools.product(labels, edges))
    while True:
        for i in generator.permutation(len(pairs)):
            label, length = pairs[i]
            attempts = (write(label, length, generator, brief) for _ in range(ATTEMPTS))
            story = next((s for s in attempts if s is not None and s.text not in used), None)
            require(
                story is not None,
                f"no new story was found whose answer over {length} edges is {label!r}",
            )
            used.add(story.text)
            yield story


def write(label: str, edges: int, generator: np.random.Generator, brief: bool) -> Story | None:
    """Write a story about a random pair with this relation.

    None if the drawn family has no such pair, or no such chain between the two.
    """
    family = families()[generator.integers(FAMILIES)]
    pairs = family.pairs.get(label)
    people = (
        family.path(*pairs[generator.integers(len(pairs))], edges, generator) if pairs else None
    )
    if people is None:
        return None
    men, women = (
        generator.permutation(names).tolist() for names in (SHORT_NAMES if brief else (MEN, WOMEN))
    )
    names = [(women if family.female[p] else men).pop() for p in people]
    relations = [family.label(*pair) for pair in itertools.pairwise(people)]
    sentences = []
    for one, other in itertools.pairwise(zip(people, names, strict=True)):
        # The sentence is told from either side.
        (a, name_a), (b, name_b) = (other, one) if generator.integers(2) else (one, other)
        choices = BRIEF if brief else TEMPLATES[family.kinds[a, b]]
        his = "her" if family.female[a] else "his"
        template = choices[generator.integers(len(choices))]
        sentences.append(
            template.format(a=f"[{name_a}]", b=f"[{name_b}]", his=his, r=family.label(a, b))
        )
    order = range(len(sentences)) if brief else generator.permutation(len(sentences))
    return Story(" ".join(sentences[i] for i in order), tuple(names), tuple(relations), label)
