"""Three losses beside their definitions, and labels of which none counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder.libraries import by_hand
from entp_papers.encoder_decoder.losses import (
    appended_mask,
    causal_loss,
    check_labels,
    entp_loss,
    full_states,
    masked_loss,
)
from entp_papers.encoder_decoder.masked_language import IGNORED, MaskedBatch

IGNORED_ALL = r"labels: all \d+ are -100, so none counts"


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 4), length=st.integers(2, 7), ignored=st.floats(0, 0.9))
def test_the_causal_loss_by_hand(seed, rows, length, ignored):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, length, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (rows, length), generator=generator)
    labels[torch.rand(rows, length, generator=generator) < ignored] = IGNORED
    if (labels[:, 1:] == IGNORED).all():
        with pytest.raises(ConfigError, match=IGNORED_ALL):
            causal_loss(logits, labels)
    else:
        assert abs(float(causal_loss(logits, labels)) - by_hand(logits, labels)) < 1e-12


def test_a_second_shift_is_another_loss():
    logits = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(5, (2, 6), generator=torch.Generator().manual_seed(1))
    assert abs(float(causal_loss(logits[:, :-1], labels[:, 1:]) - causal_loss(logits, labels))) > 1e-3


def test_entps_loss_is_the_causal_one_for_a_decoder_alone(small_model):
    labels = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    for name, equal in (("decoder", True), ("entp", False)):
        model, decoder = small_model(name), small_model("decoder")
        causal = causal_loss(decoder(labels).view(2, 5, -1), labels)
        assert torch.allclose(entp_loss(model, labels), causal) == equal


def test_all_ignored_is_said_before_any_compute(small_model, monkeypatch):
    model = small_model("entp")
    monkeypatch.setattr(model, "embed", lambda *_: pytest.fail("the model was run"))
    nothing = torch.full((2, 5), IGNORED)
    visible = torch.ones(2, 5, dtype=torch.bool)
    with pytest.raises(ConfigError, match=IGNORED_ALL) as first:
        masked_loss(model, MaskedBatch(torch.zeros(2, 5, dtype=torch.long), nothing, visible))
    with pytest.raises(ConfigError, match=IGNORED_ALL):
        entp_loss(model, nothing)
    assert "\n" not in str(first.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(torch.tensor([5]), "label 5: outside the vocabulary of 5"), (torch.tensor([-1, 2]), "label -1: outside")],
)
def test_labels_outside_the_vocabulary_are_named(labels, message):
    with pytest.raises(ConfigError, match=message):
        check_labels(labels, 5)


def test_one_token_has_no_next():
    with pytest.raises(ConfigError, match="texts of 1 token: a next token needs at least 2"):
        causal_loss(torch.zeros(2, 1, 5), torch.zeros(2, 1, dtype=torch.long))


def test_full_states_see_both_sides_and_causal_ones_do_not(small_model):
    model, tokens = small_model("entp"), torch.tensor([[3, 1, 4, 1]])
    other = torch.tensor([[3, 1, 4, 2]])
    moved = (full_states(model, tokens) - full_states(model, other)).abs().amax((0, 2))
    assert (moved > 1e-6).all()
    causal = (full_states(model, tokens, True) - full_states(model, other, True)).abs().amax((0, 2))
    assert (causal[:-1] == 0).all() and causal[-1] > 1e-6


def test_the_appended_mask_is_read_at_its_place(small_model):
    model, tokens = small_model("entp"), torch.tensor([[3, 1, 4]])
    wanted = torch.tensor([[False, False, False, True]])
    by_prefix = model(torch.tensor([[3, 1, 4, 10]]), wanted).log_softmax(-1)
    torch.testing.assert_close(appended_mask(model, tokens, 10), by_prefix)
