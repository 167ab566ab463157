"""JupyterLab on working copies of the notebooks.

The copies are in ``lab/``, which git ignores, so that running and saving one changes nothing that is committed. The
folder is as deep as ``notebooks/``, so that every link works from there.
"""

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from entp_lab import paths
from entp_lab.notebooks import clean, is_own, notebook_paths, number, read_notebook
from entp_lib.validation import ConfigError, Json


def refresh_copies(reset: Collection[Path] = ()) -> list[Path]:
    """Refresh the working copies in ``lab/``; return edited ones that were kept although their notebook changed.

    A copy with edited cells is kept, unless its notebook is in ``reset``; any other is replaced by its notebook. The
    user's own notebooks are linked. ``lab/.committed`` has the version that each copy was made from.
    """
    folder = paths.root() / "lab"
    (folder / ".committed").mkdir(parents=True, exist_ok=True)
    kept = []
    for notebook in notebook_paths():
        copy = folder / notebook.name
        base = folder / ".committed" / notebook.name
        if is_own(notebook):
            if not copy.exists():
                copy.symlink_to(Path("..", "notebooks", notebook.name))
            continue
        is_edited = copy.exists() and sources(copy) not in (sources(base) or [], sources(notebook))
        is_current = copy.exists() and base.exists() and base.read_bytes() == notebook.read_bytes()
        if notebook in reset or not (is_edited or is_current):
            shutil.copyfile(notebook, copy)
            shutil.copyfile(notebook, base)
        elif is_edited and sources(notebook) != sources(base):
            kept.append(copy)
    return kept


def sources(path: Path) -> list[tuple[str, str]] | None:
    """Return kind and source of a notebook's cells, without outputs; None for a file that is not a notebook."""
    try:
        return [(cell["cell_type"], cell["source"]) for cell in read_notebook(path)["cells"]]
    except ConfigError:
        return None


def before_saving(model: Json, path: str, **_: Any) -> None:
    """Keep JupyterLab from saving a committed notebook, and clean the metadata of a working copy before it is saved.

    JupyterLab would add the interpreter's version and its own view of the cells, which differ from machine to machine.
    Raises HTTPError, whose message JupyterLab shows, for a committed notebook.
    """
    from tornado.web import HTTPError

    folder, name = os.path.split(path.strip("/"))
    if (
        model["type"] == "notebook"
        and model["content"] is not None
        and folder in ("lab", "notebooks")
    ):
        committed = paths.notebooks() / name
        if folder == "notebooks" and not is_own(committed) and committed in notebook_paths():
            raise HTTPError(
                403,
                f"notebooks/{name} is the committed one and stays as it is: your copy is lab/{name}",
            )
        clean(model["content"])


def open_lab(port: int | None, browser: bool, reset: Collection[Path]) -> None:
    """Make or refresh the working copies and replace this process by JupyterLab, which opens the overview.

    Its root folder is the project. Raises ConfigError if JupyterLab is not installed beside this Python.
    """
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    kept = refresh_copies(reset)
    if kept:
        names = ", ".join(map(paths.relative, kept))
        anew = f"(./run_all.sh --lab --reset {','.join(map(number, kept))} makes them anew)"
        print(
            f"kept with your edits, though the committed ones have changed since: {names} {anew}",
            flush=True,
        )
    command = [
        program,
        f"--ServerApp.root_dir={paths.root()}",
        "--LabApp.default_url=/lab/tree/lab/00_overview.ipynb",
        "--ContentsManager.pre_save_hook=entp_lab.working_copies.before_saving",
    ]
    if port:
        command.append(f"--port={port}")
    if not browser:
        command.append("--no-browser")
    if os.geteuid() == 0:  # root may be a container's only user, and jupyter refuses it
        command.append("--allow-root")
    settings = [str(paths.root() / "tools" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    # these settings turn off JupyterLab's question about news
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, settings))
    os.chdir(paths.root())
    os.execv(program, command)
