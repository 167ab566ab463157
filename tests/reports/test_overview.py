"""The overview's list of notebooks: whole, linked, and of HTML that nothing has to leave out."""

import html
import json
import re
from html.parser import HTMLParser

from entp_lib import paths
from entp_lib.paths import number_of
from entp_lib.reports import overview
from entp_lib.reports.parameters import is_own, notebook_paths


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


def test_every_notebook_is_listed_once_with_what_it_asks():
    text, found = overview.notebooks_html(), sorted(p for p in notebook_paths() if not p.stem.startswith("00_"))
    rows = re.findall(r'<tr><td[^>]*><a href="(\w+)\.ipynb">(.*?)</a></td><td[^>]*>(.*?)</td></tr>', text)
    assert [stem for stem, _, _ in rows] == [path.stem for path in found] and not Tags(text).open
    for (stem, title, asks), path in zip(rows, found, strict=True):
        assert title.startswith(f"{number_of(stem)} · ") and 20 < len(asks) < 160
        if not is_own(path):
            first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
            assert html.unescape(asks) == first["metadata"]["asks"]


def test_the_committed_overview_lists_the_notebooks_and_its_text_leads_to_each_of_a_paper():
    cells = json.loads((paths.notebooks() / "00_overview.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [
        "".join(o["data"]["text/html"]) for c in cells for o in c.get("outputs", ()) if "text/html" in o.get("data", ())
    ]
    assert str(overview.notebooks_html()) in shown
    written = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    linked = set(re.findall(r"\]\((\w+)\.ipynb", written))
    assert linked == {p.stem for p in notebook_paths() if number_of(p.stem) not in ("00", "90") and not is_own(p)}
