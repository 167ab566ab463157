"""Masked batches: what is selected, what is put in its place, and parameters that cannot be."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.masked_language import IGNORED, Masking, mask_tokens, rates

MASKING = Masking(20, 19, (17, 18, 19))


@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.01, 0.99),
    masked=st.floats(0, 1),
    drawn=st.floats(0, 1),
    special=st.integers(1, 18),
)
def test_labels_are_the_originals_and_the_rest_stays(seed, share, masked, drawn, special):
    ids = tuple(range(20 - special, 20))
    masking = Masking(20, 19, ids, share, masked, drawn * (1 - masked))
    tokens = torch.randint(20, (4, 30), generator=torch.Generator().manual_seed(seed))
    before = tokens.clone()
    batch = mask_tokens(tokens, masking, torch.Generator().manual_seed(seed), padding=19)
    selected = batch.selected_BT
    assert torch.equal(tokens, before)  # inputs are left alone
    assert torch.equal(batch.labels_BT[selected], tokens[selected]) and (batch.labels_BT[~selected] == IGNORED).all()
    assert torch.equal(batch.inputs_BT[~selected], tokens[~selected])
    assert not (selected & torch.isin(tokens, torch.tensor(ids))).any()
    assert not torch.isin(batch.inputs_BT[selected], torch.tensor(ids[:-1])).any()
    assert torch.equal(batch.visible_BT, tokens != 19)


@pytest.mark.parametrize(("masked", "drawn"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_shares_at_their_ends(masked, drawn):
    tokens = torch.randint(17, (50, 40), generator=torch.Generator().manual_seed(0))
    masking = Masking(20, 19, (17, 18, 19), 0.5, masked, drawn)
    found = rates(tokens, mask_tokens(tokens, masking, torch.Generator().manual_seed(1)), masking)
    assert found["masked"]["share"] == masked
    assert abs(found["drawn"]["share"] - drawn * 16 / 17) < 0.05
    assert sum(found[name]["count"] for name in ("masked", "drawn", "kept")) == found["kept"]["of"]


def test_rates_notice_a_wrong_share():
    tokens = torch.randint(17, (200, 100), generator=torch.Generator().manual_seed(0))
    batch = mask_tokens(tokens, Masking(20, 19, (17, 18, 19), 0.2), torch.Generator().manual_seed(1))
    assert abs(rates(tokens, batch, MASKING)["selected"]["sigmas"]) > 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(mask_token=20, special=(20,)), "token 20: outside the vocabulary of 20"),
        (dict(mask_token=3), "mask_token = 3: must be among special"),
        (dict(share=0.0), "share = 0.0: must be between 0 and 1"),
        (dict(share=1.0), "share = 1.0"),
        (dict(masked=0.8, drawn=0.3), "a sum of at most 1"),
        (dict(special=tuple(range(20))), "no ordinary token is left"),
    ],
)
def test_parameters_that_cannot_be_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        Masking(**{**dict(vocab_size=20, mask_token=19, special=(17, 18, 19)), **change})


@pytest.mark.parametrize(
    ("tokens", "padding", "message"),
    [
        (torch.tensor([[1, 20]]), None, "token id 20: outside the vocabulary of 20"),
        (torch.tensor([[-100, 2]]), None, "token id -100"),
        (torch.zeros(0, 4, dtype=torch.long), None, "the batch is empty"),
        (torch.tensor([[1, 2]]), 3, "padding = 3: must be among special"),
    ],
)
def test_texts_that_cannot_be_are_named(tokens, padding, message):
    with pytest.raises(ConfigError, match=message):
        mask_tokens(tokens, MASKING, torch.Generator(), padding)
