"""What is imported is declared, what gets installed is pinned, and records need no Jupyter."""

import ast
import importlib.metadata as metadata
import re
import subprocess
import sys
import tomllib

import pytest

from entp_lib import paths

PROJECT = tomllib.loads((paths.root() / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# A Linux wheel of torch names these itself, in the versions it was built with; a CPU build has none.
OF_TORCH = re.compile(r"(cuda|nvidia)-|triton$|setuptools$")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(lines) -> list[str]:
    """Names of the distributions in requirement lines, without extras, versions and markers."""
    return [normal(re.match(r"[\w.-]+", line)[0]) for line in lines]


def pinned() -> dict[str, list[str]]:
    """The versions that requirements.txt names; more than one where Pythons differ."""
    found: dict[str, list[str]] = {}
    for line in (paths.root() / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-e ")):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)(?: ; .+)?", line).groups()
            found.setdefault(normal(name), []).append(version)
    return found


def third_party(folder: str) -> set[str]:
    """Distributions whose modules the Python files of a folder import, anywhere in them."""
    modules = set()
    for path in (paths.root() / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.partition(".")[0])
    installed = metadata.packages_distributions()
    named = {normal(d) for m in modules - sys.stdlib_module_names for d in installed.get(m, [m])}
    own = {normal(path.stem) for path in (paths.root() / "tests").glob("*.py")}
    return named - own - {"entp-lib", "entp-papers", "benchmarks"}


def installed_with(names) -> dict[str, str]:
    """Every installed distribution that the named ones need here, with its version."""
    found, todo = {}, list(names)
    while todo:
        name = todo.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform, or of an extra that is not asked for
            continue
        if name not in found:
            found[name] = distribution.version
            todo += required(line for line in distribution.requires or [] if "extra ==" not in line)
    return found


def test_everything_that_is_installed_is_pinned_to_its_version():
    names = required([*PROJECT["dependencies"], *EXTRAS["notebooks"], *EXTRAS["development"]])
    here = {n: v for n, v in installed_with(names).items() if not OF_TORCH.match(n)}
    wrong = {name: version for name, version in here.items() if version.partition("+")[0] not in pinned().get(name, [])}
    assert len(here) > 50 and not wrong, "run tools/pin.sh, then ./run_tests.sh, which installs what it wrote"


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("entp_lib", ["notebooks", "language", "cluster", "pretrained", "site"]),
        ("entp_papers", ["notebooks", "language", "cluster", "pretrained", "site"]),
        ("tests", list(EXTRAS)),
        ("benchmarks", list(EXTRAS)),
    ],
)
def test_what_is_imported_is_declared(folder, extras):
    declared = required([*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])])
    assert third_party(folder) <= set(declared)


def test_records_are_computed_without_jupyter_or_figures():
    """A bare GPU server has the library's own dependencies and nothing else."""
    only_for_notebooks = set(required(EXTRAS["notebooks"] + EXTRAS["development"])) - set(
        installed_with(required(PROJECT["dependencies"]))
    )
    blocked = [m for m, ds in metadata.packages_distributions().items() if {normal(d) for d in ds} & only_for_notebooks]
    drawing = (
        "entp_lib.experiments.figures",
        "entp_lib.experiments.ledger_figures",
        "entp_lib.experiments.notes",
        "entp_lib.reports.vega",
        "entp_papers.entp.addition.pictures",
        "entp_papers.entp.count3_pictures",
        "entp_papers.entp.playground",
        "entp_papers.looped.pictures",
        "entp_papers.scratchpad.pictures",
    )
    code = f"""if True:
        import importlib, pkgutil, sys
        sys.modules |= dict.fromkeys({blocked!r})  # importing one of them fails
        for package in (importlib.import_module(name) for name in ("entp_lib", "entp_papers")):
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                if module.name not in {drawing!r}:
                    importlib.import_module(module.name)"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=paths.root())
