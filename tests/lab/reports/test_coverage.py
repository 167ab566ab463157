"""The page of coverage: items point to headings, and states follow from the ledger."""

import re

import nbformat
import pandas as pd
from mistakes import refused

from entp_lab import coverage, paths
from entp_lab.claims import reference_claims
from entp_lab.registry import paper_titles

LEDGER = pd.read_csv(paths.root() / "results/claims.csv").fillna({"differs": ""})


def test_sections_of_claims_and_items_are_headings_of_their_notebooks():
    tables = [reference_claims(), *map(coverage.other_items, paper_titles())]
    rows = pd.concat(tables)[["notebook", "section"]].replace("", None).dropna()
    assert len(rows) > 100
    for notebook, sections in rows.groupby("notebook")["section"]:
        cells = nbformat.read(paths.root() / f"notebooks/{notebook}.ipynb", as_version=4).cells
        words = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert set(sections) <= set(re.findall(r"^#+ (.*)$", words, re.MULTILINE)), notebook


def test_an_item_says_where_it_is_unless_nothing_of_it_is_there():
    for paper in paper_titles():
        others = coverage.other_items(paper)
        nowhere = others[others["notebook"] == ""]
        assert not nowhere["state"].isin(["tried small", "not run"]).any()
        assert (others["size"] != "").all()


def test_every_verdict_of_a_paper_is_an_item_and_no_house_word_is_left():
    page = coverage.page(LEDGER)
    found = pd.concat(coverage.items(LEDGER, paper).assign(paper=paper) for paper in paper_titles())
    others = sum(len(coverage.other_items(paper)) for paper in paper_titles())
    assert len(found) == len(LEDGER) + others
    assert not found.duplicated(["paper", "item", "says"]).any()
    assert not {"inconclusive", "uninformative", "not attempted"} & set(found["state"])
    assert page.count("\n## ") == len(paper_titles())


def test_an_unknown_state_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "compact"
    folder.mkdir()
    (folder / "coverage.csv").write_text(
        "item,says,notebook,section,size,state\nTable 9,x,,,y,mising\n"
    )
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    with refused("'Table 9'.*mising"):
        coverage.other_items("compact")
