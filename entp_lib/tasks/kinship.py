"""The algebra of the 21 CLUTRR relations (§7.3).

A relation goes with a pair of people: "b is a's uncle". Relations compose along a chain, a's father's brother being
a's uncle, in families without half-siblings and second marriages. A label is a kind and the gender of b:

    >>> chain(["father", "brother"]), chain(["uncle", "daughter"]), chain(["son", "sister", "mother"])
    ('uncle', None, 'wife')

Letters: a and b people, k edges of a chain.
"""

import itertools
from collections.abc import Sequence

from entp_lib.validation import require

# Label for a man and for a woman, by kind. There is no brother-in-law among the 21.
KINDS = {
    "parent": ("father", "mother"),
    "child": ("son", "daughter"),
    "sibling": ("brother", "sister"),
    "spouse": ("husband", "wife"),
    "grandparent": ("grandfather", "grandmother"),
    "grandchild": ("grandson", "granddaughter"),
    "parent's sibling": ("uncle", "aunt"),
    "sibling's child": ("nephew", "niece"),
    "parent-in-law": ("father-in-law", "mother-in-law"),
    "child-in-law": ("son-in-law", "daughter-in-law"),
    "sibling-in-law": (None, "sister-in-law"),
}
KIND_OF = {label: kind for kind, pair in KINDS.items() for label in pair if label}
INVERSE = {
    "parent": "child",
    "sibling": "sibling",
    "spouse": "spouse",
    "grandparent": "grandchild",
    "parent's sibling": "sibling's child",
    "parent-in-law": "child-in-law",
    "sibling-in-law": "sibling-in-law",
}
INVERSE |= {inverse: kind for kind, inverse in INVERSE.items()}
# In the order of their numbers in the published data.
LABELS = (
    "aunt son-in-law grandfather brother sister father mother grandmother uncle daughter-in-law grandson "
    "granddaughter father-in-law mother-in-law nephew son daughter niece husband wife sister-in-law"
).split()

# The kind that two kinds compose to, where that is certain for three different people. Left out is what has several
# outcomes, as a grandparent's child, parent or not, and what leaves the 21 labels, as a parent's grandparent.
COMPOSED = {
    ("parent", "parent"): "grandparent",
    ("parent", "child"): "sibling",
    ("parent", "sibling"): "parent's sibling",
    ("parent", "spouse"): "parent",
    ("parent", "parent-in-law"): "grandparent",
    ("child", "parent"): "spouse",
    ("child", "child"): "grandchild",
    ("child", "sibling"): "child",
    ("child", "spouse"): "child-in-law",
    ("child", "sibling's child"): "grandchild",
    ("sibling", "parent"): "parent",
    ("sibling", "child"): "sibling's child",
    ("sibling", "sibling"): "sibling",
    ("sibling", "spouse"): "sibling-in-law",
    ("sibling", "grandparent"): "grandparent",
    ("sibling", "parent's sibling"): "parent's sibling",
    ("spouse", "parent"): "parent-in-law",
    ("spouse", "child"): "child",
    ("spouse", "sibling"): "sibling-in-law",
    ("spouse", "grandchild"): "grandchild",
    ("spouse", "child-in-law"): "child-in-law",
    ("spouse", "parent-in-law"): "parent",
    ("grandparent", "spouse"): "grandparent",
    ("grandchild", "sibling"): "grandchild",
    ("parent's sibling", "parent"): "grandparent",
    ("sibling's child", "sibling"): "sibling's child",
    ("parent-in-law", "spouse"): "parent-in-law",
    ("child-in-law", "spouse"): "child",
    ("child-in-law", "child"): "grandchild",
    ("child-in-law", "parent-in-law"): "spouse",
}


def chain(relations: Sequence[str]) -> str | None:
    """Relation of the last person of a chain to the first, by any order of composing that leads to a label, or None.

    Raises ConfigError for an empty chain and for what is none of the 21 labels.
    """
    require(len(relations) > 0, "relations: a chain has one edge at least")
    for label in relations:
        require(label in KIND_OF, f"relation {label!r}: must be one of {', '.join(LABELS)}")
    size = len(relations)
    found = {(i, i + 1): {KIND_OF[label]} for i, label in enumerate(relations)}
    for width, i in ((w, i) for w in range(2, size + 1) for i in range(size - w + 1)):
        end = i + width
        pairs = (pair for m in range(i + 1, end) for pair in itertools.product(found[i, m], found[m, end]))
        found[i, end] = {COMPOSED[pair] for pair in pairs if pair in COMPOSED}
    whole = found[0, size]
    return KINDS[whole.pop()][is_female(relations[-1])] if len(whole) == 1 else None


def is_female(label: str) -> bool:
    """Whether a relation's label is that of a woman."""
    return KINDS[KIND_OF[label]][1] == label
