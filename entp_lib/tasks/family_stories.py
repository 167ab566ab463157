"""Stories about families, whose question is what their chain of relations composes to (§7.3).

Families have neither half-siblings nor second marriages, and nobody marries kin. All sentences are this project's own.

Letters: a and b people.
"""

import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from entp_lib.tasks.kinship import COMPOSED, KIND_OF, KINDS, LABELS
from entp_lib.validation import require

# Every sentence says by a noun what {b} is to {a}, and so the gender of {b}, and by a pronoun the gender of {a}.
TEMPLATES = {
    "parent": (
        "{a} called {his} {r} {b} to say that the train was late.",
        "On Sunday {a} painted the fence together with {his} {r}, {b}.",
        "{a} learned to swim because {his} {r} {b} never lost patience.",
        "{a} still wears the coat that {b}, {his} {r}, gave away.",
    ),
    "child": (
        "{a} packed a lunch for {his} {r} {b}.",
        "{a} was late for work because {his} {r}, {b}, had hidden the keys.",
        "Before bed {a} read three chapters to {his} {r} {b}.",
        "{a} sat in the first row when {b}, {his} {r}, played the flute.",
    ),
    "sibling": (
        "{a} shared a room with {his} {r} {b} for years.",
        "{a} and {his} {r} {b} raced each other to the lake.",
        "{a} lost the chess game to {his} {r}, {b}.",
        "{a} borrowed a bicycle from {b}, {his} {r}.",
    ),
    "spouse": (
        "{a} planted tomatoes with {his} {r} {b}.",
        "{a} and {his} {r}, {b}, rented a house by the sea.",
        "{a} cooked dinner while {his} {r} {b} fixed the radio.",
        "{a} danced all evening with {b}, {his} {r}.",
    ),
    "grandparent": (
        "{a} spent the holidays on the farm of {his} {r} {b}.",
        "{a} asked {his} {r}, {b}, about the old photographs.",
        "{a} writes a postcard to {his} {r} {b} every month.",
        "{a} got a pocket watch from {b}, {his} {r}.",
    ),
    "grandchild": (
        "{a} knitted a scarf for {his} {r} {b}.",
        "{a} showed {his} {r}, {b}, how to whittle.",
        "{a} kept a jar of sweets for the visits of {his} {r} {b}.",
        "{a} took the bus to see {b}, {his} {r}, graduate.",
    ),
    "parent's sibling": (
        "{a} spent a summer in the workshop of {his} {r} {b}.",
        "{a} went to the museum with {his} {r}, {b}.",
        "{a} got a kite from {his} {r} {b}.",
        "{a} laughed at every joke of {b}, {his} {r}.",
    ),
    "sibling's child": (
        "{a} bought a drum for {his} {r} {b}.",
        "{a} promised {his} {r}, {b}, a trip to the zoo.",
        "{a} helped {his} {r} {b} with a broken skateboard.",
        "{a} saved a seat for {b}, {his} {r}.",
    ),
    "parent-in-law": (
        "{a} was nervous before the first lunch with {his} {r} {b}.",
        "{a} drove {his} {r}, {b}, to the dentist.",
        "{a} discussed the garden with {his} {r} {b}.",
        "{a} returned a ladder to {b}, {his} {r}.",
    ),
    "child-in-law": (
        "{a} taught {his} {r} {b} to bake rye bread.",
        "{a} toasted {his} {r}, {b}, on the wedding day.",
        "{a} hung the shelves with {his} {r} {b}.",
        "{a} was glad to see {b}, {his} {r}, at the door.",
    ),
}
BRIEF = ("{a} met {his} {r} {b}.",)  # for every kind

