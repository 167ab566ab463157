"""A failure is told in a line, also where the error itself says nothing."""

import os
import tempfile

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from entp_lib.reports import execution
from entp_lib.reports.launcher import OWN_WORDS


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A function that executes one cell as the launcher does."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))

    def run(source):
        path = tmp_path / "03_x.ipynb"
        metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(new_notebook(cells=[new_code_cell(source)], metadata=metadata), path)
        return execution.execute(execution.Job(path, {}, tmp_path / "figures"), quiet=True)

    return run


def test_the_launcher_tells_a_silent_check_and_partial_runs(notebook):
    source = (
        "from entp_lib.records.progress import event\nevent('records', reused=0, computed=1, partial=1)\nassert 1 == 2"
    )
    failed = notebook(source)
    assert failed.status == "failed" and failed.error.startswith("AssertionError: this does not hold: assert 1 == 2; 1")


def test_a_kernel_checks_and_finds_room_for_its_sockets_whatever_the_environment(notebook, tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    assert "assert 1 == 2" in notebook("assert 1 == 2").error
    assert os.environ["PYTHONOPTIMIZE"] == "2" and not list((tmp_path / "results" / "executed").glob(".run-*"))


def test_a_mistake_is_one_line_in_a_kernel_and_an_error_of_others_keeps_its_traceback(tmp_path, monkeypatch):
    """A wrong parameter, a wrong change, a missing record; the cell fails with the error's name and words."""
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    mistakes = {
        "sedes = 3\nnotebook_parameters(globals())": "ConfigError: unknown parameter 'sedes'; did you mean 'seeds'",
        "COUNT3.collect(NotebookParameters(changes={'task.lenght': 6}))": "ConfigError: changes: unknown parameter",
        "COUNT3.collect(NotebookParameters(tier='quick'))": "RecordError: missing or partial: record count3/",
        "COUNT3.collect(3)": "AttributeError: ",
    }
    imports = "from entp_lib.experiments.parameters import NotebookParameters, notebook_parameters\n"
    imports += "from entp_papers.entp.count3 import COUNT3"
    cells = [new_code_cell(source) for source in (imports, *mistakes)]
    NotebookClient(new_notebook(cells=cells), kernel_name="python3", allow_errors=True).execute()
    for cell, words in zip(cells[1:], mistakes.values(), strict=True):
        (error,) = cell.outputs
        told, shown = f"{error.ename}: {error.evalue}", "\n".join(error.traceback).splitlines()
        assert error.output_type == "error" and told.startswith(words)
        assert shown == [told] if error.ename in OWN_WORDS else len(shown) > 5
