"""Running notebooks: parameters are checked first, failures do not stop the rest, sources stay as they are."""

import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from made_up import wait_for
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from entp_lab import cli, commands, notebooks, paths
from entp_lab.configs import RunConfig, config_id
from entp_lab.notebooks import ONE_LINE, Result, clean, defaults, notebook_paths, read_notebook
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lib.validation import ConfigError
from entp_papers.entp.count3 import COUNT3

PARAMETERS = 'tier = "best"\nseeds = 0\njobs = 0\nrate = 0.5\nrule = "one"'


def write_notebook(folder, name, *sources):
    notebook = new_notebook(metadata=notebooks.METADATA)
    first = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [new_markdown_cell("# Title"), first, *map(new_code_cell, sources)]
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Notebooks of the test's own, one at a time, and a place for their results."""
    folder = tmp_path / "note books"
    folder.mkdir()
    monkeypatch.setattr(paths, "notebooks", lambda: folder)
    monkeypatch.setattr(notebooks, "available_cores", lambda: 1)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    return folder


def planned(only="", update=False, **given):
    """The jobs of notebooks with these parameters, and whether their figures are the project's."""
    return notebooks.plan(notebooks.checked_for_all({}, given, notebook_paths(only)), update)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teir": "quick"}, "did you mean 'tier'"),
        ({"seeds": "3"}, r"03_x: seeds = '3' \(str\): must be a whole number"),
        ({"tier": "Quick"}, "03_x: tier = 'Quick': must be one of .*did you mean 'quick'"),
        ({"seeds": -1}, "03_x: seeds = -1: must be from 0 .* to 1000"),
    ],
)
def test_parameters_are_checked_against_the_notebook(folder, given, message):
    path = write_notebook(folder, "03_x")
    assert defaults(path) == {"tier": "best", "seeds": 0, "jobs": 0, "rate": 0.5, "rule": "one"}
    with pytest.raises(ConfigError, match=message):
        notebooks.checked_for_all(given, {}, [path])


def test_one_failure_does_not_stop_the_next_and_sources_stay_as_they_are(folder, tmp_path, capsys):
    events = "from entp_lab.progress import event\nevent('figure', name='x')\nevent('records', reused=2, computed=1)"
    bad = write_notebook(folder, "03_bad", "raise ValueError('rate is ' + str(rate))")
    good = write_notebook(folder, "04_good", "assert rate == 0.25", events)
    before = [path.read_bytes() for path in (bad, good)]
    results = notebooks.run_all(planned(rate=0.25)[0])
    assert [(r.notebook, r.status) for r in results] == [("03_bad", "failed"), ("04_good", "ok")]
    assert results[0].error == "ValueError: rate is 0.25"
    assert (results[1].reused, results[1].computed, results[1].figures) == (2, 1, 1)
    assert [path.read_bytes() for path in (bad, good)] == before
    executed = sorted((tmp_path / "results" / "executed").iterdir())
    assert [p.name for p in executed] == ["03_bad.ipynb", "04_good.ipynb"]
    assert "0.25" in executed[1].read_text()
    told = capsys.readouterr().err
    assert "/2] 03_bad" in told and "/2] 04_good" in told and told.count("  failed: ValueError") == 1


