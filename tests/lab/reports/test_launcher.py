"""Running notebooks: parameters are checked first, failures do not stop the rest, sources stay as
they are.
"""

import functools
import itertools
import os
import signal
import sys
import time

import nbformat
import pytest
from made_up import running, start_process, unchanged, wait_for
from mistakes import refused
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from entp_lab import cli, commands, execution, notebooks, paths
from entp_lab.configs import RunConfig, config_id
from entp_lab.notebooks import clean, defaults, notebook_paths, parameters_for
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import DEADLINE_VARIABLE, deadline_of
from entp_lab.store import Store
from entp_papers.entp.count3 import COUNT3

PARAMETERS = 'tier = "best"\nseeds = 0\njobs = 0\nrate = 0.5'


def write_notebook(folder, name, *sources):
    notebook = new_notebook(metadata=notebooks.METADATA)
    first = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [new_markdown_cell("# Title"), first, *map(new_code_cell, sources)]
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Notebooks of the test's own, two at a time, and a place for their results and figures."""
    folder = tmp_path / "note books"
    folder.mkdir()
    monkeypatch.setattr(paths, "notebooks", lambda: folder)
    monkeypatch.setattr(execution, "available_cores", lambda: 2)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


def planned(only="", update=False, **given):
    return execution.plan(parameters_for(notebook_paths(only), given), update)


def executed(tmp_path, name):
    return nbformat.read(tmp_path / f"results/executed/{name}.ipynb", as_version=4)


def test_parameters_go_to_the_notebooks_that_have_them(folder):
    first = write_notebook(folder, "03_x")
    second = write_notebook(folder, "04_y")
    second.write_text(second.read_text().replace("rate = 0.5", "slope = 2"))
    assert defaults(first) == {"tier": "best", "seeds": 0, "jobs": 0, "rate": 0.5}
    found = parameters_for([first, second], {"seeds": 3, "slope": 1})
    assert found == {first: {"seeds": 3}, second: {"seeds": 3, "slope": 1}}


MEET = """
import pathlib, time
place = pathlib.Path({place!r})
(place / {own!r}).touch()
while not (place / {other!r}).exists():
    time.sleep(0.1)
"""
SHOWN = """
import sys, matplotlib.pyplot as plt, pandas as pd
print("one", end="")
print(" line")
print("aside", file=sys.stderr)
plt.plot([1])
plt.show()
print(pd.options.display.max_columns)
rate
"""


