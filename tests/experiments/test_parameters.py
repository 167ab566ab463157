"""The parameters of a notebook: of its parameters cell, whatever other cells leave behind."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from entp_lib import paths
from entp_lib.experiments.parameters import NotebookParameters, notebook_parameters
from entp_lib.validation import ConfigError

CELL = 'tier = "best"\nseeds = 0\nfresh = False\njobs = 0\ntime_limit = 0.0\nthreshold = 0.8  # a comment'


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    threshold: float = 0.8


def kernel(*cells):
    """The globals of a kernel that has executed ``cells``."""
    values = {"In": ["", *cells]}
    for cell in cells:
        exec(cell, values)
    return values


def test_what_other_cells_leave_behind_does_not_count():
    """As at a second Run All in one kernel, with the parameters changed."""
    later = 'seed = [4, 41]\nhits = 3\nclaims = "x"'
    values = kernel(CELL, later, CELL.replace("0.8", "0.5"), "%matplotlib inline" and "labels = {}", later)
    assert notebook_parameters(values, Parameters).threshold == 0.5


def test_papermill_s_cell_comes_on_top():
    values = kernel(CELL, '# Parameters\ntier = "quick"\nthreshold = 0.25\n', "x = 1")
    assert notebook_parameters(values, Parameters) == Parameters(tier="quick", threshold=0.25)
    every = "# Parameters\n" + CELL.replace("0.8", "0.1")
    assert notebook_parameters(kernel(CELL, every), Parameters).threshold == 0.1


def test_an_earlier_injected_cell_is_forgotten_when_the_cell_is_run_again():
    values = kernel(CELL, "# Parameters\nthreshold = 0.25\n", "x = 1", CELL, "x = 2")
    assert notebook_parameters(values, Parameters).threshold == 0.8


@pytest.mark.parametrize("cells", [[CELL, "# Parameters\nthresold = 0.5\n"], [CELL.replace("threshold", "thresold")]])
def test_a_misspelt_name_is_named(cells):
    with pytest.raises(ConfigError, match="'thresold'; did you mean 'threshold'"):
        notebook_parameters(kernel(*cells), Parameters)


def test_python_without_checks_is_refused():
    """What a notebook asserts would hold whatever it found."""
    code = "from entp_lib.experiments.parameters import NotebookParameters; NotebookParameters()"
    for options, status in ((["-O"], 1), ([], 0)):
        command = [sys.executable, *options, "-c", code]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONOPTIMIZE"}
        done = subprocess.run(command, cwd=paths.root(), env=environment, capture_output=True, text=True)
        assert done.returncode == status and ("PYTHONOPTIMIZE" in done.stderr) == bool(options)


@pytest.mark.parametrize("limit", [-1.0, math.inf, math.nan])
def test_a_time_limit_without_an_end_is_refused(limit):
    with pytest.raises(ConfigError, match="time_limit = "):
        NotebookParameters(time_limit=limit)


def test_a_readers_mistake_is_one_line_in_a_kernel_and_fails_the_cell():
    sources = [
        'tier = "best"\nseeds = 0\nfresh = False\njobs = 0\ntime_limit = 0.0',
        "from entp_lib.experiments.parameters import notebook_parameters\nnotebook_parameters(globals())",
        "from entp_lib.validation import require\nrequire(False, 'length = 0: must be at least 1')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with pytest.raises(CellExecutionError, match="length = 0"):
        NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[2].outputs
    assert output.output_type == "error" and output.traceback == ["ConfigError: length = 0: must be at least 1"]