def test_what_needs_no_computing_runs_side_by_side_and_the_rest_after_it(folder, tmp_path, monkeypatch):
    """Each of two waits for the other; one that computes comes when they are done, though it stands between them.

    The two are forked from a process that has the imports, and show pictures and tables as any kernel does.
    """
    monkeypatch.setattr(notebooks, "available_cores", lambda: 2)
    monkeypatch.setattr(notebooks, "missing_runs", lambda name, _: [None] * 2 * (name == "04_computes"))
    meet = (
        "import pathlib, sys, time\nplace = pathlib.Path({!r})\n(place / '{}').touch()\n"
        "assert 'seaborn' in sys.modules or sys.platform != 'linux'\n"
        "for _ in range(300):\n    time.sleep(0.1 * (not (place / '{}').exists()))\nassert (place / '{}').exists()\n"
        "import matplotlib.pyplot as plt, pandas as pd\nplt.plot([1])\nplt.show()\n"
        "print(pd.options.display.max_columns)"
    )
    write_notebook(folder, "03_a", meet.format(str(tmp_path), "a", "b", "b"))
    write_notebook(
        folder, "04_computes", f"import pathlib; assert len(list(pathlib.Path({str(tmp_path)!r}).glob('?'))) == 2"
    )
    write_notebook(folder, "05_b", meet.format(str(tmp_path), "b", "a", "a"))
    jobs, _ = planned()
    assert [job.notebook.stem for job in jobs if job.computes_nothing] == ["03_a", "05_b"]
    results = notebooks.run_all(jobs)
    assert [(r.notebook, r.status) for r in results] == [("03_a", "ok"), ("04_computes", "ok"), ("05_b", "ok")]
    cells = nbformat.read(tmp_path / "results" / "executed" / "03_a.ipynb", as_version=4).cells
    shown = [output for cell in cells for output in cell.get("outputs", [])]
    assert ["image/png" in output.get("data", {}) for output in shown] == [True, False] and shown[1]["text"] == "20\n"


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
    folder, tmp_path, monkeypatch, call, missing, in_place
):
    monkeypatch.setattr(notebooks, "missing_runs", lambda *_: [None] * missing)
    monkeypatch.setenv("ENTP_FIGURES", str(tmp_path / "figures"))
    write_notebook(folder, "03_x", "from entp_lab import paths\nprint(paths.new_figures())")
    jobs, found = planned(**call)
    assert found is in_place
    notebooks.run_all(jobs)
    place = tmp_path / "figures" if in_place else tmp_path / "results" / "executed" / "figures"
    assert f"{place}\\n" in (tmp_path / "results" / "executed" / "03_x.ipynb").read_text()


def test_an_interrupt_ends_notebooks_side_by_side_and_their_kernels(folder, tmp_path):
    for name in ("03_a", "04_b"):
        forever = f"open({str(tmp_path)!r} + '/{name}', 'w').write(str(__import__('os').getpid()))\nwhile 1: pass"
        write_notebook(folder, name, forever)
    code = f"""if True:
        import pathlib, sys
        from entp_lab import paths
        from entp_lab import cli
        from entp_lab import notebooks
        if __name__ == "__main__":
            paths.notebooks = lambda: pathlib.Path({str(folder)!r})
            notebooks.available_cores = lambda: 2
            sys.exit(cli.main(["run"]))"""
    environ = os.environ | {"PYTHONPATH": str(paths.root()), "ENTP_RESULTS": str(tmp_path / "results")}
    alone = dict(start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    command = subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True, **alone)
    kernels = [tmp_path / "03_a", tmp_path / "04_b"]
    try:
        wait_for(lambda: all(path.exists() and path.read_text() for path in kernels))
        os.killpg(command.pid, signal.SIGINT)
        told = command.communicate(timeout=60)[1]
        assert command.returncode == 130
        assert told.startswith("stopped; finished records are kept") and len(told.strip().splitlines()) == 1
        wait_for(lambda: not any(alive(int(path.read_text())) for path in kernels))
        assert not list((tmp_path / "results" / "executed").glob(".run-*"))
    finally:
        if command.poll() is None:  # kernels are in sessions of their own and would go on for ever
            command.terminate()
            command.wait(60)


