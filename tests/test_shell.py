"""The shell scripts on a stand-in for the project: what the first use does, what it says when it
cannot.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import environment_without, start_process

ROOT = Path(__file__).resolve().parents[1]
# the interpreter below this environment: it can make another one offline
PYTHON = os.path.realpath(sys.executable)

STUB = """\
import os, sys
print(os.path.basename(sys.argv[0]), *sys.argv[1:], sep="|")
names = ("ENTP_RECORDS", "TQDM_DISABLE", "MPLBACKEND", "OMP_NUM_THREADS", "GIT_DIR")
print(*(os.environ.get(name) for name in names))
sys.exit(int(os.environ.get("STUB_EXIT", 0)))
"""

# A Python whose environments are copies of itself and whose pip only leaves a line in pip-calls:
# quick. The uv that it installs does the same.
PRETENDER = f"""\
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && rm -f .venv/bin/python && cp "$0" .venv/bin/python ;;
  "-c import pip") ;;
  "-m pip install "*" uv==1") echo Installing uv && cp uv .venv/bin/uv ;;
  "-m pip install "*)
    sleep 0.3 && echo "$@" >>pip-calls && [ "$PIP_INDEX_URL" != "${{BAD:-none}}" ] ;;
  *) exec {shlex.quote(PYTHON)} "$@" ;;
esac"""


class Project:
    """A directory with the scripts, an empty requirements.txt and an entp_lab that prints its
    arguments.
    """

    def __init__(self, root):
        self.root = root
        self.python = PYTHON
        (root / "entp_lab").mkdir(parents=True)
        (root / "entp_lab/__main__.py").write_text(STUB)
        self.require("# nothing")
        shutil.copytree(ROOT / "tools", root / "tools")
        for name in ("run_all.sh", "run_tests.sh"):
            shutil.copy(ROOT / name, root / name)

    @property
    def pip_calls(self):
        return (self.root / "pip-calls").read_text().splitlines()

    def require(self, text):
        (self.root / "requirements.txt").write_text(text + "\n")

    @property
    def stamp(self):
        return self.root / ".venv/installed"

    def start(self, *arguments, script="run_all.sh", cwd=None, **variables):
        """Start a script without the settings around this test, in a process group of its own."""
        environ = environment_without(
            "PIP_", "UV_", "ENTP_", "PYTEST", "STUB_", "OMP_", "TQDM_", "MPL", "PYTHONPATH"
        )
        environ |= {"PYTHON": self.python, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": 1}
        environ |= variables
        return start_process(
            self.root / script,
            *arguments,
            cwd=cwd or self.root,
            # an empty value takes a variable out
            env={name: str(value) for name, value in environ.items() if value != ""},
            stdout=subprocess.PIPE,
        )

    def run(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def refusal(self, **variables):
        """The one line on stderr of a run that must not get as far as entp_lib."""
        done = self.run(**variables)
        assert done.returncode
        assert "__main__.py" not in done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("run_all.sh: ")
        return done.stderr


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path):
    """A project that was never used."""
    return Project(tmp_path / "my project")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with a real environment (shared: it takes seconds), what its first use printed, its
    stamp.
    """
    project = Project(tmp_path_factory.mktemp("shell") / "my project")
    return project, project.run("a b", "--lab", STUB_EXIT=7), project.stamp.read_text()


@pytest.fixture
def project(made):
    """The shared project, as it was after its first use."""
    project, _, stamp = made
    project.require("# nothing")
    project.stamp.write_text(stamp)
    return project


@pytest.fixture
def pretended(bare, tmp_path):
    """A project whose Python is the pretender, after its first use."""
    bare.python = script(tmp_path / "python", PRETENDER)
    assert bare.run().returncode == 0
    (bare.root / "pip-calls").write_text("")
    return bare


def test_first_use_makes_the_environment_and_passes_arguments_and_status_on(made):
    project, first, _ = made
    assert "__main__.py|lab|a b\n" in first.stdout
    assert first.returncode == 7
    assert first.stderr == ""
    assert first.stdout.startswith("Creating .venv")
    assert (project.root / ".venv/pyvenv.cfg").exists()


