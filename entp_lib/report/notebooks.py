"""Running the notebooks: papermill with parameters that are checked first, progress, and a closing table."""

import ast
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from entp_lib import paths
from entp_lib.config import BEST_FIRST
from entp_lib.runs.progress import EVENTS_VARIABLE, read_events
from entp_lib.strict import ConfigError, one_of, require

KERNEL = "python3"
REPORT_SECONDS = 30.0  # between progress lines where the output is no terminal


@dataclass
class Result:
    """One notebook's line in the closing table."""

    notebook: str
    status: str
    seconds: float
    reused: int = 0
    computed: int = 0
    figures: int = 0
    error: str = ""


def notebook_paths(only: str = "") -> list[Path]:
    """The numbered notebooks, the overview last because it shows what the others leave.

    ``only``: numbers, separated by commas, as in "03,06". ConfigError names a number that does not exist.
    """
    found = {path.name[:2]: path for path in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))}
    wanted = [number.strip().zfill(2) for number in only.split(",") if number.strip()] or list(found)
    for number in wanted:
        require(number in found, f"no notebook {number}; there are {', '.join(found)}")
    return [found[number] for number in sorted(set(wanted), key=lambda n: (n == "00", n))]


def defaults(notebook: Path) -> dict[str, Any]:
    """The parameters of a notebook with the values that its parameters cell gives them."""
    import papermill

    inferred = papermill.inspect_notebook(str(notebook))
    return {name: ast.literal_eval(entry["default"]) for name, entry in inferred.items()}


def checked(given: dict[str, Any], known: dict[str, Any], where: str) -> dict[str, Any]:
    """``given`` if every name is a parameter of the notebook and has its type; papermill would only warn."""
    for name, value in given.items():
        one_of(f"parameter of {where}", name, known)
        kind = type(known[name])
        fits = type(value) is kind or (kind is float and type(value) is int)
        require(
            fits,
            f"parameter {name} = {value!r} of {where}: must be of type {kind.__name__}, like {known[name]!r}",
        )
    return {name: type(known[name])(value) for name, value in given.items()}


def parse_parameter(text: str) -> tuple[str, Any]:
    """``name=value`` from the command line; the value as Python would read it, else as text."""
    name, equals, value = text.partition("=")
    require(bool(equals) and name.isidentifier(), f"parameter {text!r}: write it as name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return name, value


def execute(notebook: Path, parameters: dict[str, Any], update: bool = False) -> Result:
    """Run one notebook to a copy below ``results/executed``; with ``update``, put the clean copy in its place."""
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    began = time.monotonic()
    final = paths.results() / "executed" / notebook.name
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".run-") as folder:
        copy, events = Path(folder) / notebook.name, Path(folder) / "events"
        result = Result(notebook.stem, "ok", 0.0)
        with (
            tempfile.TemporaryDirectory(prefix="entp-") as sockets,
            kernel_environment(events),
            Watcher(notebook.stem, events),
        ):
            try:
                # Kernels on sockets of the file system, in a folder of their own: no ports to race for, and no
                # warning about open ones. Socket paths must be short, so the folder is the system's.
                place = {"transport": "ipc", "ip": str(Path(sockets) / "kernel")}
                papermill.execute_notebook(
                    str(notebook),
                    str(copy),
                    parameters,
                    kernel_name=KERNEL,
                    progress_bar=False,
                    config=Config({"KernelManager": place}),
                )
            except PapermillExecutionError as error:
                result.status, result.error = "failed", f"{error.ename}: {error.evalue}"
            except Exception as error:  # a kernel that died, not a cell that failed: the next notebook still runs
                result.status, result.error = "failed", f"{type(error).__name__}: {error}"
            finally:
                if copy.exists():
                    if update and result.status == "ok":
                        install(copy, notebook)
                    os.replace(copy, final)
        for entry in read_events(events):
            if entry["event"] == "records":
                result.reused += entry["reused"]
                result.computed += entry["computed"]
            result.figures += entry["event"] == "figure"
    result.seconds = time.monotonic() - began
    return result


