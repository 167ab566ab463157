"""The committed notebooks: clean, executed, and running live at the smoke tier."""

import ast
import json
import math
import re

import nbformat
import pandas as pd
import pytest

from entp_lab import figures, paths, site
from entp_lab.claims import reference_claims
from entp_lab.notebooks import Job, defaults, notebook_paths, run_all
from entp_lab.parameters import NotebookParameters
from entp_papers.entp import playground

NOTEBOOKS = notebook_paths()
names = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
LEDGER = {name: pd.read_csv(paths.root() / "results" / f"{name}.csv") for name in ("claims", "questions")}


def code_cells(path):
    cells = nbformat.read(path, as_version=4).cells
    return [c for c in cells if c.cell_type == "code" and c.source.strip()]


def parameter_cells(path):
    return [c for c in code_cells(path) if "parameters" in c.metadata.get("tags", [])]


def test_claims_point_to_headings():
    """Every section in a table of claims is a heading of the claim's notebook, or empty."""
    claims = reference_claims().dropna(subset=["section"])
    for name, rows in claims.groupby("notebook"):
        cells = nbformat.read(paths.root() / "notebooks" / f"{name}.ipynb", as_version=4).cells
        words = "\n".join(c.source for c in cells if c.cell_type == "markdown")
        headings = re.findall(r"^#+ (.*)$", words, re.MULTILINE)
        missing = rows.loc[~rows["section"].isin(headings), ["id", "section"]]
        assert missing.empty, f"{name} has no such heading: {missing.values.tolist()}"


@names
def test_form(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert path.stat().st_size <= 500 * 1024
    assert not any("injected-parameters" in c.metadata.get("tags", []) for c in notebook.cells)


@names
def test_exactly_one_parameters_cell_of_literals_with_the_common_ones(path):
    (cell,) = parameter_cells(path)
    found = {}
    for statement in ast.parse(cell.source).body:
        assert isinstance(statement, ast.Assign) and len(statement.targets) == 1
        found[statement.targets[0].id] = ast.literal_eval(statement.value)
    common = vars(NotebookParameters())
    assert {name: found.get(name) for name in common} == common
    assert defaults(path) == found


@names
def test_every_cell_was_executed_in_order_without_errors(path):
    """nbval compares nothing where a count is missing, and stderr never twice the same."""
    cells = code_cells(path)
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    outputs = [o for c in cells for o in c.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert outputs


@names
def test_no_paths_of_this_machine(path):
    texts = [c.source for c in nbformat.read(path, as_version=4).cells]
    texts += [
        str(o.get("text", "")) + str(o.get("data", {}).get("text/plain", ""))
        for c in code_cells(path)
        for o in c.outputs
    ]
    for text in texts:
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users|mnt)/|[A-Z]:\\\\", text), text


def folded(cell, what):
    """Whether a cell's ``what`` ("input" or "output") is out of sight until somebody opens it."""
    return bool({f"hide-{what}", "hide-cell"} & set(cell.metadata.get("tags", [])))


def in_sight(path):
    """Texts of a notebook's markdown cells, and the data of its outputs, that a reader sees without a click."""
    cells = nbformat.read(path, as_version=4).cells
    texts = [c.source for c in cells if c.cell_type == "markdown"]
    outputs = [o for c in cells if c.cell_type == "code" and not folded(c, "output") for o in c.outputs]
    return texts, [o.get("data", {}) for o in outputs]


@names
def test_at_most_five_figures_and_four_tables_are_in_sight(path):
    texts, shown = in_sight(path)
    pictures = sum(len(re.findall(r"!\[.*?\]\(", text)) for text in texts)
    pictures += sum(bool({"image/png", playground.CHART} & data.keys()) for data in shown)
    texts += [data.get("text/markdown", "") for data in shown]
    tables = sum(len(re.findall(r"^\|[ :-]*-[ |:-]*$", text, re.MULTILINE)) for text in texts)
    tables += sum("<table" in data.get("text/html", "") for data in shown)
    assert pictures <= 5 and tables <= 4


@names
def test_the_answer_has_at_most_three_numbers(path):
    first = nbformat.read(path, as_version=4).cells[0].source
    answer = re.search(r"\*\*The answer:\*\*(.*?)(?:\n\n|\Z)", first, re.DOTALL)
    words = re.sub(r"\]\(.*?\)|\[\d\d\w?\b", "", answer[1] if answer else "")
    assert len(re.findall(r"(?<![\w.])\d[\d,.]*", words)) <= 3


HOUSE_WORDS = re.compile(
    r"pairless|mode baseline|majority per position|commonest|constant guess|token-forward|mid-course|\bat rest\b"
    r"|uninformative|inconclusive|share of the way|\barms?\b|\btwins?\b|new in every order|\bwanted\b",
    re.IGNORECASE,
)


@names
def test_readers_see_no_word_of_the_house_s_own(path):
    """The names that stand on the left in the table of words; each has one plain name."""
    texts, shown = in_sight(path)
    texts = [re.sub(r"\]\(.*?\)|`[^`]*`", "", text) for text in texts]
    texts += [data.get("text/html", "") + re.sub(r"\]\(.*?\)", "", data.get("text/markdown", "")) for data in shown]
    found = {word.lower() for text in texts for word in HOUSE_WORDS.findall(text)}
    assert not found


def test_the_front_page_has_no_word_of_the_house_s_own_and_at_most_80_lines():
    page = (paths.root() / "README.md").read_text(encoding="utf-8")
    assert not HOUSE_WORDS.findall(re.sub(r"\]\(.*?\)|`[^`]*`", "", page))
    assert len(page.splitlines()) <= 80


LIVE = "nbval-ignore-output"


@names
def test_what_the_site_folds_is_folded_in_jupyterlab(path):
    for cell in code_cells(path):
        known = {"source_hidden": folded(cell, "input"), "outputs_hidden": folded(cell, "output")}
        assert cell.metadata.get("jupyter", {}) == {name: True for name, hidden in known.items() if hidden}


@names
def test_cells_that_train_live_are_not_compared_with_what_they_stored(path):
    for cell in code_cells(path):
        trains = any(
            isinstance(n, ast.Call) and ast.unparse(n.func) == "learn" for n in ast.walk(ast.parse(cell.source))
        )
        assert not trains or LIVE in cell.metadata.get("tags", [])


FRACTION = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?:e[-+]?\d+)?(?![\w.])")


