"""The page of coverage: items point to headings that are there, and states follow from the ledger."""

import nbformat
import pandas as pd
import pytest

from entp_lab import coverage, paths
from entp_lib.validation import ConfigError

LEDGER = pd.read_csv(paths.root() / "results" / "claims.csv").fillna({"differs": ""})


@pytest.mark.parametrize("paper", coverage.PAPERS)
def test_items_point_to_headings_and_stand_once(paper):
    found = coverage.items(LEDGER, paper)
    for notebook, rows in found[found["notebook"] != ""].groupby("notebook"):
        cells = nbformat.read(paths.root() / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
        lines = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown").splitlines()
        headings = {line.lstrip("#").strip() for line in lines if line.startswith("#")}
        assert set(rows["section"]) - {""} <= headings, notebook
    assert not found.duplicated(["item", "says"]).any()


def test_an_item_says_where_it_is_unless_nothing_of_it_is_there():
    for paper in coverage.PAPERS:
        others = coverage.other_items(paper)
        nowhere = others[others["notebook"] == ""]
        assert not nowhere["state"].isin(["tried small", "not run"]).any()
        assert (others["size"] != "").all()


def test_every_verdict_of_a_paper_is_an_item_and_no_house_word_is_left():
    page = coverage.page(LEDGER)
    states = pd.concat(coverage.items(LEDGER, paper)["state"] for paper in coverage.PAPERS)
    others = sum(len(coverage.other_items(paper)) for paper in coverage.PAPERS)
    assert len(states) == len(LEDGER) + others
    assert not {"inconclusive", "uninformative", "not attempted"} & set(states)
    assert page.count("\n## ") == len(coverage.PAPERS)


def test_numbers_are_ordered_as_numbers():
    names = ["Lemma 10", "Lemma 9", "§4.3", "§4", "figure 12", "Figure 2"]
    ordered = sorted(names, key=coverage.natural_order)
    assert ordered == ["Figure 2", "figure 12", "Lemma 9", "Lemma 10", "§4", "§4.3"]


def test_an_unknown_state_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "compact"
    folder.mkdir()
    (folder / "coverage.csv").write_text("item,says,notebook,section,size,state\nTable 9,x,,,y,mising\n")
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    with pytest.raises(ConfigError, match="'Table 9'.*mising"):
        coverage.other_items("compact")
