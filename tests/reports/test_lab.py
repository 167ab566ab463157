"""JupyterLab runs on working copies: edits of theirs survive, committed notebooks stay, every link works from there."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import browser
import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tornado.web import HTTPError

from entp_lib import __main__ as cli
from entp_lib import paths
from entp_lib.reports import lab, launcher


def write(path, *sources, outputs=()):
    path.parent.mkdir(exist_ok=True)
    code = [new_code_cell(source, id=f"cell-{i}", outputs=list(outputs)) for i, source in enumerate(sources)]
    words = new_markdown_cell("![points](../figures/points.png) [next](06_b.ipynb)", id="words")
    nbformat.write(new_notebook(cells=[words, *code], metadata=lab.METADATA), path)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of three notebooks, one of them the user's own, and a figure."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for name in ("03_a", "06_b", "50_own"):
        write(tmp_path / "notebooks" / f"{name}.ipynb", "1 + 1")
    (tmp_path / "figures").mkdir()
    shutil.copyfile(
        Path(__file__).resolve().parents[2] / "figures" / "06_gaps.png", tmp_path / "figures" / "points.png"
    )
    return tmp_path


def test_copies_follow_their_notebooks_until_somebody_edits_them(project, capsys, monkeypatch):
    assert lab.refresh_copies() == []
    copy, committed = project / "lab" / "03_a.ipynb", project / "notebooks" / "03_a.ipynb"
    assert copy.read_bytes() == committed.read_bytes()
    output = nbformat.v4.new_output("stream", text="2")
    write(copy, "1 + 1", outputs=[output])  # run and saved: no edit, and kept while nothing is new
    assert lab.refresh_copies() == [] and "stream" in copy.read_text()
    text = write(committed, "1 + 2")
    assert lab.refresh_copies() == [] and copy.read_text() == text
    edited = write(copy, "1 + 3")
    write(committed, "1 + 2", outputs=[output])  # has new outputs alone: nothing to tell
    assert lab.refresh_copies() == [] and copy.read_text() == edited
    text = write(committed, "1 + 4")
    assert lab.refresh_copies() == [copy] and copy.read_text() == edited
    monkeypatch.setattr("os.execv", lambda *_: sys.exit(0))
    monkeypatch.chdir(project)
    with pytest.raises(SystemExit):
        cli.main(["run", "--lab", "--no-browser", "--reset", "6"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("kept with your edits") and "lab/03_a.ipynb (./run_all.sh --lab --reset 03 " in line
    assert copy.read_text() == edited
    with pytest.raises(SystemExit):
        cli.main(["run", "--lab", "--no-browser", "--reset"])
    assert copy.read_text() == text and capsys.readouterr().out == ""
    copy.write_text("{")  # whatever it is, it is the user's
    assert lab.refresh_copies() == [] and copy.read_text() == "{"


def test_a_notebook_of_ones_own_is_edited_in_its_place(project):
    lab.refresh_copies()
    own = project / "lab" / "50_own.ipynb"
    text = write(own, "1 + 5")
    assert own.is_symlink() and (project / "notebooks" / "50_own.ipynb").read_text() == text
    assert lab.refresh_copies(launcher.notebook_paths()) == [] and own.read_text() == text


@pytest.mark.parametrize("folder", ["lab", "notebooks"])
def test_saving_keeps_committed_notebooks_and_the_metadata_of_copies(project, folder):
    """JupyterLab's own way to disk: what differs in a copy after opening and saving is nothing."""
    lab.refresh_copies()
    manager = AsyncLargeFileManager(root_dir=str(project), pre_save_hook="entp_lib.reports.lab.before_saving")
    before = (project / "notebooks" / "06_b.ipynb").read_bytes()
    for name in ("06_b", "50_own"):
        path = f"{folder}/{name}.ipynb"
        model = asyncio.run(manager.get(path))
        model["content"]["metadata"]["language_info"] = {"name": "python", "version": "3.99", "file_extension": ".py"}
        model["content"]["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
        model["content"]["cells"][1]["metadata"]["collapsed"] = False
        if path == "notebooks/06_b.ipynb":
            with pytest.raises(HTTPError, match="is the committed one and stays as it is: your copy is lab/06_b.ipynb"):
                asyncio.run(manager.save(model, path))
        else:
            asyncio.run(manager.save(model, path))
        assert (project / path).read_bytes() == before


def test_lab_needs_jupyter(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert cli.main(["run", "--lab"]) == 2 and "jupyter-lab is not installed" in capsys.readouterr().err


BOOK = "[...jupyterapp.shell.widgets('main')].find(w => w.context?.path == 'lab/03_a.ipynb')"
RUN = f"""jupyterapp.shell.activateById({BOOK}.id);
jupyterapp.commands.execute("notebook:run-all-cells")
  .then(() => jupyterapp.commands.execute("docmanager:save")).then(() => {{ window.saved = true; }}); 1"""


@pytest.mark.skipif(browser.program() is None, reason="no browser is installed")
def test_open_run_all_and_save_in_a_browser(project, monkeypatch):
    package = Path(lab.__file__).resolve().parents[2]
    before = {path: path.read_bytes() for path in (project / "notebooks").iterdir()}
    lab.refresh_copies()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--LabApp.expose_app_in_browser=True", "--IdentityProvider.token=", "--ServerApp.port_retries=0"]
    where = {"PYTHONPATH": str(package), "JUPYTER_CONFIG_DIR": str(project / "jupyter"), "HOME": str(project / "home")}
    server = subprocess.Popen(
        [*lab.lab_command(port, browser=False), *options],
        cwd=project,
        env=os.environ | where,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    page = None
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        page = browser.Browser(project / "profile")
        page.open(f"http://127.0.0.1:{port}/lab/tree/lab/03_a.ipynb")
        page.wait("document.querySelector('.jp-NotebookPanel .jp-CodeCell')")
        page.wait("[...document.images].some(i => i.src.includes('/figures/points.png') && i.naturalWidth > 100)")
        page.wait("document.querySelector('.jp-RenderedMarkdown a[href*=\"/lab/06_b.ipynb\"]')")
        page.wait(f"{BOOK}.sessionContext.session?.kernel?.status == 'idle'")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.ask(RUN)
        page.wait("window.saved")
    finally:
        if page:
            page.close()
        server.terminate()
        server.wait(timeout=60)
    cells = json.loads((project / "lab" / "03_a.ipynb").read_text())["cells"]
    assert cells[1]["outputs"][0]["data"]["text/plain"] == ["2"]
    assert {path: path.read_bytes() for path in (project / "notebooks").iterdir()} == before
