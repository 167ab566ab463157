"""Figures of changed runs say below what was changed, inside the figure, and their labels stay apart."""

import dataclasses

import matplotlib.pyplot as plt
import pytest

from entp_lib.experiments import figures, notes
from entp_lib.records.store import Record

CHANGES = "task.length = 14, model.width = 96, train.steps = 400, train.max_lr = 0.003"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_NEW_FIGURES", str(tmp_path / "figures"))
    yield
    plt.close("all")


@pytest.fixture
def records(small_run):
    configs = [dataclasses.replace(small_run("entp", seed), tier="quick") for seed in (0, 1)]
    return [Record("test", 1, c, {}, {}, {}, labels={"changed": CHANGES}) for c in configs]


def inside(figure, artist):
    """Whether all of an artist lies in the figure."""
    box, whole = artist.get_window_extent(), figure.bbox
    return whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_figure_says_below_what_was_changed_and_nothing_leaves_it(records, columns):
    figure, axes = figures.panels(columns, squeeze=False)
    for ax in axes.flat:
        ax.plot([1, 2], [1, 2])
        ax.set(title=f"linear, {figures.tier_note(records)}", xlabel="step")
    before = figure.get_figheight()
    for _ in range(2):  # also where it is saved again
        figures.save_figure(figure, "03_test", records=records, alt="lines")
    figure.draw_without_rendering()
    assert figure.get_supxlabel().replace("\n  ", " ") == f"changed: {CHANGES}"
    grown = figure.get_figheight() - before
    assert grown == pytest.approx(notes.LINE * len(figure.get_supxlabel().splitlines()))
    assert all(inside(figure, artist) for artist in (figure._supxlabel, *(ax.title for ax in axes.flat)))
    labels = [ax.xaxis.label.get_window_extent() for ax in axes.flat]
    assert not any(box.overlaps(figure._supxlabel.get_window_extent()) for box in labels)


@pytest.mark.parametrize("top", [3e3, 9e3, 9e4, 5e6])
def test_labels_of_a_logarithmic_axis_stay_apart(records, top):
    figure, axes = figures.panels(2, width=2.5, height=2.1)
    for ax in axes:
        ax.plot([1.6e3, top], [0.9, 1.1])
        ax.set_xscale("log")
    figures.save_figure(figure, "03_test", records=records, alt="lines")
    figure.draw_without_rendering()
    assert not any(notes.overlapping(ax.xaxis) for ax in axes)
    shown = [label.get_text() for label in (*axes[0].get_xticklabels(), *axes[0].get_xticklabels(minor=True))]
    assert any(shown)
