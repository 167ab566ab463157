"""Figures through their data and their files."""

import dataclasses
import io
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from entp_lib.config import ARCHITECTURES
from entp_lib.experiments import figures, png_files
from entp_lib.records.store import Record


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for variable in ("ENTP_FIGURES", "ENTP_NEW_FIGURES"):
        monkeypatch.setenv(variable, str(tmp_path / "figures"))
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    yield
    plt.close("all")


@pytest.fixture
def records(small_run):
    configs = [dataclasses.replace(small_run("entp", seed), tier="quick") for seed in (0, 1)]
    return [Record("test", 1, c, {}, {}, {"commit": "abcdef123456"}) for c in configs]


CURVES = pd.DataFrame(
    [
        {"architecture": a, "seed": s, "step": step, "accuracy": step / 10 + s + (a == "entp")}
        for a in ("decoder", "entp")
        for s in (0, 1)
        for step in (1, 2, 3)
    ]
)


def drawn():
    figure, ax = figures.panels(1)
    figures.seed_curves(ax, CURVES, "step", "accuracy", xlabel="step", ylabel="accuracy")
    return figure, ax


def test_lines_are_means_over_seeds_and_bands_their_range():
    _, ax = drawn()
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["ENTP"].get_ydata() == pytest.approx([1.6, 1.7, 1.8])
    assert lines["decoder"].get_color() == figures.PALETTE["decoder"]
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.1, 1.3))
    assert ax.get_xlabel() == "step" and ax.get_ylabel() == "accuracy"


def test_a_band_ends_where_the_quantity_does():
    means = pd.DataFrame({"arm": "entp", "x": [1, 2], "mean": [0.5, 0.9], "low": [-0.4, 0.7], "high": [1.4, 1.1]})
    _, (free, share) = figures.panels(2)
    figures.arm_curves(free, means, "x", xlabel="x", ylabel="share")
    figures.arm_curves(share, means, "x", xlabel="x", ylabel="share", within=(0, 1))
    found = [ax.collections[0].get_paths()[0].vertices[:, 1] for ax in (free, share)]
    assert [(band.min(), band.max()) for band in found] == [(-0.4, 1.4), (0, 1)]


def as_png(colours):
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, format="PNG")
    return buffer.getvalue()


def test_pictures_lose_transparency_that_they_do_not_use():
    colours = np.random.default_rng(0).integers(0, 256, (50, 70, 4), dtype=np.uint8)
    colours[..., 3] = 255
    for alpha, mode in ((255, "RGB"), (254, "RGBA")):
        colours[2, 2, 3] = alpha
        given = png_files.lean(as_png(colours))
        with Image.open(io.BytesIO(given)) as image:
            assert image.mode == mode and (np.asarray(image)[..., :3] == colours[..., :3]).all()
        assert (given == as_png(colours)) == (mode == "RGBA") and png_files.lean(given) == given


def test_gaps_show_mean_and_interval():
    _, ax = figures.panels(1)
    figures.paired_gaps(ax, {"a": pd.Series([0.1, 0.2, 0.3]), "b": pd.Series([0.0, 0.0])}, xlabel="x")
    dots, interval, mean = ax.get_lines()[:3]
    assert list(dots.get_xdata()) == [0.1, 0.2, 0.3] and list(mean.get_xdata()) == pytest.approx([0.2])
    assert interval.get_xdata()[0] < 0.1 and interval.get_xdata()[1] > 0.3


def test_files_are_equal_byte_for_byte_and_left_alone(records):
    paths = figures.save_figure(drawn()[0], "03_test", records=records, alt="lines")
    before = [(p.read_bytes(), p.stat().st_mtime_ns) for p in paths]
    assert figures.save_figure(drawn()[0], "03_test", records=records, alt="lines") == paths
    assert [(p.read_bytes(), p.stat().st_mtime_ns) for p in paths] == before
    assert [p.suffix for p in paths] == [".png", ".svg"]


def one_of_each(off):
    """A figure of everything that notebooks draw, of data that differ by the factor ``off``."""
    x = np.array([1.2345678, 2.3456789, 3.4567891, 4.0]) * off
    figure, axes = figures.panels(3, 2)
    axes[0, 0].plot(x, x**2, "o-")
    axes[0, 0].fill_between(x, x, x**2)
    axes[0, 0].set(xscale="log", yscale="log")
    axes[0, 1].bar([1, 2, 3, 4], x, bottom=x / 3)
    axes[0, 1].axhline(x[0])
    image = axes[0, 2].imshow(np.outer(x, x) / 7)
    figure.colorbar(image, ax=axes[0, 2])
    axes[1, 0].errorbar(x, x, x / 9)
    axes[1, 0].vlines(x, 0, x)
    axes[1, 1].hist(x, bins=3, density=True)
    axes[1, 1].axline((0, x[0]), slope=1)
    axes[1, 2].step(x, x)
    return figure


