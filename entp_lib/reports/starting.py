"""``python -m entp_lib new task NAME`` and ``new notebook NAME``: a small working example with its test, to change."""

import json
import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from entp_lib import paths
from entp_lib.files import read_text, write_atomically
from entp_lib.reports.lab import METADATA
from entp_lib.reports.options import AFTER_OWN, FIRST_OWN
from entp_lib.validation import ConfigError, one_of, require

TEMPLATES = Path(__file__).parent / "templates"
NAMES_IN_TEMPLATES = ("Tensor", "Batch", "Task", "SHAPE", "TIERS", "EXPERIMENTS")  # taken there


def add_parser(commands) -> None:
    """Register the command."""
    parser = commands.add_parser("new", help="begin a task or a notebook of your own with a small example that works")
    kinds = parser.add_subparsers(required=True, metavar="task|notebook")
    task = kinds.add_parser("task", help="a task (parity of every prefix) with its test and its line in the registry")
    task.add_argument("name", metavar="NAME", help="an identifier in lower case, such as parity")
    task.set_defaults(command=task_command)
    notebook = kinds.add_parser(
        "notebook", help="an experiment (decoder beside ENTP), its test, records and a notebook"
    )
    notebook.add_argument("name", metavar="NAME", help="an identifier in lower case")
    notebook.add_argument("--task", default="counting", help="the task it trains on (default: counting)")
    notebook.add_argument("--no-run", action="store_true", help="write the files and execute nothing")
    notebook.set_defaults(command=notebook_command)


def task_command(options) -> int:
    """``new task NAME``."""
    written = new_task(options.name)
    print("\n".join(f"wrote {paths.relative(path)}" for path in written))
    print(f"next: ./run_tests.sh {paths.relative(written[1])}, then change what it computes;")
    print(
        f".venv/bin/python -m entp_lib new notebook {options.name}_runs --task {options.name} trains both models on it"
    )
    return 0


def notebook_command(options) -> int:
    """``new notebook NAME``."""
    written, number = new_notebook(options.name, options.task)
    print("\n".join(f"wrote {paths.relative(path)}" for path in written))
    if options.no_run:
        print(f"next: ./run_all.sh --only {number}")
        return 0
    print("training its ten small runs and executing it; the overview and README follow", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "entp_lib", "run", "--only", number, "--update"], cwd=paths.root()
    ).returncode


def check_name(kind: str, name: str, taken) -> None:
    """ConfigError for a name that is no identifier in lower case, or that exists."""
    require(
        re.fullmatch(r"[a-z][a-z0-9_]{,29}", name) is not None and not keyword.iskeyword(name),
        f"{kind} {name!r}: must be an identifier in lower case, of at most 30 letters, such as parity or my_{kind}",
    )
    require(name not in taken, f"{kind} {name!r}: exists; take another name")


def new_task(name: str) -> list[Path]:
    """Write a task, its test and its line in the registry: the files. ConfigError where the name will not do."""
    from entp_lib import tasks
    from entp_lib.registry import EXPERIMENTS
    from entp_lib.tasks import TASKS

    root = paths.root()
    module, test = root / "entp_lib" / "tasks" / f"{name}.py", root / "tests" / "tasks" / f"test_{name}.py"
    check_name("task", name, {*TASKS, *EXPERIMENTS, *(path.stem for path in module.parent.glob("*.py")), "tasks"})
    cls = name.title().replace("_", "")
    free = not keyword.iskeyword(cls) and cls not in {*vars(tasks), *NAMES_IN_TEMPLATES}
    require(free, f"task {name!r}: its class would be {cls}, which is another's name; take another name")
    words = dict(name=name, cls=cls, title=name.replace("_", " ").capitalize())
    registry = module.parent / "__init__.py"
    text = with_import(read_text(registry), f"from entp_lib.tasks.{name} import {cls}", "from entp_lib.tasks.")
    text = with_entry(text, "TASKS = {", f'    "{name}": {cls},')
    text = with_entry(text, "__all__ = [", f'    "{cls}",')
    fill("task", module, words)
    fill("task_test", test, words)
    write_atomically(registry, text.encode())
    return [module, test, registry]


