"""Running notebooks: parameters are checked first, failures do not stop the rest, sources stay as they are."""

import functools
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from made_up import wait_for
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from entp_lab import cli, commands, notebooks, paths
from entp_lab.configs import RunConfig, config_id
from entp_lab.notebooks import ONE_LINE, clean, defaults, notebook_paths, parameters_for
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lib.validation import ConfigError
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
    monkeypatch.setattr(notebooks, "available_cores", lambda: 2)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


def planned(only="", update=False, **given):
    return notebooks.plan(parameters_for(notebook_paths(only), given), update)


def executed(tmp_path, name):
    return nbformat.read(tmp_path / "results" / "executed" / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teir": "quick"}, "did you mean 'tier'"),
        ({"seeds": "3"}, r"seeds = '3' \(str\): must be a whole number"),
        ({"tier": "Quick"}, "tier = 'Quick': must be one of .*did you mean 'quick'"),
        ({"seeds": -1}, "seeds = -1: must be from 0 .* to 1000"),
    ],
)
def test_parameters_are_checked_and_go_to_the_notebooks_that_have_them(folder, given, message):
    first = write_notebook(folder, "03_x")
    second = write_notebook(folder, "04_y")
    second.write_text(second.read_text().replace("rate = 0.5", "slope = 2"))
    assert defaults(first) == {"tier": "best", "seeds": 0, "jobs": 0, "rate": 0.5}
    assert parameters_for([first, second], {"seeds": 3, "slope": 1}) == {
        first: {"seeds": 3},
        second: {"seeds": 3, "slope": 1},
    }
    with pytest.raises(ConfigError, match=message):
        parameters_for([first], given)


