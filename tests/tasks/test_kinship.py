"""Kinship: the algebra agrees with family trees, and a story's answer follows from its sentences alone."""

import itertools
import re
from collections import Counter, defaultdict

import numpy as np
import pytest

from entp_lib.tasks import family_stories, kinship
from entp_lib.tasks.family_stories import TEMPLATES, Family
from entp_lib.tasks.kinship import COMPOSED, INVERSE, KIND_OF, KINDS
from entp_lib.validation import ConfigError


def take(count, **options):
    return list(itertools.islice(family_stories.stories(**options), count))


@pytest.fixture(scope="module")
def families():
    generator = np.random.default_rng(7)
    return [Family(generator) for _ in range(25)]


@pytest.fixture(scope="module")
def written():
    return take(567, seed=3, edges=range(2, 11))


def test_the_algebra_is_that_of_family_trees(families):
    """For every two kinds: a composition where all triples of people agree on a label, and none where they differ."""
    seen = defaultdict(set)
    for family in families:
        for (a, b), first in family.kinds.items():
            assert a != b and family.kinds[b, a] == INVERSE[first]
            for c in range(len(family.female)):
                if c not in (a, b) and (b, c) in family.kinds:
                    seen[first, family.kinds[b, c]].add(family.kinds.get((a, c)))
        for person, (parents, spouse) in enumerate(zip(family.parents, family.spouse, strict=True)):
            if spouse is not None:
                assert family.spouse[spouse] == person and family.female[spouse] != family.female[person]
            if parents is not None:
                assert family.spouse[parents[0]] == parents[1]
    certain = {pair: kinds.copy().pop() for pair, kinds in seen.items() if len(kinds) == 1}
    assert {pair: kind for pair, kind in certain.items() if kind} == COMPOSED


@pytest.mark.parametrize(
    ("relations", "answer"),
    [
        (["father", "brother"], "uncle"),
        (["mother", "son"], "brother"),
        (["wife", "mother"], "mother-in-law"),
        (["wife", "sister"], "sister-in-law"),
        (["wife", "brother"], None),
        (["grandmother", "son"], None),
        (["father", "father", "father"], None),
        (["mother", "mother", "husband"], "grandfather"),
        (["son", "sister", "mother"], "wife"),
        (["niece"], "niece"),
    ],
)
def test_chains_in_the_words_of_a_dictionary(relations, answer):
    assert kinship.chain(relations) == answer


def test_the_algebra_agrees_with_the_tree_along_every_path(families):
    """Random paths through random trees: what the algebra makes of the edges is what the ends are to each other."""
    generator, lengths = np.random.default_rng(1), Counter()
    for family in families:
        for a, b in itertools.islice(family.kinds, 0, None, 17):
            people = family.path(a, b, int(generator.integers(2, 11)), generator)
            if people is None:
                continue
            edges = list(itertools.pairwise(people))
            assert people[0] == a and people[-1] == b and len(set(people)) == len(people)
            labels = [family.label(*edge) for edge in edges]
            if None not in labels and family.label(a, b):
                assert kinship.chain(labels) == family.label(a, b)
                lengths[len(edges)] += 1
    assert sum(lengths.values()) > 150 and max(lengths) == 10


def read_back(sentence, templates):
    """(a, what b is to a, b, whether a is a woman) of a sentence."""
    for kind, choices in templates.items():
        for template in choices:
            words = {"a": r"\[(?P<a>\w+)\]", "b": r"\[(?P<b>\w+)\]", "his": "(?P<his>his|her)", "r": r"(?P<r>[\w-]+)"}
            pattern = re.sub(r"\\{(\w+)\\}", lambda m, words=words: words[m[1]], re.escape(template))
            match = re.fullmatch(pattern, sentence)
            if match and KIND_OF.get(match["r"]) == kind:
                return match["a"], match["r"], match["b"], match["his"] == "her"
    raise AssertionError(sentence)


@pytest.mark.parametrize("brief", [False, True])
def test_the_answer_follows_from_the_sentences(written, brief):
    """Read back without names or order, turned round where a sentence tells an edge from its other end."""
    templates = dict.fromkeys(TEMPLATES, family_stories.BRIEF) if brief else TEMPLATES
    for story in take(189, seed=3, edges=range(2, 11), brief=True) if brief else written:
        edges, woman = {}, {}
        for sentence in re.split(r"(?<=\.) ", story.text):
            a, label, b, a_is_woman = read_back(sentence, templates)
            woman |= {a: a_is_woman, b: kinship.is_female(label)}
            edges[a, b] = KIND_OF[label]
            edges[b, a] = INVERSE[KIND_OF[label]]
        relations = [KINDS[edges[pair]][woman[pair[1]]] for pair in itertools.pairwise(story.names)]
        assert tuple(relations) == story.relations
        assert kinship.chain(relations) == story.answer
        assert len(edges) == 2 * len(relations) and set(woman) == set(story.names)


def test_stories_are_balanced_different_and_the_same_for_a_seed(written):
    counts = Counter((s.answer, len(s.relations)) for s in written)
    assert len(counts) == 21 * 9 and set(counts.values()) == {3}
    assert len({s.text for s in written}) == len(written)
    other = take(200, seed=3, edges=range(2, 11), avoid={s.text for s in written})
    assert len(other) == 200 and not {s.text for s in other} & {s.text for s in written}
    assert take(50, seed=3, edges=range(2, 11)) == written[:50] != take(50, seed=4, edges=range(2, 11))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"edges": [1]}, "edges"),
        ({"edges": [11]}, "edges"),
        ({"edges": []}, "edges"),
        ({"labels": ["cousin"]}, "label 'cousin'"),
        ({"labels": []}, "labels"),
    ],
)
def test_bad_parameters_are_named(change, field):
    with pytest.raises(ConfigError, match=field):
        take(3, **{"seed": 0, **change})
