"""``python -m entp_lib new task NAME`` and ``new notebook NAME``: a small working example with its test, to change."""

import json
import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from entp_lib import paths
from entp_lib.files import write_atomically
from entp_lib.reports.lab import METADATA
from entp_lib.reports.options import AFTER_OWN, FIRST_OWN
from entp_lib.validation import ConfigError, one_of, require

TEMPLATES = Path(__file__).parent / "templates"
NAMES_IN_TEMPLATES = ("Tensor", "Batch", "Task", "SHAPE", "TIERS", "EXPERIMENTS")  # taken there


def add_parser(commands) -> None:
    """Register the command."""
    parser = commands.add_parser("new", help="begin a task or a notebook of your own with a small example that works")
    kinds = parser.add_subparsers(required=True, metavar="task|notebook")
    task = kinds.add_parser("task", help="a task (parity of every prefix) with its test")
    task.add_argument("name", metavar="NAME", help="an identifier in lower case, such as parity")
    task.set_defaults(command=task_command)
    notebook = kinds.add_parser("notebook", help="an experiment (decoder and ENTP), its test, records and a notebook")
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
    """Write a task and its test, which ``entp_lib.tasks`` finds by folder. ConfigError where the name will not do."""
    from entp_lib.registry import EXPERIMENTS
    from entp_lib.tasks import TASKS

    root = paths.root()
    module, test = root / "entp_lib" / "tasks" / f"{name}.py", root / "tests" / "tasks" / f"test_{name}.py"
    check_name("task", name, {*TASKS, *EXPERIMENTS, *(path.stem for path in module.parent.glob("*.py")), "tasks"})
    cls = name.title().replace("_", "")
    free = not keyword.iskeyword(cls) and cls not in {*(task.__name__ for task in TASKS.values()), *NAMES_IN_TEMPLATES}
    require(free, f"task {name!r}: its class would be {cls}, which is another's name; take another name")
    words = dict(name=name, cls=cls, title=name.replace("_", " ").capitalize())
    fill("task", module, words)
    fill("task_test", test, words)
    return [module, test]


def new_notebook(name: str, task: str) -> tuple[list[Path], str]:
    """Write an experiment, its test and its notebook: (files, the notebook's number)."""
    from entp_lib.registry import EXPERIMENTS
    from entp_lib.tasks import TASKS

    root = paths.root()
    check_name(
        "notebook", name, {*EXPERIMENTS, *(path.stem.partition("_")[2] for path in paths.notebooks().glob("*.ipynb"))}
    )
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
    module, test = folder / f"{name}.py", root / "tests" / "papers" / "own" / f"test_{name}_experiment.py"
    notebook, package = paths.notebooks() / f"{number}_{name}.ipynb", folder / "__init__.py"
    written = [module, test, notebook]
    if not package.exists():
        write_atomically(package, b'"""Experiments of your own: a module each, with its experiment in capitals."""\n')
        written.append(package)
    fill("experiment", module, words)
    fill("experiment_test", test, words)
    write_atomically(notebook, notebook_text(words).encode())
    return written, number


OWN_LENGTHS = (6, 16)  # of a task of one's own, at smoke and at quick
# The parameters of the others' small examples, at smoke and at quick.
SIZES = {
    "counting": (dict(length=8, seed_length=3, symbols=8), dict(length=10, seed_length=4, symbols=10, held_out=0.2)),
    "triplets": (dict(length=8, symbols=8, modulus=8), dict(length=12, symbols=16, modulus=16)),
}


def in_the_way(task: str) -> str:
    """Reason why a task cannot be built by its ``length`` alone, as ``new task`` writes them; empty where it can."""
    from entp_lib.tasks import build_task

    try:
        for length in OWN_LENGTHS:
            build_task(task, {"length": length})
    except ConfigError as error:
        return str(error)
    return ""


def as_dict(params: dict) -> str:
    return "dict(" + ", ".join(f"{name}={value!r}" for name, value in params.items()) + ")"


def fill(template: str, path: Path, words: dict[str, str]) -> None:
    """Write a template with its words."""
    text = Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)
    write_atomically(path, text.encode())


def notebook_text(words: dict[str, str]) -> str:
    """The notebook as JSON, not yet executed. In the template a line ``%% kind tags`` begins each cell."""
    cells = []
    text = Template((TEMPLATES / "notebook.txt").read_text(encoding="utf-8")).substitute(words)
    for number, part in enumerate(re.split(r"^%% *", text, flags=re.MULTILINE)[1:]):
        head, _, source = part.partition("\n")
        kind, *tags = head.split()
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {"tags": tags} if tags else {}}
        cell["source"] = source.strip().splitlines(keepends=True)
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    book = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"
