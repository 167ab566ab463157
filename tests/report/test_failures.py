"""A failure is told in a line, also where the error itself says nothing."""

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from papermill.exceptions import PapermillExecutionError

from entp_lib.report.failures import in_words


def test_an_error_with_words_keeps_them():
    assert in_words("ValueError", "no such text") == "ValueError: no such text"
    assert in_words("AssertionError", "") == "AssertionError: without a word"
    assert in_words("AssertionError", "", partial=2).endswith("the same command continues them")


def test_a_check_without_words_is_told_by_its_line(tmp_path):
    """As papermill reports it, colours and all."""
    notebook = new_notebook(
        cells=[new_code_cell("counts = [1, 2]\nassert counts == [2, 2]")],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(notebook, tmp_path / "a.ipynb")
    with pytest.raises(PapermillExecutionError) as error:
        papermill.execute_notebook(str(tmp_path / "a.ipynb"), str(tmp_path / "b.ipynb"), progress_bar=False)
    told = in_words(error.value.ename, error.value.evalue, error.value.traceback)
    assert told == "AssertionError: this does not hold: assert counts == [2, 2]"
