"""Masked batches, and three losses against their definitions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mistakes import named

from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.computing import by_hand
from entp_papers.encoder_decoder.losses import (
    IGNORED,
    Masking,
    causal_loss,
    check_labels,
    entp_loss,
    full_states,
    mask_tokens,
)

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


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 4), length=st.integers(2, 7), ignored=st.floats(0, 0.9))
def test_the_causal_loss_by_hand(seed, rows, length, ignored):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, length, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (rows, length), generator=generator)
    labels[torch.rand(rows, length, generator=generator) < ignored] = IGNORED
    if (labels[:, 1:] == IGNORED).all():
        with pytest.raises(ConfigError, match="labels"):
            causal_loss(logits, labels)
    else:
        assert abs(float(causal_loss(logits, labels)) - by_hand(logits, labels)) < 1e-12


def test_entps_loss_is_the_causal_one_for_a_decoder_alone(small_model):
    labels = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    logits = small_model("decoder")(labels).view(2, 5, -1).detach()
    causal = causal_loss(logits, labels)
    assert torch.allclose(entp_loss(small_model("decoder"), labels), causal)
    assert not torch.allclose(entp_loss(small_model("entp"), labels), causal)
    assert abs(float(causal_loss(logits[:, :-1], labels[:, 1:]) - causal)) > 1e-3  # a second shift is another loss


def test_full_states_see_both_sides_and_causal_ones_do_not(small_model):
    model, tokens, other = small_model("entp"), torch.tensor([[3, 1, 4, 1]]), torch.tensor([[3, 1, 4, 2]])
    moved = (full_states(model, tokens) - full_states(model, other)).abs().amax((0, 2))
    assert (moved > 1e-6).all()
    causal = (full_states(model, tokens, True) - full_states(model, other, True)).abs().amax((0, 2))
    assert (causal[:-1] == 0).all() and causal[-1] > 1e-6


def masking(**change):
    return Masking(**{**dict(vocab_size=20, mask_token=19, special=(17, 18, 19)), **change})


test_mistakes_are_named = named(
    (lambda: masking(mask_token=20, special=(20,)), "token 20"),
    (lambda: masking(mask_token=3), "mask_token = 3"),
    (lambda: masking(share=1.0), "share = 1.0"),
    (lambda: masking(masked=0.8, drawn=0.3), "masked = 0.8, drawn = 0.3"),
    (lambda: masking(special=tuple(range(20))), "special"),
    (lambda: mask_tokens(torch.tensor([[1, 20]]), MASKING, torch.Generator()), "token id 20"),
    (lambda: mask_tokens(torch.tensor([[1, 2]]), MASKING, torch.Generator(), 3), "padding = 3"),
    (lambda: check_labels(torch.tensor([5]), 5), "label 5"),
    (lambda: causal_loss(torch.zeros(2, 1, 5), torch.zeros(2, 1, dtype=torch.long)), "1 token"),
)
