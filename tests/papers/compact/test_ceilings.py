"""Ceilings against every function there is, and the law that table 3 follows."""

import itertools

import numpy as np
import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import ceilings


def test_no_function_of_the_key_does_better():
    keys, answers = list("aabbbcc"), [0, 1, 1, 1, 0, 2, 2]
    best = max(
        sum(dict(zip("abc", values, strict=True))[k] == a for k, a in zip(keys, answers, strict=True)) / 7
        for values in itertools.product(range(3), repeat=3)
    )
    assert ceilings.ceiling(keys, answers) == best


def test_ceiling_is_one_where_the_key_tells():
    assert ceilings.ceiling("abc", "xyx") == 1


def test_walks_with_a_common_beginning():
    tokens = np.array([[1, 9, 2, 9, 3], [1, 9, 4, 0, 0], [5, 9, 2, 9, 4]])
    assert ceilings.walk_ceiling(tokens) == 4 / 5  # only the second node after (1, 9) is in doubt


def test_expected_ceiling_is_that_of_random_triplets():
    generator = np.random.default_rng(0)
    sizes, found = (200, 1000), []
    for size in sizes:
        draws = [len(np.unique(generator.integers(2000, size=size))) / size for _ in range(50)]
        found.append(np.mean(draws))
    assert ceilings.expected_ceiling(2000, sizes) == pytest.approx(found, abs=5e-3)


def test_what_the_paper_recalls_lies_below_the_ceiling_of_a_hidden_relation_and_near_it():
    published = [*ceilings.TABLE_3.items(), *ceilings.ONE_LAYER.items()]
    sizes, recalled = np.array(published, dtype=float).T
    above = ceilings.expected_ceiling(ceilings.fitted_concepts(), sizes) - recalled / sizes
    assert above.min() == pytest.approx(0, abs=1e-9) and above.max() < 0.03


def test_fit_recovers_the_number_of_concepts():
    table = [(n, n * float(ceilings.expected_ceiling(5000, n))) for n in (500, 1000, 3000)]
    assert ceilings.fitted_concepts(table) == pytest.approx(5000, rel=0.02)


def test_bad_input():
    with pytest.raises(ConfigError, match="no items"):
        ceilings.ceiling([], [])
