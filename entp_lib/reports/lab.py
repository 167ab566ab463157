"""JupyterLab on the project, in which looking at a notebook and saving it changes nothing of what is committed."""

import os
import shutil
import sys
from pathlib import Path

from entp_lib import paths
from entp_lib.validation import ConfigError

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}  # of every committed notebook


# What people write into a cell's metadata; of the first cell: the verdicts its words suppose, what the notebook asks.
WRITTEN = ("tags", "rests_on", "asks")

WIDGET = "application/vnd.jupyter.widget-view+json"


def clean_before_saving(model: dict, path: str, **_) -> None:
    """JupyterLab's hook before it writes a file: metadata of the project's notebooks are as committed.

    JupyterLab would add the interpreter's version and its own view of the cells, which differ from machine to machine.
    """
    if model["type"] == "notebook" and model["content"] is not None and path.strip("/").startswith("notebooks/"):
        clean(model["content"])


def clean(content: dict) -> None:
    """Take out of a notebook, in place, whatever depends on where and how it was executed.

    That is metadata, the names of widgets, which mean nothing without the kernel that had them, and in how many pieces
    a slow kernel sent what was printed.
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


def lab_command(port: int | None = None, browser: bool = True) -> list[str]:
    """JupyterLab's arguments: the project is its root, the overview what it opens and the address it prints.

    Raises ConfigError where JupyterLab is not installed beside this Python.
    """
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    command = [
        program,
        f"--ServerApp.root_dir={paths.root()}",
        "--LabApp.default_url=/lab/tree/notebooks/00_overview.ipynb",
    ]
    command.append("--ContentsManager.pre_save_hook=entp_lib.reports.lab.clean_before_saving")
    command += [f"--port={port}"] if port is not None else []
    command += [] if browser else ["--no-browser"]
    # a container's only user is root, which jupyter refuses
    return command + (["--allow-root"] if os.geteuid() == 0 else [])


def open_lab(port: int | None = None, browser: bool = True) -> None:
    """Replace this process by JupyterLab. Raises ConfigError where it is not installed."""
    command = lab_command(port, browser)
    os.chdir(paths.root())
    os.execv(command[0], command)
