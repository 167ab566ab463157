"""Execution of notebooks by papermill, each in a process of its own, and what becomes of the executed copies."""

import concurrent.futures as cf
import contextlib
import dataclasses
import multiprocessing
import multiprocessing.forkserver
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from entp_lab import paths, stopping
from entp_lab.configs import Config, Configs
from entp_lab.notebooks import (
    COMMON,
    OVERVIEW,
    clean,
    common,
    notebook_paths,
    number,
    read_notebook,
)
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lib.files import write_atomically
from entp_lib.validation import Json, require

NO_RESULT = ("jobs", "time_limit", "fresh")  # parameters that leave results as they are
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
            "--update runs notebooks as committed: leave out --tier, --fresh, --jobs, --time-limit and -p",
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
