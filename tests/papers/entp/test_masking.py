"""Causal masks made of longer queries and keys: what is exact, what random vectors cost, what does
better.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lab.studies import gaussians, seeded
from entp_papers.entp.expressivity.masking import (
    KINDS,
    augmentation,
    dimensions_needed,
    exact_basis,
    geometric_basis,
    longest_block,
    mask_error,
    random_basis,
    score_error,
)


def added_scores(basis):
    extra_q_nd, extra_k_nd = augmentation(basis, 1.0)
    return extra_q_nd @ extra_k_nd.T


@given(n=st.integers(1, 40), seed=st.integers(0, 99))
def test_exact_masks_reproduce_causal_attention(n, seed):
    causal = -torch.ones(n, n, dtype=torch.float64).triu(1)
    basis = exact_basis(n)
    assert torch.equal(added_scores(basis), causal)
    assert torch.equal(added_scores(basis[:, : max(1, n - 1)]), causal)
    rotated, _ = torch.linalg.qr(gaussians(seed, n, n))
    assert mask_error(rotated, 60.0, seed) < 1e-10
    assert score_error(rotated) < 1e-12


def test_compact_vectors_have_the_inner_products_of_random_unit_vectors():
    """Of 16 unit vectors in 40 dimensions the mean of <a, b> is 0, and that of <a, b>² 1/40."""
    bases = [random_basis(16, 40, seeded(seed)) for seed in range(400)]
    grams = torch.stack([basis @ basis.T for basis in bases])
    lengths = grams.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(lengths, torch.ones(400, 16, dtype=torch.float64))
    off = grams[:, *torch.triu_indices(16, 16, 1)]
    assert abs(off.mean()) < 0.003
    assert float(off.var()) == pytest.approx(1 / 40, rel=0.03)


@pytest.mark.parametrize(
    ("n", "d", "error"), [(1, 1, 0.1), (128, 1, 1e-4), (128, 5, 1e-9), (300, 7, 1e-6)]
)
def test_geometric_masks_reach_any_error_in_few_dimensions(n, d, error):
    basis = geometric_basis(n, d, error)
    assert basis.queries_nd.shape == (n, d)
    assert all(t.isfinite().all() for t in basis)
    assert score_error(basis) <= error * (1 + 1e-9)
    assert mask_error(basis, 40.0) < 100 * error + 1e-10


@pytest.mark.parametrize("error", [0.25, 1e-3])
def test_geometric_masks_run_out_of_range_where_it_is_said(error):
    limit = longest_block(error)
    assert score_error(geometric_basis(limit, 1, error)) <= error * (1 + 1e-9)
    with pytest.raises(ValueError, match=f"{limit + 1} positions"):
        geometric_basis(limit + 1, 1, error)
    assert [dimensions_needed("geometric", n, 1e-4) for n in (128, 256, 1024)] == [1, 2, 7]


@given(n=st.integers(2, 40), kind=st.sampled_from(["exact", "threshold", "geometric"]))
def test_the_dimensions_found_suffice_and_fewer_do_not(n, kind):
    d = dimensions_needed(kind, n, 0.25)
    basis_of = KINDS[kind]
    assert score_error(basis_of(n, d, 0.25, 0)) <= 0.25 * (1 + 1e-9)
    assert d == 1 or score_error(basis_of(n, d - 1, 0.25, 0)) > 0.25
