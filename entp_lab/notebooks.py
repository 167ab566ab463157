"""Numbered notebooks: their parameters, their execution by papermill, and JupyterLab on working copies of them.

The copies are in ``lab/``, which git ignores, so that running and saving one changes nothing that is committed. The
folder is as deep as ``notebooks/``, so that every link works from there.
"""

import ast
import concurrent.futures as cf
import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.forkserver
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entp_lab import paths, stopping
from entp_lab.configs import Config, Configs
from entp_lab.parameters import NotebookParameters
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lib.files import write_atomically
from entp_lib.validation import ConfigError, Json, from_dict, one_of, require

OVERVIEW = "00"
FIRST_OWN = "50"  # first number of the user's own notebooks
AFTER_OWN = "90"  # first number after them
COMMON = {f.name for f in dataclasses.fields(NotebookParameters)}  # parameters of every notebook
NO_RESULT = ("jobs", "time_limit", "fresh")  # parameters that leave results as they are
# metadata of every committed notebook
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Metadata that authors write: tags; in the first cell also the verdicts that the text assumes, and the question asked.
WRITTEN = ("tags", "rests_on", "asks")
# Tags by which the site folds a part of a cell, and JupyterLab's names for that.
FOLDS = (
    ("hide-input", "source_hidden"),
    ("hide-output", "outputs_hidden"),
    ("hide-cell", "source_hidden"),
    ("hide-cell", "outputs_hidden"),
)
WIDGET = "application/vnd.jupyter.widget-view+json"
# notebooks that show the whole ledger, and change with any of its rows
LEDGER_SHOWN = (OVERVIEW, "90")
AT_A_TIME = 4  # most notebooks that run in parallel
# Imports of nearly every notebook; torch's optimizers import the last one.
SHARED = [
    "entp_lab.cells",
    "entp_lab.experiment",
    "entp_lab.figures",
    "scipy.stats",
    "torch._dynamo",
]


# Which notebooks there are, and their parameters.


def number(notebook: Path) -> str:
    """Return the number of a notebook, "03b" of "03b_count3_details.ipynb"."""
    return paths.number_of(notebook.stem)


def notebook_paths(only: str = "") -> list[Path]:
    """Return the numbered notebooks, the overview last because it shows the results of the others.

    A number is two digits, and a letter for a second notebook on one subject ("03b"). ``only``: numbers or names,
    separated by commas, as in "03,06_match3"; ConfigError for one that does not exist. A copy such as JupyterLab's
    "03_count3-Copy1" is not a numbered notebook.
    """
    found = [
        path
        for path in paths.notebooks().glob("*.ipynb")
        if re.fullmatch(r"\d\d[a-z]?_[A-Za-z]\w*", path.stem)
    ]
    asked = [
        Path(name.strip()).name.removesuffix(".ipynb") for name in only.split(",") if name.strip()
    ]
    require(asked or not only, f"--only {only!r}: write numbers or names, as in 03,06_match3")
    chosen = set() if asked else set(found)
    for name in asked:
        of_name = {path for path in found if name == path.stem or name.zfill(2) == number(path)}
        require(of_name, f"no notebook {name}; there are {', '.join(sorted(map(number, found)))}")
        chosen |= of_name
    return sorted(chosen, key=lambda path: (number(path) == OVERVIEW, path))


def is_own(notebook: Path) -> bool:
    """Say whether a notebook's number is reserved for the user's own notebooks."""
    return FIRST_OWN <= notebook.name < AFTER_OWN


