"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import math
import re

import pandas as pd
import pytest

from entp_lib import paths
from entp_lib.architectures import ARCHITECTURES
from entp_lib.experiments import experiment
from entp_lib.records.store import Record, Store
from entp_lib.reports import comparisons, findings, readme
from entp_lib.reports.findings import markdown
from entp_lib.reports.ledger import ledger
from entp_papers.entp.count3 import COUNT3


@pytest.fixture(scope="module")
def table():
    return ledger(Store(read_only=True))


def test_answers_say_what_their_verdicts_say(table):
    """Where a verdict changed, the sentence wants other words."""
    verdicts = table.set_index("id")["verdict"]
    supposed = {c: v for text in findings.answers()["rests_on"] for c, v in findings.supposed(text).items()}
    assert len(supposed) > 20
    assert {claim: verdicts[claim] for claim in supposed} == supposed


def test_answers_show_the_ledgers_values_and_lead_to_notebooks(table):
    shown = findings.answered(table, "../")
    row = shown[shown["what was asked"].str.startswith("Match3′, equal steps")].iloc[0]
    value = table.set_index("id").loc["T2-sequences", "our_value"]
    assert row["numbers"].startswith(f"{value:+.3f} (") and "../notebooks/06_match3.ipynb" in row["where"]
    assert not shown["numbers"].str.contains("{", regex=False).any()


def test_the_headline_names_who_is_ahead_at_each_budget(table):
    sentences = findings.headline(table).splitlines()
    assert len(sentences) == 3
    drawn = comparisons.comparisons(table).query("drawn_as != ''")
    for sentence, budget in zip(sentences, ("equal steps", "equal multiply-adds"), strict=False):
        rows = drawn[drawn["budget"] == budget]
        ahead = sentence.partition("decoder on")[0].partition("ahead on ")[2].removesuffix(", and the ")
        assert re.split(", | and ", ahead) == rows.loc[rows["answer"] == comparisons.AHEAD, "drawn_as"].tolist()


def test_cells_keep_to_their_columns():
    text = markdown(pd.DataFrame({"a|b": ["c|d\ne", None], "b": [1.5, math.nan]}))
    assert text.splitlines()[2:] == ["| c\\|d e | 1.5 |", "|  |  |"]


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


def test_the_picture_has_the_masks_of_the_models():
    picture, n, prompt = (paths.root() / "docs/pictures/attention.svg").read_text(encoding="utf-8"), 6, 3
    causal = n * (n + 1) // 2
    cells = {"decoder": causal, "prefix_decoder": causal + prompt * (prompt - 1) // 2, "entp": n * n}
    for name, count in cells.items():
        assert picture.count(f'rx="3" fill="{ARCHITECTURES[name].colour}"') == count


def test_costs_are_processor_time_where_a_record_has_it():
    where = dict(wall_seconds=90.0, cpu_seconds=30.0)
    record, on_gpu = (Record("count3", 1, COUNT3.plan(tier, 1)[0].config, {}, {}, where) for tier in ("quick", "gpu"))
    assert experiment.spent(record) == 30 and experiment.spent(on_gpu) == 90
    del record.provenance["cpu_seconds"]
    assert experiment.spent(record) == 90