@names
def test_what_it_shows_has_at_most_four_figures(path):
    """More would be compared with what another processor computes, and last digits differ."""
    outputs = [o for c in code_cells(path) if LIVE not in c.metadata.get("tags", []) for o in c.outputs]
    shown = [str(o.get("text", "")) + str(o.get("data", {}).get("text/plain", "")) for o in outputs]
    shown += [json.dumps(o.data[playground.CHART]) for o in outputs if playground.CHART in o.get("data", {})]
    numbers = {number.replace(",", "") for text in shown for number in FRACTION.findall(text)}
    figures = {number: re.sub(r"e.*|\D", "", number).strip("0") for number in numbers if float(number) % 1}
    assert not [number for number, digits in figures.items() if len(digits) > 4]


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.name < "50"], ids=lambda p: p.stem)
def test_it_opens_with_an_answer_that_the_ledger_still_gives(path):
    """The first cell is written by hand and names the verdicts that it rests on: one changes, and so must the words."""
    cells = nbformat.read(path, as_version=4).cells
    first = cells[0]
    assert first.cell_type == "markdown" and "**The answer:**" in first.source
    assert re.search(r"!\[.+\]\(", first.source)
    assert any("cannot tell" in cell.source for cell in cells if cell.cell_type == "markdown")
    found = {c.id: (c.verdict, c.our_value) for name in ("claims", "questions") for c in LEDGER[name].itertuples()}
    supposed = {c: v if isinstance(v, list) else [v] for c, v in first.metadata["rests_on"].items()}
    now = {claim: found.get(claim, ("no such claim", math.nan)) for claim in supposed}
    verdicts = {claim: [now[claim][0], *value] for claim, (_, *value) in supposed.items()}
    assert supposed and verdicts == supposed, f"{path.name} opens with words about other verdicts: rewrite them"
    for claim, (_, *value) in supposed.items():  # a number in the words is given beside the verdict
        assert not value or abs(now[claim][1] - value[0]) < 0.005, f"{path.name}: {claim} is now {now[claim][1]}"
    for alt, figure in re.findall(r"!\[(.*)\]\((.*)\)", first.source):
        assert alt and (path.parent / figure).exists()


@names
def test_every_figure_it_saves_is_there(path):
    source = "\n".join(c.source for c in code_cells(path))
    saved = re.findall(r'save_figure\(\s*\w+,\s*"(\w+)"', source)
    assert saved or path.stem.startswith("91"), (
        "only what is trained on a user's own data has no figure of the project's"
    )
    assert all(name.startswith(path.stem[:2]) for name in saved)
    for name in saved:
        assert all((paths.figures() / f"{name}.{suffix}").stat().st_size > 1000 for suffix in ("png", "svg"))


def test_every_figure_belongs_to_a_notebook_and_names_its_records():
    numbers = {path.stem[:2] for path in NOTEBOOKS}
    shown = site.gallery()
    assert {path.stem for path, _ in shown} == figures.committed_digests().keys()
    for path, about in shown:
        assert path.stem[:2] in numbers
        assert re.search(
            r"\[tier (quick|overnight|gpu|paper).*; seeds \d+; commit [0-9a-f]{7,}.*; records \w+/", about
        ), path.name


@pytest.mark.live
@names
def test_runs_live_at_the_smoke_tier(path, tmp_path, monkeypatch):
    """Left out by default: nbval executes every notebook, and test_experiments computes all smoke runs."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("ENTP_FIGURES", str(tmp_path / "figures"))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    before = path.read_bytes()
    monkeypatch.setenv(paths.NEW_FIGURES_VARIABLE, str(paths.new_figures()))
    (result,) = run_all([Job(path, {"tier": "smoke", "jobs": 1})])
    assert result.error == ""
    made = list((tmp_path / "results" / "smoke" / "figures").glob("*.png"))
    assert (made or path.stem.startswith("91")) and not (tmp_path / "figures").exists()
    assert path.read_bytes() == before and (tmp_path / "results" / "executed" / path.name).exists()