def alive(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not state.exists() or state.read_text().rsplit(")")[1].split()[0] != "Z"


def test_update_stores_what_records_give_and_takes_the_overview_along(folder, tmp_path, monkeypatch):
    """The first execution computes and says so; what is stored is the second one's output."""
    source = (
        "import pathlib\nfrom entp_lab.progress import event\n"
        f"mark = pathlib.Path({str(tmp_path)!r}, 'record')\n"
        "event('records', reused=mark.exists(), computed=not mark.exists())\n"
        "print('read' if mark.exists() else 'computing ...')\nmark.touch()"
    )
    path = write_notebook(folder, "03_x", source)
    overview, other = write_notebook(folder, "00_overview", "print('all')"), write_notebook(folder, "04_y", "1 / 0")
    before = other.read_bytes()
    results = notebooks.run_all(planned("03", update=True)[0])
    assert [(r.notebook, r.status, r.computed) for r in results] == [("03_x", "ok", 1), ("00_overview", "ok", 0)]
    assert "read" in path.read_text() and "computing ...\\n" not in path.read_text()
    assert nbformat.read(overview, as_version=4).cells[-1].outputs[0].text == "all\n" and other.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "77"], "no notebook 77"),
        (["run", "--only", "03", "-p", "sedes=1"], "did you mean 'seeds'"),
        (["run", "--jobs", "-1"], "'--jobs': Input should be greater than or equal to 0"),
        (["run", "--time-limit", "soon"], "time limit 'soon'"),
        (["run", "-p", "tier=Quick"], "did you mean 'quick'"),
        (["run", "-p", "threshold=0.5"], "parameter threshold belongs to 03b_count3_details: add --only 03b"),
        (["run", "--lab", "--tier", "quick"], "--lab does not take --tier"),
        (["run", "--port", "9000"], "--port goes with --lab"),
        (["run", "--lab", "--port", "99999999"], "'--port': Input should be less than or equal to 65535"),
        (["run", "--lub"], "No such option"),
        (["run", "--tier", "Quick"], "'quick'"),
        (["nothing"], "No such command"),
        (["train"], "Missing argument 'experiment'"),
        (["run", "--only", "03", "--tier", "quick", "-p", "tier=smoke"], "tier: given as an option and by -p"),
        (["tier", "overnight", "--only", "02"], "--only 02: notebooks with experiments for the tier overnight: 03,"),
        (["verify", "count3", "--tier", "gpu"], "count3 has no records at tier gpu"),
        (["corpus", "--export", "docs"], "--export docs: is a folder"),
        (["train", "count4"], "there is no experiment 'count4'; did you mean count3"),
        (["train", "count3", "--architecture", "encoder"], "must be one of decoder, prefix_decoder, entp"),
        (["train", "count3", "--run", "xyz"], "--run xyz: of the 20 runs of count3 at tier quick none begins so"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(paths.root())
    assert cli.main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0] and lines[0].startswith("entp: ")


def test_train_computes_one_run_by_the_name_of_its_record(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    scored = [config_id(c, COUNT3.version) for c in COUNT3.configs("smoke")][2]
    command = ["train", "count3", "--tier", "smoke", "--jobs", "1", "--results", str(tmp_path), "--run"]
    assert cli.main([*command, f"count3/{scored[:9]}"]) == 0 and "token_accuracy" in capsys.readouterr().out
    assert [path.stem for path in tmp_path.glob("records/count3/*.json")] == [scored]
    numbers = itertools.count()
    monkeypatch.setattr("entp_lab.commands.config_id", lambda config, version: f"same{next(numbers)}")
    assert cli.main([*command, "sam"]) == 2 and "begin so, same0, same1, same2; write more" in capsys.readouterr().err


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
    """Tags and verdicts stay; names of widgets and the pieces that a slow kernel prints in go."""
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": "3d9f"}, "text/plain": ["VBox()"]}
    written, prints = {"rests_on": {"A.2": "verified"}}, [dict(name="stdout", text=text) for text in "ab"]
    cell = {"metadata": written | {"trusted": True, "tags": []}, "outputs": [{"data": data}, *prints]}
    clean(content := {"metadata": {}, "cells": [cell]})
    assert content["cells"][0]["metadata"] == written
    assert cell["outputs"] == [{"data": {"text/plain": ["VBox()"]}}, dict(name="stdout", text="ab")]


# Notebooks that cannot be run are named before any of them is.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "it is empty"),
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: b"\xef\xbb\xbf" + data, "a mark of byte order"),
        (lambda data: b"[" * 100_000, "cannot be read"),
        (lambda data: b'{"cells": 5, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "cannot be read"),
        (lambda data: data + b"\xe9", "is not UTF-8"),
    ],
)
def test_a_damaged_one_is_named(tmp_path, change, message):
    path = tmp_path / "03_x.ipynb"
    path.write_bytes(change(next(p for p in notebook_paths() if p.stem.startswith("03")).read_bytes()))
    for read in (read_notebook, defaults):
        with pytest.raises(ConfigError, match=message) as error:
            read(path)
        assert "03_x.ipynb" in str(error.value)


