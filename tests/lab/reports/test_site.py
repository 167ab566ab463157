"""The site, built from the committed notebooks, and looked at in a real browser."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
import pytest

from entp_lab import site as site_module
from entp_lab.notebooks import notebook_paths
from entp_lib import costs
from entp_lib.config import ModelConfig
from entp_lib.tasks.counting import count3_pairs
from entp_papers.entp import playground

LOOKED_AT = (
    "index",
    "docs/findings",
    "gallery",
    "notebooks/03_count3",
    "notebooks/00_overview",
    "docs/costs",
)
PLAYS = ("play/match3", "play/subleq", "play/count3", "play/attention", "play/costs")
FIRST_PAGE = 2 * 2**20
WHOLE = 60 * 2**20


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The finished site, built once. Skipped where the extra is missing."""
    if site_module.missing():
        pytest.skip(f"the extra `site` is missing: {', '.join(site_module.missing())}")
    return site_module.build(tmp_path_factory.mktemp("site") / "site").parent


@pytest.fixture(scope="module")
def page(site, tmp_path_factory):
    """A function that opens a page of the site in a browser. Skipped where none is installed."""
    window = browser.Browser(tmp_path_factory.mktemp("profile"))

    def show(name, width=1280, dark=False):
        window.size(width, dark=dark)
        window.requests.clear()
        window.problems.clear()
        window.open(site / f"{name}.html")
        return window

    yield show
    window.close()


class Page(HTMLParser):
    """Links and loaded files, pictures without words, and places of one page."""

    def __init__(self, text):
        super().__init__()
        self.links = []
        self.wordless = []
        self.places = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        target = given.get("href" if tag in ("a", "link") else "src")
        if target and given.get("rel") != "canonical":
            self.links.append((tag, target))
        if tag == "img" and not (given.get("alt") or "").strip():
            self.wordless.append(target)


def test_no_link_is_broken_nothing_is_loaded_from_outside_and_every_picture_has_words(site):
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    wrong = [f"{p}: {src} has no words" for p, page in pages.items() for src in page.wordless]
    for path, page in pages.items():
        for tag, address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                wrong += (
                    [f"{path} loads {address}"] if tag != "a" and parts.scheme != "data" else []
                )
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.exists() and (
                target not in pages or unquote(parts.fragment) in {"", *pages[target].places}
            )
            wrong += [] if there else [f"{path} -> {address}"]
    assert wrong == []
    assert all((site / f"notebooks/{path.stem}.html").exists() for path in notebook_paths())
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < WHOLE


def test_pages_load_without_errors_and_fit_a_telephone_and_the_dark(page, site):
    for name in (*LOOKED_AT, *PLAYS):
        window = page(name)
        assert window.problems == [], name
        assert [
            url for url in window.requests if not url.startswith(("file://", "data:", "blob:"))
        ] == [], name
        assert page(name, 390).ask("document.documentElement.scrollWidth") <= 390, name
        colour = (
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert sum(page(name, dark=True).ask(colour)) < 200, name
    first = {url.split("?")[0] for url in page("index").requests if url.startswith("file://")}
    assert sum(Path(unquote(urlsplit(url).path)).stat().st_size for url in first) < FIRST_PAGE


def test_count3_by_hand_is_the_librarys(page):
    window = page("play/count3")
    for x in (
        [3, 1, 4, 1],
        [4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46, 10, 10, 24, 49],
        [7],
        [3, 1, 4, 1, 12],
    ):
        window.enter("#play-count3 input", " ".join(map(str, x)))
        pairs = len(count3_pairs(x))
        assert window.ask("document.querySelector('#count3-answer').textContent").endswith(
            f"{pairs} pairs, Count3 = {pairs} mod {len(x)} = {pairs % len(x)}"
        )
    window.enter("#play-count3 input", "3 one")
    assert "one is no whole number" in window.ask(
        "document.querySelector('#play-count3').textContent"
    )


def test_the_models_answers_are_those_that_are_stored(page):
    table = playground.stored("count3")
    prompt = (3, 1, 4, 1)
    index = int("".join(map(str, prompt)))
    cells = "[...r.cells].slice(2).map(c => c.textContent[0])"
    rows = page("play/count3").ask(
        f"[...document.querySelectorAll('#count3-models tbody tr')].map(r => {cells})"
    )
    lengths = range(table["first_scored"], table["length"] + 1)
    assert rows == [[m["answers"][str(n)][index] for m in table["models"]] for n in lengths]


def test_costs_are_the_librarys(page):
    window = page("play/costs")
    for kind, one in (("decoder", costs.decoder_token), ("entp", costs.encoder_token)):
        for n, width, layers in ((8, 16, 1), (1024, 512, 6), (100, 48, 3)):
            cfg = ModelConfig(
                kind, n_layers=layers, n_heads=1, width=width, vocab_size=1, max_length=n
            )
            assert window.ask(f"cost('{kind}', {n}, {width}, {layers})") == one(
                cfg, n
            ) - costs.head(cfg)
            whole = playground.sequence_cost(kind, n, width, layers)
            assert window.ask(f"sequence('{kind}', {n}, {width}, {layers})") == whole
