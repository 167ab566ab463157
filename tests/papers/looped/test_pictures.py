"""Pictures of a run show its tokens, words and attention."""

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from entp_papers.looped import pictures
from entp_papers.looped.studies.errata import multiply_study

METRICS, CURVES = multiply_study(3, 2)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_state_is_drawn_a_token_per_column(ax):
    pictures.draw_state(ax, METRICS)
    assert np.array_equal(np.asarray(ax.collections[0].get_array()), np.array(METRICS["state"]).T)
    labels = [t.get_text() for t in ax.texts]
    assert {"command", "word", "counter", "position", "scratchpad"} == set(labels)  # all others are 0 between passes
    key = ax.get_legend()
    named = [(t.get_text(), p.get_facecolor()) for t, p in zip(key.get_texts(), key.get_patches(), strict=True)]
    assert named == [(str(v), ax.collections[0].cmap(ax.collections[0].norm(v))) for v in (-1, 0, 1)]
    ax.figure.canvas.draw()
    boxes = sorted((t.get_window_extent() for t in ax.texts), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))


@pytest.mark.parametrize(("last", "said"), [(0.0, ["↓ 0 from 2 on"]), (1e-16, ["↓ from 2 on"]), (1e-3, [])])
def test_a_line_that_falls_off_a_logarithmic_axis_says_where(ax, last, said):
    pictures.draw_down_to(ax, [0, 1, 2], [1.0, 0.1, last], 1e-8, color="black")
    assert [t.get_text() for t in ax.texts] == said and ax.get_ylim()[0] == 1e-8
    assert np.isnan(ax.lines[0].get_ydata()).sum() == len(said)
    assert ax.get_xlim()[1] >= 2 and ax.get_ylim()[1] > 1 and ax.get_yscale() == "log"


def test_the_memory_is_written_out_and_changes_are_marked(ax):
    pictures.draw_memory(ax, METRICS, CURVES)
    memory = np.array(CURVES["memory"])
    assert np.asarray(ax.collections[0].get_array()).sum() == (memory[1:] != memory[:-1]).sum()
    assert [t.get_text() for t in ax.texts] == [str(w) for w in memory.T.flatten()]


def test_the_animation_has_a_frame_per_pass_with_every_token_and_head(ax):
    pictures.draw_pass(ax, METRICS, CURVES, 2)
    assert len(ax.patches) == 1 + len(METRICS["cells"]) + len(METRICS["code"])
    assert sum(t.get_text() == "" for t in ax.texts) == 4  # arrows
    data = pictures.animate(METRICS, CURVES)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == METRICS["steps"] + 1
