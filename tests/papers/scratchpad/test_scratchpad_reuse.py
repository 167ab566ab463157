"""What may be kept, measured: everything, within a state, or the first layer alone."""

import pandas as pd
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.scratchpad.equivalence import PAD, random_example, random_model
from entp_papers.scratchpad.format import Example
from entp_papers.scratchpad.reuse import KINDS, changes, costs, keys_and_values, reuse_study, ways_of

TEXT = Example((5, 6), ((3, 4), (7, 8, 3), (4, 4), (6,)))


def table_of(kind, scheme="learned", layers=3):
    architecture, inductive = KINDS[kind]
    rows = changes(random_model(architecture, scheme, 1, n_layers=layers), PAD, TEXT, inductive)
    return {(row["event"], row["part"]): row["layers_kept"] for row in rows}


def test_a_decoder_keeps_everything():
    assert set(table_of("decoder").values()) == {3}


def test_entp_keeps_the_first_layer_alone():
    assert set(table_of("ENTP").values()) == {1}


@pytest.mark.parametrize("scheme", ["learned", "rotary"])
def test_an_inductive_decoder_keeps_all_but_a_state_that_has_ended(scheme):
    """Within a state everything, at its end the memory; the state itself moves, so that not even one layer stays."""
    found = table_of("inductive decoder", scheme)
    assert found.pop(("state", "present")) == 0
    assert set(found.values()) == {3}


@pytest.mark.parametrize("scheme", ["none", "alibi"])
def test_where_keys_have_no_position_the_first_layer_of_an_ended_state_stays(scheme):
    assert table_of("inductive decoder", scheme)["state", "present"] == 1


def test_inductive_entp_keeps_the_first_layer_of_what_does_not_move():
    found = table_of("inductive ENTP")
    assert found.pop(("state", "present")) == 0
    assert set(found.values()) == {1}


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_keys_and_values_are_the_models_own(architecture):
    """The last layer's values lead to the model's logits."""
    model = random_model(architecture, "alibi", 0, n_layers=1)
    tokens = (3, 4, 5, 0, 7)
    k, v = keys_and_values(model, tokens, full=False)[0].unbind(1)
    block, x = model.blocks[0], model.embed(torch.tensor([tokens]), None)
    q, own_k, own_v = block.attention.project(block.ln_1(x))
    assert torch.equal(own_k[0].transpose(0, 1), k) and torch.equal(own_v[0].transpose(0, 1), v)
    bias = model.positions.bias(torch.arange(5)[None], torch.arange(5)[None])[..., -1:, :]
    out = block.residual(x[:, -1:], block.attention(q[:, :, -1:], own_k, own_v, bias, False))
    wanted = torch.tensor([[False] * 4 + [True]])
    assert (model.head(model.ln_f(out))[0] - model(torch.tensor([tokens]), wanted)).abs().max() < 1e-12


def test_costs_lie_between_keeping_everything_and_nothing():
    example = random_example(torch.Generator().manual_seed(0), 6)
    rows = {}
    for architecture, inductive in KINDS.values():
        model = random_model(architecture, "learned", 0)
        for row in costs(model, PAD, example, ways_of(architecture, inductive)):
            rows[architecture, row["way"]] = row
    read = {key: row["tokens_read"] for key, row in rows.items()}
    assert read["decoder", "cached"] < read["decoder", "recomputed"] < read["entp", "trimmed"] < read["entp", "whole"]
    assert read["decoder", "recomputed"] <= 2 * read["decoder", "cached"]
    assert all((row["largest_error"] < 1e-9) == (way != "naive") for (_, way), row in rows.items())


def test_the_study_reports_both_tables():
    metrics, table = reuse_study("learned", states=4, longest=3, n_layers=2, texts=2)
    frame = pd.DataFrame(table)
    assert list(frame["kind"].unique()) == list(KINDS)
    assert metrics["ways"]["inductive decoder, doubled"]["largest_error"] < 1e-9
    assert metrics["ways"]["inductive decoder, naive"]["largest_error"] > 1e-3


def test_three_states_are_too_few():
    with pytest.raises(ConfigError, match="3 states"):
        changes(random_model("decoder", "learned", 0), PAD, Example((3,), ((3,), (4,), (5,))), True)
