"""The three obstacles of appendix C.3, by index arithmetic and receptive fields."""

import numpy as np
import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.scratchpad.format import Example, Scratchpad
from entp_papers.scratchpad.relative import (
    distance_to_question,
    distances_wanted,
    inductive_mask,
    place,
    receptive_field,
    relative_study,
    states_seen,
    window_mask,
)
from entp_papers.scratchpad.rows import duplicate_states, group_mask

SIZES = range(2, 7)


@pytest.mark.parametrize("tokens", SIZES)
def test_the_last_token_sees_the_first_of_the_state_before_at_twice_the_length_less_one(tokens):
    assert place(5, tokens, tokens) - place(4, 1, tokens) == 2 * tokens - 1
    assert max(distances_wanted(tokens)) == 2 * tokens - 1


@pytest.mark.parametrize("tokens", SIZES)
def test_so_the_first_token_sees_all_of_an_older_state_but_its_first_token(tokens):
    seen = states_seen(tokens, 5, 1)
    assert seen == {3: list(range(2, tokens + 1)), 4: list(range(1, tokens + 1)), 5: [1]}


@pytest.mark.parametrize("tokens", SIZES)
def test_the_question_moves_away_unless_positions_are_re_indexed(tokens):
    plain = [distance_to_question(i, tokens, False) for i in range(1, 7)]
    inductive = [distance_to_question(i, tokens, True) for i in range(1, 7)]
    assert np.diff(plain).tolist() == [tokens] * 5
    assert len(set(inductive[1:])) == 1


@pytest.mark.parametrize(("window", "layers"), [(1, 4), (3, 2), (4, 3)])
def test_windows_add_up_over_layers(window, layers):
    field = receptive_field(window_mask(30, window), layers)
    assert (field == window_mask(30, window * layers)).all()


def test_the_inductive_field_does_not_grow_with_layers():
    mask = inductive_mask(3, 4, 5)
    assert (receptive_field(mask, 6) == mask).all()


def test_the_mask_is_that_of_the_rows():
    states = tuple((3,) * 3 for _ in range(4))
    row = duplicate_states(Scratchpad(0, 1, 2), Example((5, 6), states))
    found = group_mask(torch.tensor([row.groups]))[0].tril().numpy()
    assert (found == inductive_mask(3, 4, 4)).all()


def test_the_study_reports_all_three():
    metrics, table = relative_study(6, 5, 3)
    assert metrics == {
        "grows": True,
        "reach_is_window_times_layers": True,
        "leaks_all_but_one": True,
        "inductive_leaks": 0,
        "layers": 3,
    }
    assert table["tokens"] == list(SIZES)


def test_bad_input_is_named():
    with pytest.raises(ConfigError, match="token = 5: must be 1 to 4"):
        place(1, 5, 4)
    with pytest.raises(ConfigError, match="layers = 0"):
        receptive_field(window_mask(3, 1), 0)
