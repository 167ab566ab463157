"""Causal masks made of longer queries and keys: what is exact, what random vectors cost, what does
better.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from entp_papers.entp.expressivity import masking
from entp_papers.entp.expressivity.masking import (
    augmentation,
    dimensions_needed,
    dyadic_basis,
    exact_basis,
    geometric_basis,
    mask_error,
    random_basis,
    score_error,
    threshold_basis,
)


def normalised_mask(n):
    return -torch.ones(n, n, dtype=torch.float64).triu(1)


def added_scores(basis, constant=1.0):
    extra_q_nd, extra_k_nd = augmentation(basis, constant)
    return extra_q_nd @ extra_k_nd.T


def test_the_papers_example():
    """n = 4: queries get the identity, keys (0 0 0 0), (1 0 0 0), (1 1 0 0), (1 1 1 0) times the
    constant.
    """
    extra_q_nd, extra_k_nd = augmentation(exact_basis(4), 7.0)
    assert extra_q_nd.tolist() == torch.eye(4).tolist()
    assert extra_k_nd.tolist() == (-7 * torch.ones(4, 4).tril(-1)).tolist()


@given(n=st.integers(1, 40), constant=st.sampled_from([60.0, 1e3, 1e6]), seed=st.integers(0, 99))
def test_exact_masks_reproduce_causal_attention(n, constant, seed):
    rotated = torch.linalg.qr(
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    )[0]
    for basis in (exact_basis(n), exact_basis(n)[:, : max(1, n - 1)]):
        assert torch.equal(added_scores(basis), normalised_mask(n))
        assert mask_error(basis, constant, seed) < 1e-10
    assert mask_error(rotated, 60.0, seed) < 1e-10
    assert score_error(rotated) < 1e-12


def output_bound(error, constant, n, score_range):
    """Bound on the output error for values in [-1, 1] and scores q·k within ``score_range`` of each
    other.

    Visible scores off by C e move at most tanh(C e / 2) of the weight; hidden keys keep at most
    n exp(score_range - C (1 - 2 e)) of it.
    """
    leak = n * math.exp(min(0.0, score_range - constant * (1 - 2 * error)))
    return 2 * min(1.0, math.tanh(constant * error / 2) + leak)


@given(
    n=st.integers(2, 30),
    d=st.integers(8, 400),
    constant=st.sampled_from([1.0, 10.0, 40.0]),
    seed=st.integers(0, 99),
)
def test_the_output_error_is_bounded_by_the_score_error(n, d, constant, seed):
    for basis in (
        random_basis(n, d, torch.Generator().manual_seed(seed)),
        dyadic_basis(n, d, torch.Generator().manual_seed(seed)),
        threshold_basis(n, min(n, d)),
        geometric_basis(n, 1, 1e-3),
    ):
        bound = output_bound(score_error(basis), constant, n, score_range=16)
        assert mask_error(basis, constant, seed) <= bound + 1e-12


def test_compact_vectors_have_the_same_inner_products_in_distribution():
    """Of 16 unit vectors in 40 dimensions: the mean of <a, b>² is 1/40, and their spread across
    draws agrees.
    """
    spread = {}
    for compact in (False, True):
        plain = (
            torch.randn(16, 40, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            for seed in range(400)
        )
        bases = (
            [F.normalize(a) for a in plain]
            if not compact
            else [random_basis(16, 40, torch.Generator().manual_seed(s)) for s in range(400)]
        )
        assert {b.shape[1] for b in bases} == {16 if compact else 40}
        grams = torch.stack([b @ b.T for b in bases])
        torch.testing.assert_close(
            grams.diagonal(dim1=1, dim2=2), torch.ones(400, 16, dtype=torch.float64)
        )
        off = grams[:, *torch.triu_indices(16, 16, 1)]
        assert abs(off.mean()) < 0.003
        assert off.square().mean().item() == pytest.approx(1 / 40, rel=0.03)
        spread[compact] = torch.tensor([score_error(b) for b in bases]).quantile(
            torch.tensor([0.1, 0.5, 0.9])
        )
    torch.testing.assert_close(spread[True], spread[False], rtol=0.08, atol=0)


def test_random_errors_grow_with_the_number_of_summed_vectors():
    """From 64 to 512 tokens at d = 4096 the paper's sums lose more than the root of 8 in precision,
    dyadic ones 2.
    """

    def error(make, n):
        return sum(
            score_error(make(n, 4096, torch.Generator().manual_seed(seed))) for seed in range(4)
        )

    assert error(random_basis, 512) / error(random_basis, 64) > math.sqrt(8)
    assert error(dyadic_basis, 512) / error(dyadic_basis, 64) < 2.3


@pytest.mark.parametrize(
    "n, d, error", [(1, 1, 0.1), (60, 1, 1e-4), (128, 1, 1e-4), (128, 5, 1e-9), (300, 7, 1e-6)]
)
def test_geometric_masks_reach_any_error_in_few_dimensions(n, d, error):
    basis = geometric_basis(n, d, error)
    assert basis.queries_nd.shape == (n, d) and all(t.isfinite().all() for t in basis)
    assert score_error(basis) <= error * (1 + 1e-9)
    assert mask_error(basis, 40.0) < 100 * error + 1e-10


@pytest.mark.parametrize("error", [0.25, 1e-3])
def test_geometric_masks_run_out_of_range_where_it_is_said(error):
    limit = masking.longest_block(error)
    assert score_error(geometric_basis(limit, 1, error)) <= error * (1 + 1e-9)
    with pytest.raises(ValueError, match=f"{limit + 1} positions"):
        geometric_basis(limit + 1, 1, error)
    assert [dimensions_needed("geometric", n, 1e-4) for n in (128, 256, 1024)] == [1, 2, 7]


@given(n=st.integers(2, 40), kind=st.sampled_from(["exact", "threshold", "geometric"]))
def test_the_dimensions_found_suffice_and_fewer_do_not(n, kind):
    d = dimensions_needed(kind, n, 0.25)
    assert score_error(masking.KINDS[kind](n, d, 0.25, 0)) <= 0.25 * (1 + 1e-9)
    if d > 1:
        assert score_error(masking.KINDS[kind](n, d - 1, 0.25, 0)) > 0.25
