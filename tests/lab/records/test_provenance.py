"""Provenance: a record says which code and which machine made it, and a verdict which pairs were made apart."""

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from entp_lab import paths
from entp_lab import provenance as origin
from entp_lab.configs import StudyConfig, config_id
from entp_lab.provenance import git_state, pairs_apart, processes, provenance
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import modules_of, run
from entp_lab.stopping import Cut
from entp_lab.store import Record


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that stands for the project's root."""
    monkeypatch.delenv("ENTP_COMMIT", raising=False)
    root = tmp_path / "outer" / "project"
    (root / "entp_lib").mkdir(parents=True)
    (root / "entp_lib" / "code.py").write_text("1\n")
    monkeypatch.setattr(paths, "root", lambda: root)
    return root


def test_only_a_repository_of_its_own_names_a_commit(project):
    assert git_state() == ("unknown", None)
    git(project.parent, "init")
    git(project.parent, "add", ".")
    git(project.parent, "commit", "-m", "the enclosing one")
    assert git_state() == ("unknown", None)
    git(project, "init")
    assert git_state() == ("unknown", None)  # no commit yet
    git(project, "add", ".")
    git(project, "commit", "-m", "its own")
    commit, dirty = git_state()
    assert len(commit) == 12 and dirty is False
    (project / "entp_lib" / "code.py").write_text("2\n")
    assert git_state() == (commit, True)


@pytest.fixture
def surrounding(tmp_path):
    """A repository with a commit, and the variables that git gives the hooks of one of its worktrees."""
    folder = tmp_path / "surrounding"
    folder.mkdir()
    (folder / "file").write_text("theirs\n")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "theirs")
    place = folder / ".git"
    return place, {"GIT_DIR": str(place), "GIT_INDEX_FILE": str(place / "index"), "GIT_WORK_TREE": str(folder)}


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_hook_of_another_repository_changes_no_commit(project, surrounding, monkeypatch):
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "its own")
    before = git_state()
    for name, value in surrounding[1].items():
        monkeypatch.setenv(name, value)
    assert git_state() == before and before[1] is False


def test_tests_that_a_hook_starts_leave_its_repository_alone(surrounding):
    place, variables = surrounding
    before = contents(place)
    these = ["-k", "repository_of_its_own or leaves_the_index", "-q", "-p", "no:cacheprovider", __file__]
    command, root = [sys.executable, "-m", "pytest", *these], Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, env=os.environ | variables, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout
    assert contents(place) == before


def test_asking_for_the_state_leaves_the_index_alone(project):
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "its own")
    (project / "entp_lib" / "code.py").touch()  # a plain status would now write the index anew
    index = project / ".git" / "index"
    before = index.stat()
    (project / ".git" / "index.lock").touch()  # somebody else is committing
    assert git_state()[1] is False
    assert (index.stat().st_ino, index.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_sources_are_the_files_that_a_run_loads_and_no_others(small_run):
    def loaded(config):
        return origin.loaded_files(modules_of(config), origin.FILES)

    trained, study = loaded(small_run()), loaded(StudyConfig("test", "smoke", "looped_drift", {}))
    assert {"entp_lib/training.py", "entp_lib/model.py", "entp_lib/tasks/counting.py"} <= trained
    assert loaded(small_run("entp")) == trained
    assert not any(path.startswith("entp_papers") or "figures" in path or "cli" in path for path in trained)
    assert study and all(not path.startswith("entp_papers/") or "/looped/" in path for path in study)


def test_imports_of_every_form_are_followed():
    files = {
        "a/__init__.py": b"from a.d import e",
        "a/b.py": b"import a.c\nfrom a import d",
        "a/c.py": b"def f():\n    from a.c import g",
        "a/d/__init__.py": b"import numpy",
        "a/d/table.csv": b"",
        "a/other.py": b"import a.b",
    }
    assert origin.loaded_files(["a.b"], files) == {"a/b.py", "a/c.py", "a/d/__init__.py", "a/d/table.csv"}


def test_a_record_names_the_instruction_set_and_the_sources(small_run, store):
    where = run(small_run(), 1, store=store).provenance
    assert where["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert where["sources"] == origin.sources(tuple(modules_of(small_run()))) and where["cores"] >= 1
    assert 0 < where["cpu_seconds"] and where["load_at_end"] is not None
    assert "earlier_processes" not in where


def test_a_resumed_run_names_every_process(small_run, store):
    config = small_run(steps=30, eval_every=10)
    path = store.checkpoint_path("test", config_id(config, 1))
    for commit, steps in (("first", 7), ("second", 5)):
        made, where = [], provenance("cpu", 1) | {"commit": commit, "dirty": commit == "first"}
        stop = functools.partial(lambda made, steps: len(made) == steps, made, steps)
        with pytest.raises(Cut):
            train_run(config, checkpoint=Checkpoint(path, process=where, on_step=made.append, stop=stop))
    record = run(config, 1, store=store)
    assert [p["commit"] for p in processes(record)][:2] == ["first", "second"]
    assert [p["from_step"] for p in record.provenance["earlier_processes"]] == [0, 7]
    assert record.provenance["from_step"] == 12
    assert len(processes(record)) == 3 and any(made["dirty"] for made in processes(record))
    assert store.find(config, 1) == record


def made(config, **where):
    return Record(config.experiment, 1, config, {}, {}, {**provenance("cpu", 1), **where})


def test_pairs_made_apart_say_so(small_run):
    pairs = [[made(small_run(a, seed), sources="one") for a in ("decoder", "entp")] for seed in range(3)]
    together = [record for pair in pairs for record in pair]
    resumed = made(small_run(), sources="two", earlier_processes=[{"sources": "one"}])
    assert pairs_apart([resumed, pairs[1][0]]) == "1 of 2 runs continued with other sources"
    assert pairs_apart([resumed, pairs[0][1]]) == "1 of 1 pairs from different sources"
    assert pairs_apart(together) == "" and pairs_apart([]) == ""
    pairs[1][1].provenance["cpu_capability"] = "NO AVX"
    assert pairs_apart(together) == "1 of 3 pairs from different instruction sets"
    pairs[0][0].provenance["sources"] = "two"
    del pairs[2][0].provenance["sources"]
    assert pairs_apart(together).endswith("; 1 of 3 pairs from different sources")
    mixed = made(replace(together[0].config, train=replace(together[0].config.train, precision="bf16")))
    assert pairs_apart([mixed, together[1]]).endswith("1 of 1 pairs from different precisions")
