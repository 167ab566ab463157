"""Checks of the primer's bugs can fail; the corrected layers equal the libraries' own."""

import pandas as pd
import pytest
import torch
from conftest import seeded
from hypothesis import given
from hypothesis import strategies as st
from mistakes import named

from entp_lib.decoding import sampling_probabilities
from entp_papers.encoder_decoder import computing
from entp_papers.encoder_decoder.bugs import finding, tokens_mix
from entp_papers.encoder_decoder.libraries import collated, heads_study, parity_study
from entp_papers.encoder_decoder.parts import (
    IGNORED,
    Masking,
    attention_mask,
    causal_loss,
    mask_tokens,
    random_stack,
)


def test_a_computation_that_raises_does_not_pass():
    def fails(*_):
        raise RuntimeError("the size of a (2) must match\nthe rest")

    assert finding(tokens_mix, fails) == (False, "RuntimeError: the size of a (2) must match")
    with pytest.raises(KeyError):  # what is no fault of the computation's is not hidden
        finding(tokens_mix, lambda *_: {}["x"])


@given(length=st.integers(2, 9), at=st.integers(0, 8), causal=st.booleans())
def test_who_sees_a_changed_token(length, at, causal):
    at = at % length
    stack = random_stack(
        0, n_layers=2, n_heads=2, width=8, hidden=12, vocab_size=7, max_length=9, causal=causal
    )
    tokens = torch.arange(length)[None] % 7
    other = tokens.clone()
    other[:, at] = (other[:, at] + 1) % 7
    apart = (stack(tokens) - stack(other)).detach().abs()
    moved = apart.amax(-1)[0] > 1e-9
    assert moved.tolist() == [t >= at or not causal for t in range(length)]


EMPTY_ROW = torch.tensor([[True, True], [False, False]])

test_mistakes_are_named = named(
    (lambda: attention_mask(2, False, EMPTY_ROW), "token 0 of row 1"),
    (lambda: causal_loss(torch.zeros(2, 3, 5), torch.full((2, 3), IGNORED)), "labels: all 4"),
)


def test_parts_and_heads_equal_those_of_transformers():
    """Claims at smoke scale compare with PyTorch alone."""
    pytest.importorskip("transformers")
    metrics, _ = parity_study(["transformers"])
    assert metrics["largest_difference"] < 1e-6
    assert metrics["properties"]["permuted encoder without positions"] < 1e-12
    heads, rows = heads_study()
    assert rows["objective"] == ["NSP", "SOP", "RTD"]
    assert heads["largest_difference"] < 1e-6


@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.05, 0.15, 0.6]))
def test_selected_and_masked_tokens_are_the_collators(seed, share):
    """From one generator; what is drawn differs, since the collator also draws special tokens."""
    pytest.importorskip("transformers")
    masking = Masking(50, 49, (47, 48, 49), share)
    tokens = torch.randint(50, (6, 20), generator=seeded(seed))
    ours = mask_tokens(tokens, masking, seeded(seed), padding=48)
    inputs, labels = collated(tokens, masking, seeded(seed))
    assert torch.equal(labels, ours.labels_BT)
    apart = inputs != ours.inputs_BT
    assert not (apart & (ours.inputs_BT == 49)).any()
    assert not (apart & ~ours.selected_BT).any()


# Losses, sampling, caches, costs, order and coordinates as studies: all right, and each able to be
# wrong.


def test_a_way_of_choosing_that_does_nothing_is_told(monkeypatch):
    plain = sampling_probabilities
    monkeypatch.setattr(
        computing, "sampling_probabilities", lambda x, temperature=1.0, **_: plain(x, temperature)
    )
    rows = pd.DataFrame(computing.sampling_study(500, 2)[1])
    wrong = rows.loc[~rows["right"], "check"]
    assert set(wrong.str.partition(":")[0]) == {"top-k", "top-p"}


def test_entp_without_positions_does_not_know_the_order_of_the_past():
    rows = pd.DataFrame(computing.permutations_study([1, 2], 7, 4)[1])
    unordered = rows["positions"].eq("none") & (
        rows["architecture"].eq("entp") | rows["n_layers"].eq(1)
    )
    assert rows.loc[unordered, "moved"].max() < 1e-12
    assert rows.loc[~unordered, "moved"].min() > 1e-3
