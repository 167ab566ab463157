"""Pictures of a run hold what the run did."""

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from entp_papers.looped import pictures
from entp_papers.looped.studies.attention import multiply_study


@pytest.fixture(scope="module")
def shown():
    return multiply_study(3, 2)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_state_is_drawn_a_token_per_column(shown, ax):
    metrics, _ = shown
    pictures.draw_state(ax, metrics)
    image = np.asarray(ax.images[0].get_array())
    assert np.array_equal(image, np.array(metrics["state"]).T)
    labels = [t.get_text() for t in ax.texts]
    assert {"command", "word", "counter", "position", "scratchpad"} == set(labels)  # all others are 0 between passes
    key = ax.get_legend()
    named = [(t.get_text(), p.get_facecolor()) for t, p in zip(key.get_texts(), key.get_patches(), strict=True)]
    assert named == [(str(v), ax.images[0].cmap(ax.images[0].norm(v))) for v in (-1, 0, 1)]
    ax.figure.canvas.draw()
    boxes = sorted((t.get_window_extent() for t in ax.texts), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))


def test_places_that_are_too_close_move_apart_and_others_stay():
    assert pictures.spread([1, 10, 20], 2) == [1, 10, 20]
    assert pictures.spread([1, 10, 10.5, 11, 20], 2) == [1, 8.5, 10.5, 12.5, 20]
    assert pictures.spread([0, 2, 3], 3) == pytest.approx([-4 / 3, 5 / 3, 14 / 3])


@pytest.mark.parametrize(("last", "said"), [(0.0, ["↓ 0 from 2 on"]), (1e-16, ["↓ from 2 on"]), (1e-3, [])])
def test_a_line_that_falls_off_a_logarithmic_axis_says_where(ax, last, said):
    pictures.draw_down_to(ax, [0, 1, 2], [1.0, 0.1, last], 1e-8, color="black")
    assert [t.get_text() for t in ax.texts] == said and ax.get_ylim()[0] == 1e-8
    assert np.isnan(ax.lines[0].get_ydata()).sum() == len(said)
    assert ax.get_xlim()[1] >= 2 and ax.get_ylim()[1] > 1 and ax.get_yscale() == "log"


def test_the_memory_is_written_out_and_changes_are_marked(shown, ax):
    metrics, curves = shown
    pictures.draw_memory(ax, metrics, curves)
    memory = np.array(curves["memory"])
    marked = np.asarray(ax.images[0].get_array())
    assert marked.sum() == (memory[1:] != memory[:-1]).sum()
    assert [t.get_text() for t in ax.texts] == [str(w) for w in memory.flatten()]


@pytest.mark.parametrize("step", [0, 2])
def test_a_pass_shows_every_token_and_what_the_scratchpad_reads(shown, ax, step):
    metrics, curves = shown
    pictures.draw_pass(ax, metrics, curves, step)
    assert len(ax.patches) == 1 + len(metrics["cells"]) + len(metrics["code"])
    arrows = [t for t in ax.texts if t.get_text() == ""]
    assert len(arrows) == (4 if step else 0)


def test_the_animation_has_a_frame_per_pass_and_is_the_same_twice(shown):
    metrics, curves = shown
    data = pictures.animate(metrics, curves)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == metrics["steps"] + 1
    assert data == pictures.animate(metrics, curves)