def read_notebook(path: Path) -> Json:
    """Return a notebook as JSON values, the source of each cell as one text; ConfigError where it is damaged.

    It does without nbformat, whose import takes longer than all else before the first notebook.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        require(notebook["nbformat"] == 4, f"nbformat = {notebook['nbformat']}: must be 4")
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
        return notebook
    except Exception as error:  # a damaged file leads to errors of many kinds
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        where = f"notebook {paths.relative(path)}"
        raise ConfigError(
            f"{where} cannot be read ({why}); git checkout restores the committed one"
        ) from error


def defaults(notebook: Path) -> Json:
    """Return the parameters of a notebook with the values that its parameters cell gives them."""
    for cell in read_notebook(notebook)["cells"]:
        if "parameters" in cell["metadata"].get("tags", ()):
            return {
                ast.unparse(target): ast.literal_eval(node.value)
                for node in ast.parse(cell["source"]).body
                if isinstance(node, ast.Assign)
                for target in node.targets
            }
    return {}


def parse_parameter(text: str) -> tuple[str, Any]:
    """Return name and value of ``name=value``; the value as a Python literal if it is one, else as text."""
    name, equals, value = text.partition("=")
    require(equals and name.isidentifier(), f"parameter {text!r}: write it as name=value")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        return name, value


def parameters_for(notebooks: Collection[Path], given: Json) -> dict[Path, Json]:
    """Return for each of ``notebooks`` those of the ``given`` parameters that it has.

    They are checked here, because papermill would only warn of a wrong one, and the notebook fail only after its
    imports. Raises ConfigError for a name that no notebook has, and for a wrong value of a common parameter.
    """
    known = {path: defaults(path) for path in notebooks}
    names = dict.fromkeys(name for values in known.values() for name in values)
    for name in given:
        one_of("parameter", name, names)
    common(given)
    return {
        path: {name: given[name] for name in given if name in values}
        for path, values in known.items()
    }


def common(parameters: Json) -> NotebookParameters:
    """Return the parameters that all notebooks have, checked; ConfigError for a value that makes no sense."""
    return from_dict(
        NotebookParameters, {name: value for name, value in parameters.items() if name in COMMON}
    )


def notebooks_markdown() -> str:
    """List every notebook but the overview: its title as a link, and the question (``asks``) of its first cell."""
    rows = ["| notebook | asks |", "| --- | --- |"]
    for path in sorted(notebook_paths()):
        if number(path) != OVERVIEW:
            first = read_notebook(path)["cells"][0]
            title = first["source"].partition("\n")[0].lstrip("# ")
            rows.append(f"| [{title}]({path.name}) | {first['metadata'].get('asks', '')} |")
    return "\n".join(rows)


# What notebooks will compute.


def missing_runs(notebook: Path, parameters: Json) -> Configs:
    """Return the runs without a record that a notebook shows with these parameters; with ``fresh``, all that it shows.

    Experiments that ``best`` only shows, without computing them, are left out. A notebook's own parameters, which may
    replace runs by others, are not considered.
    """
    from entp_lab.experiment import NoRuns

    asked = common(parameters)
    missing: list[Config] = []
    for experiment in EXPERIMENTS.values():
        if experiment.notebook != notebook.stem or (experiment.show_only and asked.tier == "best"):
            continue
        with contextlib.suppress(NoRuns):
            store, runs = experiment.runs_for(asked)
            missing += store.missing([run.config for run in runs], experiment.version, asked.fresh)
    return missing


@dataclass(frozen=True)
class Job:
    """One notebook to be executed: its parameters, and whether the executed copy replaces it (``update``).

    ``todo``: the runs without a record among those that it shows.
    """

    notebook: Path
    parameters: Json
    update: bool = False
    todo: Configs = ()


def plan(parameters: Mapping[Path, Json], update: bool = False) -> tuple[list[Job], bool]:
    """Plan the notebooks to execute; return the jobs, and whether figures and ledger belong to the project.

    They do if they show its best records; else they go next to the executed copies. ``parameters``: checked, by
    notebook. ``update``: replace the committed notebooks by their copies, and with them those that show the ledger.
    """
    if update:
        require(
            not any(parameters.values()),
            "--update takes no other option: it runs the notebooks as committed",
        )
        parameters = {
            **parameters,
            **{path: {} for path in notebook_paths() if number(path) in LEDGER_SHOWN},
        }
    jobs = [
        Job(path, given, update, missing_runs(path, given)) for path, given in parameters.items()
    ]
    as_committed = all(
        common(job.parameters).as_committed and not job.todo and job.parameters.keys() <= {"jobs"}
        for job in jobs
    )
    return jobs, update or as_committed


# Executing notebooks, each in a process of its own.


def context() -> multiprocessing.context.BaseContext:
    """Return how notebooks' processes start: on Linux forked from one that has imported what every notebook does."""
    found = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    found.set_forkserver_preload(SHARED)
    return found


def parallel(count: int) -> int:
    """Return how many of ``count`` notebooks run at a time."""
    return max(1, min(AT_A_TIME, available_cores(), count))


def start_server(count: int) -> None:
    """Begin the imports for ``count`` notebooks, on Linux, while the command plans; each gets its share of cores."""
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cores() // parallel(count)))
    if context().get_start_method() == "forkserver":
        multiprocessing.forkserver.ensure_running()


@dataclass
class Result:
    """Outcome of executing one notebook; ``error`` is empty if all went well.

    ``traceback``: of a programming error; an error of input has the one line of ``error`` only.
    """

    notebook: str
    seconds: float
    error: str = ""
    traceback: str = ""


