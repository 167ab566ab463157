"""The parts of the site that need no Sphinx: links, anchors, docstrings, notebooks' outputs."""

import base64

import pytest

from entp_lib.reports.site import api, links, pages
from entp_papers.entp import playing

KNOWN = {"README.md", "docs/journal/README.md", "notebooks/03_count3.ipynb", "notebooks/04_rasp.ipynb"}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 8 + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[03](<notebooks/03_count3.ipynb#A-(b)>)", '<a href="../notebooks/03_count3.html#A-(b)">03</a>'),
        ("[r](README.md)", '<a href="../index.html">r</a>'),
        ("[here](#Some-place)", '<a href="#Some-place">here</a>'),
        ("[code](entp_lib/paths.py)", "code"),
        ("[web](https://example.org/x)", '<a href="https://example.org/x">web</a>'),
        ("`[no](README.md)`", "`[no](README.md)`"),
        ("```\n[no](README.md)\n```", "```\n[no](README.md)\n```"),
        ("![p](figures/01_a.png)", '<img class="figure" src="../figures/01_a.png" alt="p" loading="lazy">'),
    ],
)
def test_links_lead_to_pages_or_lose_their_target(text, expected):
    assert links.relinked(text, "README.md", "docs/x.html", KNOWN) == expected


def test_links_of_a_notebook_start_from_its_folder():
    text = "[04](04_rasp.ipynb#The-programs) and [journal](../docs/journal/README.md)"
    found = links.relinked(text, "notebooks/03_count3.ipynb", "notebooks/03_count3.html", KNOWN)
    assert found == '<a href="04_rasp.html#The-programs">04</a> and <a href="../docs/journal/README.html">journal</a>'


def test_headings_get_jupyters_places_and_code_none():
    text = links.with_anchors("# T\n\n## A b (c)\n\n```\n## no\n```")
    assert text.count("<span") == 1 and '<span id="A-b-(c)"></span>\n\n## A b (c)' in text


def test_a_picture_has_the_figures_words_and_is_stored_once(tmp_path):
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/png": PNG, "text/plain": "x"}}
    for _ in range(2):
        shown = pages.shown(output, ["03_x"], {"03_x": 'a "curve"'}, tmp_path)
    html = shown["data"]["text/html"]
    assert 'alt="a &quot;curve&quot;"' in html and 'width="640" height="480"' in html
    assert len(list(tmp_path.iterdir())) == 1
    assert 'alt="Picture' in pages.shown(output, [], {}, tmp_path)["data"]["text/html"]


def test_code_folds_but_for_parameters(tmp_path):
    cells = [
        {"cell_type": "code", "source": "a = 1", "metadata": {"tags": ["parameters"]}, "outputs": []},
        {"cell_type": "code", "source": ["b\n"], "metadata": {}, "outputs": []},
        {"cell_type": "code", "source": " ", "metadata": {}, "outputs": []},
    ]
    page = pages.notebook_page({"cells": cells}, "03_count3", {}, tmp_path, KNOWN)
    assert [cell["metadata"]["tags"] for cell in page["cells"]] == [["parameters"], ["hide-input"]]


def test_docstrings_become_markdown():
    text = api.prose("One ``code_x`` and x_BTD * 2.\n\n    >>> f(1)\n    2\n")
    assert text == "One `code_x` and x\\_BTD \\* 2.\n\n```text\n>>> f(1)\n2\n```\n"


def test_every_module_is_on_a_page():
    pages = api.packages()
    assert {"entp_lib", "entp_lib.models", "entp_papers.entp"} <= set(pages)
    page = api.page("entp_lib", pages["entp_lib"])
    assert "## entp_lib.config" in page and "class ModelConfig" in page and "### canonical\\_json" in page


def test_broken_links_and_loads_from_outside_are_named(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">b</a><a href="gone.html">g</a><img src="//cdn/i.png">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#x">a</a>')
    found = links.broken_links(tmp_path)
    assert len(found) == 3 and any("no such place" in f for f in found) and any("loads //cdn" in f for f in found)
    assert links.pictures_without_alt(tmp_path) == ["a.html: //cdn/i.png"]


def test_stored_answers_agree_with_the_records():
    """The share of right answers over all kept seeds is near the record's, which is over other draws of them."""
    table = playing.stored("count3")
    runs = {f"{r.experiment}/{r.id}": r for r in playing.runs()}
    kept = [i for i, c in enumerate(table["held_out"]) if c == "1"]
    x = playing.torch.tensor([[int(d) for d in f"{i:0{table['seed_length']}d}"] for i in kept])
    while x.shape[1] <= table["length"]:
        x = playing.torch.cat([x, playing.next_symbols(x, 3)[:, None]], 1)
    for model in table["models"]:
        shares = []
        for n in range(table["first_scored"], table["length"] + 1):
            said = playing.torch.tensor([int(model["answers"][str(n)][i]) for i in kept])
            shares.append((said == x[:, n]).double().mean().item())
        assert sum(shares) / len(shares) == pytest.approx(model["token_accuracy"], abs=0.01)
        if model["run"] in runs:
            assert model["token_accuracy"] == runs[model["run"]].metrics["token_accuracy"]


def test_stored_attention_is_of_every_prefix_and_causal_where_it_must_be():
    table = playing.stored("attention")
    for model in table["models"]:
        assert len(model["maps"]) == len(table["tokens"])
        for n, layers in enumerate(model["maps"], 1):
            for heads in layers:
                for rows in heads:
                    assert len(rows) == n and all(abs(sum(row) - 100) <= n for row in rows)
                    if model["name"] == "decoder":
                        assert not any(v for i, row in enumerate(rows) for v in row[i + 1 :])


def test_links_in_a_stored_table_lead_to_the_sites_pages(tmp_path):
    html = '<table><tr><td><a href="03_count3.ipynb#The-task">03</a></td></tr></table>'
    shown = pages.shown({"output_type": "display_data", "data": {"text/html": html}}, [], {}, tmp_path)
    assert 'href="03_count3.html#The-task"' in shown["data"]["text/html"] and ".ipynb" not in shown["data"]["text/html"]
