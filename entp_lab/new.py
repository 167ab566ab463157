"""Start a new task: write a small working example with its test, to be changed.

Templates work once their ``$words`` are filled in. The task is added to ``entp_lib.tasks.TASKS``.
"""

import keyword
import re
from pathlib import Path
from string import Template

from entp_lab import paths
from entp_lab.registry import EXPERIMENTS, PAPERS_TASKS
from entp_lab.texts import read_text
from entp_lib import tasks
from entp_lib.files import write_atomically
from entp_lib.validation import require

TEMPLATES = Path(__file__).parent / "templates"


def new_task(name: str) -> None:
    """Write a task, its import and its line in ``TASKS``, and its test.

    Raises ConfigError for a name that is not a lower-case identifier, or is already taken.
    """
    root = paths.repository()
    cls = name.title().replace("_", "")
    is_keyword = keyword.iskeyword(name) or keyword.iskeyword(cls)
    require(
        re.fullmatch(r"[a-z][a-z0-9_]{,29}", name) and not is_keyword,
        f"task {name!r}: must be an identifier in lower case, of at most 30 letters, such as parity or my_task",
    )
    task = f"entp_lib/tasks/{name}.py"
    test = f"tests/lib/tasks/test_{name}.py"
    is_there = (root / task).exists() or (root / test).exists() or hasattr(tasks, cls)
    require(
        not (is_there or name in {*tasks.TASKS, *PAPERS_TASKS, *EXPERIMENTS}),
        f"task {name!r}: exists, as the name of a task, a class, an experiment or a file; take another name",
    )
    for file, template in ((task, "task.txt"), (test, "task_test.txt")):
        text = read_text(TEMPLATES / template)
        title = name.replace("_", " ").capitalize()
        filled = Template(text).substitute(name=name, cls=cls, title=title)
        write_atomically(root / file, filled.encode())
        print(f"wrote {file}")
    registry = root / "entp_lib/tasks/__init__.py"
    text = read_text(registry)
    mine = f"from entp_lib.tasks.{name} import {cls}\n"
    imports = re.findall(r"^from entp_lib.+\n", text, re.MULTILINE)
    following = next(line for line in imports if line > mine)
    text = text.replace(following, mine + following)
    line = f'    "{name}": {cls},\n'
    write_atomically(registry, text.replace("\n}\n", f"\n{line}}}\n", 1).encode())
    print(f"added its import, and {line.strip()}, to entp_lib/tasks/__init__.py")
    print(f"next: ./run_tests.sh {test}, then change what it computes;")
    print("entp_lab.compare trains both models on it (docs/starting.md)")
