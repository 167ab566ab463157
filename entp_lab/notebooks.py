"""Numbered notebooks: which there are, their parameters, and what of their metadata is committed."""

import ast
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from entp_lab import paths
from entp_lab.parameters import NotebookParameters
from entp_lib.validation import ConfigError, Json, fields_of, from_dict, one_of, require

OVERVIEW = "00"
FIRST_OWN = "50"  # first number of the user's own notebooks
AFTER_OWN = "90"  # first number after them
COMMON = fields_of(NotebookParameters)  # parameters of every notebook
# metadata of every committed notebook
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Metadata that authors write: tags; in the first cell also the verdicts that the text assumes, and the question asked.
WRITTEN = ("tags", "rests_on", "asks")
# Tags by which the site folds a part of a cell, and JupyterLab's names for that.
FOLDS = (
    ("hide-input", "source_hidden"),
    ("hide-output", "outputs_hidden"),
    ("hide-cell", "source_hidden"),
    ("hide-cell", "outputs_hidden"),
)
WIDGET = "application/vnd.jupyter.widget-view+json"


def number(notebook: Path) -> str:
    """Return the number of a notebook, "03b" of "03b_count3_details.ipynb"."""
    return paths.number_of(notebook.stem)


def notebook_paths(only: str = "") -> list[Path]:
    """Return the numbered notebooks, the overview last because it shows the results of the others.

    A number is two digits, and a letter for a second notebook on one subject ("03b"). ``only``: numbers or names,
    separated by commas, as in "03,06_match3"; ConfigError for one that does not exist. A copy such as JupyterLab's
    "03_count3-Copy1" is not a numbered notebook.
    """
    found = [
        path
        for path in paths.notebooks().glob("*.ipynb")
        if re.fullmatch(r"\d\d[a-z]?_[A-Za-z]\w*", path.stem)
    ]
    asked = [
        Path(name.strip()).name.removesuffix(".ipynb") for name in only.split(",") if name.strip()
    ]
    require(asked or not only, f"--only {only!r}: write numbers or names, as in 03,06_match3")
    chosen = set() if asked else set(found)
    for name in asked:
        of_name = {path for path in found if name == path.stem or name.zfill(2) == number(path)}
        require(of_name, f"no notebook {name}; there are {', '.join(sorted(map(number, found)))}")
        chosen |= of_name
    return sorted(chosen, key=lambda path: (number(path) == OVERVIEW, path))


def is_own(notebook: Path) -> bool:
    """Say whether a notebook's number is reserved for the user's own notebooks."""
    return FIRST_OWN <= notebook.name < AFTER_OWN


def read_notebook(path: Path) -> Json:
    """Return a notebook as JSON values, the source of each cell as one text; ConfigError where it is damaged.

    It does without nbformat, whose import takes longer than all else before the first notebook.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        require(notebook["nbformat"] == 4, f"nbformat = {notebook['nbformat']}: must be 4")
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
        return notebook
    except Exception as error:  # a damaged file leads to errors of many kinds
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        where = f"notebook {paths.relative(path)}"
        raise ConfigError(
            f"{where} cannot be read ({why}); git checkout restores the committed one"
        ) from error


def defaults(notebook: Path) -> Json:
    """Return the parameters of a notebook with the values that its parameters cell gives them."""
    for cell in read_notebook(notebook)["cells"]:
        if "parameters" in cell["metadata"].get("tags", ()):
            return {
                ast.unparse(target): ast.literal_eval(node.value)
                for node in ast.parse(cell["source"]).body
                if isinstance(node, ast.Assign)
                for target in node.targets
            }
    return {}


def parse_parameter(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``; the value as a Python literal if it is one, else as text."""
    name, equals, value = text.partition("=")
    require(equals and name.isidentifier(), f"parameter {text!r}: write it as name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return name, value


def parameters_for(notebooks: Collection[Path], given: Json) -> dict[Path, Json]:
    """Return for each of ``notebooks`` those of the ``given`` parameters that it has.

    They are checked here, because papermill would only warn of a wrong one, and the notebook fail only after its
    imports. Raises ConfigError for a name that no notebook has, and for a wrong value of a common parameter.
    """
    known = {path: defaults(path) for path in notebooks}
    names = dict.fromkeys(name for values in known.values() for name in values)
    for name in given:
        one_of("parameter", name, names)
    common(given)
    return {
        path: {name: given[name] for name in given if name in values}
        for path, values in known.items()
    }


def common(parameters: Json) -> NotebookParameters:
    """Return the parameters that all notebooks have, checked; ConfigError for a value that makes no sense."""
    return from_dict(
        NotebookParameters, {name: value for name, value in parameters.items() if name in COMMON}
    )


def notebooks_markdown() -> str:
    """List every notebook but the overview: its title as a link, and the question (``asks``) of its first cell."""
    rows = ["| notebook | asks |", "| --- | --- |"]
    for path in sorted(notebook_paths()):
        if number(path) != OVERVIEW:
            first = read_notebook(path)["cells"][0]
            title = first["source"].partition("\n")[0].lstrip("# ")
            rows.append(f"| [{title}]({path.name}) | {first['metadata'].get('asks', '')} |")
    return "\n".join(rows)


def clean(content: dict) -> None:
    """Remove from a notebook, in place, everything that depends on where and how it was executed.

    That is metadata, and views of widgets, which mean nothing without their kernel.
    """
    content["metadata"] = METADATA
    for cell in content["cells"]:
        cell["metadata"] = {
            name: value for name, value in cell["metadata"].items() if name in WRITTEN and value
        }
        folded = {key: True for tag, key in FOLDS if tag in cell["metadata"].get("tags", ())}
        if folded:
            cell["metadata"]["jupyter"] = folded
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
