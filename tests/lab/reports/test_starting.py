"""Beginning a task of one's own: what is written works, bad names are one line."""

import os
import re
import textwrap

import pytest
from made_up import copy_project, python, unchanged

from entp_lab import cli, paths


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the library and of what the commands write to, as the project's root."""
    copy_project(tmp_path, "pyproject.toml", "tests/ruff.toml", "tests/conftest.py")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path


def test_a_new_task_works_as_written(copy, capsys):
    """Its own test passes, lint and format are content, and both models train on it."""
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    assert cli.main(["new", "task", "my_parity"]) == 0
    assert "tests/lib/tasks/test_my_parity.py" in capsys.readouterr().out
    plan = (
        "import entp_lab as lab; from entp_lib.config import TrainConfig; "
        "from entp_lib.tasks import MyParity; shape = dict(n_layers=2, n_heads=2, width=32); "
        "train = TrainConfig(12, eval_every=6, eval_sequences=16); "
        "configs = lab.pairs(MyParity(length=6), shape, train, seeds=1, tier='smoke'); "
        "print(lab.run(configs, jobs=1).scores()['token_accuracy'])"
    )
    for command in (
        "-m ruff check .",
        "-m ruff format --check .",
        "-m pytest -q -p no:cacheprovider tests/lib/tasks/test_my_parity.py",
    ):
        found = python(*command.split(), cwd=copy, env=environment)
        assert found.returncode == 0, found.stdout
    found = python("-c", plan, cwd=copy, env=environment)
    assert found.returncode == 0, found.stderr
    assert len(list(copy.glob("results/smoke/records/own/*.json"))) == 2


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
def test_names_that_will_not_do_are_one_line_and_write_nothing(name, said, refusal):
    with unchanged(paths.root() / "entp_lib", "*.py"):
        assert said in refusal(f"new task {name}")


def test_the_python_of_the_page_loads_and_asks_the_models_that_git_keeps(results, capsys):
    """As the page says, wherever results are kept; ENTP is right and the decoder wrong."""
    page = (paths.root() / "docs/starting.md").read_text(encoding="utf-8")
    section = page.partition("## A model of a finished run")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .+\n(?:\n(?=    ))?)+", section, re.MULTILINE)
    exec("\n".join(map(textwrap.dedent, blocks)), {})
    entp_score, decoder_score, *_, entp, decoder = capsys.readouterr().out.splitlines()
    assert float(entp_score.removeprefix("entp ")) > 0.95
    assert float(decoder_score.removeprefix("decoder ")) < 0.85
    assert (entp, decoder) == ("entp 1", "decoder 0")
