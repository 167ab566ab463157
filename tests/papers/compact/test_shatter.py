"""The negative binomial fit, on numbers drawn from one."""

import numpy as np
import pytest
from scipy import stats

from entp_lib.validation import ConfigError
from entp_papers.compact import shatter


def test_finds_the_numbers_it_was_drawn_from():
    epochs = stats.nbinom(6, 0.1).rvs(4000, random_state=0)
    found = shatter.fit(epochs.tolist())
    assert found.r == pytest.approx(6, rel=0.1) and found.p == pytest.approx(0.1, rel=0.1)
    assert found.p_value > 0.01 and found.log_likelihood > found.poisson_log_likelihood
    r, p = shatter.by_moments(epochs)
    assert r == pytest.approx(6, rel=0.2) and p == pytest.approx(0.1, rel=0.2)


def test_rejects_what_is_none():
    two_humps = np.concatenate([np.full(300, 10), np.full(300, 100)]) + np.arange(600) % 3
    assert shatter.fit(two_humps.tolist()).p_value < 1e-6


def test_runs_that_were_stopped_count_as_later_than_that():
    epochs = stats.nbinom(3, 0.02).rvs(2000, random_state=1)
    there, limit = epochs[epochs <= 200], 200
    whole = shatter.fit(there.tolist(), unfinished=2000 - len(there), limit=limit)
    assert whole.r == pytest.approx(3, rel=0.15) and whole.p_value > 0.01
    assert shatter.fit(there.tolist()).r > 1.3 * whole.r  # without them it is another distribution
    stuck = stats.nbinom(20, 0.2).rvs(500, random_state=2)
    assert shatter.fit(stuck.tolist()).p_value > 0.01 > shatter.fit(stuck.tolist(), unfinished=100, limit=800).p_value
    with pytest.raises(ConfigError, match="3 unfinished runs: after which epoch"):
        shatter.fit(there.tolist(), unfinished=3)


def test_the_paper_s_formula_is_the_library_s():
    from math import comb

    for k in (0, 3, 11):
        assert stats.nbinom.pmf(k, 4, 0.3) == pytest.approx(comb(k + 3, k) * 0.7**k * 0.3**4)


def test_bad_input():
    with pytest.raises(ConfigError, match="20 runs"):
        shatter.fit(list(range(20)))
    with pytest.raises(ConfigError, match="variance"):
        shatter.by_moments([5, 5, 5, 5])


def test_density_is_that_of_the_formula_and_sums_to_one():
    found = shatter.density(range(2000), 2.5, 0.05)
    assert found.sum() == pytest.approx(1) and found[0] == pytest.approx(0.05**2.5)
