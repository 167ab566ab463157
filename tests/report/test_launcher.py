"""Running notebooks: parameters are checked first, failures do not stop the rest, sources stay as they are."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from entp_lib import __main__ as cli
from entp_lib import paths
from entp_lib.report import notebooks as launcher
from entp_lib.strict import ConfigError

PARAMETERS = 'tier = "best"\nseeds = 0\nrate = 0.5'


def write_notebook(folder, name, *sources):
    notebook = new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    first = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    notebook.cells = [new_markdown_cell("# Title"), first, *map(new_code_cell, sources)]
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Notebooks of the test's own, and a place for their results."""
    folder = tmp_path / "note books"
    folder.mkdir()
    monkeypatch.setattr(paths, "notebooks", lambda: folder)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    return folder


def test_the_overview_comes_last_and_numbers_choose():
    names = [path.name[:2] for path in launcher.notebook_paths()]
    assert names[-1] == "00" and names[:-1] == sorted(names[:-1])
    assert [p.name[:2] for p in launcher.notebook_paths("00, 3")] == ["03", "00"]
    with pytest.raises(ConfigError, match=f"no notebook 99; there are {', '.join(sorted(names))}"):
        launcher.notebook_paths("03,99")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teir": "quick"}, "did you mean 'tier'"),
        ({"seeds": "3"}, "parameter seeds = '3' of 03_x: must be of type int, like 0"),
        ({"seeds": True}, "must be of type int"),
        ({"rate": "1e-3"}, "must be of type float"),
        ({"tier": 3}, "must be of type str"),
    ],
)
def test_parameters_are_checked_against_the_notebook(folder, given, message):
    known = launcher.defaults(write_notebook(folder, "03_x"))
    assert known == {"tier": "best", "seeds": 0, "rate": 0.5}
    with pytest.raises(ConfigError, match=message):
        launcher.checked(given, known, "03_x")


def test_a_whole_number_is_a_float_where_one_is_wanted():
    found = launcher.checked({"rate": 1}, {"rate": 0.5}, "x")
    assert found == {"rate": 1.0} and type(found["rate"]) is float


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=1e-3", 1e-3),
        ("a=True", True),
        ("a=quick", "quick"),
        ("a='1'", "1"),
        ("a=", ""),
        ("a={[]:1}", "{[]:1}"),
    ],
)
def test_values_on_the_command_line_are_read_as_python(text, value):
    name, found = launcher.parse_parameter(text)
    assert name == "a" and found == value and type(found) is type(value)


def test_parameters_need_a_name():
    with pytest.raises(ConfigError, match="write it as name=value"):
        launcher.parse_parameter("seeds")


def test_one_failure_does_not_stop_the_next_and_sources_stay_as_they_are(folder, tmp_path, capsys):
    events = (
        "from entp_lib.runs.progress import event\nevent('figure', name='x')\nevent('records', reused=2, computed=1)"
    )
    bad = write_notebook(folder, "03_bad", "raise ValueError('rate is ' + str(rate))")
    good = write_notebook(folder, "04_good", "assert rate == 0.25", events)
    before = [path.read_bytes() for path in (bad, good)]
    results = launcher.run_all(extra=["rate=0.25"])
    assert [(r.notebook, r.status) for r in results] == [("03_bad", "failed"), ("04_good", "ok")]
    assert results[0].error == "ValueError: rate is 0.25"
    assert (results[1].reused, results[1].computed, results[1].figures) == (2, 1, 1)
    assert [path.read_bytes() for path in (bad, good)] == before
    executed = sorted((tmp_path / "results" / "executed").iterdir())
    assert [p.name for p in executed] == ["03_bad.ipynb", "04_good.ipynb"]
    assert "0.25" in executed[1].read_text()
    shown = launcher.table(results)
    assert "03_bad" in shown and "failed" in shown and "records reused" in shown
    assert "[2/2] 04_good" in capsys.readouterr().err


def test_a_kernel_that_dies_does_not_stop_the_next_notebook(folder):
    write_notebook(folder, "03_dies", "import os; os._exit(1)")
    write_notebook(folder, "04_good", "print(0.25)")
    results = launcher.run_all()
    assert [r.status for r in results] == ["failed", "ok"]
    assert "died" in results[0].error.lower()


def test_all_parameters_are_checked_before_the_first_notebook_runs(folder, tmp_path):
    write_notebook(folder, "03_x", "raise SystemExit")
    with pytest.raises(ConfigError, match="must be of type int"):
        launcher.run_all(extra=["seeds=many"])
    assert not (tmp_path / "results").exists()


def test_update_installs_a_clean_copy(folder):
    path = write_notebook(folder, "03_x", "print(tier, seeds)")
    assert launcher.run_all(update=True)[0].status == "ok"
    notebook = nbformat.read(path, as_version=4)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == [1, 2]
    assert cells[1].outputs[0].text == "best 0\n"
    assert [dict(c.metadata) for c in cells] == [{"tags": ["parameters"]}, {}]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    with pytest.raises(ConfigError, match="--update takes no other option"):
        launcher.run_all(update=True, options={"tier": "quick"})


def test_a_failed_update_leaves_the_notebook(folder):
    path = write_notebook(folder, "03_x", "1 / 0")
    before = path.read_bytes()
    assert launcher.run_all(update=True)[0].status == "failed"
    assert path.read_bytes() == before


@pytest.mark.parametrize(("text", "seconds"), [(None, 0), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_time_limits(text, seconds):
    assert cli.seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "10 m", "-5", "5d", ""])
def test_bad_time_limits_are_named(text):
    with pytest.raises(ConfigError, match="write 900, 900s, 15m or 2h"):
        cli.seconds(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "77"], "no notebook 77"),
        (["run", "--only", "03", "-p", "sedes=1"], "did you mean 'seeds'"),
        (["run", "--jobs", "0"], "--jobs 0: must be at least 1"),
        (["run", "--time-limit", "soon"], "time limit 'soon'"),
        (["run", "--update", "--tier", "quick"], "--update takes no other option"),
        (["train", "count3", "--jobs", "-1"], "--jobs -1: must be 0"),
        (["train", "count4"], "did you mean 'count3'"),
        (["train", "count3", "--architecture", "encoder"], "must be one of decoder, prefix_decoder, entp"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(arguments, message, capsys):
    assert cli.main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]


def test_an_unknown_tier_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "--tier", "fast"])
    lines = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2 and len(lines) == 1
    assert lines[0].startswith("run_all.sh: ") and "smoke, quick, overnight, gpu, paper" in lines[0].replace("'", "")


def test_tier_gpu_without_one_is_refused_before_anything_runs(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["run", "--tier", "gpu"]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err


def test_train_writes_records_where_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    command = ["train", "count3", "--tier", "smoke", "--architecture", "decoder", "--seeds", "1", "--jobs", "1"]
    assert cli.main([*command, "--results", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("records/count3/*.json"))) == 2  # Count3 and Count2
    assert "token_accuracy" in capsys.readouterr().out


def test_every_committed_record_is_sound(capsys):
    assert cli.main(["records"]) == 0
    assert "0 are not" in capsys.readouterr().out


def test_lab_needs_jupyter(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert cli.main(["run", "--lab"]) == 2 and "jupyter-lab is not installed" in capsys.readouterr().err