def new_notebook(name: str, task: str) -> tuple[list[Path], str]:
    """Write an experiment, its test, its lines in the registries and its notebook: (files, the notebook's number)."""
    from entp_lib.registry import EXPERIMENTS
    from entp_lib.tasks import TASKS

    root = paths.root()
    check_name("notebook", name, {*EXPERIMENTS, *(path.stem[3:] for path in paths.notebooks().glob("*.ipynb"))})
    free = name.upper() not in NAMES_IN_TEMPLATES
    require(free, f"notebook {name!r}: {name.upper()} is a name that its files have already; take another")
    one_of("--task", task, TASKS)
    reason = "" if task in SIZES else in_the_way(task)
    require(
        not reason,
        f"--task {task}: a length alone makes no small example of it ({reason}); give its other fields "
        f"defaults, or take {', '.join(SIZES)}",
    )
    taken = {path.name[:2] for path in paths.notebooks().glob("[0-9][0-9]_*.ipynb")}
    number = next(f"{n}" for n in range(FIRST_OWN, AFTER_OWN) if f"{n}" not in taken)
    small, large = SIZES.get(task, [dict(length=length) for length in OWN_LENGTHS])
    title = name.replace("_", " ").capitalize()
    words = dict(name=name, task=task, title=title, number=number, notebook=f"{number}_{name}", constant=name.upper())
    words |= dict(small=as_dict(small), large=as_dict(large))
    folder = root / "entp_papers" / "own"
    written = paper_of_ones_own(folder)
    fill("experiment", folder / f"{name}.py", words)
    fill("experiment_test", root / "tests" / "papers" / "own" / f"test_{name}_experiment.py", words)
    notebook = paths.notebooks() / f"{number}_{name}.ipynb"
    write_atomically(notebook, notebook_text(words).encode())
    return [
        folder / f"{name}.py",
        root / "tests" / "papers" / "own" / f"test_{name}_experiment.py",
        notebook,
        *written,
    ], number


OWN_LENGTHS = (6, 16)  # of a task of one's own, at smoke and at quick
# The parameters of the others' small examples, at smoke and at quick.
SIZES = {
    "counting": (dict(length=8, seed_length=3, symbols=8), dict(length=10, seed_length=4, symbols=10, held_out=0.2)),
    "triplets": (dict(length=8, symbols=8, modulus=8), dict(length=12, symbols=16, modulus=16)),
}


def in_the_way(task: str) -> str:
    """Why a task cannot be built by its ``length`` alone, as ``new task`` writes them; empty where it can."""
    from entp_lib.tasks import build_task

    try:
        for length in OWN_LENGTHS:
            build_task(task, {"length": length})
    except ConfigError as error:
        return str(error)
    return ""


def as_dict(params: dict) -> str:
    return "dict(" + ", ".join(f"{name}={value!r}" for name, value in params.items()) + ")"


def paper_of_ones_own(folder: Path) -> list[Path]:
    """The folder's ``__init__`` where this makes it: experiments in it are found by their modules' names."""
    own = folder / "__init__.py"
    if own.exists():
        return []
    write_atomically(own, b'"""Experiments of your own: a module each, with its experiment in capitals."""\n')
    return [own]


def with_import(text: str, line: str, beginning: str) -> str:
    """A module's text with an import more, in the order of the alphabet among those with this beginning."""
    lines = text.split("\n")
    places = [i for i, existing in enumerate(lines) if existing.startswith(beginning)]
    if not places:
        return f"{text}\n{line}\n"
    key = line.split()[1]
    at = next((i for i in places if lines[i].split()[1] > key), places[-1] + 1)
    return "\n".join([*lines[:at], line, *lines[at:]])


def with_entry(text: str, opening: str, entry: str) -> str:
    """A module's text with a line more in the literal that begins with ``opening``, in the order of the alphabet."""
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith(opening)) + 1
    last = next(i for i in range(first, len(lines)) if lines[i][:1] in ("}", "]"))
    at = next((i for i in range(first, last) if rank(lines[i]) > rank(entry)), last)
    return "\n".join([*lines[:at], entry, *lines[at:]])


def rank(entry: str) -> tuple[int, str]:
    """Where an entry of a sorted literal stands: constants, then classes, then other names, as ruff has them."""
    name = entry.strip(' ",').split('"')[0]
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2), name


def fill(template: str, path: Path, words: dict[str, str]) -> None:
    """Write a template with its words."""
    text = Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)
    write_atomically(path, text.encode())


def notebook_text(words: dict[str, str]) -> str:
    """The notebook as JSON, not yet executed."""
    cells = []
    parts = re.split(
        r"^%% *",
        Template((TEMPLATES / "notebook.txt").read_text(encoding="utf-8")).substitute(words),
        flags=re.MULTILINE,
    )
    for number, part in enumerate(parts[1:]):
        kind, _, source = part.partition("\n")
        cell = {
            "cell_type": kind.split()[0],
            "id": f"cell-{number}",
            "metadata": {},
            "source": source.strip().splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            cell |= {
                "execution_count": None,
                "outputs": [],
                "metadata": {"tags": kind.split()[1:]} if kind.split()[1:] else {},
            }
        cells.append(cell)
    book = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"
