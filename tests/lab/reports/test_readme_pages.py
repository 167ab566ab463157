"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import csv
import json
import math
import re

import pandas as pd
import pytest

from entp_lab import paths, report
from entp_lab.claims import reference_claims
from entp_lab.configs import TIERS
from entp_lab.measurements import Measurement
from entp_lab.notebooks import is_own, notebook_paths, notebooks_markdown
from entp_lab.paths import number_of
from entp_lab.registry import EXPERIMENTS
from entp_lab.report import ledger
from entp_lab.store import Store
from entp_lib.validation import ConfigError


@pytest.fixture(scope="module")
def table():
    return ledger(Store(read_only=True))


@pytest.mark.parametrize("name", ["claims", "questions"])
def test_the_committed_ledger_is_what_the_committed_records_give(table, name, tmp_path, monkeypatch):
    """A change of code that moves a verdict is seen here, whatever it is."""
    monkeypatch.setattr(report, "ledger", lambda _: table)
    report.write_ledger(Store(read_only=True), tmp_path)
    files = (tmp_path / f"{name}.csv", paths.results() / f"{name}.csv")
    computed, committed = (list(csv.reader(file.read_text(encoding="utf-8").splitlines())) for file in files)
    assert {row[0]: row for row in computed} == {row[0]: row for row in committed}
    assert computed == committed


def test_the_readme_says_what_the_records_say(table, monkeypatch):
    monkeypatch.setattr(report, "ledger", lambda _: table)
    assert report.outdated() == [], "run: python -m entp_lab readme"


def test_a_sentence_whose_verdict_moved_is_refused_or_marked(table):
    assert len(report.table_of_claims(table)) == len(report.answers()) > 20
    moved = table.assign(verdict=table["verdict"].where(table["id"] != "6.2-medium", "refuted"))
    with pytest.raises(
        ConfigError, match=r"'A decoder needs ever more layers.*6.2-medium is 'refuted' and was 'verified'"
    ):
        report.table_of_claims(moved)
    marked = report.table_of_claims(moved, strict=False).set_index("claim")["here"]
    assert "to be written anew: 6.2-medium" in marked["6.2"]
    assert "anew" not in marked["4.1"]
    with pytest.raises(ConfigError, match="rests on '6.2-medium', a row that the ledger lacks"):
        report.table_of_claims(table[table["id"] != "6.2-medium"])


def test_the_verdict_shown_is_that_of_the_row_it_rests_on_and_numbers_are_its_values(table):
    shown = report.table_of_claims(table).set_index("claim")
    rows = table.set_index("id")
    for claim, row in shown.iterrows():
        assert row["verdict"] == report.PLAIN.get(rows.loc[claim, "verdict"], rows.loc[claim, "verdict"])
    assert f"by {-rows.loc['T3-all', 'our_value']:.2f} nats" in shown.loc["T3-all", "here"]
    assert not shown[["here", "numbers"]].map(lambda text: "{" in text).any(axis=None)
    front = report.front(table)
    page = report.claims_markdown(table)
    assert all(says in front and says in page for says in shown.loc[shown["front"], "says"])


def test_the_ledger_has_a_main_part_an_annex_and_what_could_not_tell(table):
    main = report.main_rows()
    assert len(main) <= 40
    assert set(main) <= set(table["id"])
    assert set(table.loc[table["part"] == "main", "id"]) <= set(main)
    assert (table.loc[table["verdict"] == "uninformative", "part"] == "could not tell").all()
    page = report.ledger_page(table)
    assert all(text.replace("|", "\\|") in page for text in table.loc[table["part"] == "main", "statement"])


def test_what_is_measured_is_not_lost_where_tasks_are_compared(table):
    shown = report.comparisons(table)
    measured = table.set_index("id").loc[shown["claim"], "our_value"].notna()
    assert (shown["value"].notna().to_numpy() == measured.to_numpy()).all()


def test_the_tally_counts_each_statement_once(table):
    tally = report.tally(table)
    assert tally.drop(columns=["paper", "statements on"]).to_numpy().sum() == (table["kind"] != "question").sum()
    none = table[table["kind"] != "empirical"]
    one = pd.concat([none, table[table["id"] == "T3-all"]])
    assert "Of 1 statements of the ENTP paper on trained models 1 is not seen at our size." in report.tally_sentence(
        one
    )
    large = one.assign(tier="paper", our_value=0.1)
    assert report.tally_sentence(large).endswith("1 comparisons ran at the paper's size.")


def test_leads_stand_after_correction_for_all_intervals_that_test_a_difference(table):
    said = report.leads(table)
    assert "the decoder is ahead on text" in said
    assert "sets never seen" not in said  # p = .038 alone
    alone = table.assign(our_value=table["our_value"].where(table["id"].isin(("F2-unseen-sets", "T3-all"))))
    assert "sets never seen" in report.leads(alone)


