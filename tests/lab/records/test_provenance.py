"""Provenance: a record says which code and which machine made it, and a verdict which pairs were
made apart.
"""

import subprocess

import pytest
from made_up import computed, cut_at

from entp_lab import paths
from entp_lab import provenance as origin
from entp_lab.configs import StudyConfig
from entp_lab.provenance import git_state, pairs_apart, processes, provenance
from entp_lab.runs import modules_of
from entp_lab.store import Record


def git(folder, *arguments):
    who = "-c user.name=a -c user.email=a@b -c init.defaultBranch=main -c commit.gpgsign=false"
    subprocess.run(
        ["git", *who.split(), "-C", str(folder), *arguments], check=True, capture_output=True
    )


def commit(folder):
    """Make a repository of a folder, with one commit."""
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all of it")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that stands for the project's root."""
    monkeypatch.delenv("ENTP_COMMIT", raising=False)
    root = tmp_path / "outer/project"
    (root / "entp_lib").mkdir(parents=True)
    (root / "entp_lib/code.py").write_text("1\n")
    monkeypatch.setattr(paths, "root", lambda: root)
    return root


def test_only_a_repository_of_its_own_names_a_commit(project):
    for prepare in (
        lambda: None,
        lambda: commit(project.parent),
        lambda: git(project, "init"),
    ):  # no commit yet
        prepare()
        assert git_state() == ("unknown", None)
    commit(project)
    name, dirty = git_state()
    assert len(name) == 12
    assert dirty is False
    (project / "entp_lib/code.py").write_text("2\n")
    assert git_state() == (name, True)


def test_a_hook_of_another_repository_changes_no_commit(project, tmp_path, monkeypatch):
    commit(project)
    before = git_state()
    commit(tmp_path)
    theirs = tmp_path / ".git"
    for name, value in {
        "GIT_DIR": theirs,
        "GIT_INDEX_FILE": theirs / "index",
        "GIT_WORK_TREE": tmp_path,
    }.items():
        monkeypatch.setenv(name, str(value))
    assert git_state() == before


def test_asking_for_the_state_leaves_the_index_alone(project):
    commit(project)
    (project / "entp_lib/code.py").touch()  # a plain status would now write the index anew
    index = project / ".git/index"
    before = index.stat()
    (project / ".git/index.lock").touch()  # somebody else is committing
    assert git_state()[1] is False
    assert (index.stat().st_ino, index.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_sources_are_the_files_that_a_run_loads_and_no_others(small_run):
    def loaded(config):
        return origin.loaded_files(modules_of(config), origin.FILES)

    trained = loaded(small_run())
    study = loaded(StudyConfig("test", "smoke", "looped_drift", {}))
    assert {"entp_lib/training.py", "entp_lib/model.py", "entp_lib/tasks/counting.py"} <= trained
    assert loaded(small_run("entp")) == trained
    assert not any(
        path.startswith("entp_papers") or "figures" in path or "cli" in path for path in trained
    )
    assert study
    assert all(not path.startswith("entp_papers/") or "/looped/" in path for path in study)


def test_imports_of_every_form_are_followed():
    files = {
        "a/__init__.py": b"from a.d import e",
        "a/b.py": b"import a.c\nfrom a import d",
        "a/c.py": b"def f():\n    from a.c import g",
        "a/d/__init__.py": b"import numpy",
        "a/d/table.csv": b"",
        "a/other.py": b"import a.b",
    }
    assert origin.loaded_files(["a.b"], files) == {
        "a/b.py",
        "a/c.py",
        "a/d/__init__.py",
        "a/d/table.csv",
    }


def test_a_resumed_run_names_every_process(small_run, store, monkeypatch):
    config = small_run()
    for commit, dirty, step in (("first", True, 3), ("second", False, 8)):
        monkeypatch.setattr(origin, "COMMIT", (commit, dirty))
        cut_at(config, step, store)
    made = processes(computed(config, store))
    assert [p["commit"] for p in made] == ["first", "second", "second"]
    assert [p["dirty"] for p in made] == [True, False, False]


def test_pairs_made_apart_say_so(small_run):
    def made(architecture="decoder", seed=0, **where):
        precision = where.pop("precision", "fp32")
        config = small_run(architecture, seed, precision=precision)
        return Record("test", 1, config, {}, {}, provenance("cpu", 1) | {"sources": "one"} | where)

    def apart(**where):
        return pairs_apart([made(**where), made("entp"), made(seed=1), made("entp", 1)])

    assert apart() == pairs_apart([]) == ""
    assert apart(cpu_capability="NO AVX") == "1 of 2 pairs from different instruction sets"
    assert apart(sources="two") == "1 of 2 pairs from different sources"
    assert apart(precision="bf16") == "1 of 2 pairs from different precisions"
    resumed = made(sources="two", earlier_processes=[{"sources": "one"}])
    assert pairs_apart([resumed, made("entp", 1)]) == "1 of 2 runs continued with other sources"


def test_an_editors_links_are_no_sources(tmp_path):
    (tmp_path / "entp_lib").mkdir()
    (tmp_path / "entp_lib/.#model.py").symlink_to("nowhere")
    assert origin.source_files(tmp_path) == {}
