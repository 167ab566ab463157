"""Begin a task or a notebook of one's own: write a small working example with its test, to change.

Templates are files that run once their ``$words`` are filled in. Experiments are found by folder; a task gets its line
among ``entp_lib.tasks.TASKS``.
"""

import keyword
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from string import Template
from typing import Any

from entp_lab import paths
from entp_lab.notebooks import AFTER_OWN, FIRST_OWN, METADATA
from entp_lab.registry import EXPERIMENTS, build_task
from entp_lib.files import write_atomically
from entp_lib.tasks import TASKS
from entp_lib.validation import one_of, require

TEMPLATES = Path(__file__).parent / "templates"
# parameters of small examples, at smoke and at quick
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "counting": (
        {"length": 8, "seed_length": 3, "symbols": 8},
        {"length": 10, "seed_length": 4, "symbols": 10, "held_out": 0.2},
    ),
    "triplets": (
        {"length": 8, "symbols": 8, "modulus": 8},
        {"length": 12, "symbols": 16, "modulus": 16},
    ),
}
# a task of one's own has a length
OWN_SIZES: tuple[dict[str, Any], dict[str, Any]] = (
    {"length": 6},
    {"length": 16},
)


def new_task(name: str) -> int:
    """Write a task, its line among the others, and its test."""
    root = paths.repository()
    files = {path.stem for path in (root / "entp_lib/tasks").glob("*.py")}
    files |= {path.stem.removeprefix("test_") for path in (root / "tests/lib/tasks").glob("test_*.py")}
    check_name("task", name, {*EXPERIMENTS, *TASKS, *files})
    cls = name.title().replace("_", "")
    test = f"tests/lib/tasks/test_{name}.py"
    fill({f"entp_lib/tasks/{name}.py": "task", test: "task_test"}, name=name, cls=cls)
    registry = root / "entp_lib/tasks/__init__.py"
    text = registry.read_text(encoding="utf-8")
    imports = re.findall(r"^from entp_lib.tasks.+\n", text, re.MULTILINE)
    mine = f"from entp_lib.tasks.{name} import {cls}\n"
    text = text.replace("".join(imports), "".join(sorted([*imports, mine])))
    line = f'    "{name}": {cls},\n'
    write_atomically(registry, text.replace("\n}\n", f"\n{line}}}\n", 1).encode())
    print(f"added {line.strip()} to entp_lib/tasks/__init__.py")
    print(f"next: ./run_tests.sh {test}, then change what it computes;")
    print(f"{paths.program()} new notebook {name}_runs --task {name} trains both models on it")
    return 0


def new_notebook(name: str, task: str, execute: bool = True) -> int:
    """Write an experiment, its test and its notebook, and execute it."""
    stems = [path.stem.partition("_") for path in paths.notebooks().glob("*.ipynb")]
    check_name("notebook", name, {*EXPERIMENTS, *(rest for _, _, rest in stems)})
    one_of("--task", task, TASKS)
    small, large = SIZES.get(task, OWN_SIZES)
    for params in (small, large):
        build_task(task, params)  # its ConfigError names a field that lacks a default
    taken = {number for number, _, _ in stems}
    free = [str(number) for number in range(FIRST_OWN, AFTER_OWN) if str(number) not in taken]
    require(
        bool(free),
        f"notebooks/ has one for every number from {FIRST_OWN} to {AFTER_OWN - 1}: remove one",
    )
    number = free[0]
    files = {
        "entp_papers/own/__init__.py": "package",
        f"entp_papers/own/{name}.py": "experiment",
        f"tests/papers/own/test_{name}_experiment.py": "experiment_test",
        f"notebooks/{number}_{name}.ipynb": "notebook",
    }
    fill(
        files,
        name=name,
        task=task,
        number=number,
        constant=name.upper(),
        notebook=f"{number}_{name}",
        small=keywords(small),
        large=keywords(large),
    )
    if not execute:
        print(f"next: ./run_all.sh --only {number}")
        return 0
    print("training its ten small runs and executing it; the overview and README follow", flush=True)
    update = [sys.executable, "-m", "entp_lab", "run", "--only", number, "--update"]
    return subprocess.run(update, cwd=paths.root()).returncode


def keywords(params: dict[str, Any]) -> str:
    """Return parameters as the source of a dictionary."""
    return f"dict({', '.join(f'{name}={value!r}' for name, value in params.items())})"


def check_name(kind: str, name: str, taken: Collection[str]) -> None:
    """Raise ConfigError for a name that is no identifier in lower case, or that one in ``taken`` has."""
    fits = re.fullmatch(r"[a-z][a-z0-9_]{,29}", name) is not None and not keyword.iskeyword(name)
    right = f"must be an identifier in lower case, of at most 30 letters, such as parity or my_{kind}"
    require(fits, f"{kind} {name!r}: {right}")
    holder = "a task" if name in TASKS else "an experiment" if name in EXPERIMENTS else "a file"
    require(name not in taken, f"{kind} {name!r}: exists, as the name of {holder}; take another name")


def fill(files: dict[str, str], **words: str) -> None:
    """Write files below the root, each from its template, and print their names; a package that exists stays."""
    for name, template in files.items():
        path = paths.root() / name
        if template == "package" and path.exists():
            continue
        text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        text = Template(text).substitute(words, title=words["name"].replace("_", " ").capitalize())
        write_atomically(path, (as_notebook(text) if template == "notebook" else text).encode())
        print(f"wrote {name}")


def as_notebook(text: str) -> str:
    """Return a notebook, not yet executed, from a text in which a line ``%% kind tags`` begins each cell."""
    from nbformat import v4, writes

    cells = []
    for number, part in enumerate(re.split(r"^%% *", text, flags=re.MULTILINE)[1:]):
        head, _, source = part.partition("\n")
        kind, *tags = head.split()
        make = v4.new_code_cell if kind == "code" else v4.new_markdown_cell
        cells.append(make(source.strip(), id=f"cell-{number}", metadata={"tags": tags} if tags else {}))
    return writes(v4.new_notebook(cells=cells, metadata=METADATA)) + "\n"
