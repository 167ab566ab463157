"""JupyterLab on working copies of the notebooks, so that running and saving one changes nothing of what is committed.

The copies lie in ``lab/``, which git ignores: as deep as ``notebooks/``, so that every link works from there.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from entp_lib import paths
from entp_lib.files import read_text, write_atomically
from entp_lib.reports.notebooks import is_own, notebook_paths
from entp_lib.validation import ConfigError

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}  # of every committed notebook


# What people write into a cell's metadata; of the first cell: the verdicts its words suppose, what the notebook asks.
WRITTEN = ("tags", "rests_on", "asks")

WIDGET = "application/vnd.jupyter.widget-view+json"


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
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    if kept := refresh_copies(reset):
        names, numbers = ", ".join(map(paths.relative, kept)), ",".join(paths.number_of(path.name) for path in kept)
        print(
            f"kept with your edits, though the committed ones have changed since: {names} "
            f"(./run_all.sh --lab --reset {numbers} makes them anew)",
            flush=True,
        )
    command = [program, f"--ServerApp.root_dir={paths.root()}", "--LabApp.default_url=/lab/tree/lab/00_overview.ipynb"]
    command.append("--ContentsManager.pre_save_hook=entp_lib.reports.lab.before_saving")
    command += [f"--port={port}"] if port is not None else []
    command += [] if browser else ["--no-browser"]
    command += ["--allow-root"] if os.geteuid() == 0 else []  # a container's only user, whom jupyter refuses
    os.chdir(paths.root())
    os.execv(program, command)