@contextlib.contextmanager
def kernel_environment(events: Path):
    """What the kernel inherits: where to report, and no progress bars in the outputs."""
    changes = {EVENTS_VARIABLE: str(events), "TQDM_DISABLE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    before = {name: os.environ.get(name) for name in (*changes, "MPLBACKEND")}
    os.environ.update(changes)
    os.environ.pop("MPLBACKEND", None)  # a backend of the user's would keep figures out of the notebook
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Watcher(threading.Thread):
    """Shows what the notebook's sweeps report, with an estimate of the time left."""

    def __init__(self, name: str, events: Path):
        super().__init__(daemon=True)
        self.label, self.events = name, events
        self.stopping = threading.Event()
        self.terminal = sys.stderr.isatty()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()
        if self.terminal:
            sys.stderr.write("\r\033[K")

    def run(self) -> None:
        began, said, sweep, since, first = time.monotonic(), time.monotonic(), None, 0.0, 0
        while not self.stopping.wait(1.0):
            now = time.monotonic()
            line = f"{self.label}: running for {now - began:.0f} s"
            latest = next((e for e in reversed(read_events(self.events)) if e["event"] == "progress"), None)
            if latest:
                if latest["label"] != sweep:
                    sweep, since, first = latest["label"], now, latest["done"]
                done, total = latest["done"], latest["total"]
                line += f", {sweep}: {latest['finished']} of {latest['runs']} runs, {done / total:.0%} of steps"
                if done > first:
                    left = (now - since) * (total - done) / (done - first)
                    line += f", about {duration(left)} left"
            if self.terminal:
                sys.stderr.write(f"\r\033[K{line}")
                sys.stderr.flush()
            elif now - said > REPORT_SECONDS:
                said = now
                print(line, file=sys.stderr, flush=True)


def install(executed: Path, notebook: Path) -> None:
    """Replace a committed notebook by its executed copy, without papermill's and the kernel's passing traces."""
    import nbformat

    content = nbformat.read(executed, as_version=4)
    content.cells = [c for c in content.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    for cell in content.cells:
        kept = {k: v for k, v in cell.metadata.items() if k == "tags" and v}
        cell.metadata = nbformat.from_dict(kept)
    content.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": KERNEL},
            "language_info": {"name": "python"},
        }
    )
    temporary = notebook.with_suffix(".tmp")
    nbformat.write(content, temporary)
    os.replace(temporary, notebook)


def run_all(
    *,
    only: str = "",
    options: dict[str, Any] | None = None,
    extra: Sequence[str] = (),
    update: bool = False,
) -> list[Result]:
    """Run notebooks one after another, going on where one fails, and return a line for each.

    ``options`` go to every notebook, ``extra`` (texts name=value) to those that were asked for. All parameters of
    all notebooks are checked before the first one starts.
    """
    notebooks = notebook_paths(only)
    given = dict(parse_parameter(text) for text in extra)
    given = {**(options or {}), **given}
    require(not (update and given), "--update takes no other option: it runs the notebooks as they are committed")
    plans = [(path, checked(given, defaults(path), path.stem)) for path in notebooks]
    results = []
    for number, (path, parameters) in enumerate(plans, 1):
        print(f"[{number}/{len(plans)}] {path.stem}", file=sys.stderr, flush=True)
        result = execute(path, parameters, update)
        results.append(result)
        if result.error:
            print(f"  failed: {result.error}", file=sys.stderr, flush=True)
    return results


def table(results: Sequence[Result]) -> str:
    """The closing table."""
    frame = pd.DataFrame(
        {
            "notebook": r.notebook,
            "status": r.status,
            "seconds": f"{r.seconds:.1f}",
            "records reused": r.reused,
            "computed": r.computed,
            "figures": r.figures,
        }
        for r in results
    )
    return frame.to_string(index=False)


def listing() -> str:
    """What there is: each notebook with its experiments, the tiers whose records are whole, and their cost."""
    from entp_lib.collection.experiment import cost
    from entp_lib.papers import EXPERIMENTS
    from entp_lib.runs.records import Store

    store = Store()
    rows = []
    for path in notebook_paths():
        for e in (e for e in EXPERIMENTS.values() if e.notebook == path.stem):
            tiers = [t for t in reversed(BEST_FIRST) if e.stored(store, t)]
            rows.append(
                {
                    "notebook": path.stem,
                    "experiment": e.name,
                    "records at": ", ".join(tiers) or "none",
                    "quick takes": duration(cost(e, "quick", store)),
                }
            )
    frame = pd.DataFrame(rows)
    others = [p.stem for p in notebook_paths() if p.stem not in set(frame["notebook"])]
    return frame.to_string(index=False) + f"\nwithout runs of their own: {', '.join(others) or 'none'}"


def duration(seconds: float | None) -> str:
    """A time as people say it."""
    if seconds is None:
        return "unknown"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def open_lab() -> None:
    """Replace this process by JupyterLab, opened on the overview."""
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    os.chdir(paths.root())
    as_root = ["--allow-root"] if os.geteuid() == 0 else []  # a container's only user, which jupyter refuses
    os.execv(program, [program, *as_root, "notebooks/00_overview.ipynb"])