def run_all(jobs: Sequence[Job]) -> list[Result]:
    """Execute notebooks, continuing after a failure, and return a result for each, in the same order.

    Those that certainly compute nothing run in parallel, as many as there are cores and at most 4. The others follow
    one by one, since their runs take all cores, and the overview comes last. An interrupt ends them all.
    """
    # a parameter of a notebook's own may ask for other runs than planned
    at_once = [job for job in jobs if not (job.todo or job.parameters.keys() - COMMON)]
    if len(at_once) < len(jobs):
        at_once = [job for job in at_once if number(job.notebook) != OVERVIEW]
    else:  # the overview waits for no other, and goes first because it takes long
        at_once.sort(key=lambda job: number(job.notebook) != OVERVIEW)
    results: dict[Path, Result] = {}

    def note(job: Job, result: Result) -> None:
        results[job.notebook] = result
        count = f"[{len(results)}/{len(jobs)}] {result.notebook}"
        print(f"{count}, {result.seconds:.0f} s", file=sys.stderr)
        if result.traceback:
            print(result.traceback, file=sys.stderr)
        if result.error:
            print(f"  failed: {result.error}", file=sys.stderr)

    with cf.ThreadPoolExecutor(parallel(len(at_once))) as pool:
        try:
            futures = {pool.submit(execute_apart, job): job for job in at_once}
            for future in cf.as_completed(futures):
                note(futures[future], future.result())
            for job in jobs:
                if job not in at_once:
                    note(job, pool.submit(execute_apart, job).result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return [results[job.notebook] for job in jobs]


def execute_apart(job: Job) -> Result:
    """Run one notebook in a process of its own.

    For ``update``, a notebook that computed runs is run again, so that the committed copy shows stored records only.
    """
    with cf.ProcessPoolExecutor(1, context()) as pool:
        try:
            result = pool.submit(execute, job, dict(os.environ)).result()
        except BrokenProcessPool:
            return Result(job.notebook.stem, 0.0, "its process was killed; is there memory enough?")
        except Exception as error:  # such as a full disk: the next notebook still runs
            return Result(job.notebook.stem, 0.0, f"{type(error).__name__}: {error}")
    if job.update and job.todo and not result.error:
        return execute_apart(dataclasses.replace(job, todo=()))
    return result


def execute(job: Job, environment: Mapping[str, str]) -> Result:
    """Run one notebook in this process, which has run none before, and keep the executed copy."""
    import papermill
    from papermill.engines import papermill_engines

    from entp_lab.cells import ENGINE, Here

    # the parent gets an interrupt, too, and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    papermill_engines.register(ENGINE, Here)
    began = time.monotonic()
    result = Result(job.notebook.stem, 0.0)
    options = {"engine_name": ENGINE, "request_save_on_cell_execute": False, "progress_bar": False}
    with tempfile.TemporaryDirectory() as folder, stopping.handled():
        copy = Path(folder, job.notebook.name)
        try:
            papermill.execute_notebook(job.notebook, copy, job.parameters, **options)
        except papermill.PapermillExecutionError as error:
            result.error = f"{error.ename}: {error.evalue}"
            if len(error.traceback) > 1:  # not one of those whose message is enough
                result.traceback = "\n".join(error.traceback)
                result.error += runs_still_missing(job)
        if copy.exists():
            executed = read_notebook(copy)
            if job.update and not job.todo and not result.error:
                install(executed, job.notebook)
            keep_copy(executed, job)
    result.seconds = time.monotonic() - began
    return result


def runs_still_missing(job: Job) -> str:
    """Say how many runs a failed notebook still lacks; empty if none."""
    missing = missing_runs(job.notebook, job.parameters | {"fresh": False})
    if not missing:
        return ""
    again = (
        "the same command without --fresh" if job.parameters.get("fresh") else "the same command"
    )
    return f" ({len(missing)} of its runs are not complete; {again} continues with them)"


# Executed copies, and the replacement of committed notebooks.


def keep_copy(executed: Json, job: Job) -> None:
    """Keep an executed copy; its links to figures and files start from its folder.

    If it ran with other parameters, its first cell says that its words are those of the committed runs.
    """
    import nbformat

    folder = paths.results() / "executed"
    figures = os.path.relpath(paths.figures(), folder)
    root = os.path.relpath(paths.root(), folder)
    asked = [
        f"{name} = {value!r}" for name, value in job.parameters.items() if name not in NO_RESULT
    ]
    if asked and asked != ["tier = 'best'"]:
        words = "the words and pictures of its text are those of the committed records; what it found is in the outputs"
        first = executed["cells"][0]
        remark = f"> **This copy ran with {', '.join(asked)}:** {words}."
        first["source"] = f"{remark}\n\n{first['source']}"
    text = nbformat.writes(nbformat.from_dict(executed)).replace("](../figures/", f"]({figures}/")
    text = re.sub(r"\]\(\.\./(?!\.\./)", f"]({root}/", text)
    write_atomically(folder / job.notebook.name, text.encode())


def install(executed: Json, notebook: Path) -> None:
    """Replace a committed notebook by its executed copy, without papermill's passing traces."""
    import nbformat

    content = nbformat.from_dict(executed)
    content.cells = [
        c for c in content.cells if "injected-parameters" not in c.metadata.get("tags", [])
    ]
    clean(content)
    write_atomically(notebook, f"{nbformat.writes(nbformat.from_dict(content))}\n".encode())


def clean(content: dict) -> None:
    """Remove from a notebook, in place, everything that depends on where and how it was executed.

    That is metadata, and views of widgets, which mean nothing without their kernel.
    """
    content["metadata"] = METADATA
    for cell in content["cells"]:
        cell["metadata"] = {
            name: value for name, value in cell["metadata"].items() if name in WRITTEN and value
        }
        folded = {key: True for tag, key in FOLDS if tag in cell["metadata"].get("tags", ())}
        if folded:
            cell["metadata"]["jupyter"] = folded
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)


