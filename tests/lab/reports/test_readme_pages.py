"""README's generated parts and the pages of docs/: from the ledger alone, current or named."""

import functools
import re

import pytest
from mistakes import refused

from entp_lab import answers, ledger, paths, report
from entp_lab.configs import TIERS
from entp_lab.measurements import Measurement
from entp_lab.notebooks import is_own, notebook_paths, notebooks_markdown, read_notebook
from entp_lab.paths import number_of
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lab.texts import read_text


@pytest.fixture(scope="module")
def table():
    return ledger.compute(Store(read_only=True))


def test_the_committed_ledger_is_what_the_committed_records_give(table, tmp_path, monkeypatch):
    """A change of code that moves a verdict is seen here, whatever it is."""
    monkeypatch.setattr(ledger, "compute", lambda _: table)
    ledger.write_ledger(Store(read_only=True), tmp_path)
    for name in ("claims.csv", "questions.csv"):
        assert read_text(tmp_path / name) == read_text(paths.results() / name)


def test_the_readme_says_what_the_records_say(table, monkeypatch):
    monkeypatch.setattr(ledger, "compute", lambda _: table)
    assert report.outdated() == [], "run: python -m entp_lab readme"


def test_a_sentence_whose_verdict_moved_is_refused_or_marked(table):
    shown = answers.table_of_claims(table)
    assert len(shown) == len(answers.answers()) > 20
    assert not shown[["here", "numbers"]].map(lambda text: "{" in text).any(axis=None)
    moved = table.assign(verdict=table["verdict"].where(table["id"] != "6.2-medium", "refuted"))
    with refused("6.2-medium is 'refuted' and was 'verified'"):
        answers.table_of_claims(moved)
    marked = answers.table_of_claims(moved, strict=False).set_index("claim")["here"]
    assert "to be written anew: 6.2-medium" in marked["6.2"]
    assert "anew" not in marked["4.1"]
    with refused("rests on '6.2-medium', a row that the ledger lacks"):
        answers.table_of_claims(table[table["id"] != "6.2-medium"])
    with refused("rests on 'T3-all', a row"):  # whose number it gives
        answers.table_of_claims(table[table["id"] != "T3-all"])


def test_the_ledger_has_a_main_part_an_annex_and_what_could_not_tell(table):
    main = ledger.main_rows()
    assert len(main) <= 40
    assert set(main) <= set(table["id"])
    assert set(table.loc[table["part"] == "main", "id"]) <= set(main)
    assert (table.loc[table["verdict"] == "uninformative", "part"] == "could not tell").all()
    page = report.ledger_page(table)
    assert all(
        text.replace("|", "\\|") in page for text in table.loc[table["part"] == "main", "statement"]
    )


def test_what_is_measured_is_not_lost_where_tasks_are_compared(table):
    shown = ledger.comparisons(table)
    measured = table.set_index("id").loc[shown["claim"], "our_value"].notna()
    assert (shown["value"].notna().to_numpy() == measured.to_numpy()).all()


def test_leads_stand_after_correction_for_all_intervals_that_test_a_difference(table):
    said = answers.leads(table)
    assert "the decoder is ahead on Count3" in said
    assert "L-4-0" not in ledger.standing(table)[0]
    alone = table.assign(our_value=table["our_value"].where(table["id"].isin(("L-4-0", "T3-all"))))
    assert "L-4-0" in ledger.standing(alone)[0]


def test_every_empirical_row_and_measured_main_row_says_how_its_setting_differs(table):
    tried = (table["kind"] == "empirical") & (table["verdict"] != "not attempted")
    is_measured = (table["part"] == "main") & table["our_value"].notna()
    assert tried.sum() > 50
    assert table["id"][(tried | is_measured) & (table["differs"] == "")].tolist() == []


def test_a_row_whose_experiment_has_no_reason_is_named(table):
    row = table[table["id"] == "F2-tokens"].assign(records="elsewhere/0")
    with refused("deviations.csv has no line on elsewhere"):
        report.deviations_from_papers(row)


