"""Pictures of a run hold what the run did."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from entp_lib.papers.looped import pictures
from entp_lib.papers.looped.studies.shown import multiply_study


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
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert {"command", "word", "counter", "position", "scratchpad"} == set(labels)  # all others are 0 between passes


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
