"""The overview's list of notebooks and its gallery: whole, linked, small, and of HTML that nothing has to leave out."""

import html
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from entp_lib import paths
from entp_lib.architectures import ARCHITECTURES
from entp_lib.experiments import png_files
from entp_lib.paths import number_of
from entp_lib.reports import overview
from entp_lib.reports.options import is_own, notebook_paths


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_gallery_shows_every_figure_once_and_leads_to_its_notebook():
    text = overview.gallery_html()
    parsed = Tags(text)
    assert not parsed.open
    expected = [path.stem for path, _ in png_files.gallery() if not path.stem.startswith("00_")]
    assert re.findall(r"<br>(\d\d_\w+)<br>", text) == expected
    links = [attributes["href"] for tag, attributes in parsed.tags if tag == "a"]
    assert len(links) == len(expected) and all((paths.notebooks() / link).exists() for link in links)
    assert all(attributes["alt"] for tag, attributes in parsed.tags if tag == "img")
    assert len(text) < 300 * 1024


def text_cell(source, **metadata):
    return {"cell_type": "markdown", "id": f"text-{len(source)}", "metadata": metadata, "source": source}


def test_every_notebook_is_listed_once_with_what_it_asks():
    text, found = overview.notebooks_html(), sorted(p for p in notebook_paths() if not p.stem.startswith("00_"))
    rows = re.findall(r'<tr><td[^>]*><a href="(\w+)\.ipynb">(.*?)</a></td><td[^>]*>(.*?)</td></tr>', text)
    assert [stem for stem, _, _ in rows] == [path.stem for path in found] and not Tags(text).open
    for (stem, title, asks), path in zip(rows, found, strict=True):
        assert title.startswith(f"{number_of(stem)} · ") and 20 < len(asks) < 160
        if not is_own(path):
            first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
            assert html.unescape(asks) == first["metadata"]["asks"]


def test_the_committed_overview_lists_the_notebooks_that_there_are_and_none_by_hand():
    cells = json.loads((paths.notebooks() / "00_overview.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [
        "".join(o["data"]["text/html"]) for c in cells for o in c.get("outputs", ()) if "text/html" in o.get("data", ())
    ]
    assert str(overview.notebooks_html()) in shown
    written = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert not re.findall(r"\]\(\d\d_\w+\.ipynb", written)


@pytest.mark.parametrize(
    ("texts", "asks"),
    [
        ([text_cell("# 50 · Mine\n\n**In a sentence:** What `parity` costs; more.\n")], "What parity costs"),
        ([text_cell("# 50 · Mine"), text_cell("![a](b.png)\n\n## Parameters\n\nA sentence. Another.")], "A sentence"),
        ([text_cell("# 50 · Mine\n\nWords.", asks="which <way>")], "which <way>"),
        ([text_cell("# 50 · Mine")], ""),
        ([], ""),
    ],
)
def test_a_notebook_of_ones_own_is_listed_by_its_first_sentence(texts, asks, tmp_path, monkeypatch):
    path = tmp_path / "50_mine.ipynb"
    path.write_text(json.dumps({"cells": texts, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    monkeypatch.setattr(overview, "notebook_paths", lambda: [path])
    assert overview.asked_by(path) == asks
    title = "50 · Mine" if texts else "50_mine"
    assert f'<a href="50_mine.ipynb">{title}</a></td><td' in overview.notebooks_html()
    assert html.escape(asks) in overview.notebooks_html()


def test_small_pictures_keep_the_colours_that_tell_architectures_apart(tmp_path):
    """Sixteen colours for a picture made decoder and ENTP alike."""
    colours = [tuple(int(a.colour[i : i + 2], 16) for i in (1, 3, 5)) for a in ARCHITECTURES.values()]
    stripes = np.repeat(np.array(colours, dtype=np.uint8)[None], 400, axis=0)
    Image.fromarray(np.repeat(stripes, 100, axis=1)).save(tmp_path / "a.png")
    with Image.open(io.BytesIO(overview.small_picture(tmp_path / "a.png"))) as small:
        assert small.width == overview.WIDTH
        middle = np.asarray(small.convert("RGB"))[small.height // 2].astype(int)
    width = small.width / len(colours)
    for i, colour in enumerate(colours):
        assert np.abs(middle[int((i + 0.5) * width)] - colour).max() < 12
