"""The committed notebooks: clean, executed, and running live at the smoke tier."""

import ast
import json
import re
import shutil

import nbformat
import pandas as pd
import pytest

from entp_lab import figures, paths, site
from entp_lab.execution import Job, run_all
from entp_lab.notebooks import defaults, is_own, notebook_paths
from entp_lab.parameters import NotebookParameters
from entp_papers.entp import playground

NOTEBOOKS = [path for path in notebook_paths() if not is_own(path)]
LIVE = "nbval-ignore-output"


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def notebook(path):
    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def code(notebook):
    """The cells of code that have any."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


@pytest.fixture(scope="module")
def texts(notebook):
    """The texts of the cells of words."""
    return [c.source for c in notebook.cells if c.cell_type == "markdown"]


@pytest.fixture(scope="module")
def shown(code):
    """The data of outputs that a reader sees without a click."""
    cells = [c for c in code if not folded(c, "output")]
    return [output.get("data", {}) for cell in cells for output in cell.outputs]


def tags(cell):
    return cell.metadata.get("tags", [])


def folded(cell, what):
    """Whether a cell's ``what`` ("input" or "output") is out of sight until somebody opens it."""
    return f"hide-{what}" in tags(cell) or "hide-cell" in tags(cell)


def printed(output):
    """What an output has as plain text."""
    data = output.get("data", {})
    return str(output.get("text", "")) + str(data.get("text/plain", ""))


def plain(text):
    """``text`` without the targets of links and without code."""
    return re.sub(r"\]\(.*?\)|`[^`]*`", "", text)


def test_form(path, notebook):
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert path.stat().st_size <= 500 * 1024
    assert not any("injected-parameters" in tags(c) for c in notebook.cells)


def test_exactly_one_parameters_cell_of_literals_with_the_common_ones(path, code):
    (cell,) = [c for c in code if "parameters" in tags(c)]
    found = {}
    for statement in ast.parse(cell.source).body:
        (target,) = statement.targets
        found[target.id] = ast.literal_eval(statement.value)
    assert vars(NotebookParameters()).items() <= found.items()
    assert defaults(path) == found


def test_every_cell_was_executed_in_order_without_errors(code):
    """nbval compares nothing where a count is missing, and stderr never twice the same."""
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    outputs = [output for c in code for output in c.outputs]
    assert outputs
    assert not any(output.output_type == "error" for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)


def test_no_paths_of_this_machine(notebook, code):
    written = [c.source for c in notebook.cells]
    written += [printed(output) for c in code for output in c.outputs]
    place = re.compile(r"(?<![\w.])/(home|root|tmp|work|Users|mnt)/|[A-Z]:\\\\")
    assert not [text for text in written if place.search(text)]


def test_at_most_five_figures_and_four_tables_are_in_sight(texts, shown):
    words = "\n".join([*texts, *(data.get("text/markdown", "") for data in shown)])
    pictures = len(re.findall(r"!\[.*?\]\(", "\n".join(texts)))
    pictures += sum("image/png" in data or playground.CHART in data for data in shown)
    tables = len(re.findall(r"^\|[ :-]*-[ |:-]*$", words, re.MULTILINE))
    tables += sum("<table" in data.get("text/html", "") for data in shown)
    assert pictures <= 5
    assert tables <= 4


def test_the_answer_has_at_most_three_numbers(texts):
    answer = re.search(r"\*\*The answer:\*\*(.*?)(?:\n\n|\Z)", texts[0], re.DOTALL)
    words = re.sub(r"\]\(.*?\)|\[\d\d\w?\b", "", answer[1] if answer else "")
    assert len(re.findall(r"(?<![\w.])\d[\d,.]*", words)) <= 3


HOUSE_WORDS = re.compile(
    r"pairless|mode baseline|majority per position|commonest|constant guess|token-forward"
    r"|mid-course|\bat rest\b|uninformative|inconclusive|share of the way|\barms?\b|\btwins?\b"
    r"|new in every order|\bwanted\b",
    re.IGNORECASE,
)


def test_readers_see_no_word_of_the_house_s_own(texts, shown):
    """The names that stand on the left in the table of words; each has one plain name."""
    words = [*texts, *(data.get("text/markdown", "") for data in shown)]
    words = [*map(plain, words), *(data.get("text/html", "") for data in shown)]
    assert not HOUSE_WORDS.findall("\n".join(words))


def test_the_front_page_has_no_word_of_the_house_s_own_and_at_most_80_lines():
    page = (paths.root() / "README.md").read_text(encoding="utf-8")
    assert not HOUSE_WORDS.findall(plain(page))
    assert len(page.splitlines()) <= 80


