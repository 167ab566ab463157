"""Numbered notebooks: their parameters, their execution by papermill, and JupyterLab on working copies of them.

The copies lie in ``lab/``, which git ignores: as deep as ``notebooks/``, so that every link works from there, and so
that running and saving one changes nothing of what is committed.
"""

import ast
import concurrent.futures as cf
import contextlib
import dataclasses
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from tqdm import tqdm

from entp_lab import paths
from entp_lab.parameters import NotebookParameters
from entp_lab.progress import EVENTS_VARIABLE, LOGGED_SECONDS, read_events
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import Config
from entp_lib.files import read_text, remove_stale, write_atomically
from entp_lib.validation import ConfigError, from_dict, one_of, require

OVERVIEW = "00"
FIRST_OWN = 50  # numbers of notebooks that are one's own,
AFTER_OWN = 90  # up to this one
COMMON = {f.name for f in dataclasses.fields(NotebookParameters)}  # parameters of every notebook
NO_RESULT = ("jobs", "time_limit", "fresh")  # parameters that leave results as they are
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}  # of every committed notebook
# What people write into a cell's metadata; of the first cell: the verdicts its words suppose, what the notebook asks.
WRITTEN = ("tags", "rests_on", "asks")
# Tags by which the site folds a part of a cell, and JupyterLab's names for that.
FOLDS = (
    ("hide-input", "source_hidden"),
    ("hide-output", "outputs_hidden"),
    ("hide-cell", "source_hidden"),
    ("hide-cell", "outputs_hidden"),
)
WIDGET = "application/vnd.jupyter.widget-view+json"
LEDGER_SHOWN = (OVERVIEW, "90")  # notebooks that show the whole ledger, and change with any of its rows
AT_A_TIME = 4  # notebooks side by side, at most
ONE_LINE = ("ConfigError", "RecordError", "SweepError")  # errors that say themselves what is wrong
# Settings of a user's own that would change what a notebook shows.
LEFT_OUT = ("JUPYTER_PATH", "MPLBACKEND", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONWARNINGS")
SHORT = "/tmp" if os.access("/tmp", os.W_OK) else None  # folder for sockets, whose paths the system limits
RUNNING: list[Any] = []  # managers of the kernels that were started


# Which notebooks there are, and their parameters.


def notebook_paths(only: str = "") -> list[Path]:
    """Return the numbered notebooks, the overview last because it shows the results of the others.

    A number is two digits, and a letter for a second notebook on one subject ("03b"). ``only``: numbers or names,
    separated by commas, as in "03,06_match3". ConfigError names one that does not exist, and two of one number. A copy
    such as JupyterLab's "03_count3-Copy1" is no numbered notebook.
    """
    found: dict[str, Path] = {}
    for path in sorted(paths.notebooks().glob("[0-9][0-9]*_*.ipynb")):
        number, _, name = path.stem.partition("_")
        if number[2:] in ("", *ascii_lowercase) and name.isidentifier():
            other = found.setdefault(number, path)
            require(other == path, f"notebooks {other.stem} and {path.stem} have one number: rename one of them")
    names = {path.stem: number for number, path in found.items()}
    asked = [Path(name.strip()).name.removesuffix(".ipynb") for name in only.split(",") if name.strip()]
    require(bool(asked) or not only, f"--only {only!r}: write numbers or names, as in 03,06_match3")
    numbers = [names.get(name, name.zfill(2)) for name in asked] or list(found)
    for name, number in zip(asked, numbers, strict=False):
        require(number in found, f"no notebook {name}; there are {', '.join(found)}")
    return [found[number] for number in sorted(set(numbers), key=lambda n: (n == OVERVIEW, n))]


def is_own(notebook: Path) -> bool:
    """Say whether a notebook's number is one of those that are left to the user."""
    return notebook.name[:2].isdigit() and FIRST_OWN <= int(notebook.name[:2]) < AFTER_OWN


def read_notebook(notebook: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook, each source one text; ConfigError where it is missing or damaged."""
    text = read_text(notebook)
    try:
        require(not notebook.read_bytes().startswith(b"\xef\xbb\xbf"), "it begins with a mark of byte order")
        content = json.loads(text)
        require(content["nbformat"] == 4, f"nbformat = {content['nbformat']}: must be 4")
        for cell in content["cells"]:
            require(isinstance(cell["metadata"], dict), "a cell's metadata are no object")
            cell["source"] = "".join(cell["source"])
        return content["cells"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        why = (str(error).strip() or type(error).__name__)[:120]
        if isinstance(error, KeyError):
            why = f"lacks {why}"
        if not text.strip():
            why = "it is empty"
        where = f"notebook {paths.relative(notebook)}"
        raise ConfigError(f"{where} cannot be read ({why}); git checkout restores the committed one") from error


def defaults(notebook: Path) -> dict[str, Any]:
    """Return the parameters of a notebook with the values that its parameters cell gives them."""
    tagged = [c["source"] for c in read_notebook(notebook) if "parameters" in c["metadata"].get("tags", ())]
    nodes = [node for source in tagged[:1] for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return {ast.unparse(target): ast.literal_eval(node.value) for node in nodes for target in node.targets}


def parse_parameter(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``; the value as Python would read it, else as text."""
    name, equals, value = text.partition("=")
    require(bool(equals) and name.isidentifier(), f"parameter {text!r}: write it as name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return name, value


def checked_for_all(given: dict[str, Any], extra: dict[str, Any], notebooks: Sequence[Path]) -> dict[Path, dict]:
    """Return the parameters for each of ``notebooks``: ``given``, from options that all have, and ``extra``, from -p.

    Of a wrong one papermill would only warn, and the notebook say so after its imports. ConfigError for a name that is
    no parameter, one that only some of the notebooks have, which it names, and a wrong value of what all of them have.
    """
    known = {path: defaults(path) for path in notebooks}
    for name in extra:
        having = [path.stem for path in notebooks if name in known[path]]
        if having and len(having) < len(notebooks):
            only = ",".join(map(paths.number_of, having))
            raise ConfigError(f"parameter {name} belongs to {', '.join(having)}: add --only {only}")
    for path, values in known.items():
        for name in given | extra:
            one_of(f"parameter of {path.stem}", name, values)
        try:
            common(values | given | extra)
        except ConfigError as error:
            raise ConfigError(f"{path.stem}: {error}") from None
    return {path: given | extra for path in notebooks}


def common(parameters: dict[str, Any]) -> NotebookParameters:
    """Return what all notebooks have of these parameters; ConfigError for a value that makes no sense."""
    return from_dict(NotebookParameters, {name: value for name, value in parameters.items() if name in COMMON})


class Markdown(str):
    """Text that a notebook shows as Markdown."""

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{len(self.splitlines())} lines"


def notebooks_markdown() -> Markdown:
    """List every notebook but the overview: its title, which leads to it, and what it asks.

    That is ``asks`` of its first cell, else the first sentence of its text. Links are relative to ``notebooks/``.
    """
    rows = ["| notebook | asks |", "| --- | --- |"]
    for path in sorted(notebook_paths()):
        if paths.number_of(path.stem) == OVERVIEW:
            continue
        texts = [cell for cell in read_notebook(path) if cell["cell_type"] == "markdown"]
        lines = [line for cell in texts for line in cell["source"].splitlines() if line.strip()]
        title = next((line.lstrip("# ") for line in lines if line.startswith("# ")), path.stem)
        asks = texts[0]["metadata"].get("asks") if texts else None
        if not asks:
            words = next((line for line in lines if line[0] not in "#!|-"), "")
            asks = re.split(r"(?<=[.;?!])\s", re.sub(r"^\*\*[^*]*:\*\*|[*`$]", "", words).strip(), maxsplit=1)[0]
        rows.append(f"| [{title}]({path.name}) | {asks.strip().rstrip('.;')} |")
    return Markdown("\n".join(rows))


# What a notebook will compute.


def missing_runs(notebook: str, parameters: dict[str, Any]) -> list[Config]:
    """Return the runs that a notebook (its name without suffix) shows at these parameters and that have no record.

    With ``fresh`` none has one. Runs that the notebook shows where they are stored, and does not compute at ``best``,
    are not among them; nor does a parameter of the notebook's own count that puts other runs in their place.
    """
    from entp_lab.experiment import NoRuns

    asked = common(parameters)
    missing: list[Config] = []
    for experiment in EXPERIMENTS.values():
        if experiment.notebook != notebook or (experiment.show_only and asked.tier == "best"):
            continue
        with contextlib.suppress(NoRuns):
            store, runs = experiment.runs_for(asked)
            configs = [run.config for run in runs]
            missing += [c for c in configs if asked.fresh or store.find(c, experiment.version) is None]
    return missing


@dataclass(frozen=True)
class Job:
    """One notebook to be executed: with which parameters, where its figures go, whether its copy replaces it.

    ``todo``: those of the runs that it shows that have no record.
    """

    notebook: Path
    parameters: dict[str, Any]
    figures: Path
    update: bool = False
    todo: Sequence[Config] = ()

    @property
    def computes_nothing(self) -> bool:
        """Whether that is certain: one with a parameter of its own may ask for other runs than are planned."""
        return not (self.todo or self.parameters.keys() - COMMON)


def plan(parameters: Mapping[Path, dict[str, Any]], update: bool = False) -> tuple[list[Job], bool]:
    """Plan the notebooks to execute, with the parameters of each, which are checked.

    ``update`` puts the copies in the place of the committed notebooks, the overview's with them. Also whether figures
    and ledger belong to the project, because they show its best records; else they go next to the executed copies.
    """
    if update:
        require(not any(parameters.values()), "--update takes no other option: it runs the notebooks as committed")
        parameters = {**parameters, **{p: {} for p in notebook_paths() if p.name.startswith(LEDGER_SHOWN)}}
    todo = {}
    in_place = True
    for path, given in parameters.items():
        values = defaults(path) | given
        todo[path] = missing_runs(path.stem, values)
        in_place &= common(values).as_committed and not todo[path] and not given.keys() - {"jobs"}
    in_place |= update
    place = paths.figures() if in_place else paths.new_figures()
    return [Job(path, given, place, update, todo[path]) for path, given in parameters.items()], in_place


# Executing notebooks, each in a kernel of its own.


@dataclass
class Result:
    """What became of one notebook. ``copy``: its executed copy, as a message shows it.

    ``traceback``: of an error that is a mistake of code, where those of input are the one line of ``error``.
    """

    notebook: str
    status: str
    seconds: float
    reused: int = 0
    computed: int = 0
    figures: int = 0
    error: str = ""
    copy: str = ""
    traceback: str = ""


def run_all(jobs: Sequence[Job]) -> list[Result]:
    """Execute notebooks, going on where one fails, and return a result for each, in the same order.

    Those that have nothing to compute go as many at a time as there are cores, at most 4; the others follow one after
    another, since their runs take all cores, and then the overview last.
    """
    at_once = [job for job in jobs if job.computes_nothing]
    if len(at_once) < len(jobs):  # else the overview has nothing to wait for
        at_once = [job for job in at_once if not job.notebook.name.startswith(OVERVIEW)]
    results: dict[Path, Result] = {}
    say = f"[%d/{len(jobs)}] %s"
    for job, result in execute_side_by_side(at_once):
        results[job.notebook] = with_missing_runs(job, result)
        print(say % (len(results), f"{job.notebook.stem}, {result.seconds:.0f} s"), file=sys.stderr, flush=True)
    for job in jobs:
        if job not in at_once:
            print(say % (len(results) + 1, job.notebook.stem), file=sys.stderr, flush=True)
            results[job.notebook] = with_missing_runs(job, execute(job))
    return [results[job.notebook] for job in jobs]


def execute_side_by_side(jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result when it is there. An interrupt ends the kernels."""
    from entp_lab.forked import forked_kernels

    at_a_time = max(1, min(AT_A_TIME, available_cores(), len(jobs)))
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(available_cores() // at_a_time))}
    with contextlib.ExitStack() as stack:
        if at_a_time > 1 and sys.platform == "linux":  # elsewhere libraries of the system may not survive a fork
            profile = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(forked_kernels(kernel_environment(Path(profile)) | threads))
        pool = stack.enter_context(cf.ThreadPoolExecutor(at_a_time))
        futures = {pool.submit(execute, job, True, **threads): job for job in jobs}
        try:
            for future in cf.as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            logging.getLogger("papermill").setLevel(logging.CRITICAL)  # of each kernel it would say that it died
            for kernel in RUNNING:
                if kernel.provisioner and kernel.provisioner.process:
                    kernel.provisioner.process.kill()
            raise


def execute(job: Job, quiet: bool = False, **environment: str) -> Result:
    """Run one notebook, ``quiet`` or with progress, to a copy; ``environment``: the kernel's, beside this process's."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    began = time.monotonic()
    final = paths.results() / "executed" / job.notebook.name
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(final.parent, ".run-*")
    result = Result(job.notebook.stem, "ok", 0.0, copy=paths.relative(final))
    with (
        tempfile.TemporaryDirectory(dir=final.parent, prefix=".run-") as folder,
        tempfile.TemporaryDirectory(dir=SHORT, prefix="entp-") as sockets,
    ):
        copy = Path(folder) / job.notebook.name
        events = Path(folder) / "events"
        environment |= {EVENTS_VARIABLE: str(events), paths.NEW_FIGURES_VARIABLE: str(job.figures)}
        options = kernel_options(environment, Path(sockets))
        with contextlib.nullcontext() if quiet else watched(job.notebook.stem, events):
            try:
                papermill.execute_notebook(str(job.notebook), str(copy), job.parameters, **options)
            except PapermillExecutionError as error:
                result.status = "failed"
                result.error = error_line(error.ename, error.evalue, error.traceback)
                if len(error.traceback) > 1:
                    result.traceback = "\n".join(error.traceback)
            except Exception as error:  # a kernel that died, not a cell that failed: the next notebook still runs
                where = f": {paths.relative(final)}" if isinstance(error, OSError) and not error.filename else ""
                result.status = "failed"
                result.error = f"{type(error).__name__}: {error}{where}"
            finally:
                if copy.exists():
                    os.replace(copy, final)
        for entry in read_events(events):
            result.reused += entry.get("reused", 0)
            result.computed += entry.get("computed", 0)
            result.figures += entry["event"] == "figure"
    if job.update and result.computed and result.status == "ok":
        again = execute(job, quiet)  # committed is what records give, without the traces of computing
        return dataclasses.replace(again, computed=result.computed, seconds=time.monotonic() - began)
    if job.update and result.status == "ok":
        install(final, job.notebook)
    if final.exists():
        finish_copy(final, job.parameters)
    result.seconds = time.monotonic() - began
    return result


def kernel_environment(folder: Path) -> dict[str, str]:
    """Return this process's environment without a user's own settings, which would change what notebooks show.

    matplotlib starts from its defaults, and IPython from a new profile in ``folder``. ``tools/venv.sh`` does the same
    for what the shell scripts start.
    """
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return kept | {"MATPLOTLIBRC": os.devnull, "IPYTHONDIR": str(folder)}


def kernel_options(environment: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Return papermill's options for a kernel of this Python, with these variables beside ``kernel_environment``.

    Its sockets are of the file system, in ``folder``: no ports to race for, and no warning about open ones.
    """
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from traitlets.config import Config

    clean_environment = kernel_environment(folder / "ipython")
    clean_environment |= {**environment, "TQDM_DISABLE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    class Kernel(AsyncKernelManager):
        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
            self.kernel_spec_manager = KernelSpecManager(kernel_dirs=[])  # where "python3" is this Python
            await super().start_kernel(env=clean_environment, **options)
            RUNNING.append(self)

    sockets = {"transport": "ipc", "ip": str(folder / "kernel")}
    return {
        "kernel_manager_class": Kernel,
        "config": Config({"KernelManager": sockets}),
        "extra_arguments": ["--log-level=CRITICAL"],  # a kernel that is ended need not tell the terminal
        "kernel_name": "python3",
        "progress_bar": False,
    }


@contextlib.contextmanager
def watched(name: str, events: Path) -> Iterator[None]:
    """Show the steps of a notebook's latest sweep as a bar on stderr; where that is no terminal, as a line a minute."""
    ended = threading.Event()
    look = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    options: dict[str, Any] = {"bar_format": look, "leave": False}
    if not sys.stderr.isatty():
        options |= {"bar_format": look + "\n", "mininterval": LOGGED_SECONDS, "miniters": 1}

    def watch() -> None:
        bar = None
        shown = None
        while not ended.wait(1.0):
            for latest in [e for e in read_events(events) if e["event"] == "progress"][-1:]:
                if bar is None or (latest["label"], latest["total"]) != shown:
                    shown = latest["label"], latest["total"]
                    bar = tqdm(total=latest["total"], desc=f"{name}, {latest['label']}", **options)
                bar.update(latest["done"] - bar.n)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def error_line(name: str, value: str, traceback: Sequence[str]) -> str:
    """Return an error as one line: name and text, or where it has no text the line of code, of a coloured traceback."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(traceback))
    lines = re.findall(r"^-+>\s*\d+\s(.*)$", plain, re.MULTILINE)
    return f"{name}: {value.strip() or (f'this does not hold: {lines[-1].strip()}' if lines else 'without a word')}"


def with_missing_runs(job: Job, result: Result) -> Result:
    """Return the result; its error says how many runs are missing where a cell needed more of them than there are."""
    if result.error and not result.error.startswith(ONE_LINE):
        missing = missing_runs(job.notebook.stem, defaults(job.notebook) | job.parameters | {"fresh": False})
        if missing:
            again = "the same command without --fresh" if job.parameters.get("fresh") else "the same command"
            result.error = (
                f"{len(missing)} of its runs are not complete, too many for this notebook; {again} continues with "
                f"them (it ended in {result.error})"
            )
            result.traceback = ""
    if result.traceback:
        print(result.traceback, file=sys.stderr)
    if result.error:
        print(f"  failed: {result.error}", file=sys.stderr, flush=True)
    return result


# Executed copies, and what takes the place of a committed notebook.


def finish_copy(copy: Path, parameters: Mapping[str, Any]) -> None:
    """Rewrite the links of an executed copy to figures and files, which start from another folder, and note parameters.

    Where other parameters were given its first screen says that its words are those of the committed runs.
    """
    import nbformat

    text = copy.read_text(encoding="utf-8")
    figures, root = (os.path.relpath(place, copy.parent) for place in (paths.figures(), paths.root()))
    text = re.sub(r"\]\(\.\./(?!\.\./)", f"]({root}/", text.replace("](../figures/", f"]({figures}/"))
    given = {k: v for k, v in parameters.items() if k not in NO_RESULT and (k, v) != ("tier", "best")}
    notebook = nbformat.reads(text, as_version=4)
    for cell in [cell for cell in notebook.cells if cell.cell_type == "markdown"][: bool(given)]:
        asked = ", ".join(f"{name} = {value!r}" for name, value in given.items())
        words = "the words and pictures of its text are those of the committed records; what it found is in the outputs"
        cell.source = f"> **This copy ran with {asked}:** {words}.\n\n{cell.source}"
    write_atomically(copy, nbformat.writes(notebook).encode())


def write_index(results: Sequence[Result]) -> Path:
    """Write the page that leads to the executed copies, beside them, and return where it is."""
    lines = ["# Executed notebooks", "", "| notebook | | seconds |", "| --- | --- | --- |"]
    for result in sorted(results, key=lambda result: result.notebook):
        lines.append(f"| [{result.notebook}]({result.notebook}.ipynb) | {result.status} | {result.seconds:.0f} |")
    index = paths.results() / "executed" / "index.md"
    write_atomically(index, ("\n".join(lines) + "\n").encode())
    return index


def install(executed: Path, notebook: Path) -> None:
    """Replace a committed notebook by its executed copy, without papermill's and the kernel's passing traces."""
    import nbformat

    content = nbformat.read(executed, as_version=4)
    content.cells = [c for c in content.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    clean(content)
    write_atomically(notebook, f"{nbformat.writes(nbformat.from_dict(content))}\n".encode())


def clean(content: dict) -> None:
    """Remove from a notebook, in place, everything that depends on where and how it was executed.

    That is metadata, names of widgets, which mean nothing without their kernel, and the pieces in which a slow kernel
    sends printed text.
    """
    content["metadata"] = METADATA
    for cell in content["cells"]:
        cell["metadata"] = {name: value for name, value in cell["metadata"].items() if name in WRITTEN and value}
        folded = {key: True for tag, key in FOLDS if tag in cell["metadata"].get("tags", ())}
        if folded:
            cell["metadata"]["jupyter"] = folded
        kept: list[dict] = []
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
            if kept and "text" in output and output["name"] == kept[-1].get("name"):
                kept[-1]["text"] += output["text"]
            else:
                kept.append(output)
        if kept:
            cell["outputs"] = kept


# JupyterLab on working copies.


def refresh_copies(reset: Sequence[Path] = ()) -> list[Path]:
    """Refresh the working copies in ``lab/``; return the edited ones, which stay though their notebook changed.

    A copy whose cells were edited stays as it is; any other follows its notebook, and so do those of the notebooks in
    ``reset``. A notebook of one's own is linked. ``lab/.committed`` has what each copy was made from.
    """
    folder = paths.root() / "lab"
    edits = []
    for notebook in notebook_paths():
        copy = folder / notebook.name
        base = folder / ".committed" / notebook.name
        if is_own(notebook):
            if not copy.exists():
                folder.mkdir(exist_ok=True)
                copy.symlink_to(Path("..", "notebooks", notebook.name))
            continue
        text = read_text(notebook)
        before = read_text(base) if base.exists() else text
        edited = notebook not in reset and copy.exists() and sources(read_text(copy)) != sources(before)
        if edited:
            edits += [copy] if sources(text) != sources(before) else []
        elif not copy.exists() or not base.exists() or text != before or notebook in reset:
            for path in (copy, base):
                write_atomically(path, text.encode())
    return edits


def sources(text: str) -> object:
    """Return kind and source of a notebook's cells, without outputs; of a file that is no notebook its text."""
    try:
        return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    except (ValueError, KeyError, TypeError):
        return text


def before_saving(model: dict[str, Any], path: str, **_: Any) -> None:
    """Refuse JupyterLab to write a committed notebook, and clean the metadata of a working copy before it is written.

    JupyterLab would add the interpreter's version and its own view of the cells, which differ from machine to machine.
    Raises HTTPError, whose message it shows, for a committed notebook.
    """
    from tornado.web import HTTPError

    folder, name = os.path.split(path.strip("/"))
    if model["type"] == "notebook" and model["content"] is not None and folder in ("lab", "notebooks"):
        if folder == "notebooks" and not is_own(Path(name)) and (paths.notebooks() / name).exists():
            raise HTTPError(403, f"notebooks/{name} is the committed one and stays as it is: your copy is lab/{name}")
        clean(model["content"])


def open_lab(port: int | None = None, browser: bool = True, reset: Sequence[Path] = ()) -> None:
    """Make or refresh the working copies and replace this process by JupyterLab, which opens the overview.

    The project is its root. ConfigError where JupyterLab is not installed beside this Python.
    """
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    kept = refresh_copies(reset)
    if kept:
        names = ", ".join(map(paths.relative, kept))
        numbers = ",".join(paths.number_of(path.name) for path in kept)
        anew = f"(./run_all.sh --lab --reset {numbers} makes them anew)"
        print(f"kept with your edits, though the committed ones have changed since: {names} {anew}", flush=True)
    command = [
        program,
        f"--ServerApp.root_dir={paths.root()}",
        "--LabApp.default_url=/lab/tree/lab/00_overview.ipynb",
        "--ContentsManager.pre_save_hook=entp_lab.notebooks.before_saving",
    ]
    if port is not None:
        command.append(f"--port={port}")
    if not browser:
        command.append("--no-browser")
    if os.geteuid() == 0:  # a container's only user, whom jupyter refuses
        command.append("--allow-root")
    os.chdir(paths.root())
    os.execve(program, command, kernel_environment(paths.root() / "lab" / ".ipython"))
