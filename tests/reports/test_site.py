"""The site, built from the committed notebooks, and looked at in a real browser."""

import json
import os
import subprocess
import time
from pathlib import Path

import browser
import pytest

from entp_lib import __main__ as cli
from entp_lib import paths
from entp_lib.models import costs
from entp_lib.reports.site import build, links
from entp_lib.tasks.counting import count3_pairs
from entp_papers.entp import playing

MiB, FIRST_PAGE, PIECE, WHOLE = 2**20, 500_000, 300_000, 40 * 2**20
AXE = next(
    (p for p in (os.environ.get("ENTP_AXE"), "node_modules/axe-core/axe.min.js") if p and Path(p).is_file()), None
)
LOOKED_AT = (
    "index",
    "findings",
    "gallery",
    "notebooks/03_count3",
    "notebooks/00_overview",
    "docs/costs",
    "papers/entp",
)
PLAYS = ("play/count3", "play/attention", "play/costs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The finished site, built once. Skipped where the extra is missing."""
    try:
        build.check_installed()
    except ValueError as error:
        pytest.skip(str(error))
    begun = time.process_time()
    first = build.build(tmp_path_factory.mktemp("site") / "site")
    assert time.process_time() - begun < 60
    return first.parent


@pytest.fixture(scope="module")
def page(site, tmp_path_factory):
    """A function that opens a page of the site in a browser. Skipped where none is installed."""
    if browser.program() is None:
        pytest.skip(f"no browser is installed: one of {', '.join(browser.NAMES)}; on Debian apt-get install chromium")
    window = browser.Browser(tmp_path_factory.mktemp("profile"))
    window.size(1280)

    def show(name, width=1280, dark=False):
        window.size(width, dark=dark)
        window.requests.clear()
        window.problems.clear()
        window.open(site / f"{name}.html")
        return window

    yield show
    window.close()


def enter(window, selector, value, event="input"):
    """Put a value into a control, as a reader would."""
    field = f"document.querySelector({json.dumps(selector)})"
    window.ask(f"(i => {{ i.value = {json.dumps(value)}; i.dispatchEvent(new Event('{event}')); }})({field})")


def test_no_link_is_broken_and_every_picture_has_words(site):
    assert links.broken_links(site) == [] and links.pictures_without_alt(site) == []
    for notebook in paths.notebooks().glob("[0-9][0-9]*_*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").exists()


def test_it_is_light(site):
    files = [path for path in site.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < WHOLE
    for name in ("count3", "attention"):
        assert (site / "_static" / f"{name}_data.js").stat().st_size + (
            site / "_static" / "play.js"
        ).stat().st_size < PIECE


def test_pages_load_without_errors_and_ask_for_nothing_outside(page, site):
    for name in (*LOOKED_AT, *PLAYS):
        window = page(name)
        assert window.problems == [], name
        outside = [url for url in window.requests if not url.startswith(("file://", "data:"))]
        assert outside == [], name
        window.ask("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
        decoded = "[...document.images].map(i => i.decode().then(() => '', () => i.src))"
        broken = window.ask(f"Promise.all({decoded}).then(a => a.filter(Boolean))")
        assert broken == [], name
    first = {url.split("?")[0] for url in page("index").requests if url.startswith("file://")}
    sizes = {url: (site / url.split(str(site), 1)[1].lstrip("/")).stat().st_size for url in first}
    assert sum(sizes.values()) < FIRST_PAGE, sizes


def test_it_is_read_at_390_pixels_and_in_the_dark(page):
    for name in (*LOOKED_AT, *PLAYS):
        window = page(name, 390)
        assert window.ask("document.documentElement.scrollWidth") <= 390, name
        window = page(name, 1280, dark=True)
        light = (
            "const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number); r + g + b"
        )
        assert window.ask(f"(() => {{ {light.replace('r + g + b', 'return r + g + b')} }})()") < 200, name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(page, dark):
    if AXE is None:
        pytest.skip("axe-core is not here: npm install axe-core in the project's root, or ENTP_AXE names axe.min.js")
    script = Path(AXE).read_text(encoding="utf-8")
    rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
    for name in (*LOOKED_AT, *PLAYS):
        window = page(name, dark=dark)
        window.ask(script + "; 0")
        told = "r.violations.map(v => v.id + ': ' + v.nodes.length + ' ' + v.nodes[0].html.slice(0, 150))"
        assert window.ask(f"axe.run({rules}).then(r => {told})") == [], name


def test_the_ledger_filters_and_sorts(page):
    window = page("findings")
    shown = "[...document.querySelectorAll('#ledger tbody tr')].filter(r => !r.hidden)"
    whole = window.ask(f"{shown}.length")
    enter(window, "[data-filter=verdict]", "refuted", "change")
    verdicts = window.ask(f"{shown}.map(r => r.dataset.verdict)")
    assert 0 < len(verdicts) < whole and set(verdicts) == {"refuted"}
    window.ask("document.querySelector('#ledger th button').click()")
    ids = window.ask(f"{shown}.map(r => r.cells[0].textContent)")
    assert len(ids) == len(verdicts) and ids[0].casefold() <= ids[-1].casefold() and set(ids) != set()


def test_search_finds_without_a_server(page, site):
    window = page("search")
    window.open(Path(str(site / "search.html")))
    window.call("Page.navigate", until="Page.loadEventFired", url=(site / "search.html").as_uri() + "?q=Count3")
    for _ in range(100):
        if found := window.ask("document.querySelectorAll('#search-results li a').length"):
            break
        time.sleep(0.2)
    assert found > 0 and all(url.startswith(("file://", "data:")) for url in window.requests)


def test_count3_by_hand_is_the_librarys(page):
    window = page("play/count3")
    for x in ([3, 1, 4, 1], [4, 41, 1, 40, 44, 26, 38, 34, 44, 0, 58, 46, 10, 10, 24, 49], [7], [3, 1, 4, 1, 12]):
        enter(window, "#play-count3 input", " ".join(map(str, x)))
        pairs = len(count3_pairs(x))
        assert window.ask("document.querySelector('#count3-answer').textContent").endswith(
            f"{pairs} pairs, Count3 = {pairs} mod {len(x)} = {pairs % len(x)}"
        )
    enter(window, "#play-count3 input", "3 one")
    assert "one is no whole number" in window.ask("document.querySelector('#play-count3').textContent")


def test_the_models_answers_are_those_that_are_stored(page):
    table, seed = playing.stored("count3"), (3, 1, 4, 1)
    index = int("".join(map(str, seed)))
    cells = "[...r.cells].slice(2).map(c => c.textContent[0])"
    rows = page("play/count3").ask(f"[...document.querySelectorAll('#count3-models tbody tr')].map(r => {cells})")
    lengths = range(table["first_scored"], table["length"] + 1)
    assert rows == [[m["answers"][str(n)][index] for m in table["models"]] for n in lengths]


def test_a_slider_moves_the_attention(page):
    window = page("play/attention")
    for n in (1, 4, 10):
        enter(window, "#attention-prefix", str(n))
        assert window.ask("document.querySelectorAll('#play-attention svg rect').length") == 2 * n * n
        assert window.ask("document.querySelector('#attention-said').textContent").startswith(f"Prefix of {n}: ")


def test_costs_are_the_librarys(page):
    window = page("play/costs")
    for kind, one in (("decoder", costs.decoder_token), ("entp", costs.encoder_token)):
        for n, width, layers in ((8, 16, 1), (1024, 512, 6), (100, 48, 3)):
            cfg = playing.ModelConfig(kind, n_layers=layers, n_heads=1, width=width, vocab_size=1, max_length=n)
            assert window.ask(f"cost('{kind}', {n}, {width}, {layers})") == one(cfg, n) - costs.head(cfg)
            assert window.ask(f"sequence('{kind}', {n}, {width}, {layers})") == playing.sequence_cost(
                kind, n, width, layers
            )


@pytest.mark.parametrize("status", [0, 1])
def test_the_extra_is_installed_where_it_is_missing(status, monkeypatch, capsys):
    asked = []

    def pip(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, status, "", "ERROR: no such luck\n" * status)

    monkeypatch.setattr(build, "NEEDED", ("sphinx_of_another_world",))
    monkeypatch.setattr(build.subprocess, "run", pip)
    monkeypatch.setattr(build, "build", lambda: paths.root() / "README.md")
    assert cli.main(["run", "--site", "--no-browser"]) == 2 * status
    (command,), (out, err) = asked, capsys.readouterr()
    assert command[1:4] == ["-m", "pip", "install"] and any(part.startswith("sphinx==") for part in command)
    assert out.startswith("the site needs sphinx_of_another_world: installing the extra `site`")
    assert ("no such luck" in err and build.INSTALL in err) == bool(status)