def test_notebooks_go_side_by_side_and_a_failure_or_a_death_stops_no_other(folder, tmp_path, capfd):
    """The two that meet wait for each other; what each shows is what a kernel shows; sources stay as they are."""
    meet = (
        "import pathlib, time\nplace = pathlib.Path({!r})\n(place / '{}').touch()\n"
        "for _ in range(3000):\n    time.sleep(0.1 * (not (place / '{}').exists()))\nassert (place / '{}').exists()"
    )
    shown = (
        "import sys, matplotlib.pyplot as plt, pandas as pd\nprint('one', end='')\nprint(' line')\n"
        "print('aside', file=sys.stderr)\nplt.plot([1])\nplt.show()\nprint(pd.options.display.max_columns)\nrate"
    )
    write_notebook(folder, "03_a", meet.format(str(tmp_path), "a", "b", "b"), shown)
    write_notebook(folder, "04_b", meet.format(str(tmp_path), "b", "a", "a"), "raise ValueError(f'rate is {rate}')")
    write_notebook(folder, "05_dies", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    write_notebook(folder, "00_last", "assert tier == 'best'")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    found = {r.notebook: r for r in notebooks.run_all(planned()[0])}
    assert {name: result.error[:19] for name, result in found.items()} == {
        "00_last": "",
        "03_a": "",
        "04_b": "ValueError: rate is",
        "05_dies": "its process was kil",
    }
    assert found["04_b"].error.endswith("0.5")
    assert "ValueError" in found["04_b"].traceback
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    outputs = executed(tmp_path, "03_a").cells[-1].outputs
    kinds = [output.output_type for output in outputs]
    assert kinds == ["stream", "stream", "display_data", "stream", "execute_result"]
    assert [outputs[i].text for i in (0, 1, 3)] == ["one line\n", "aside\n", "20\n"]
    assert "image/png" in outputs[2].data
    assert outputs[4].data["text/plain"] == "0.5"
    assert executed(tmp_path, "04_b").cells[-1].outputs[0].evalue == "rate is 0.5"
    said = capfd.readouterr().err
    assert "/4] 03_a" in said
    assert said.count("  failed: ") == 2


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
def test_only_the_best_records_and_update_touch_the_projects_figures(folder, monkeypatch, call, missing, in_place):
    monkeypatch.setattr(notebooks, "missing_runs", lambda *_: [None] * missing)
    write_notebook(folder, "03_x")
    assert planned(**call)[1] is in_place


def test_a_request_to_end_ends_notebooks_and_their_processes(folder, tmp_path):
    for name in ("03_a", "04_b"):
        forever = f"open({str(tmp_path)!r} + '/{name}', 'w').write(str(__import__('os').getpid()))\nwhile 1: pass"
        write_notebook(folder, name, forever)
    code = f"""if True:
        import pathlib, sys
        from entp_lab import cli, notebooks, paths
        if __name__ == "__main__":
            paths.notebooks = lambda: pathlib.Path({str(folder)!r})
            notebooks.available_cores = lambda: 2
            sys.exit(cli.main(["run"]))"""
    environ = os.environ | {"PYTHONPATH": str(paths.root()), "ENTP_RESULTS": str(tmp_path / "results")}
    alone = dict(start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    command = subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True, **alone)
    processes = [tmp_path / "03_a", tmp_path / "04_b"]
    try:
        wait_for(lambda: all(path.exists() and path.read_text() for path in processes))
        os.killpg(command.pid, signal.SIGINT)
        said = command.communicate(timeout=120)[1]
        assert command.returncode == 130
        assert said.startswith("stopped; finished records are kept")
        assert len(said.strip().splitlines()) == 1
        wait_for(lambda: not any(alive(int(path.read_text())) for path in processes))
    finally:
        command.kill()
        command.wait(60)


def alive(process):
    """Whether a process of this number runs and is no zombie."""
    state = Path(f"/proc/{process}/stat")
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not state.exists() or state.read_text().rsplit(")")[1].split()[0] != "Z"


def test_update_stores_what_records_give_and_takes_the_overview_along(folder, tmp_path, monkeypatch):
    """The first execution computes and says so; what is stored is the second one's output."""
    monkeypatch.setattr(notebooks, "missing_runs", lambda path, _: [3] * path.stem.startswith("03"))
    mark = f"import pathlib\nmark = pathlib.Path({str(tmp_path)!r}, 'record')\n"
    path = write_notebook(folder, "03_x", mark + "print('read' if mark.exists() else 'computing')\nmark.touch()")
    overview = write_notebook(folder, "00_overview", "print('all')")
    other = write_notebook(folder, "04_y", "1 / 0")
    before = other.read_bytes()
    results = notebooks.run_all(planned("03", update=True)[0])
    assert [(r.notebook, r.error) for r in results] == [("03_x", ""), ("00_overview", "")]
    stored = {name: nbformat.read(name, as_version=4) for name in (path, overview)}
    assert [stored[name].cells[-1].outputs[0].text for name in stored] == ["read\n", "all\n"]
    assert all(set(book.metadata) == set(notebooks.METADATA) for book in stored.values())
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "77"], "no notebook 77"),
        (["run", "--only", "03", "-p", "sedes=1"], "did you mean 'seeds'"),
        (["run", "--jobs", "-1"], "'--jobs': Input should be greater than or equal to 0"),
        (["run", "--time-limit", "soon"], "time limit 'soon'"),
        (["run", "-p", "tier=Quick"], "did you mean 'quick'"),
        (["lab", "--tier", "quick"], "No such option"),
        (["lab", "--port", "99999999"], "'--port': Input should be less than or equal to 65535"),
        (["run", "--tier", "Quick"], "'quick'"),
        (["nothing"], "No such command"),
        (["run", "--only", "03", "--tier", "quick", "-p", "tier=smoke"], "tier: given as an option and by -p"),
        (["run", "--tier", "overnight", "--only", "02"], "notebooks with experiments for the tier overnight: 03,"),
        (["verify", "count3", "--tier", "gpu"], "count3 has no records at tier gpu"),
        (["train", "count4"], "there is no experiment 'count4'; did you mean count3"),
        (["train", "count3", "--seeds", "1" + "0" * 20], "'--seeds'"),
        (["train", "count3", "--architecture", "encoder"], "must be one of decoder, prefix_decoder, entp"),
        (["train", "count3", "--run", "xyz"], "--run xyz: of the 20 runs of count3 at tier quick none begins so"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert lines[0].startswith("entp: ")


def test_train_computes_one_run_by_the_name_of_its_record(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    scored = [config_id(c, COUNT3.version) for c in COUNT3.configs("smoke")][2]
    command = ["train", "count3", "--tier", "smoke", "--jobs", "1", "--results", str(tmp_path), "--run"]
    assert cli.main([*command, f"count3/{scored[:9]}"]) == 0
    assert "token_accuracy" in capsys.readouterr().out
    assert [path.stem for path in tmp_path.glob("records/count3/*.json")] == [scored]
    numbers = itertools.count()
    monkeypatch.setattr("entp_lab.commands.config_id", lambda config, version: f"same{next(numbers)}")
    assert cli.main([*command, "sam"]) == 2
    assert "begin so, same0, same1, same2; write more" in capsys.readouterr().err


def test_the_command_that_names_a_committed_run_finds_it():
    """The message asks for as many seeds as the run's is; the plan for so many has it."""
    store = Store()
    for experiment in EXPERIMENTS.values():
        planned_ids = functools.cache(lambda *c, e=experiment: {config_id(r, e.version) for r in e.configs(*c)})
        for path in (store.root / "records" / experiment.name).glob("*.json"):
            config = store.load(experiment.name, path.stem).config
            if isinstance(config, RunConfig):
                assert path.stem in planned_ids(config.tier, config.model_seed + 1), path


def test_every_committed_record_is_sound(capsys):
    assert cli.main(["records"]) == 0
    assert "0 are not" in capsys.readouterr().out


def test_a_notebook_keeps_what_people_write_and_no_trace_of_its_kernel():
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": "3d9f"}, "text/plain": ["VBox()"]}
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
        (b'{"cells": [], "nbformat": 3, "nbformat_minor": 5, "metadata": {}}', "nbformat = 3: must be 4"),
        (b"\xe9", "UnicodeDecodeError"),
    ],
)
def test_a_damaged_notebook_is_named_before_any_is_run(tmp_path, data, message):
    path = tmp_path / "03_x.ipynb"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message) as error:
        defaults(path)
    assert "03_x.ipynb" in str(error.value)