# A failure is told in a line, also where the error itself says nothing.


def test_a_kernel_checks_and_finds_room_for_its_sockets_whatever_the_environment(folder, tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    job = notebooks.Job(write_notebook(folder, "03_x", "assert 1 == 2"), {}, tmp_path / "figures")
    assert notebooks.execute(job, quiet=True).error == "AssertionError: this does not hold: assert 1 == 2"
    assert os.environ["PYTHONOPTIMIZE"] == "2" and not list((tmp_path / "results" / "executed").glob(".run-*"))


def test_a_kernel_does_not_see_a_users_own_settings(folder, tmp_path, monkeypatch):
    """A profile of IPython, warnings, a style of matplotlib, and another kernel that is called python3, too."""
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "own.py").write_text("import pandas; pandas.set_option('display.max_rows', 7)")
    (tmp_path / "matplotlibrc").write_text("font.size: 40")
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["false"], "display_name": "broken", "language": "python"}')
    for name in ("IPYTHONDIR", "MATPLOTLIBRC", "JUPYTER_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    source = (
        "import sys, warnings, matplotlib, pandas\nwarnings.warn('only said')\n"
        "print(pandas.get_option('display.max_rows'), matplotlib.rcParams['font.size'], sys.executable)"
    )
    job = notebooks.Job(write_notebook(folder, "03_x", source), {}, tmp_path / "figures")
    assert notebooks.execute(job, quiet=True).error == ""
    cells = nbformat.read(tmp_path / "results" / "executed" / "03_x.ipynb", as_version=4).cells
    printed = [output.text for output in cells[-1].outputs if output.name == "stdout"]
    assert printed == [f"60 10.0 {sys.executable}\n"]


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
        told, shown = f"{error.ename}: {error.evalue}", "\n".join(error.traceback).splitlines()
        assert error.output_type == "error" and told.startswith(words)
        assert shown == [told] if error.ename in ONE_LINE else len(shown) > 5


def test_the_limit_of_overnight_is_for_its_runs_and_its_notebooks_together(monkeypatch):
    class Planned(Exception):
        pass

    def planned(parameters, update):
        raise Planned(*parameters.values())

    clock = iter([0.0, 40.0])
    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(commands, "complete_tier", lambda *_, **__: 0)
    monkeypatch.setattr(notebooks, "plan", planned)
    with pytest.raises(Planned) as found:
        commands.run_notebooks({Path("03_count3.ipynb"): {"tier": "overnight", "time_limit": 100.0}}, is_whole=False)
    assert found.value.args == ({"tier": "overnight", "time_limit": 60.0},)


@pytest.mark.parametrize("verbose", [False, True])
def test_it_ends_with_the_claims_and_where_to_open_what_it_made(folder, tmp_path, monkeypatch, capsys, verbose):
    """The table of what became of each notebook is for those who ask for it."""
    results = [Result("03_a", "ok", 1.0), Result("04_b", "failed", 2.0, error="ValueError: no")]
    monkeypatch.setattr(notebooks, "run_all", lambda jobs: results)
    monkeypatch.setattr(commands.report, "write_ledger", lambda folder: "judged")
    monkeypatch.setattr(commands.report, "plain_table", lambda judged: f"claims as {judged}")
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    path = write_notebook(folder, "03_a")
    assert commands.run_notebooks({path: {}}, verbose=verbose) == 1
    out, err = capsys.readouterr()
    assert "claims as judged" in out and err == "04_b: ValueError: no\n"
    assert ("executed copy" in out) == verbose
    index = tmp_path / "results" / "executed" / "index.md"
    assert str(index) in out and "](03_a.ipynb)" in index.read_text() and "| failed |" in index.read_text()
