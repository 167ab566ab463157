"""The site: committed notebooks, generated pages and the API as HTML that can be read without a network.

Sphinx does the work (``site_source/conf.py``): myst-nb renders the notebooks, autodoc the docstrings. Nothing is
executed. Only ``build`` needs the packages of the extra ``site``.
"""

import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import webbrowser
from pathlib import Path

from torch import Tensor

from entp_lab import paths
from entp_lab.notebooks import notebook_paths, read_notebook
from entp_lab.provenance import PACKAGES
from entp_lab.store import Store
from entp_lab.texts import read_text
from entp_lab.weights import load_run
from entp_lib.validation import ConfigError, Json, require

NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "latex2mathml")
INSTALL = ".venv/bin/python -m pip install -e '.[site]'"
SOURCE = Path(__file__).parent / "site_source"
# copied into Sphinx's sources, like docs and figures
COPIED = ("CONTRIBUTING.md", "LICENSE", "CITATION.cff")
PLACES = ("docs", "docs/journal", "notebooks", "play")  # folders of pages
FIRST = ("docs/starting", "docs/library", "CONTRIBUTING")
SAVES = r'save_figure\(\s*\w+,\s*"(\w+)"'  # finds the names of figures in a notebook's code
# files of the theme that are not needed: icons that its font draws too, and templates
UNUSED = ("scripts/fontawesome.js*", "*macros.html")
# Edits of finished pages: links between notebooks in tables, and the theme's labels for screen readers.
EDITS = (
    (r'href="((?:\.\./notebooks/)?\d\d\w*)\.ipynb', r'href="\1.html'),
    (r'(<button class="[^"]*search-button-field[^>]*?) aria-label="Search"', r"\1"),
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r"<script[^>]*/fontawesome\.js[^>]*></script>\n?", ""),
    (r'<summary>(?=<span class="toctree-toggle")', '<summary aria-label="Pages below this one">'),
)


def anchor(heading: str) -> str:
    """Return the anchor of a heading in the form of JupyterLab, which Sphinx is told to use too."""
    return heading.strip().replace(" ", "-")


def missing() -> list[str]:
    """Return the modules of the extra ``site`` that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def build(folder: Path) -> Path:
    """Build the site into ``folder`` and return its first page. ConfigError has Sphinx's first warning or error."""
    source = folder.parent / f"{folder.name}-source"
    lay_out(source)
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    done = subprocess.run(
        [*command, "-d", source / ".doctrees", source, folder],
        env={**os.environ, "PYTHONPATH": str(paths.root())},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        printed = done.stderr.splitlines()
        lines = [line for line in printed if re.search("WARNING|ERROR|rror:", line)]
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise ConfigError(f"the site was not built: {(lines or printed or ['?'])[0]}{more}")
    for path in [found for pattern in UNUSED for found in (folder / "_static").glob(pattern)]:
        path.unlink()
    for page in folder.rglob("*.html"):
        text = read_text(page)
        for pattern, instead in EDITS:
            text = re.sub(pattern, instead, text)
        page.write_text(text, encoding="utf-8")
    return folder / "index.html"


def open_site(browser: bool) -> None:
    """Build the site and open it; missing packages of the extra ``site`` are installed first."""
    root = paths.repository()
    if lacking := ", ".join(missing()):
        print(f"the site needs {lacking}: installing the extra `site`, about a minute", flush=True)
        packages = tomllib.loads(read_text(root / "pyproject.toml"))["project"][
            "optional-dependencies"
        ]["site"]
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", *packages]
        # pip's settings apply, except those that would install outside of this environment
        here = ["bash", "-c", '. tools/venv.sh && read_settings && exec "$@"', "bash"]
        done = subprocess.run([*here, *install], cwd=root)
        importlib.invalidate_caches()
        require(done.returncode == 0, f"pip cannot install what the site needs; by hand: {INSTALL}")
    print("building the site: two to four minutes", flush=True)
    first = build(root / "build" / "site")
    print(f"the site is built: {paths.relative(first)}")
    if browser:
        webbrowser.open(first.as_uri())


def lay_out(folder: Path) -> None:
    """Write everything that Sphinx reads below ``folder``, which is emptied first."""
    root = paths.root()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder)
    shutil.copytree(root / "docs", folder / "docs")
    shutil.copytree(paths.figures(), folder / "figures")
    for name in COPIED:
        shutil.copy(root / name, folder)
    pictures = gallery()
    alts = {path.stem: about.partition(" [")[0] for path, about in pictures}
    (folder / "notebooks").mkdir()

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    for path in notebook_paths():
        page = notebook_page(read_notebook(path), alts)
        write(f"notebooks/{path.name}", json.dumps(page, ensure_ascii=False))
    for path in (paths.results() / "play").glob("*.json"):
        write(
            f"_static/{path.stem}_data.js", f"window.{path.stem}Data = {read_text(path).strip()};\n"
        )
    write("_static/match3_data.js", weights_script("match3"))
    write("gallery.md", gallery_page(pictures))
    write("index.md", read_text(root / "README.md") + contents(folder))


