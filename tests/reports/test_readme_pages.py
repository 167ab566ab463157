"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import csv
import html
import json
import math
import re

import pandas as pd
import pytest

from entp_lib import paths
from entp_lib.config import TIERS
from entp_lib.experiments.claims import reference_claims
from entp_lib.experiments.measurements import Measurement
from entp_lib.paths import number_of
from entp_lib.records.store import Store
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports import deviations, findings
from entp_lib.reports import ledger as ledgers
from entp_lib.reports.ledger import ledger
from entp_lib.reports.notebooks import is_own, notebook_paths, notebooks_html
from entp_lib.validation import ConfigError


@pytest.fixture(scope="module")
def table():
    return ledger(Store(read_only=True))


@pytest.mark.parametrize("name", ["claims", "questions"])
def test_the_committed_ledger_is_what_the_committed_records_give(table, name, tmp_path, monkeypatch):
    """A change of code that moves a verdict is seen here, whatever it is."""
    monkeypatch.setattr(ledgers, "ledger", lambda _: table)
    ledgers.write_ledger(Store(read_only=True), tmp_path)
    files = (tmp_path / f"{name}.csv", paths.results() / f"{name}.csv")
    computed, committed = (list(csv.reader(file.read_text(encoding="utf-8").splitlines())) for file in files)
    assert {row[0]: row for row in computed} == {row[0]: row for row in committed}
    assert computed == committed


def test_the_readme_says_what_the_records_say(table, monkeypatch):
    monkeypatch.setattr(findings, "ledger", lambda _: table)
    assert findings.outdated() == [], "run: python -m entp_lib readme"


def test_answers_say_what_their_verdicts_say(table):
    """Where a verdict changed, the sentence wants other words."""
    verdicts = table.set_index("id")["verdict"]
    supposed = {c: v for text in findings.answers()["rests_on"] for c, v in findings.supposed(text).items()}
    assert len(supposed) > 20
    assert {claim: verdicts[claim] for claim in supposed} == supposed


def test_every_empirical_row_says_how_its_setting_differs_from_the_papers(table):
    tried = table[(table["kind"] == "empirical") & (table["verdict"] != "not attempted")]
    assert len(tried) > 50 and tried["id"][tried["differs"] == ""].tolist() == []


def test_a_row_whose_experiment_has_no_reason_is_named(table):
    row = table[table["id"] == "F2-tokens"].assign(records="elsewhere/0")
    with pytest.raises(ConfigError, match="deviations.csv has no line on elsewhere"):
        deviations.from_papers(row)


def test_a_page_that_differs_is_named(tmp_path, monkeypatch):
    parts = ("findings", "notebooks")
    (tmp_path / "README.md").write_text("".join(f"<!-- {n}:begin -->\n\n<!-- {n}:end -->\n" for n in parts))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    for name in ("ledger", "headline", "page", "costs.page", "deviations.page"):
        monkeypatch.setattr(f"entp_lib.reports.findings.{name}", lambda _: "made")
    assert findings.outdated() == ["README.md", "docs/findings.md", "docs/costs.md", "docs/deviations.md"]
    findings.write()
    assert findings.outdated() == [] and "made" in (tmp_path / "README.md").read_text()
    (tmp_path / "docs" / "costs.md").write_text("typed")
    assert findings.outdated() == ["docs/costs.md"]


# The overview's list of notebooks: whole, linked, and of HTML that nothing has to leave out.


def test_every_notebook_is_listed_once_with_what_it_asks():
    text, found = notebooks_html(), sorted(p for p in notebook_paths() if not p.stem.startswith("00_"))
    rows = re.findall(r'<tr><td[^>]*><a href="(\w+)\.ipynb">(.*?)</a></td><td[^>]*>(.*?)</td></tr>', text)
    assert [stem for stem, _, _ in rows] == [path.stem for path in found]
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
    assert str(notebooks_html()) in shown
    written = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    linked = set(re.findall(r"\]\((\w+)\.ipynb", written))
    assert linked == {p.stem for p in notebook_paths() if number_of(p.stem) not in ("00", "90") and not is_own(p)}