def test_figures_do_not_depend_on_the_last_digits_of_what_they_draw(records):
    """What differs between processors is rounded before it is drawn, and so are the ends of the axes."""
    first, second = (one_of_each(off) for off in (1, 1 + 1e-13))
    drawn = [
        [p.read_bytes() for p in figures.save_figure(f, "03_test", records=records, alt="x")] for f in (first, second)
    ]
    assert drawn[0] == drawn[1]
    for a, b in zip(first.axes, second.axes, strict=True):
        assert (a.get_xlim(), a.get_ylim()) == (b.get_xlim(), b.get_ylim())
        assert a.get_position().bounds == b.get_position().bounds
        for one, other in zip(a.lines, b.lines, strict=True):
            assert np.array_equal(one.get_xydata(), other.get_xydata())
    assert first.axes[0].lines[0].get_xdata().tolist() == [1.23457, 2.34568, 3.45679, 4.0]
    assert first.axes[0].get_position().x0 == round(first.axes[0].get_position().x0, 7), "places make names in the SVG"


@pytest.mark.parametrize(
    ("levels", "pixels", "alt", "kept"),
    [(3, 100, "lines", True), (4, 1, "lines", False), (1, 400, "lines", False), (1, 1, "other", False)],
)
def test_a_picture_that_differs_by_rounding_alone_is_left_alone(records, levels, pixels, alt, kept):
    """Another processor rounds differently: a pixel in a thousand may be 3 levels off, the words may not."""
    png, _ = figures.save_figure(drawn()[0], "03_test", records=records, alt="lines")
    with Image.open(png) as image:
        colours, text = np.asarray(image).copy(), PngInfo()
        for name, value in image.text.items():
            text.add_text(name, value.replace("lines", alt))
    assert colours.shape[0] * colours.shape[1] > 200_000
    flat = colours.reshape(-1, colours.shape[-1])
    flat[:pixels, 0] = np.where(flat[:pixels, 0] > 9, flat[:pixels, 0] - levels, flat[:pixels, 0] + levels)
    Image.fromarray(colours).save(png, pnginfo=text)
    before = png.read_bytes()
    figures.save_figure(drawn()[0], "03_test", records=records, alt="lines")
    assert (png.read_bytes() == before) is kept


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_a_cut_picture_is_drawn_again(records, share):
    png, _ = figures.save_figure(drawn()[0], "03_test", records=records, alt="lines")
    whole = png.read_bytes()
    png.write_bytes(whole[: int(share * len(whole))])
    figures.save_figure(drawn()[0], "03_test", records=records, alt="lines")
    assert png.read_bytes() == whole


def test_pictures_of_other_colours_look_different(tmp_path):
    """Indices into a palette say nothing without it."""
    files = []
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        files.append(tmp_path / f"{name}.png")
        Image.new("RGB", (8, 8), colour).quantize(2).save(files[-1])
    assert png_files.looks_equal(files[0], files[0].read_bytes())
    assert not png_files.looks_equal(files[0], files[1].read_bytes())


def test_figures_go_beside_the_executed_copies_unless_told_otherwise(records, tmp_path, monkeypatch):
    monkeypatch.delenv("ENTP_NEW_FIGURES")
    paths = figures.save_figure(drawn()[0], "03_test", records=records, alt="x")
    assert all(p.parent == tmp_path / "results" / "executed" / "figures" for p in paths)
    assert not (tmp_path / "figures").exists() and png_files.gallery() == []


def test_files_say_what_they_show_and_no_date(records):
    png, svg = figures.save_figure(drawn()[0], "03_test", records=records, alt="Two rising lines.")
    with Image.open(png) as image:
        about = image.text
    assert about["Description"].startswith("Two rising lines. [tier quick; seeds 2; commit abcdef123456; records ")
    assert all(f"test/{r.id}" in about["Description"] for r in records)
    assert set(about) == {"Title", "Description"}
    text = svg.read_text()
    assert all(part in text for part in ("Two rising lines.", "tier quick", records[0].id))
    assert not re.search(r"20\d\d-\d\d-\d\d", text) and "dc:date" not in text
    assert png_files.gallery() == [(png, about["Description"])]


def test_smoke_claims_nothing(records, tmp_path):
    smoke = [dataclasses.replace(r, config=dataclasses.replace(r.config, tier="smoke")) for r in records]
    paths = figures.save_figure(drawn()[0], "03_test", records=smoke, alt="x")
    assert all(p.is_relative_to(tmp_path / "results" / "smoke" / "figures") for p in paths)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("name", ["Figure 3", "../x", ""])
def test_bad_names_are_refused(name, records):
    with pytest.raises(ValueError, match="figure name"):
        figures.save_figure(drawn()[0], name, records=records, alt="x")


def test_every_architecture_has_one_colour_and_a_name():
    assert set(ARCHITECTURES) <= set(figures.PALETTE) and set(ARCHITECTURES) <= set(figures.NAMES)
    assert len(set(figures.PALETTE.values())) == len(figures.PALETTE)
    architectures = {a.colour for a in figures.ARCHITECTURES.values()}
    assert len(set(figures.OTHERS)) == 5 and not architectures & set(figures.OTHERS)


def test_a_written_figure_is_reported(records, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_EVENTS", str(tmp_path / "events"))
    figures.save_figure(drawn()[0], "03_test", records=records, alt="x")
    assert json.loads((tmp_path / "events").read_text()) == {"event": "figure", "name": "03_test"}
