"""Places: found from the package in its repository; without it the library works and says where
results may go.
"""

import ast
import importlib.metadata as metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
from made_up import copy_project, environment_without, python, unchanged
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from entp_lab import paths

LIBRARY = """\
import sys
import entp_lab
import entp_lib
from entp_lib import ModelConfig, TrainConfig, Transformer, evaluate, generate, tasks, train
from entp_lab.store import Store

assert entp_lib.__file__.startswith(sys.argv[1]), entp_lib.__file__
task = tasks.Counting(length=8, seed_length=3, symbols=8)
model = Transformer(ModelConfig("entp", 2, 2, 16, vocab_size=8, max_length=8))
state = train(model, task, TrainConfig(6, 4, warmup_steps=1, eval_every=3, eval_sequences=8))
prompt = task.batch(tasks.generator_for("cpu", "shown"), 1).inputs_BT[:, :3]
print(state.step, tuple(generate(model, prompt, 4).shape))
print(Store().root)
from entp_lab import cli
print([cli.main(command.split()) for command in sys.argv[2:]])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that this tree makes, as an environment without the repository has it: a folder of
    packages.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    copy_project(source, "pyproject.toml", "README.md", "LICENSE")
    build = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"
    done = python("-c", build, folder, cwd=source)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_trains_without_its_repository_and_commands_that_need_it_say_so(wheel, tmp_path):
    """In one process, in the test's folder, where nothing is written."""
    environment = environment_without("ENTP_") | {"PYTHONPATH": str(wheel), "TQDM_DISABLE": "1"}
    commands = ["claims", "readme", "run --only 03", "site", "new task mine"]
    with unchanged(wheel, "*.py"):
        done = python("-c", LIBRARY, wheel, *commands, cwd=tmp_path, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["6 (1, 7)", str(tmp_path / "results"), "[2, 2, 2, 2, 2]"]
    said = done.stderr.splitlines()
    assert len(said) == len(commands), done.stderr
    assert all("without its repository: clone it" in line for line in said), done.stderr
    assert not list(tmp_path.iterdir())


def test_the_wheel_has_its_data_its_script_and_its_licence(wheel):
    """Everything that is no Python and lies in a package, as git has it."""
    listed = subprocess.run(
        ["git", "ls-files", "entp_*"], cwd=paths.root(), capture_output=True, text=True
    )
    data = [name for name in listed.stdout.splitlines() if not name.endswith((".py", ".toml"))]
    data = [name for name in data if (paths.root() / name).exists()] + [
        "entp_lab/site_source/conf.py"
    ]
    assert any("templates" in name for name in data)
    assert any("_static" in name for name in data)
    assert [name for name in data if not (wheel / name).exists()] == []
    (about,) = wheel.glob("*.dist-info")
    assert "entp = entp_lab.cli:main" in (about / "entry_points.txt").read_text()
    assert (about / "licenses/LICENSE").exists()
    assert "Typing :: Typed" in (about / "METADATA").read_text()


# What is imported is declared, what gets installed is pinned, and records need no Jupyter.


PROJECT = tomllib.loads((paths.root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# A Linux wheel of torch names these itself, in the versions it was built with; a CPU build has
# none.
OF_TORCH = re.compile(r"(cuda|nvidia)-|triton$|setuptools$")


def required(lines):
    """Names of the distributions that requirement lines ask for on this Python and platform, in no
    extra.
    """
    return {
        canonicalize_name(r.name)
        for r in map(Requirement, lines)
        if r.marker is None or r.marker.evaluate()
    }


def third_party(folder):
    """Distributions whose modules the Python files of a folder import, anywhere in them."""
    modules = set()
    for path in (paths.root() / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.partition(".")[0])
    modules -= {path.stem for path in (paths.root() / "tests").glob("*.py")}
    modules -= {"entp_lib", "entp_lab", "entp_papers", "benchmarks", *sys.stdlib_module_names}
    installed = metadata.packages_distributions()
    return {
        canonicalize_name(name) for module in modules for name in installed.get(module, [module])
    }


def installed_with(names):
    """Every installed distribution that the named ones need here, with its version."""
    found = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of an extra that is not asked for
            continue
        if name not in found:
            found[name] = distribution.version
            todo += required(distribution.requires or [])
    return found


def test_everything_that_is_installed_is_pinned_to_its_version():
    names = required([*PROJECT["dependencies"], *EXTRAS["notebooks"], *EXTRAS["development"]])
    here = {
        (n, v.partition("+")[0]) for n, v in installed_with(names).items() if not OF_TORCH.match(n)
    }
    text = (paths.root() / "requirements.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M)
    pinned = {(canonicalize_name(name), version) for name, version in pins}
    assert len(here) > 50
    assert here <= pinned, "run tools/pin.sh, then ./run_tests.sh, which installs what it wrote"


@pytest.mark.parametrize("folder", ["entp_lib", "entp_lab", "entp_papers", "tests", "benchmarks"])
def test_what_is_imported_is_declared(folder):
    extras = EXTRAS.keys() - ({"development"} if folder.startswith("entp") else set())
    declared = required(
        [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    )
    assert third_party(folder) <= declared


IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys(sys.argv[1:])  # importing one of them fails
for package in (importlib.import_module(name) for name in ("entp_lib", "entp_lab", "entp_papers")):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith(("figures", "pictures", "lab.cells", "entp.playground")):
            importlib.import_module(module.name)
"""


def test_records_are_computed_without_jupyter_or_figures():
    """A bare GPU server has the library's own dependencies and nothing else."""
    others = required(EXTRAS["notebooks"] + EXTRAS["development"])
    others -= installed_with(required(PROJECT["dependencies"])).keys()
    distributions = metadata.packages_distributions().items()
    blocked = [
        module for module, names in distributions if others & set(map(canonicalize_name, names))
    ]
    done = python("-c", IMPORT_ALL, *blocked, cwd=paths.root())
    assert done.returncode == 0, done.stderr


def test_asking_for_a_place_leaves_the_environment_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("ENTP_RESULTS", "ENTP_FIGURES", "ENTP_NEW_FIGURES"):
        monkeypatch.setenv(variable, variable.lower())
    assert paths.results() == tmp_path / "entp_results"
    assert paths.figures() == tmp_path / "entp_figures"
    assert os.environ["ENTP_RESULTS"] == "entp_results"
    assert os.environ["ENTP_FIGURES"] == "entp_figures"
    paths.make_absolute()
    assert os.environ["ENTP_RESULTS"] == str(tmp_path / "entp_results")
