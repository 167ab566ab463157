"""Every bug of the primer: its check fails on what is printed and passes on what is corrected."""

import pytest
import torch

from entp_papers.encoder_decoder import bugs, faulty
from entp_papers.encoder_decoder.bugs import (
    BUGS,
    LENGTH,
    Bug,
    bugs_study,
    drawn_attention,
    influence,
    tokens_mix,
)
from entp_papers.encoder_decoder.faulty import HEADS, across_heads, across_tokens, causally


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: f"{b.name} {b.check}")
def test_the_check_tells_the_two_apart(bug):
    printed, corrected = bug.find(bug.faulty), bug.find(bug.corrected)
    assert not printed.passed, printed.seen
    assert corrected.passed, corrected.seen


def test_every_item_of_the_list_has_a_check():
    assert {bug.name for bug in BUGS} == {f"B{i}" for i in range(1, 9)}


def test_a_computation_that_raises_does_not_pass():
    bug = Bug("B0", "", "", across_heads, across_heads, tokens_mix)

    def fails(*_):
        raise RuntimeError("the size of a (2) must match\nthe rest")

    found = bug.find(fails)
    assert not found.passed and found.seen == "RuntimeError: the size of a (2) must match"
    with pytest.raises(KeyError):  # what is no fault of the computation's is not hidden
        bug.find(lambda *_: {}["x"])


def test_the_printed_scores_are_between_heads():
    """The printed output of a token is that of the token alone, and of its heads together."""
    attention, x = drawn_attention(), torch.randn(1, 3, 16, generator=torch.Generator().manual_seed(4)).double()
    together = across_heads(attention, x)
    alone = torch.cat([across_heads(attention, x[:, t : t + 1]) for t in range(3)], 1)
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(together, across_tokens(attention, x))


def test_influence_is_a_matrix_by_output_and_token():
    moved = influence(causally(across_tokens))
    assert moved.shape == (LENGTH, LENGTH)
    assert ((moved > 1e-6) == (torch.ones(LENGTH, LENGTH).tril() == 1)).all()
    assert ((influence(across_heads) > 1e-6) == torch.eye(LENGTH, dtype=torch.bool)).all()


def test_the_printed_mask_hides_heads_where_it_fits():
    """With as many tokens as heads, the first head of each token sees itself alone."""
    attention, x = drawn_attention(), torch.randn(1, HEADS, 16, generator=torch.Generator().manual_seed(5)).double()
    masked, plain = causally(across_heads)(attention, x), across_heads(attention, x)
    assert masked.shape == plain.shape and not torch.allclose(masked, plain)


def test_replacements_have_the_printed_fault_at_the_printed_rate():
    """Three of twelve ids are special: about a quarter of what is drawn."""
    tokens = torch.zeros(400, 50, dtype=torch.long)
    found = faulty.drawn_from_all(tokens, 0)
    share = torch.isin(found, torch.tensor(faulty.MASKING.special)).double().mean()
    assert abs(float(share) - 0.25) < 4 * (0.25 * 0.75 / len(found)) ** 0.5


def test_the_study_has_a_row_for_each_and_no_verdict_of_its_own(monkeypatch):
    same = Bug("B0", "", "", across_tokens, across_tokens, tokens_mix)
    monkeypatch.setattr(bugs, "BUGS", (*BUGS[:2], same))
    metrics, rows = bugs_study()
    assert (metrics["bugs"], metrics["told_apart"]) == (3, 2) and rows["told_apart"] == [True, True, False]
    assert all(len(column) == 3 for column in rows.values())
    assert set(metrics["influence"]) == {"printed", "corrected", "causal"}
