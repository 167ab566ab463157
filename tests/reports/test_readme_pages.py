"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import re

import pytest

from entp_lib import paths
from entp_lib.records.store import Store
from entp_lib.reports import comparisons, findings, readme
from entp_lib.reports.ledger import ledger


@pytest.fixture(scope="module")
def table():
    return ledger(Store(read_only=True))


def test_answers_say_what_their_verdicts_say(table):
    """Where a verdict changed, the sentence wants other words."""
    verdicts = table.set_index("id")["verdict"]
    supposed = {c: v for text in findings.answers()["rests_on"] for c, v in findings.supposed(text).items()}
    assert len(supposed) > 20
    assert {claim: verdicts[claim] for claim in supposed} == supposed


def test_the_headline_names_who_is_ahead_at_each_budget(table):
    sentences = findings.headline(table).splitlines()
    assert len(sentences) == 3
    drawn = comparisons.comparisons(table).query("drawn_as != ''")
    for sentence, budget in zip(sentences, ("equal steps", "equal multiply-adds"), strict=False):
        rows = drawn[drawn["budget"] == budget]
        ahead = sentence.partition("decoder on")[0].partition("ahead on ")[2].removesuffix(", and the ")
        assert re.split(", | and ", ahead) == rows.loc[rows["answer"] == comparisons.AHEAD, "drawn_as"].tolist()


def test_a_page_that_differs_is_named(tmp_path, monkeypatch):
    text = "".join(f"<!-- {name}:begin -->\n\n<!-- {name}:end -->\n" for name in readme.PARTS)
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    monkeypatch.setattr(readme, "ledger", lambda store: None)
    monkeypatch.setattr(readme, "PARTS", {name: lambda table: "made" for name in readme.PARTS})
    monkeypatch.setattr(readme, "PAGES", {"docs/a.md": lambda table, store: "a", "docs/b.md": lambda table, store: "b"})
    assert readme.outdated() == ["README.md", "docs/a.md", "docs/b.md"]
    readme.write()
    assert readme.outdated() == [] and (tmp_path / "README.md").read_text().count("made") == len(readme.PARTS)
    (tmp_path / "docs" / "b.md").write_text("typed")
    assert readme.outdated() == ["docs/b.md"]
