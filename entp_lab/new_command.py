"""``python -m entp_lab new task NAME`` and ``new notebook NAME``: a small working example with its test, to change.

Templates are files that run once their ``$words`` are filled in. Experiments are found by folder; a task gets its line
among ``entp_lib.tasks.TASKS``.
"""

import argparse
import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from entp_lab import paths
from entp_lab.notebooks import AFTER_OWN, FIRST_OWN, METADATA
from entp_lab.registry import EXPERIMENTS, build_task, task_names
from entp_lib.files import write_atomically
from entp_lib.validation import one_of, require

TEMPLATES = Path(__file__).parent / "templates"
SIZES = {  # parameters of small examples, at smoke and at quick
    "counting": (dict(length=8, seed_length=3, symbols=8), dict(length=10, seed_length=4, symbols=10, held_out=0.2)),
    "triplets": (dict(length=8, symbols=8, modulus=8), dict(length=12, symbols=16, modulus=16)),
}


def task_command(options: argparse.Namespace) -> int:
    """``new task NAME``: a task, its line among the others, and its test."""
    name, root, cls = options.name, paths.root(), options.name.title().replace("_", "")
    files = {path.stem for path in (root / "entp_lib/tasks").glob("*.py")}
    files |= {path.stem.removeprefix("test_") for path in (root / "tests/lib/tasks").glob("test_*.py")}
    check_name("task", name, {*EXPERIMENTS, *task_names(), *files})
    test = f"tests/lib/tasks/test_{name}.py"
    fill({f"entp_lib/tasks/{name}.py": "task", test: "task_test"}, name=name, cls=cls)
    registry = root / "entp_lib/tasks/__init__.py"
    text = registry.read_text(encoding="utf-8")
    line = f'    "{name}": {cls},\n'
    imports = re.findall(r"^from entp_lib.tasks.+\n", text, re.MULTILINE)
    mine = f"from entp_lib.tasks.{name} import {cls}\n"
    text = text.replace("".join(imports), "".join(sorted([*imports, mine])))
    write_atomically(registry, text.replace("\n}\n", f"\n{line}}}\n", 1).encode())
    print(f"added {line.strip()} to entp_lib/tasks/__init__.py")
    print(f"next: ./run_tests.sh {test}, then change what it computes;")
    print(f"{paths.program()} new notebook {name}_runs --task {name} trains both models on it")
    return 0


def notebook_command(options: argparse.Namespace) -> int:
    """``new notebook NAME``: an experiment, its test and its notebook, which is then executed."""
    name, task, constant = options.name, options.task, options.name.upper()
    stems = [path.stem.partition("_") for path in paths.notebooks().glob("*.ipynb")]
    check_name("notebook", name, {*EXPERIMENTS, *(rest for _, _, rest in stems)})
    one_of("--task", task, task_names())
    sizes = SIZES.get(task, (dict(length=6), dict(length=16)))  # a task of one's own has a length
    for params in sizes:
        build_task(task, params)  # its ConfigError names a field that lacks a default
    taken = {number for number, _, _ in stems}
    number = next((f"{n}" for n in range(FIRST_OWN, AFTER_OWN) if f"{n}" not in taken), "")
    require(bool(number), f"notebooks/ has one for every number from {FIRST_OWN} to {AFTER_OWN - 1}: remove one")
    small, large = (f"dict({', '.join(f'{n}={value!r}' for n, value in params.items())})" for params in sizes)
    files = {
        "entp_papers/own/__init__.py": "package",
        f"entp_papers/own/{name}.py": "experiment",
        f"tests/papers/own/test_{name}_experiment.py": "experiment_test",
        f"notebooks/{number}_{name}.ipynb": "notebook",
    }
    words = dict(name=name, task=task, number=number, constant=constant, notebook=f"{number}_{name}")
    fill(files, **words, small=small, large=large)
    if options.no_run:
        print(f"next: ./run_all.sh --only {number}")
        return 0
    print("training its ten small runs and executing it; the overview and README follow", flush=True)
    update = [sys.executable, "-m", "entp_lab", "run", "--only", number, "--update"]
    return subprocess.run(update, cwd=paths.root()).returncode


def check_name(kind: str, name: str, taken: set[str]) -> None:
    """ConfigError for a name that is no identifier in lower case, or that one in ``taken`` has, which it names."""
    fits = re.fullmatch(r"[a-z][a-z0-9_]{,29}", name) is not None and not keyword.iskeyword(name)
    right = f"must be an identifier in lower case, of at most 30 letters, such as parity or my_{kind}"
    require(fits, f"{kind} {name!r}: {right}")
    what = "a task" if name in task_names() else "an experiment" if name in EXPERIMENTS else "a file"
    require(name not in taken, f"{kind} {name!r}: exists, as the name of {what}; take another name")


def fill(files: dict[str, str], **words: str) -> None:
    """Write files below the root, each from its template, and print their names; a package that exists stays.

    In the template of a notebook, which is not yet executed, a line ``%% kind tags`` begins each cell.
    """
    from nbformat import v4, writes

    for name, template in files.items():
        path, text = paths.root() / name, (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
        if template == "package" and path.exists():
            continue
        text = Template(text).substitute(words, title=words["name"].replace("_", " ").capitalize())
        if template == "notebook":
            cells = []
            for number, part in enumerate(re.split(r"^%% *", text, flags=re.MULTILINE)[1:]):
                head, _, source = part.partition("\n")
                kind, *tags = head.split()
                cell = v4.new_code_cell if kind == "code" else v4.new_markdown_cell
                metadata = {"tags": tags} if tags else {}
                cells.append(cell(source.strip(), id=f"cell-{number}", metadata=metadata))
            text = writes(v4.new_notebook(cells=cells, metadata=METADATA)) + "\n"
        write_atomically(path, text.encode())
        print(f"wrote {name}")