# What full attention buys: every comparison is a claim's, on one scale, with an answer by rule.


def rows(**changes):
    """A ledger of all claims, none measured but F2-tokens: 0.1 (0.05 to 0.15) of a range of 0.5."""
    claims = reference_claims()
    table = pd.DataFrame({"id": claims["id"], "verdict": "not attempted", "tier": "", "seeds": 0, "records": ""})
    table = table.assign(our_value=math.nan, low=math.nan, high=math.nan, scale=0.5)
    given = dict(our_value=0.1, low=0.05, high=0.15, verdict="same direction", seeds=5, tier="quick") | changes
    table.loc[table["id"] == "F2-tokens", list(given)] = list(given.values())
    return table


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        (dict(low=-0.15, high=-0.05), "decoder ahead"),
        (dict(low=-0.05, high=0.15, verdict="inconclusive"), "open"),
        (dict(low=-0.005, high=0.005, verdict="not reproduced"), "equal within the margin"),
        (dict(seeds=4, verdict="inconclusive"), "open"),
        (dict(verdict="uninformative"), "uninformative"),
        (dict(low=-0.2, high=-0.1, verdict="inconclusive"), "open"),  # no worse, or worse, than a margin allows
        (dict(verdict="not attempted"), "not run yet"),
    ],
)
def test_answers_follow_one_rule(changes, answer):
    assert findings.comparisons(rows(**changes)).set_index("claim")["answer"]["F2-tokens"] == answer


def test_one_datum_has_one_verdict_in_the_picture_and_in_the_ledger(table):
    verdicts = table.set_index("id")["verdict"]
    alike = {
        "ENTP ahead": {"ENTP ahead", "same direction", "reproduced"},
        "decoder ahead": {"decoder ahead", "not reproduced"},
        "equal within the margin": {"equal within the margin", "not reproduced"},
        "open": {"open", "inconclusive"},
        "uninformative": {"uninformative"},
    }
    apart = {r.claim: r.answer for r in findings.comparisons(table).itertuples() if r.answer in alike}
    apart = {claim: answer for claim, answer in apart.items() if verdicts[claim] not in alike[answer]}
    assert apart == {}


# What the ledger names as a row's records is what the row rests on: they alone give the same values again.


# Experiments that measure nothing where other arms are missing.
OF_COMPACT = ("capacity", "graph", "activations", "walk_activations", "abstraction", "lengths")
WHOLE = {"openwebtext", "pretrained_prompts", *(f"compact_{name}" for name in OF_COMPACT)}


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - WHOLE))
def test_the_records_that_a_row_names_give_its_values(name):
    experiment, store = EXPERIMENTS[name], Store(read_only=True)
    for tier in TIERS:
        records = {r.name: r for r in experiment.stored(store, tier) or []}
        for found in experiment.measurements(list(records.values())) if records else []:
            if not isinstance(found, Measurement) or not set(found.records) <= set(records):
                continue  # a row may rest on another tier's runs
            again = experiment.measurements([r for n, r in records.items() if n in set(found.records)])
            (same,) = (m for m in again if m.claim == found.claim)
            assert list(same.values) == pytest.approx(list(found.values), abs=1e-12), (tier, found.claim)


def test_a_row_that_needs_all_its_experiments_records_names_some_of_them():
    store = Store(read_only=True)
    for name in sorted(WHOLE):
        records = EXPERIMENTS[name].stored(store, "quick") or EXPERIMENTS[name].stored(store, "overnight")
        names = {r.name for r in records}
        measured = [m for m in EXPERIMENTS[name].measurements(records) if isinstance(m, Measurement)]
        assert measured and all(m.records and set(m.records) <= names for m in measured), name