def test_notebooks_go_side_by_side_and_a_failure_or_a_death_stops_no_other(folder, tmp_path, capfd):
    """The two that meet wait for each other; what each shows is what a kernel shows; sources stay
    as they are.
    """
    place = str(tmp_path)
    write_notebook(folder, "03_a", MEET.format(place=place, own="a", other="b"), SHOWN)
    write_notebook(
        folder,
        "04_b",
        MEET.format(place=place, own="b", other="a"),
        "raise ValueError(f'rate is {rate}')",
    )
    write_notebook(folder, "05_dies", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    write_notebook(folder, "00_last", "assert tier == 'best'")
    with unchanged(folder):
        found = {r.notebook: r for r in execution.run_all(planned()[0])}
    assert found["00_last"].error == found["03_a"].error == ""
    assert found["04_b"].error == "ValueError: rate is 0.5"
    assert "ValueError" in found["04_b"].traceback
    assert found["05_dies"].error.startswith("its process was kil")
    assert capfd.readouterr().err.count("  failed: ") == 2
    outputs = executed(tmp_path, "03_a").cells[-1].outputs
    kinds = [output.output_type for output in outputs]
    assert kinds == ["stream", "stream", "display_data", "stream", "execute_result"]
    assert [outputs[i].text for i in (0, 1, 3)] == ["one line\n", "aside\n", "20\n"]
    assert "image/png" in outputs[2].data
    assert outputs[4].data["text/plain"] == "0.5"
    assert executed(tmp_path, "04_b").cells[-1].outputs[0].evalue == "rate is 0.5"


@pytest.mark.parametrize(
    ("call", "missing", "in_place"),
    [
        ({}, 0, True),
        ({"jobs": 1}, 0, True),
        ({"update": True}, 3, True),
        ({}, 3, False),
        ({"tier": "quick"}, 0, False),
        ({"seeds": 2}, 0, False),
    ],
)
def test_only_the_best_records_and_update_touch_the_projects_figures(
    folder, monkeypatch, call, missing, in_place
):
    monkeypatch.setattr(execution, "missing_runs", lambda *_: [None] * missing)
    write_notebook(folder, "03_x")
    assert planned(**call)[1] is in_place


RUN_HERE = """
import pathlib, sys
from entp_lab import cli, execution, paths
if __name__ == "__main__":
    paths.notebooks = lambda: pathlib.Path(sys.argv[1])
    execution.available_cores = lambda: 2
    sys.exit(cli.main(["run"]))
"""


def test_a_request_to_end_ends_notebooks_and_their_processes(folder, tmp_path):
    files = [tmp_path / "03_a", tmp_path / "04_b"]
    for file in files:
        write_notebook(
            folder,
            file.name,
            f"import os\nopen({str(file)!r}, 'w').write(f'{{os.getpid()}}')\nwhile 1: pass",
        )
    command = start_process(
        sys.executable,
        "-c",
        RUN_HERE,
        folder,
        env=os.environ | {"PYTHONPATH": str(paths.root())},
    )
    try:
        wait_for(lambda: all(file.exists() and file.read_text() for file in files))
        os.killpg(command.pid, signal.SIGINT)
        said = command.communicate(timeout=120)[1]
        assert command.returncode == 130
        assert said.startswith("stopped; finished records are kept")
        assert len(said.strip().splitlines()) == 1
        wait_for(lambda: not any(running("-p", file.read_text()) for file in files))
    finally:
        command.kill()
        command.wait(60)


def test_update_stores_what_records_give_and_takes_the_overview_along(
    folder, tmp_path, monkeypatch
):
    """The first execution computes and says so; what is stored is the second one's output."""
    monkeypatch.setattr(execution, "missing_runs", lambda path, _: [3] * path.stem.startswith("03"))
    mark = f"import pathlib\nmark = pathlib.Path({str(tmp_path)!r}, 'record')\n"
    path = write_notebook(
        folder, "03_x", mark + "print('read' if mark.exists() else 'computing')\nmark.touch()"
    )
    overview = write_notebook(folder, "00_overview", "print('all')")
    other = write_notebook(folder, "04_y", "1 / 0")
    before = other.read_bytes()
    results = execution.run_all(planned("03", update=True)[0])
    assert [(r.notebook, r.error) for r in results] == [("03_x", ""), ("00_overview", "")]
    for name, said in ((path, "read\n"), (overview, "all\n")):
        stored = nbformat.read(name, as_version=4)
        assert stored.cells[-1].outputs[0].text == said
        assert stored.metadata.keys() == notebooks.METADATA.keys()
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run --only 77", "no notebook 77"),
        ("run --only 03 -p sedes=1", "did you mean 'seeds'"),
        ("run --only 03 -p seeds=-1", "seeds = -1: must be from 0 "),
        ("run --jobs -1", "'--jobs': Input should be greater than or equal to 0"),
        ("run --time-limit soon", "time limit 'soon'"),
        ("lab --tier quick", "No such option"),
        ("run --tier Quick", "'quick'"),
        ("run --only 03 --tier quick -p tier=smoke", "tier: given as an option and by -p"),
        (
            "run --tier overnight --only 02",
            "notebooks with experiments for the tier overnight: 03,",
        ),
        ("verify count3 --tier gpu", "count3 has no records at tier gpu"),
        ("train count4", "there is no experiment 'count4'; did you mean count3"),
        (f"train count3 --seeds 1{'0' * 20}", "'--seeds'"),
        ("train count3 --architecture encoder", "must be one of decoder, prefix_decoder, entp"),
        (
            "train count3 --run xyz",
            "--run xyz: of the 20 runs of count3 at tier quick none begins so",
        ),
        (
            "train count3 --tier smoke --jobs 1 --cluster tcp://localhost:1",
            "leave out one of them",
        ),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(command, message, refusal):
    assert message in refusal(command)


def test_train_computes_one_run_by_the_name_of_its_record(results):
    found = config_id(COUNT3.configs("smoke")[2], COUNT3.version)
    options = ["--tier", "smoke", "--jobs", "1", "--results", str(results)]
    assert cli.main(["train", "count3", *options, "--run", f"count3/{found[:9]}"]) == 0
    assert [path.stem for path in results.glob("records/count3/*.json")] == [found]


def test_two_runs_whose_names_begin_alike_are_named(results, monkeypatch, refusal):
    numbers = itertools.count()
    monkeypatch.setattr(commands, "config_id", lambda config, version: f"same{next(numbers)}")
    line = refusal("train count3 --tier smoke --run sam")
    assert "begin so, same0, same1, same2; write more" in line


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_the_command_that_names_a_committed_run_finds_it(name):
    """The message asks for as many seeds as the run's is; the plan for so many has it."""
    experiment = EXPERIMENTS[name]

    @functools.cache
    def planned_ids(tier, seeds):
        return {config_id(config, experiment.version) for config in experiment.configs(tier, seeds)}

    for record in Store().all(name):
        if isinstance(record.config, RunConfig):
            assert record.id in planned_ids(record.config.tier, record.config.model_seed + 1)


def test_every_committed_record_is_sound(capsys):
    assert cli.main(["records"]) == 0
    assert "0 are not" in capsys.readouterr().out


def test_a_notebook_keeps_what_people_write_and_no_trace_of_its_kernel():
    data = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "3d9f"},
        "text/plain": ["VBox()"],
    }
    written = {"rests_on": {"A.2": "verified"}}
    cell = {"metadata": written | {"trusted": True, "tags": []}, "outputs": [{"data": data}]}
    clean(content := {"metadata": {}, "cells": [cell]})
    assert content["cells"][0]["metadata"] == written
    assert data == {"text/plain": ["VBox()"]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"cells": 5, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "cannot be read"),
        (
            b'{"cells": [], "nbformat": 3, "nbformat_minor": 5, "metadata": {}}',
            "nbformat = 3: must be 4",
        ),
        (b"\xe9", "UnicodeDecodeError"),
    ],
)
def test_a_damaged_notebook_is_named_before_any_is_run(tmp_path, data, message):
    path = tmp_path / "03_x.ipynb"
    path.write_bytes(data)
    with refused(f"03_x.ipynb.*{message}"):
        defaults(path)


