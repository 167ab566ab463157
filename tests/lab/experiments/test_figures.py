"""Figures through their data and their files."""

import dataclasses
import io
import os
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from entp_lab import figures, site
from entp_lab.store import Record, RecordError

T_OF_THREE = 4.302653 / 3**0.5  # half a 95 % interval of three values, in standard deviations


@pytest.fixture(autouse=True)
def own_folders(results, monkeypatch):
    for variable in ("ENTP_FIGURES", "ENTP_NEW_FIGURES"):
        monkeypatch.setenv(variable, str(results / "figures"))
    yield
    plt.close("all")


@pytest.fixture
def save(small_run):
    """Save a figure as 03_test, of two records of a tier; the paths."""

    def save(figure, tier="quick", alt="lines", name="03_test"):
        configs = [dataclasses.replace(small_run("entp", seed), tier=tier) for seed in (0, 1)]
        records = [
            Record("test", 1, config, {}, {}, {"commit": "abcdef123456"}) for config in configs
        ]
        return figures.save_figure(figure, name, records=records, alt=alt)

    return save


CURVES = pd.DataFrame(
    [
        (a, s, step, step / 10 + s + (a == "entp"))
        for a in ("decoder", "entp")
        for s in (0, 1)
        for step in (1, 2, 3)
    ],
    columns=["architecture", "seed", "step", "accuracy"],
)


def drawn():
    figure, ax = figures.panels(1)
    figures.lines(ax, CURVES, "step", "accuracy")
    return figure


def band(ax):
    """Lowest and highest of a band."""
    points = ax.collections[0].get_paths()[0].vertices[:, 1]
    return points.min(), points.max()


def test_lines_are_means_over_seeds_and_bands_their_range():
    (ax,) = drawn().axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["ENTP"].get_ydata() == pytest.approx([1.6, 1.7, 1.8])
    assert lines["decoder"].get_color() == figures.PALETTE["decoder"]
    assert band(ax) == pytest.approx((0.1, 1.3))
    assert ax.get_xlabel() == "step"
    assert ax.get_ylabel() == "accuracy"


def test_a_band_can_be_the_interval_of_the_mean():
    table = pd.DataFrame({"arm": "entp", "x": [1, 1, 1, 2, 2], "share": [0.1, 0.5, 0.9, 0.5, 0.5]})
    _, ax = figures.panels(1)
    figures.lines(ax, table, "x", "share", errorbar=figures.interval)
    half = T_OF_THREE * 0.4
    assert band(ax) == pytest.approx((0.5 - half, 0.5 + half))


def test_files_of_the_same_data_are_left_alone(save):
    paths = save(drawn())
    assert [path.suffix for path in paths] == [".png", ".svg"]
    for path in paths:
        os.utime(path, (1, 1))
    assert save(drawn()) == paths
    assert [path.stat().st_mtime for path in paths] == [1, 1]
    save(drawn(), alt="other words")
    assert all(path.stat().st_mtime > 1 for path in paths)


def one_of_each(off=1.0):
    """A figure of everything that notebooks draw, of data that differ by the factor ``off``."""
    x = np.array([1.2345678, 2.3456789, 3.4567891, 4.0]) * off
    square = np.outer(x, x) / 7
    figure, axes = figures.panels(3, 2)
    line, bars, image, errors, steps, heat = axes.flat
    line.plot(x, x**2, "o-")
    line.fill_between(x, x, x**2)
    line.set(xscale="log", yscale="log")
    bars.bar([1, 2, 3, 4], x, bottom=x / 3)
    bars.axhline(x[0])
    figure.colorbar(image.imshow(square), ax=image)
    errors.errorbar(x, x, x / 9)
    errors.vlines(x, 0, x)
    figures.lines(errors, CURVES.assign(accuracy=CURVES["accuracy"] * off / 3), "step", "accuracy")
    steps.hist(x, bins=3, density=True)
    steps.axline((0, x[0]), slope=1)
    figures.heat(heat, square)
    return figure


def test_digests_do_not_depend_on_the_last_digits_of_what_is_drawn():
    assert figures.drawn(one_of_each()) == figures.drawn(one_of_each(1 + 1e-13))


def test_a_digest_knows_no_fonts_and_no_sizes():
    figure = one_of_each()
    before = figures.drawn(figure)
    figure.set_size_inches(9, 9)
    figure.axes[0].title.set_fontsize(20)
    figure.axes[0].tick_params(labelsize=3)
    assert figures.drawn(figure) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda line, *_: line.lines[0].set_ydata(
            line.lines[0].get_ydata() + 0.01 * (np.arange(4) == 1)
        ),
        lambda line, *_: line.lines[0].set_color("red"),
        lambda line, *_: line.collections[0].remove(),
        lambda line, *_: line.set_title("other", loc="left"),
        lambda line, *_: line.set_xlabel("other"),
        lambda line, bars, *_: bars.patches[1].set_height(9),
        lambda line, bars, image, *_: image.images[0].set_array(np.ones((4, 4))),
        lambda *axes: axes[5].collections[0].set_array(np.ones(16)),
    ],
)
def test_a_digest_knows_when_something_moved(change):
    figure = one_of_each()
    change(*figure.axes)
    assert figures.drawn(figure) != figures.drawn(one_of_each())


def test_a_moved_figure_is_named_where_records_are_only_read(save, tmp_path, monkeypatch):
    save(drawn())
    monkeypatch.setenv("ENTP_NEW_FIGURES", str(tmp_path / "new"))
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    save(drawn())
    moved = one_of_each()
    with pytest.raises(RecordError, match="figure 03_test draws other data"):
        save(moved)
    assert save(moved, name="03_new")


def test_a_notebook_shows_the_file_made_smaller_until_the_figure_changes(save, monkeypatch):
    figure = drawn()
    save(figure)
    with monkeypatch.context() as patch:
        patch.setattr(figure, "savefig", lambda *_, **__: pytest.fail("drawn again"))
        small = figures.shown(figure)
    with Image.open(io.BytesIO(small)) as image:
        assert image.size == (340, 280)
    figure.axes[0].set_xlabel("another")
    assert figures.shown(figure) != small


def test_files_say_what_they_show_and_no_date(save):
    png, svg = save(drawn(), alt="Two rising lines.")
    with Image.open(png) as image:
        about = image.text
    assert about.keys() == {"Title", "Description"}
    text = svg.read_text()
    for said in (
        "Two rising lines.",
        "tier quick",
        "seeds 2",
        "commit abcdef123456",
        "records test/",
    ):
        assert said in about["Description"]
        assert said in text
    assert not re.search(r"20\d\d-\d\d-\d\d|dc:date", text)
    assert site.gallery() == [(png, about["Description"])]


def test_smoke_claims_nothing(save, tmp_path):
    paths = save(drawn(), tier="smoke")
    assert all(p.is_relative_to(tmp_path / "smoke/figures") for p in paths)
    assert not (tmp_path / "figures").exists()