def test_a_page_that_differs_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    names = ("README.md", "docs/costs.md")
    monkeypatch.setattr(
        report, "generated", lambda *_: dict.fromkeys(map(tmp_path.joinpath, names), "made")
    )
    assert report.outdated() == list(names)
    report.write()
    assert report.outdated() == []
    assert (tmp_path / "README.md").read_text() == "made"
    (tmp_path / "docs/costs.md").write_text("typed")
    assert report.outdated() == ["docs/costs.md"]


# The overview's list of notebooks: whole and linked.


def test_every_notebook_is_listed_once_with_what_it_asks():
    found = sorted(path for path in notebook_paths() if not path.stem.startswith("00_"))
    rows = re.findall(
        r"^\| \[(.*)\]\((\w+)\.ipynb\) \| (.*) \|$", notebooks_markdown(), re.MULTILINE
    )
    assert [stem for _, stem, _ in rows] == [path.stem for path in found]
    for (title, stem, asks), path in zip(rows, found, strict=True):
        assert title.startswith(f"{number_of(stem)} · ")
        assert 20 < len(asks) < 160
        if not is_own(path):
            assert asks == read_notebook(path)["cells"][0]["metadata"]["asks"]


def test_the_text_of_the_overview_leads_to_each_notebook_of_a_paper():
    cells = read_notebook(paths.notebooks() / "00_overview.ipynb")["cells"]
    written = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    linked = set(re.findall(r"\]\((\w+)\.ipynb", written))
    own_number = {path.stem for path in notebook_paths() if not is_own(path)} - {"00_overview"}
    without_paper = {"90_playground", "91_your_own_data"}
    second_ones = {
        stem for stem in own_number if len(number_of(stem)) > 2
    }  # details, to which the first ones link
    assert own_number - second_ones - without_paper <= linked <= own_number


# What full attention buys: every comparison is a claim's, on one scale, with an answer by rule.


ALIKE = {  # verdicts of the ledger, by answers of the picture
    "ENTP ahead": {"ENTP ahead", "same direction", "reproduced"},
    # a paper that claims no loss allows one of a margin, within which the decoder may be ahead
    "decoder ahead": {"decoder ahead", "not reproduced", "inconclusive"},
    "equal within the margin": {"equal within the margin", "not reproduced"},
    "open": {"open", "inconclusive"},
    "uninformative": {"uninformative"},
    "not run yet": {"not attempted"},
}


def test_one_datum_has_one_verdict_in_the_picture_and_in_the_ledger(table):
    shown = ledger.comparisons(table).merge(
        table[["id", "verdict"]], left_on="claim", right_on="id"
    )
    for row in shown.itertuples():
        assert row.verdict in ALIKE[row.answer], row.claim


# What the ledger names as a row's records is what the row rests on: they alone give the same values
# again.


# Experiments that measure nothing where other arms are missing.
OF_COMPACT = ("capacity", "graph", "activations", "walk_activations", "abstraction", "lengths")
WHOLE = {"openwebtext", "pretrained_prompts", *(f"compact_{name}" for name in OF_COMPACT)}


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - WHOLE))
def test_the_records_that_a_row_names_give_its_values(name):
    experiment = EXPERIMENTS[name]
    store = Store(read_only=True)
    for tier in TIERS:
        records = {r.name: r for r in experiment.stored(store, tier)}

        @functools.cache
        def measured(names, records=records):
            return experiment.measurements([r for n, r in records.items() if n in names])

        for found in measured(frozenset(records)) if records else []:
            if not isinstance(found, Measurement) or not set(found.records) <= set(records):
                continue  # a row may rest on another tier's runs
            (same,) = (m for m in measured(frozenset(found.records)) if m.claim == found.claim)
            assert list(same.values) == pytest.approx(list(found.values), abs=1e-12), (
                tier,
                found.claim,
            )


def test_a_row_that_needs_all_its_experiments_records_names_some_of_them():
    store = Store(read_only=True)
    for name in sorted(WHOLE):
        experiment = EXPERIMENTS[name]
        records = experiment.stored(store, "quick") or experiment.stored(store, "overnight")
        names = {r.name for r in records}
        measured = [m for m in experiment.measurements(records) if isinstance(m, Measurement)]
        assert measured, name
        assert all(m.records and set(m.records) <= names for m in measured), name
