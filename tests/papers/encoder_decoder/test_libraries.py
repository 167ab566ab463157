"""Parts beside PyTorch's and transformers', and the collator as an oracle of masked batches."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.validation import ConfigError
from entp_papers.encoder_decoder import libraries
from entp_papers.encoder_decoder.libraries import bert_pair, collated, masking_study, parity_study, texts
from entp_papers.encoder_decoder.masked_language import Masking, mask_tokens


@pytest.mark.parametrize("library", libraries.LIBRARIES)
def test_every_part_equals_its_library(library):
    if library == "transformers":
        pytest.importorskip("transformers")
    metrics, rows = parity_study([library])
    assert metrics["largest_difference"] < 1e-6 and len(rows["part"]) == len(libraries.PARTS[library])
    assert metrics["properties"]["permuted encoder without positions"] < 1e-12
    assert metrics["properties"]["decoder, a later token changed"] == 0
    assert metrics["properties"]["encoder, a later token changed"] > 1e-3


def test_the_comparison_can_fail():
    """A single weight that differs shows."""
    pytest.importorskip("transformers")
    theirs, ours = bert_pair()
    tokens, _ = texts()
    with torch.no_grad():
        ours.layers[1].fc_in.weight[0, 0] += 0.1
        assert (ours(tokens) - theirs(tokens).last_hidden_state).abs().max() > 1e-6


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="transformers is not installed"):
        parity_study(["transformers"])
    assert parity_study(["torch"])[0]["largest_difference"] < 1e-6
    with pytest.raises(ConfigError, match="library = 'torhc'.*did you mean 'torch'"):
        parity_study(["torhc"])


@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.05, 0.15, 0.6]))
def test_selected_and_masked_tokens_are_the_collators(seed, share):
    """From one generator; what is drawn differs, since the collator also draws special tokens."""
    pytest.importorskip("transformers")
    masking = Masking(50, 49, (47, 48, 49), share)
    tokens = torch.randint(50, (6, 20), generator=torch.Generator().manual_seed(seed))
    ours = mask_tokens(tokens, masking, torch.Generator().manual_seed(seed), padding=48)
    inputs, labels = collated(tokens, masking, torch.Generator().manual_seed(seed))
    assert torch.equal(labels, ours.labels_BT)
    drawn = ours.selected_BT & (ours.inputs_BT != tokens) & (ours.inputs_BT != 49)
    assert torch.equal(inputs[~drawn & (inputs == ours.inputs_BT)], ours.inputs_BT[~drawn & (inputs == ours.inputs_BT)])
    apart = inputs != ours.inputs_BT
    assert not (apart & (ours.inputs_BT == 49)).any() and not (apart & ~ours.selected_BT).any()


def test_rates_and_what_must_not_happen():
    pytest.importorskip("transformers")
    metrics, rows = masking_study(1_000_000, ["transformers"])
    assert metrics["largest_sigma"] < 4 and max(map(abs, rows["sigmas"])) < 4
    assert metrics["same_selected"]
    assert metrics["special_drawn"] == 0 < metrics["special_drawn_by_transformers"]
    for name in ("special_selected", "unselected_changed", "labels_not_the_original", "padding_seen"):
        assert metrics[name] == 0