MEN = (
    "Adam Albert Anton Arthur Ben Boris Carl Cedric Conrad Daniel Dennis Edgar Emil Erik Felix Frank George Gustav "
    "Harold Henry Hugo Igor Ivan Jacob Jonas Kurt Lars Leo Lukas Martin Max Nils Oliver Oscar Otto Paul Peter Ralph "
    "Robert Rupert Simon Stefan Theo Thomas Victor Walter"
).split()
WOMEN = (
    "Ada Agnes Alice Anna Astrid Bella Brigit Carla Cecily Clara Dana Doris Edith Elena Elsa Emma Eva Flora Frida "
    "Greta Hanna Helen Ida Ingrid Irene Jane Julia Karen Laura Lena Lydia Maria Martha Mona Nina Nora Olga Paula "
    "Petra Rosa Ruth Sara Sonja Tessa Vera Wanda"
).split()
SHORT_NAMES = tuple([name for name in names if len(name) <= 4] for names in (MEN, WOMEN))
FAMILIES, FAMILY_SIZE = 40, 30
ATTEMPTS = 1000


class Family:
    """People by number, with their parents (a couple, or None), spouse (or None) and gender."""

    def __init__(self, generator: np.random.Generator, size: int = FAMILY_SIZE):
        """Grow a random family from a couple by births, marriages, and parents for those who had none."""
        self.parents: list[tuple[int, int] | None] = [None, None]
        self.spouse: list[int | None] = [1, 0]
        self.female = [False, True]
        while len(self.female) < size:
            someone, event = int(generator.integers(len(self.female))), generator.random()
            partner = self.spouse[someone]
            if partner is not None and event < 0.6:
                self.add(bool(generator.integers(2)), parents=(someone, partner))
            elif partner is None and event < 0.6:
                self.spouse[someone] = self.add(not self.female[someone], spouse=someone)
            elif self.parents[someone] is None and event > 0.8:
                father = self.add(False)
                mother = self.add(True, spouse=father)
                self.spouse[father], self.parents[someone] = mother, (father, mother)
        people = range(len(self.female))
        self.kinds = {pair: kind for pair in itertools.permutations(people, 2) if (kind := self.kind(*pair))}
        self.pairs: dict[str, list[tuple[int, int]]] = {}
        for (a, b), kind in self.kinds.items():
            self.pairs.setdefault(KINDS[kind][self.female[b]], []).append((a, b))
        self.routes: dict[tuple[int, int], list[int]] = {}

    def add(self, female: bool, parents: tuple[int, int] | None = None, spouse: int | None = None) -> int:
        self.female.append(female)
        self.parents.append(parents)
        self.spouse.append(spouse)
        return len(self.female) - 1

    def kind(self, a: int, b: int) -> str | None:
        """The relation of b to a, read off the tree by the words' definitions, without any composing."""
        parents = [() if x is None else self.parents[x] or () for x in (a, b, self.spouse[a], self.spouse[b])]
        of_a, of_b, of_partner, of_other = parents
        if b == self.spouse[a]:
            return "spouse"
        if b in of_a or a in of_b:
            return "parent" if b in of_a else "child"
        if self.siblings(a, b):
            return "sibling"
        if any(b in (self.parents[p] or ()) for p in of_a):
            return "grandparent"
        if any(a in (self.parents[p] or ()) for p in of_b):
            return "grandchild"
        if any(self.siblings(b, p) for p in of_a):
            return "parent's sibling"
        if any(self.siblings(a, p) for p in of_b):
            return "sibling's child"
        if b in of_partner:
            return "parent-in-law"
        if a in of_other:
            return "child-in-law"
        return "sibling-in-law" if self.siblings(self.spouse[a], b) or self.siblings(self.spouse[b], a) else None

    def siblings(self, a: int | None, b: int) -> bool:
        """Whether two people (a may be nobody) have the same parents."""
        if a is None or a == b or self.parents[a] is None:
            return False
        return set(self.parents[a]) == set(self.parents[b] or ())

    def label(self, a: int, b: int) -> str | None:
        """The relation of b to a as one of the 21 labels, or None."""
        kind = self.kinds.get((a, b))
        return KINDS[kind][self.female[b]] if kind else None

    def between(self, a: int, b: int) -> list[int]:
        """People c for whom the relations of a to c and of c to b compose to that of a to b."""
        if (a, b) not in self.routes:
            kinds, kind = self.kinds, self.kinds[a, b]
            people = range(len(self.female))
            self.routes[a, b] = [c for c in people if COMPOSED.get((kinds.get((a, c)), kinds.get((c, b)))) == kind]
        return self.routes[a, b]

    def path(self, a: int, b: int, edges: int, generator: np.random.Generator) -> list[int] | None:
        """A chain of different people from a to b whose relations compose to that of a and b; None if it got stuck."""
        people = [a, b]
        while len(people) <= edges:
            steps = itertools.pairwise(people)
            detours = [(i, c) for i, pair in enumerate(steps, 1) for c in self.between(*pair) if c not in people]
            if not detours:
                return None
            people.insert(*detours[generator.integers(len(detours))])
        return people


