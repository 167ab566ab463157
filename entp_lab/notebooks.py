"""Numbered notebooks; their parameters, checked before a kernel starts; and JupyterLab on working copies of them.

The copies lie in ``lab/``, which git ignores: as deep as ``notebooks/``, so that every link works from there, and so
that running and saving one changes nothing of what is committed.
"""

import ast
import dataclasses
import html
import json
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from entp_lab import paths
from entp_lab.parameters import NotebookParameters
from entp_lib.files import read_text, write_atomically
from entp_lib.validation import ConfigError, from_dict, one_of, require

OVERVIEW = "00"
FIRST_OWN, AFTER_OWN = 50, 90  # numbers of notebooks that are one's own
COMMON = {f.name for f in dataclasses.fields(NotebookParameters)}  # parameters of every notebook
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}  # of every committed notebook
# What people write into a cell's metadata; of the first cell: the verdicts its words suppose, what the notebook asks.
WRITTEN = ("tags", "rests_on", "asks")
# Tags by which the site folds a part of a cell, and JupyterLab's names for that.
FOLDS = (
    ("hide-input", "source_hidden"),
    ("hide-output", "outputs_hidden"),
    ("hide-cell", "source_hidden"),
    ("hide-cell", "outputs_hidden"),
)
WIDGET = "application/vnd.jupyter.widget-view+json"
LEFT = 'style="text-align:left"'  # in a table, whose text Jupyter would put to the right


def notebook_paths(only: str = "") -> list[Path]:
    """The numbered notebooks, the overview last because it shows the results of the others.

    A number is two digits, and a letter for a second notebook on one subject ("03b"). ``only``: numbers or names,
    separated by commas, as in "03,06_match3". ConfigError names one that does not exist, and two of one number. A copy
    such as JupyterLab's "03_count3-Copy1" is no numbered notebook.
    """
    found: dict[str, Path] = {}
    for path in sorted(paths.notebooks().glob("[0-9][0-9]*_*.ipynb")):
        number, _, name = path.stem.partition("_")
        if number[2:] in ("", *ascii_lowercase) and name.isidentifier():
            other = found.setdefault(number, path)
            require(other == path, f"notebooks {other.stem} and {path.stem} have one number: rename one of them")
    names = {path.stem: number for number, path in found.items()}
    scored = [Path(name.strip()).name.removesuffix(".ipynb") for name in only.split(",") if name.strip()]
    require(bool(scored) or not only, f"--only {only!r}: write numbers or names, as in 03,06_match3")
    numbers = [names.get(name, name.zfill(2)) for name in scored] or list(found)
    for name, number in zip(scored, numbers, strict=False):
        require(number in found, f"no notebook {name}; there are {', '.join(found)}")
    return [found[number] for number in sorted(set(numbers), key=lambda n: (n == OVERVIEW, n))]


def is_own(notebook: Path) -> bool:
    """True for a notebook whose number is one of those that are left to the user."""
    return notebook.name[:2].isdigit() and FIRST_OWN <= int(notebook.name[:2]) < AFTER_OWN