# JupyterLab on working copies.


def refresh_copies(reset: Collection[Path] = ()) -> list[Path]:
    """Refresh the working copies in ``lab/``; return edited ones that were kept although their notebook changed.

    A copy with edited cells is kept, unless its notebook is in ``reset``; any other is replaced by its notebook. The
    user's own notebooks are linked. ``lab/.committed`` has the version that each copy was made from.
    """
    folder = paths.root() / "lab"
    (folder / ".committed").mkdir(parents=True, exist_ok=True)
    kept = []
    for notebook in notebook_paths():
        copy = folder / notebook.name
        base = folder / ".committed" / notebook.name
        if is_own(notebook):
            if not copy.exists():
                copy.symlink_to(Path("..", "notebooks", notebook.name))
            continue
        is_edited = copy.exists() and sources(copy) not in (sources(base) or [], sources(notebook))
        is_current = copy.exists() and base.exists() and base.read_bytes() == notebook.read_bytes()
        if notebook in reset or not (is_edited or is_current):
            shutil.copyfile(notebook, copy)
            shutil.copyfile(notebook, base)
        elif is_edited and sources(notebook) != sources(base):
            kept.append(copy)
    return kept


def sources(path: Path) -> list[tuple[str, str]] | None:
    """Return kind and source of a notebook's cells, without outputs; None for a file that is not a notebook."""
    try:
        return [(cell["cell_type"], cell["source"]) for cell in read_notebook(path)["cells"]]
    except ConfigError:
        return None


def before_saving(model: Json, path: str, **_: Any) -> None:
    """Keep JupyterLab from saving a committed notebook, and clean the metadata of a working copy before it is saved.

    JupyterLab would add the interpreter's version and its own view of the cells, which differ from machine to machine.
    Raises HTTPError, whose message JupyterLab shows, for a committed notebook.
    """
    from tornado.web import HTTPError

    folder, name = os.path.split(path.strip("/"))
    if (
        model["type"] == "notebook"
        and model["content"] is not None
        and folder in ("lab", "notebooks")
    ):
        if folder == "notebooks" and not is_own(Path(name)) and (paths.notebooks() / name).exists():
            raise HTTPError(
                403,
                f"notebooks/{name} is the committed one and stays as it is: your copy is lab/{name}",
            )
        clean(model["content"])


def open_lab(port: int | None, browser: bool, reset: Collection[Path]) -> None:
    """Make or refresh the working copies and replace this process by JupyterLab, which opens the overview.

    Its root folder is the project. Raises ConfigError if JupyterLab is not installed beside this Python.
    """
    program = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent))
    if program is None:
        raise ConfigError("jupyter-lab is not installed beside this Python; run ./run_all.sh --lab")
    kept = refresh_copies(reset)
    if kept:
        names = ", ".join(map(paths.relative, kept))
        anew = f"(./run_all.sh --lab --reset {','.join(map(number, kept))} makes them anew)"
        print(
            f"kept with your edits, though the committed ones have changed since: {names} {anew}",
            flush=True,
        )
    command = [
        program,
        f"--ServerApp.root_dir={paths.root()}",
        "--LabApp.default_url=/lab/tree/lab/00_overview.ipynb",
        "--ContentsManager.pre_save_hook=entp_lab.notebooks.before_saving",
    ]
    if port:
        command.append(f"--port={port}")
    if not browser:
        command.append("--no-browser")
    if os.geteuid() == 0:  # root may be a container's only user, and jupyter refuses it
        command.append("--allow-root")
    settings = [str(paths.root() / "tools" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    # these settings turn off JupyterLab's question about news
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, settings))
    os.chdir(paths.root())
    os.execv(program, command)
