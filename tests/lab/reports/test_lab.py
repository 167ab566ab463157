"""JupyterLab runs on working copies: edits of theirs survive, committed notebooks stay, every link
works from there.
"""

import asyncio
import shutil
import sys

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tornado.web import HTTPError

from entp_lab import cli, paths
from entp_lab import working_copies as lab
from entp_lab.notebooks import METADATA


def write(path, source, outputs=()):
    path.parent.mkdir(exist_ok=True)
    words = new_markdown_cell("![points](../figures/points.png) [next](06_b.ipynb)", id="words")
    code = new_code_cell(source, id="cell-0", outputs=list(outputs))
    nbformat.write(new_notebook(cells=[words, code], metadata=METADATA), path)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of three notebooks, one of them the user's own."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for name in ("03_a", "06_b", "50_own"):
        write(tmp_path / f"notebooks/{name}.ipynb", "1 + 1")
    return tmp_path


OUTPUT = nbformat.v4.new_output("stream", text="2")


def test_copies_follow_their_notebooks_until_somebody_edits_them(project):
    copy = project / "lab/03_a.ipynb"
    committed = project / "notebooks/03_a.ipynb"
    assert lab.refresh_copies() == []
    assert copy.read_bytes() == committed.read_bytes()
    write(copy, "1 + 1", outputs=[OUTPUT])  # run and saved: no edit, and kept while nothing is new
    assert lab.refresh_copies() == []
    assert "stream" in copy.read_text()
    text = write(committed, "1 + 2")
    assert lab.refresh_copies() == []
    assert copy.read_text() == text
    edited = write(copy, "1 + 3")
    write(committed, "1 + 2", outputs=[OUTPUT])  # has new outputs alone: nothing to tell
    assert lab.refresh_copies() == []
    write(committed, "1 + 4")
    assert lab.refresh_copies() == [copy]
    assert copy.read_text() == edited
    shutil.rmtree(project / "lab/.committed")  # what it was made from
    assert lab.refresh_copies() == [copy]
    assert copy.read_text() == edited
    copy.write_text("{")  # whatever it is, it is the user's
    lab.refresh_copies()
    assert copy.read_text() == "{"


def test_edits_are_kept_and_named_until_they_are_given_up(project, capsys, monkeypatch):
    monkeypatch.setattr("os.execv", lambda *_: sys.exit(0))
    monkeypatch.chdir(project)
    lab.refresh_copies()
    copy = project / "lab/03_a.ipynb"
    edited = write(copy, "1 + 3")
    text = write(project / "notebooks/03_a.ipynb", "1 + 4")
    with pytest.raises(SystemExit):
        cli.main(["lab", "--no-browser", "--reset", "6"])
    (line,) = capsys.readouterr().out.splitlines()
    assert "lab/03_a.ipynb (./run_all.sh --lab --reset 03 " in line
    assert copy.read_text() == edited
    with pytest.raises(SystemExit):
        cli.main(["lab", "--no-browser", "--reset", "all"])
    assert capsys.readouterr().out == ""
    assert copy.read_text() == text


def test_a_notebook_of_ones_own_is_edited_in_its_place(project):
    lab.refresh_copies()
    own = project / "lab/50_own.ipynb"
    text = write(own, "1 + 5")
    assert own.is_symlink()
    assert (project / "notebooks/50_own.ipynb").read_text() == text
    assert lab.refresh_copies(lab.notebook_paths()) == []
    assert own.read_text() == text


@pytest.mark.parametrize("folder", ["lab", "notebooks"])
def test_saving_keeps_committed_notebooks_and_the_metadata_of_copies(project, folder):
    """JupyterLab's own way to disk: what differs in a copy after opening and saving is nothing."""
    lab.refresh_copies()
    manager = AsyncLargeFileManager(
        root_dir=str(project), pre_save_hook="entp_lab.working_copies.before_saving"
    )
    before = (project / "notebooks/06_b.ipynb").read_bytes()
    (project / folder / "Untitled.ipynb").write_bytes(before)
    for name in ("06_b", "50_own", "Untitled"):
        path = f"{folder}/{name}.ipynb"
        model = asyncio.run(manager.get(path))
        model["content"]["metadata"]["language_info"] = {
            "name": "python",
            "version": "3.99",
            "file_extension": ".py",
        }
        model["content"]["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
        model["content"]["cells"][1]["metadata"]["collapsed"] = False
        if path == "notebooks/06_b.ipynb":
            with pytest.raises(
                HTTPError,
                match="is the committed one and stays as it is: your copy is lab/06_b.ipynb",
            ):
                asyncio.run(manager.save(model, path))
        else:
            asyncio.run(manager.save(model, path))
        assert (project / path).read_bytes() == before