def read_notebook(notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, each source one text. ConfigError where it is missing, damaged, or not Jupyter's."""
    text = read_text(notebook)
    try:
        require(not notebook.read_bytes().startswith(b"\xef\xbb\xbf"), "it begins with a mark of byte order")
        content = json.loads(text)
        require(content["nbformat"] == 4, f"nbformat = {content['nbformat']}: must be 4")
        for cell in content["cells"]:
            require(isinstance(cell["metadata"], dict), "a cell's metadata are no object")
            cell["source"] = "".join(cell["source"])
        return content["cells"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        why = str(error).strip() or type(error).__name__
        why = "it is empty" if not text.strip() else f"lacks {why}" if isinstance(error, KeyError) else why[:120]
        where = f"notebook {paths.relative(notebook)}"
        raise ConfigError(f"{where} cannot be read ({why}); git checkout restores the committed one") from error


def defaults(notebook: Path) -> dict[str, Any]:
    """The parameters of a notebook with the values that its parameters cell gives them."""
    tagged = [c["source"] for c in read_notebook(notebook) if "parameters" in c["metadata"].get("tags", ())]
    nodes = [node for source in tagged[:1] for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return {target.id: ast.literal_eval(node.value) for node in nodes for target in node.targets}


def checked_for_all(given: dict[str, Any], extra: dict[str, Any], notebooks: Sequence[Path]) -> dict[Path, dict]:
    """The parameters for each of ``notebooks``: ``given``, from options that all have, and ``extra``, from -p.

    Of a wrong one papermill would only warn, and the notebook say so after its imports. ConfigError for a name that is
    no parameter, one that only some of the notebooks have, which it names, and a value that their class refuses.
    """
    known, given = {path: defaults(path) for path in notebooks}, given | extra
    for name in extra:
        having = [path.stem for path in notebooks if name in known[path]]
        if having and len(having) < len(notebooks):
            only = ",".join(map(paths.number_of, having))
            raise ConfigError(f"parameter {name} belongs to {', '.join(having)}: add --only {only}")
    for path, values in known.items():
        for name in given:
            one_of(f"parameter of {path.stem}", name, values)
        cls = parameters_class(path) if given.keys() - COMMON else NotebookParameters
        names = {f.name for f in dataclasses.fields(cls)}
        try:
            from_dict(cls, {name: value for name, value in (values | given).items() if name in names})
        except ConfigError as error:
            raise ConfigError(f"{path.stem}: {error}") from None
    return {path: dict(given) for path in notebooks}


def parameters_class(notebook: Path) -> type:
    """The class that a notebook imports and has its parameters checked by."""
    sources = [c["source"] for c in read_notebook(notebook) if "notebook_parameters(" in c["source"]]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("notebook_parameters")]
    for dotted in (ast.unparse(call.args[1]) for call in calls if len(call.args) == 2):
        for node in (n for n in nodes if isinstance(n, ast.ImportFrom)):
            if dotted.split(".")[0] in {alias.name for alias in node.names}:
                return pkgutil.resolve_name(f"{node.module}.{dotted}")
    return NotebookParameters


def parse_parameter(text: str) -> tuple[str, Any]:
    """``name=value`` from the command line; the value as Python would read it, else as text."""
    name, equals, value = text.partition("=")
    require(bool(equals) and name.isidentifier(), f"parameter {text!r}: write it as name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return name, value


class Html(str):
    """Text that a notebook shows as HTML."""

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{self.count('<tr>')} rows"


def notebooks_html() -> Html:
    """Every notebook but the overview, in the order of the numbers: its title, which leads to it, and what it asks.

    That is ``asks`` of its first cell, else the first sentence of its text. HTML of the plainest kind, without style
    sheets or scripts, which JupyterLab and code hosts would leave out; links are relative to ``notebooks/``.
    """
    rows = ["<table>", f"<tr><th {LEFT}>notebook</th><th {LEFT}>asks</th></tr>"]
    for path in (p for p in sorted(notebook_paths()) if paths.number_of(p.stem) != OVERVIEW):
        texts = [cell for cell in read_notebook(path) if cell["cell_type"] == "markdown"]
        lines = [line for cell in texts for line in cell["source"].splitlines() if line.strip()]
        title = next((line.lstrip("# ") for line in lines if line.startswith("# ")), path.stem)
        asks = texts[0]["metadata"].get("asks") if texts else None
        if not asks:
            words = re.sub(r"^\*\*[^*]*:\*\*|[*`$]", "", next((line for line in lines if line[0] not in "#!|-"), ""))
            asks = re.split(r"(?<=[.;?!])\s", words.strip(), maxsplit=1)[0].strip().rstrip(".;")
        title, asks = map(html.escape, (title, asks))
        rows.append(f'<tr><td {LEFT}><a href="{path.name}">{title}</a></td><td {LEFT}>{asks}</td></tr>')
    return Html("\n".join([*rows, "</table>"]))


def refresh_copies(reset: Sequence[Path] = ()) -> list[Path]:
    """Refresh the working copies in ``lab/``; return the edited ones, which stay though their notebook changed.

    A copy whose cells were edited stays as it is; any other follows its notebook, and so do those of the notebooks in
    ``reset``. A notebook of one's own is linked. ``lab/.committed`` has what each copy was made from.
    """
    folder, edits = paths.root() / "lab", []
    for notebook in notebook_paths():
        copy, base, text = folder / notebook.name, folder / ".committed" / notebook.name, read_text(notebook)
        if is_own(notebook):
            if not copy.exists():
                folder.mkdir(exist_ok=True)
                copy.symlink_to(Path("..", "notebooks", notebook.name))
            continue
        before = read_text(base) if base.exists() else text
        edited = notebook not in reset and copy.exists() and sources(read_text(copy)) != sources(before)
        if edited:
            edits += [copy] if sources(text) != sources(before) else []
        elif not copy.exists() or not base.exists() or text != before or notebook in reset:
            for path in (copy, base):
                write_atomically(path, text.encode())
    return edits


def sources(text: str) -> object:
    """Kind and source of a notebook's cells, without outputs and metadata; of a file that is no notebook its text."""
    try:
        return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    except (ValueError, KeyError, TypeError):
        return text


def before_saving(model: dict, path: str, **_) -> None:
    """JupyterLab's hook before it writes a file: committed notebooks stay, their copies keep the committed metadata.

    JupyterLab would add the interpreter's version and its own view of the cells, which differ from machine to machine.
    Raises HTTPError, whose message it shows, for a committed notebook.
    """
    from tornado.web import HTTPError

    folder, _, name = path.strip("/").rpartition("/")
    if model["type"] == "notebook" and model["content"] is not None and folder in ("lab", "notebooks"):
        if folder == "notebooks" and not is_own(Path(name)) and (paths.notebooks() / name).exists():
            raise HTTPError(403, f"notebooks/{name} is the committed one and stays as it is: your copy is lab/{name}")
        clean(model["content"])


def clean(content: dict) -> None:
    """Remove from a notebook, in place, everything that depends on where and how it was executed.

    That is metadata, names of widgets, which mean nothing without their kernel, and the pieces in which a slow kernel
    sends printed text.
    """
    content["metadata"] = METADATA
    for cell in content["cells"]:
        cell["metadata"] = {name: value for name, value in cell["metadata"].items() if name in WRITTEN and value}
        folded = {key: True for tag, key in FOLDS if tag in cell["metadata"].get("tags", ())}
        if folded:
            cell["metadata"]["jupyter"] = folded
        kept: list[dict] = []
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
            if kept and "text" in output and output["name"] == kept[-1].get("name"):
                kept[-1]["text"] += output["text"]
            else:
                kept.append(output)
        if kept:
            cell["outputs"] = kept


def open_lab(port: int | None = None, browser: bool = True, reset: Sequence[Path] = ()) -> None:
    """Make or refresh the working copies and replace this process by JupyterLab, which opens the overview.

    The project is its root. ConfigError where JupyterLab is not installed beside this Python.
    """
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    require(program is not None, "jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    if kept := refresh_copies(reset):
        names, numbers = ", ".join(map(paths.relative, kept)), ",".join(paths.number_of(path.name) for path in kept)
        anew = f"(./run_all.sh --lab --reset {numbers} makes them anew)"
        print(f"kept with your edits, though the committed ones have changed since: {names} {anew}", flush=True)
    command = [program, f"--ServerApp.root_dir={paths.root()}", "--LabApp.default_url=/lab/tree/lab/00_overview.ipynb"]
    command.append("--ContentsManager.pre_save_hook=entp_lab.notebooks.before_saving")
    command += [f"--port={port}"] if port is not None else []
    command += [] if browser else ["--no-browser"]
    command += ["--allow-root"] if os.geteuid() == 0 else []  # a container's only user, whom jupyter refuses
    os.chdir(paths.root())
    os.execv(program, command)