def test_every_empirical_row_says_how_its_setting_differs_from_the_papers(table):
    tried = table[(table["kind"] == "empirical") & (table["verdict"] != "not attempted")]
    assert len(tried) > 50
    assert tried["id"][tried["differs"] == ""].tolist() == []


def test_a_row_whose_experiment_has_no_reason_is_named(table):
    row = table[table["id"] == "F2-tokens"].assign(records="elsewhere/0")
    with pytest.raises(ConfigError, match="deviations.csv has no line on elsewhere"):
        report.deviations_from_papers(row)


def test_a_page_that_differs_is_named(tmp_path, monkeypatch):
    parts = ("answer", "findings", "notebooks")
    (tmp_path / "README.md").write_text("".join(f"<!-- {n}:begin -->\n\n<!-- {n}:end -->\n" for n in parts))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    for name in ("ledger", "front", "findings_page", "ledger_page", "costs_page", "deviations_page"):
        monkeypatch.setattr(f"entp_lab.report.{name}", lambda _: "made")
    monkeypatch.setattr("entp_lab.coverage.page", lambda _: "made")
    monkeypatch.setattr("entp_lab.report.answer_in_short", lambda: "made")
    assert report.outdated() == [
        "README.md",
        "docs/findings.md",
        "docs/costs.md",
        "docs/ledger.md",
        "docs/deviations.md",
        "docs/coverage.md",
    ]
    report.write()
    assert report.outdated() == []
    assert "made" in (tmp_path / "README.md").read_text()
    (tmp_path / "docs" / "costs.md").write_text("typed")
    assert report.outdated() == ["docs/costs.md"]


# The overview's list of notebooks: whole and linked.


def test_every_notebook_is_listed_once_with_what_it_asks():
    text = notebooks_markdown()
    found = sorted(p for p in notebook_paths() if not p.stem.startswith("00_"))
    rows = re.findall(r"^\| \[(.*)\]\((\w+)\.ipynb\) \| (.*) \|$", text, re.MULTILINE)
    assert [stem for _, stem, _ in rows] == [path.stem for path in found]
    for (title, stem, asks), path in zip(rows, found, strict=True):
        assert title.startswith(f"{number_of(stem)} · ")
        assert 20 < len(asks) < 160
        if not is_own(path):
            first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
            assert asks == first["metadata"]["asks"]


def test_the_committed_overview_lists_the_notebooks_and_its_text_leads_to_each_of_a_paper():
    cells = json.loads((paths.notebooks() / "00_overview.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = [
        "".join(output["data"]["text/markdown"])
        for cell in cells
        for output in cell.get("outputs", ())
        if "text/markdown" in output.get("data", ())
    ]
    assert str(notebooks_markdown()) in shown
    written = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    linked = set(re.findall(r"\]\((\w+)\.ipynb", written))
    of_papers = {p.stem for p in notebook_paths() if number_of(p.stem) not in ("00", "90", "91") and not is_own(p)}
    second_ones = {stem for stem in of_papers if len(number_of(stem)) > 2}  # details, to which the first ones link
    assert of_papers - second_ones <= linked <= of_papers | {"90_playground", "91_your_own_data"}


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
    assert report.comparisons(rows(**changes)).set_index("claim")["answer"]["F2-tokens"] == answer


def test_one_datum_has_one_verdict_in_the_picture_and_in_the_ledger(table):
    verdicts = table.set_index("id")["verdict"]
    alike = {
        "ENTP ahead": {"ENTP ahead", "same direction", "reproduced"},
        "decoder ahead": {"decoder ahead", "not reproduced"},
        "equal within the margin": {"equal within the margin", "not reproduced"},
        "open": {"open", "inconclusive"},
        "uninformative": {"uninformative"},
    }
    apart = {r.claim: r.answer for r in report.comparisons(table).itertuples() if r.answer in alike}
    apart = {claim: answer for claim, answer in apart.items() if verdicts[claim] not in alike[answer]}
    assert apart == {}


# What the ledger names as a row's records is what the row rests on: they alone give the same values again.


# Experiments that measure nothing where other arms are missing.
OF_COMPACT = ("capacity", "graph", "activations", "walk_activations", "abstraction", "lengths")
WHOLE = {"openwebtext", "pretrained_prompts", *(f"compact_{name}" for name in OF_COMPACT)}


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - WHOLE))
def test_the_records_that_a_row_names_give_its_values(name):
    experiment = EXPERIMENTS[name]
    store = Store(read_only=True)
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
        assert measured, name
        assert all(m.records and set(m.records) <= names for m in measured), name