def test_second_use_installs_nothing(project):
    before = project.stamp.stat()
    second = project.run("--help")
    assert second.stdout.startswith("__main__.py|run|--help\n")
    assert (project.stamp.stat().st_ino, project.stamp.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_changed_requirements_install_again(pretended, name):
    before = pretended.stamp.read_text()
    (pretended.root / name).write_text(f"# changed: {name}\n")
    assert pretended.run().stdout.startswith("Updating .venv")
    assert pretended.stamp.read_text() != before
    assert pretended.run().stdout.startswith("__main__.py|run\n")
    assert len(pretended.pip_calls) == 1


@pytest.mark.parametrize("fails", [0, 1])
def test_uv_installs_with_pips_settings_and_pip_where_it_fails(pretended, fails):
    pretended.require("uv==1 ; python_version > '3'\ntorch==0.0.1")
    note = "echo $UV_DEFAULT_INDEX $UV_INDEX $UV_FIND_LINKS $UV_NO_INDEX -- $* >>uv-calls"
    script(pretended.root / "uv", f"{note}; exit {fails}")
    done = pretended.run(
        ENTP_TORCH_INDEX="file:///t",
        PIP_INDEX_URL="file:///a",
        PIP_EXTRA_INDEX_URL="file:///b file:///c",
        PIP_FIND_LINKS="/x /y",
        PIP_NO_INDEX="",
        UV_INDEX="mine",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert " s  Installing uv" in done.stdout and "__main__.py|run\n" in done.stdout
    common = "-- pip install --python .venv/bin/python --index-strategy unsafe-best-match"
    assert (pretended.root / "uv-calls").read_text().splitlines() == [
        f"file:///t mine /x,/y {common} --no-deps torch==0.0.1",
        f"file:///a mine /x,/y {common} -r requirements.txt",
    ]
    calls = [call.split("--disable-pip-version-check ")[1].strip() for call in pretended.pip_calls]
    assert calls == ["--no-deps torch==0.0.1", "-r requirements.txt"][: 2 * fails]


def test_no_network(project):
    project.require("no-such-package==1")
    line = project.refusal(
        PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES=1, PIP_TIMEOUT=1, PIP_NO_INDEX=""
    )
    for words in ("no network", "package index", "my project/.venv/install.log"):
        assert words in line
    assert not project.stamp.exists()


def test_a_missing_library_of_pips_own_is_named(project):
    project.require("no-such-package==1")
    line = project.refusal(
        PIP_INDEX_URL="https://127.0.0.2/simple",
        PIP_NO_INDEX="",
        PIP_RETRIES=0,
        ALL_PROXY="socks5://127.0.0.1:9",
        HTTPS_PROXY="socks5://127.0.0.1:9",
        NO_PROXY="",
        no_proxy="",
    )
    assert "Missing dependencies for SOCKS support" in line


@pytest.mark.parametrize("place", ["variables", "configuration"])
def test_pips_own_place_for_packages_is_not_ours(project, tmp_path, place):
    """``--user`` or another folder would end in an error, or in an environment without packages."""
    config = tmp_path / "pip.conf"
    elsewhere = f"[install]\nuser = true\n[global]\ntarget = {tmp_path}/elsewhere\n"
    config.write_text(elsewhere if place == "configuration" else "")
    variables = {"PIP_USER": "1", "PIP_TARGET": str(tmp_path)} if place == "variables" else {}
    project.require(f"# another, for {place}")
    done = project.run(PIP_CONFIG_FILE=config, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "__main__.py|run" in done.stdout and list(tmp_path.iterdir()) == [config]


USERS = {
    "PYTHONPATH": "/elsewhere",
    "PYTHONHOME": "/elsewhere",
    "PYTHONWARNINGS": "error",
    "PYTHONSTARTUP": "/elsewhere.py",
    "PYTHONOPTIMIZE": "2",
    "JUPYTER_PATH": "/elsewhere",
    "MATPLOTLIBRC": "/elsewhere",
    "IPYTHONDIR": "/elsewhere",
}


def test_a_users_own_settings_do_not_reach_what_the_scripts_start(pretended):
    """A foreign numpy, another kernel, warnings as errors: each of them broke a cell, or all."""
    show = f"import os; print(*(os.environ.get(name) for name in {list(USERS)!r}), sep='|')"
    (pretended.root / "entp_lab/__main__.py").write_text(show)
    *removed, style, profile = pretended.run(**USERS).stdout.strip().splitlines()[-1].split("|")
    assert removed == ["None"] * 6
    assert style == os.devnull and profile == str(pretended.root / ".venv/ipython")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_install_is_repaired_by_the_run_that_waits(project, ending):
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # accepts pip's connection and never answers
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        project.require("never-arrives==1")
        first = project.start(PIP_INDEX_URL=index, PIP_NO_INDEX="", PIP_TIMEOUT=50)
        silent.settimeout(30)
        connection, _ = silent.accept()
        second = project.start("second")
        assert second.stdout.readline().startswith("Waiting for another run")
        project.require("# nothing")
        os.killpg(first.pid, ending)
        err = first.communicate(timeout=30)[1]
        connection.close()
    assert first.returncode == (130 if ending == signal.SIGINT else -ending)
    assert err.strip() == (
        "run_all.sh: interrupted; the next run installs again" if ending == signal.SIGINT else ""
    )
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "Updating .venv" in out and "__main__.py|run|second" in out


def test_environment_is_made_again_after_a_move(pretended, tmp_path):
    pretended.root = pretended.root.rename(tmp_path / "moved here")
    (pretended.root / ".venv/leftover").touch()
    assert pretended.run("x").stdout.startswith("Creating .venv")
    assert not (pretended.root / ".venv/leftover").exists()
    assert "moved here" in pretended.stamp.read_text()
    assert pretended.run("x").stdout.startswith("__main__.py|run|x\n")


def test_python_is_searched_past_stubs_and_old_ones(bare, tmp_path):
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    script(tmp_path / "python3.13", "echo 'no such version' >&2; exit 127")
    line = bare.refusal(PYTHON="", PATH=tmp_path)
    assert "no Python found" in line
    script(tmp_path / "python3", "echo 3.8.1")
    assert "found only Python 3.8.1 (python3)" in bare.refusal(PYTHON="", PATH=tmp_path)
    script(tmp_path / "python", "echo 3.12.4; exit 1")
    assert "python3.12-venv" in bare.refusal(PYTHON="", PATH=tmp_path)


@pytest.fixture
def checked(project):
    """The shared project with a ruff, a mypy, a pytest, an import-linter, other processors: they
    print their calls.
    """
    for name in ("ruff", "mypy", "pytest"):
        (project.root / name).mkdir(exist_ok=True)
        (project.root / name / "__main__.py").write_text(STUB)
    (project.root / ".venv/bin/lint-imports").write_text(STUB)
    script(project.root / "tools/processors.sh", 'exec "$PYTHON" pytest/__main__.py "$SETS" "$@"')
    return project


def calls(done):
    return [line for line in done.stdout.splitlines() if line.startswith("__main__.py|")]


def test_every_check_runs_in_its_environment(checked, tmp_path):
    done = checked.run(script="run_tests.sh", cwd=tmp_path, MPLBACKEND="agg", GIT_DIR="of a hook")
    form, tests, notebooks, lint, types = calls(done)
    assert (lint, form) == ("__main__.py|check|.", "__main__.py|format|--check|.")
    assert types == "__main__.py|--no-error-summary"
    cores = os.cpu_count()
    assert tests == f"__main__.py|-n{min(cores, 4)}|--dist=loadscope|tests"
    assert notebooks == f"__main__.py|SSE|-n{min(cores + 1, 4)}|--dist=loadscope|notebooks/"
    assert done.stdout.count("\nread-only 1 None 1 None\n") == 5
    assert done.stdout.splitlines()[-1] == "4 passed, 0 failed"
    assert done.returncode == 0


def test_a_failing_check_stops_no_other_and_fails_the_whole(checked):
    done = checked.run(script="run_tests.sh", STUB_EXIT=3, OMP_NUM_THREADS=2)
    assert len(calls(done)) == 5
    assert done.stdout.count("\nread-only 1 None 2 None\n") == 6  # what broke the contract is shown
    assert "\nlint-imports|--no-logo|--no-cache\n" in done.stdout
    assert "notebooks     failed (3)" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 4 failed"
    assert done.returncode == 1


def test_help_needs_no_environment(bare):
    for flag in ("--help", "-h"):
        done = bare.run("--only", "03", flag)
        assert (
            (done.returncode, done.stderr) == (0, "")
            and "--lab" in done.stdout
            and "PYTHON=" in done.stdout
        )
    assert not (bare.root / ".venv").exists()