def test_what_the_site_folds_is_folded_in_jupyterlab(code):
    for cell in code:
        known = {"source_hidden": folded(cell, "input"), "outputs_hidden": folded(cell, "output")}
        hidden = {name: True for name, is_folded in known.items() if is_folded}
        assert cell.metadata.get("jupyter", {}) == hidden


def test_cells_that_train_live_are_not_compared_with_what_they_stored(code):
    for cell in code:
        calls = [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Call)]
        trains = any(ast.unparse(call.func) == "learn" for call in calls)
        assert not trains or LIVE in tags(cell)


FRACTION = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?:e[-+]?\d+)?(?![\w.])")


def test_what_it_shows_has_at_most_four_figures(code):
    """More would be compared with what another processor computes, and last digits differ."""
    outputs = [output for c in code if LIVE not in tags(c) for output in c.outputs]
    words = [printed(output) for output in outputs]
    charts = [output.get("data", {}).get(playground.CHART, "") for output in outputs]
    for number in FRACTION.findall("\n".join([*words, *map(json.dumps, charts)])):
        number = number.replace(",", "")
        digits = re.sub(r"e.*|\D", "", number).strip("0")
        assert len(digits) <= 4 or float(number).is_integer(), number


@pytest.fixture(scope="module")
def ledger():
    """Verdict and value of every claim and question."""
    tables = [pd.read_csv(paths.root() / f"results/{name}.csv") for name in ("claims", "questions")]
    columns = ["id", "verdict", "our_value"]
    return pd.concat([table[columns] for table in tables]).set_index("id")


def test_it_opens_with_an_answer_that_the_ledger_still_gives(path, notebook, texts, ledger):
    """The first cell is written by hand and names the verdicts that it rests on: one changes, and
    so must the words.
    """
    if path.name >= "50":
        pytest.skip("rests on no verdict")
    first = notebook.cells[0]
    assert first.source == texts[0]
    assert "**The answer:**" in first.source
    assert any("cannot tell" in text for text in texts)
    assert first.metadata["rests_on"]
    for claim, supposed in first.metadata["rests_on"].items():
        verdict, *value = [supposed] if isinstance(supposed, str) else supposed
        assert ledger.loc[claim, "verdict"] == verdict, claim
        for number in value:  # that is in the words
            assert abs(ledger.loc[claim, "our_value"] - number) < 0.005, claim
    pictures = re.findall(r"!\[(.*)\]\((.*)\)", first.source)
    assert pictures
    for alt, figure in pictures:
        assert alt
        assert (path.parent / figure).exists()


def test_every_figure_it_saves_is_there(path, code):
    source = "\n".join(c.source for c in code)
    saved = re.findall(r'save_figure\(\s*\w+,\s*"(\w+)"', source)
    assert saved or path.stem.startswith("91")  # what is trained on a user's own data has none
    for name in saved:
        assert name.startswith(path.stem[:2])
        for kind in ("png", "svg"):
            assert (paths.figures() / f"{name}.{kind}").stat().st_size > 1000


SOURCES = re.compile(
    r"\[tier (quick|overnight|gpu|paper).*; seeds \d+; commit [0-9a-f]{7,}.*; records \w+/"
)


def test_every_figure_belongs_to_a_notebook_and_names_its_records():
    numbers = {path.stem[:2] for path in NOTEBOOKS}
    gallery = site.gallery()
    assert {path.stem for path, _ in gallery} == figures.committed_digests().keys()
    for path, about in gallery:
        assert path.stem[:2] in numbers
        assert SOURCES.search(about), path.name


@pytest.mark.live
def test_runs_live_at_the_smoke_tier(path, results, monkeypatch):
    """Left out by default: nbval executes every notebook, and all smoke runs are computed."""
    monkeypatch.setenv("ENTP_FIGURES", str(results / "figures"))
    # a cell that names a committed run shows it
    shutil.copytree(paths.root() / "results/records", results / "records")
    before = path.read_bytes()
    monkeypatch.setenv(paths.NEW_FIGURES_VARIABLE, str(paths.new_figures()))
    (result,) = run_all([Job(path, {"tier": "smoke", "jobs": 1})])
    assert result.error == ""
    made = list((results / "smoke/figures").glob("*.png"))
    assert made or path.stem.startswith(("03b", "91"))  # whose figures are of stored runs
    assert not (results / "figures").exists()
    assert path.read_bytes() == before
    assert (results / "executed" / path.name).exists()