def test_a_mistake_is_one_line_in_a_kernel_and_an_error_of_others_keeps_its_traceback(tmp_path, monkeypatch):
    """A wrong parameter, a missing record; the cell fails with the error's name and words."""
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    mistakes = {
        "# Parameters\nsedes = 3\n": "",
        "notebook_parameters(globals())": "ConfigError: parameter = 'sedes': must be one of",
        "COUNT3.collect(NotebookParameters(tier='quick'))": "RecordError: missing or partial: record count3/",
        "COUNT3.collect(3)": "AttributeError: ",
    }
    imports = "from entp_lab.parameters import NotebookParameters, notebook_parameters\n"
    imports += "from entp_papers.entp.count3 import COUNT3"
    cells = [new_code_cell(source) for source in (imports, *mistakes)]
    NotebookClient(new_notebook(cells=cells), kernel_name="python3", allow_errors=True).execute()
    for cell, words in zip(cells[1:], mistakes.values(), strict=True):
        if not words:
            continue
        (error,) = cell.outputs
        told = f"{error.ename}: {error.evalue}"
        shown = "\n".join(error.traceback).splitlines()
        assert error.output_type == "error"
        assert told.startswith(words)
        assert shown == [told] if error.ename in ONE_LINE else len(shown) > 5


def test_the_limit_of_overnight_is_for_its_runs_and_its_notebooks_together(folder, monkeypatch):
    class Planned(Exception):
        pass

    def planned(parameters, update):
        raise Planned(*parameters.values())

    clock = iter([0.0, 40.0])
    monkeypatch.setattr("entp_lab.commands.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(commands, "experiments_of", lambda *_: [])
    monkeypatch.setattr(commands, "train", lambda *_, **__: 0)
    monkeypatch.setattr(notebooks, "plan", planned)
    with pytest.raises(Planned) as found:
        commands.run_notebooks({folder / "03_x.ipynb": {"tier": "overnight", "time_limit": 100.0}})
    assert found.value.args == ({"tier": "overnight", "time_limit": 60.0},)
