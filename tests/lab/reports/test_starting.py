"""Beginning a task or a notebook of one's own: what is written works, bad names are one line."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import nbformat
import pytest

from entp_lab import cli, paths


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the library and of what the commands write to, as the project's root."""
    root = paths.root()
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("entp_lib", "entp_lab", "entp_papers"):
        shutil.copytree(root / package, tmp_path / package, ignore=ignore)
    for name in ("pyproject.toml", "tests/ruff.toml", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path


def python(folder, *arguments):
    environment = {
        k: v for k, v in os.environ.items() if k != "ENTP_RECORDS"
    }  # the copy computes its own
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_new_task_and_notebook_work_as_written(copy, capsys):
    """Their own tests pass, lint and format are content, and a run of the experiment trains on the
    task.
    """
    assert cli.main(["new", "task", "my_parity"]) == 0
    assert "tests/lib/tasks/test_my_parity.py" in capsys.readouterr().out
    done = python(
        copy, "-m", "entp_lab", "new", "notebook", "my_runs", "--task", "my_parity", "--no-run"
    )
    assert done.returncode == 0, done.stderr
    assert cli.main(["new", "notebook", "two", "--task", "triplets", "--no-run"]) == 0
    assert sorted(p.name for p in (copy / "notebooks").iterdir()) == [
        "50_my_runs.ipynb",
        "51_two.ipynb",
    ]
    nbformat.validate(nbformat.read(copy / "notebooks" / "51_two.ipynb", as_version=4))
    for check in (("check", "."), ("format", "--check", ".")):
        found = python(copy, "-m", "ruff", *check)
        assert found.returncode == 0, found.stdout
    tests = ["tests/lib/tasks/test_my_parity.py", "tests/papers/own/test_my_runs_experiment.py"]
    found = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert found.returncode == 0, found.stdout
    out = copy / "out"
    found = python(
        copy,
        "-m",
        "entp_lab",
        "train",
        "my_runs",
        "--tier",
        "smoke",
        "--results",
        str(out),
        "--jobs",
        "1",
    )
    assert found.returncode == 0, found.stderr
    assert "token_accuracy" in found.stdout, found.stderr
    assert len(list((out / "records" / "my_runs").glob("*.json"))) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["task", "counting"], "exists, as the name of a task"),
        (["task", "count3"], "exists, as the name of an experiment"),
        (["task", "3d"], "identifier"),
        (["task", "lambda"], "identifier"),
        (["task", "a" * 31], "of at most 30 letters"),
        (["notebook", "runs", "--task", "countign"], "did you mean 'counting'"),
        (["notebook", "runs", "--task", "clutrr"], "must be one of addition"),
    ],
)
def test_names_that_will_not_do_are_one_line_and_write_nothing(arguments, said, capsys):
    before = sorted((paths.root() / "entp_lib").rglob("*.py"))
    assert cli.main(["new", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert sorted((paths.root() / "entp_lib").rglob("*.py")) == before


def test_the_python_of_the_page_loads_and_asks_the_models_that_git_keeps(results, capsys):
    """As the page says, wherever results are kept; ENTP is right and the decoder wrong."""
    page = (paths.root() / "docs" / "starting.md").read_text(encoding="utf-8")
    section = page.partition("## A model of a finished run")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .+\n(?:\n(?=    ))?)+", section, re.MULTILINE)
    exec("\n".join(map(textwrap.dedent, blocks)), {})
    entp_score, decoder_score, *_, entp, decoder = capsys.readouterr().out.splitlines()
    assert float(entp_score.removeprefix("entp ")) > 0.95
    assert float(decoder_score.removeprefix("decoder ")) < 0.85
    assert (entp, decoder) == ("entp 1", "decoder 0")
