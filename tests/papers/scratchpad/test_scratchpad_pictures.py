"""Pictures show the rows and masks that training uses."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from entp_papers.scratchpad import pictures
from entp_papers.scratchpad.equivalence import PAD
from entp_papers.scratchpad.experiment import ARMS
from entp_papers.scratchpad.format import Example
from entp_papers.scratchpad.rows import duplicate_states, ordinary

SYMBOLS = (":", "#", ".", "a", "b", "c", "d")
EXAMPLE = Example((3,), ((4,), (5,), (6,)))


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_what_is_seen_is_memory_and_own_group():
    """a : b # b # c # c # d, groups 0 0 1 1 2 2 2 2 3 3 3."""
    seen_TT = pictures.seen_by(duplicate_states(PAD, EXAMPLE))
    assert seen_TT.shape == (11, 11) and not np.triu(seen_TT, 1).any()
    assert seen_TT[10].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2]
    assert seen_TT[4].tolist() == [1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    whole = pictures.seen_by(ordinary(PAD, EXAMPLE))
    assert (whole == np.tri(len(whole))).all()


def test_a_row_is_drawn_with_tokens_positions_and_targets(ax):
    row = duplicate_states(PAD, EXAMPLE)
    pictures.draw_row(ax, row, SYMBOLS)
    labels = ax.get_xticklabels()
    assert [label.get_text() for label in labels[:5]] == ["a\n0", ":\n1", "b\n2", "#\n3", "b\n2"]
    learned = [label.get_color() == pictures.COUNTED for label in labels]
    assert learned == list(row.counted[:-1]) and sum(learned) == 5
    assert (np.asarray(ax.images[0].get_array()) == pictures.seen_by(row)).all()


@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_a_window_leaks_what_the_paper_says_and_groups_nothing(tokens):
    one = pictures.reach_by_window(tokens, 4, 1)
    first = one[3 * tokens]  # the first token of the last state
    assert (first[tokens : 2 * tokens] == 2).sum() == tokens - 1 and first[tokens] == 0
    assert one[3 * tokens - 1][tokens] == 1  # the last token of a state sees the first one of the state before
    assert (pictures.reach_by_window(tokens, 4, 3) == 2).sum() > (one == 2).sum()
    for layers in (1, 3):
        assert not (pictures.reach_by_groups(tokens, 4, layers) == 2).any()


def test_reach_is_drawn(ax):
    pictures.draw_reach(ax, pictures.reach_by_window(2, 4, 2), 2)
    assert len(ax.lines) == 6 and ax.images[0].get_array().shape == (8, 8)


def test_every_arm_has_a_look_of_its_own(ax):
    line = pd.DataFrame({"size": [2, 4], "mean": [0.9, 0.5], "low": [0.8, -0.1], "high": [1.1, 0.7]})
    for arm in ARMS:
        pictures.draw_arm(ax, arm, line, "size")
    looks = {(drawn.get_color(), drawn.get_linestyle()) for drawn in ax.lines}
    assert len(looks) == len(ARMS) == len(ax.lines)
    bands = {(tuple(band.get_facecolor()[0]), band.get_hatch()) for band in ax.collections}
    assert len(bands) == len(ARMS) and set(pictures.LABELS) <= set(ARMS)
    assert list(ax.lines[0].get_ydata()) == [0.9, 0.5]
    bands = np.concatenate([band.get_paths()[0].vertices for band in ax.collections])
    assert bands[:, 1].min() >= 0 and bands[:, 1].max() <= 1