@functools.cache
def families() -> list[Family]:
    """The families of all stories; the people get new names in every story."""
    generator = np.random.default_rng(0)
    return [Family(generator) for _ in range(FAMILIES)]


@dataclass(frozen=True)
class Story:
    """Sentences with names in brackets, the chain in them, and the relation of its last person to its first."""

    text: str
    names: tuple[str, ...]
    relations: tuple[str, ...]
    answer: str


def stories(
    seed: int,
    edges: Sequence[int] = (2, 3, 4),
    labels: Sequence[str] = LABELS,
    in_order: bool = False,
    brief: bool = False,
    avoid: Collection[str] = (),
) -> Iterator[Story]:
    """Stories with different texts, none of them in ``avoid``, without end; the same for the same arguments.

    Every pair of an answer from ``labels`` and a number of ``edges`` comes once in each round, in random order.
    Sentences are shuffled unless ``in_order``; ``brief`` ones all read alike and have short names. Raises ConfigError
    for labels and edges that cannot be had, and where so many attempts at a pair found nothing new that there may be
    nothing left.
    """
    require(bool(labels), "labels: must name one relation at least")
    for label in labels:
        require(label in KIND_OF, f"label {label!r}: must be one of {', '.join(LABELS)}")
    right = f"edges = {list(edges)}: must be numbers from 2 to 10"
    require(bool(edges) and 2 <= min(edges) and max(edges) <= 10, right)
    generator, used = np.random.default_rng(seed), set(avoid)
    pairs = list(itertools.product(labels, edges))
    while True:
        for i in generator.permutation(len(pairs)):
            label, length = pairs[i]
            attempts = (write(label, length, generator, in_order, brief) for _ in range(ATTEMPTS))
            story = next((s for s in attempts if s is not None and s.text not in used), None)
            require(story is not None, f"no new story was found whose answer over {length} edges is {label!r}")
            used.add(story.text)
            yield story


def write(label: str, edges: int, generator: np.random.Generator, in_order: bool, brief: bool) -> Story | None:
    """A story about a random pair of that relation; None where the family drawn has none, or no such chain."""
    family = families()[generator.integers(FAMILIES)]
    pairs = family.pairs.get(label)
    people = family.path(*pairs[generator.integers(len(pairs))], edges, generator) if pairs else None
    if people is None:
        return None
    men, women = (generator.permutation(names).tolist() for names in (SHORT_NAMES if brief else (MEN, WOMEN)))
    names = [(women if family.female[p] else men).pop() for p in people]
    relations = [family.label(*pair) for pair in itertools.pairwise(people)]
    sentences = []
    for one, other in itertools.pairwise(zip(people, names, strict=True)):
        (a, name_a), (b, name_b) = (other, one) if generator.integers(2) else (one, other)  # from either side
        choices, his = BRIEF if brief else TEMPLATES[family.kinds[a, b]], "her" if family.female[a] else "his"
        template = choices[generator.integers(len(choices))]
        sentences.append(template.format(a=f"[{name_a}]", b=f"[{name_b}]", his=his, r=family.label(a, b)))
    order = range(len(sentences)) if in_order else generator.permutation(len(sentences))
    return Story(" ".join(sentences[i] for i in order), tuple(names), tuple(relations), label)
