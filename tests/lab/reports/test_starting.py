"""Beginning a task of one's own: what is written works, bad names are one line."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

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
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_new_task_works_as_written(copy, capsys):
    """Its own test passes, lint and format are content, and both models train on it."""
    assert cli.main(["new", "task", "my_parity"]) == 0
    assert "tests/lib/tasks/test_my_parity.py" in capsys.readouterr().out
    for check in (("check", "."), ("format", "--check", ".")):
        found = python(copy, "-m", "ruff", *check)
        assert found.returncode == 0, found.stdout
    test = "tests/lib/tasks/test_my_parity.py"
    found = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert found.returncode == 0, found.stdout
    plan = (
        "import entp_lab as lab; from entp_lib.config import TrainConfig; "
        "from entp_lib.tasks import MyParity; shape = dict(n_layers=2, n_heads=2, width=32); "
        "train = TrainConfig(12, eval_every=6, eval_sequences=16); "
        "configs = lab.pairs(MyParity(length=6), shape, train, seeds=1, tier='smoke'); "
        "print(lab.run(configs, jobs=1).scores()['token_accuracy'])"
    )
    found = python(copy, "-c", plan)
    assert found.returncode == 0, found.stderr
    assert len(list((copy / "results" / "smoke" / "records" / "own").glob("*.json"))) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("counting", "exists, as the name of"),
        ("count3", "exists, as the name of"),
        ("base", "exists, as the name of"),
        ("batch", "exists, as the name of"),
        ("3d", "identifier"),
        ("lambda", "identifier"),
        ("none", "identifier"),
        ("a" * 31, "of at most 30 letters"),
    ],
)
def test_names_that_will_not_do_are_one_line_and_write_nothing(name, said, capsys):
    before = sorted((paths.root() / "entp_lib").rglob("*.py"))
    assert cli.main(["new", "task", name]) == 2
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