def gallery() -> list[tuple[Path, str]]:
    """Return every finished PNG with its alt text and provenance, in the order of the notebooks."""
    from PIL import Image

    found = []
    for path in sorted(paths.figures().glob("*.png")):
        with Image.open(path) as image:
            found.append((path, str(image.info.get("Description", ""))))
    return found


def gallery_page(pictures: list[tuple[Path, str]]) -> str:
    """Return the page of all figures in Markdown; each leads to the notebook that draws it."""
    homes = {
        name: path.stem
        for path in notebook_paths()
        for cell in read_notebook(path)["cells"]
        for name in re.findall(SAVES, cell["source"])
    }
    parts = ["# Gallery\n\nEvery figure, drawn from the records that stand below it.\n"]
    for path, about in pictures:
        alt, _, provenance = about.partition(" [")
        runs = provenance.rstrip("]").split("; commit")[0]
        target = f"notebooks/{homes.get(path.stem, '00_overview')}.html"
        options = f":alt: {alt}\n:target: {target}\n\n{alt} ({runs})"
        parts.append(f"```{{figure}} figures/{path.name}\n{options}\n```\n")
    return "\n".join(parts)


def weights_script(experiment: str) -> str:
    """Return JavaScript with the models of an experiment whose weights git keeps, and their task."""
    weights = paths.of_repository("results") / "weights"
    records = {record.id: record for record in Store(read_only=True).all(experiment)}
    models = []
    task = {}
    for path in sorted((weights / "checkpoints" / experiment).glob("*.safetensors")):
        config, model = load_run(path)
        task = config.task_params
        run_id = path.name.split(".")[0]
        models.append(
            {
                "run": f"{experiment}/{run_id}",
                "architecture": config.model.architecture,
                "heads": config.model.n_heads,
                "layers": config.model.n_layers,
                "sequence_accuracy": records[run_id].metrics["sequence_accuracy"],
                "tensors": {
                    name: half_floats(tensor) for name, tensor in model.state_dict().items()
                },
            }
        )
    require(models, f"{paths.relative(weights)} has no weights of {experiment}: git keeps them")
    return f"window.{experiment}Data = {json.dumps({'task': task, 'models': models})};\n"


def half_floats(tensor: Tensor) -> Json:
    """Return a tensor for JSON: its shape, and its numbers as base64 of half floats."""
    numbers = tensor.numpy().astype("<f2").tobytes()
    return {"shape": list(tensor.shape), "data": base64.b64encode(numbers).decode()}


def contents(folder: Path) -> str:
    """Return the table of contents for the sidebar, with the pages below ``folder``."""
    pages = [p for p in folder.rglob("*") if p.suffix in (".md", ".ipynb")]
    index = "docs/journal/README"
    within = {
        place: sorted(f"{place}/{p.stem}" for p in pages if p.parent == folder / place)
        for place in PLACES
    }
    rest = [name for name in within["docs"] if name not in (*FIRST, "docs/findings")]
    groups = {
        "Found": ["docs/findings", "gallery", *rest, index],
        "Play": sorted(within["play"], key=lambda n: n != "play/match3"),
        "Notebooks": within["notebooks"],
        "Begin": [*FIRST, *(f"api/{package}/{package}" for package in PACKAGES)],
        "Journal": [n for n in within["docs/journal"] if n != index],
    }
    head = "```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {}\n\n{}\n```\n"
    return "\n" + "\n".join(
        head.format(caption, "\n".join(names)) for caption, names in groups.items()
    )


def notebook_page(notebook: dict, alts: dict[str, str]) -> dict:
    """Return a notebook for Sphinx, whose pictures have alt text from ``alts``; its cells change in place."""
    cells = [cell for cell in notebook["cells"] if cell["source"].strip()]
    for cell in cells:
        if cell["cell_type"] == "code":
            saved = re.search(SAVES, cell["source"])
            alt = saved and alts.get(saved[1])
            shown = (
                alt
                or "Picture of this cell's output; its numbers stand in the text and tables around it."
            )
            cell["metadata"]["mystnb"] = {"image": {"alt": shown.replace("\n", " ")}}
    return notebook | {"cells": cells}