def test_a_mistake_is_one_line_in_a_kernel_and_an_error_of_others_keeps_its_traceback(
    results, monkeypatch
):
    """A wrong parameter, a missing record; the cell fails with the error's name and words."""
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    mistakes = {
        "notebook_parameters(globals())": "ConfigError: parameter = 'sedes': must be one of",
        "COUNT3.collect(NotebookParameters(tier='quick'))": "RecordError: missing: ",
        "COUNT3.collect(3)": "AttributeError: ",
    }
    imports = """
from entp_lab.parameters import NotebookParameters, notebook_parameters
from entp_papers.entp.count3 import COUNT3
"""
    cells = [new_code_cell(source) for source in (imports, "# Parameters\nsedes = 3\n", *mistakes)]
    NotebookClient(new_notebook(cells=cells), kernel_name="python3", allow_errors=True).execute()
    for cell, words in zip(cells[2:], mistakes.values(), strict=True):
        (error,) = cell.outputs
        told = f"{error.ename}: {error.evalue}"
        shown = "\n".join(error.traceback).splitlines()
        assert told.startswith(words)
        assert shown == [told] if error.ename in ("ConfigError", "RecordError") else len(shown) > 5


def test_a_time_limit_is_for_the_whole_command(folder, monkeypatch):
    monkeypatch.setenv(DEADLINE_VARIABLE, "")  # so that it is removed in the end
    monkeypatch.setattr(execution, "plan", lambda *_: sys.exit())
    given = {folder / "03_x.ipynb": {"time_limit": 100.0}}
    with pytest.raises(SystemExit):
        commands.run_notebooks(given, is_whole=True, update=False, yes=False)
    assert 90 < deadline_of(0) - time.time() <= 100
    assert deadline_of(10) < deadline_of(1000) == deadline_of(0)
