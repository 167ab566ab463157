"""Executing notebooks: papermill in this process with progress, or several side by side, each in its own."""

import base64
import concurrent.futures as cf
import contextlib
import dataclasses
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entp_lib import paths
from entp_lib.files import remove_stale, write_atomically
from entp_lib.records.progress import EVENTS_VARIABLE, read_events
from entp_lib.reports.lab import clean

KERNEL = "python3"
SHORT = "/tmp" if os.access("/tmp", os.W_OK) else None  # folder for sockets, whose paths the system limits
REPORT_SECONDS = 30.0  # between progress lines where the output is no terminal


@dataclass(frozen=True)
class Job:
    """One notebook to be executed: with which parameters, where its figures go, whether its copy replaces it."""

    notebook: Path
    parameters: dict[str, Any]
    figures: Path
    update: bool = False


@dataclass
class Result:
    """One notebook's line in the closing table. ``copy``: its executed copy, as the table shows it."""

    notebook: str
    status: str
    seconds: float
    reused: int = 0
    computed: int = 0
    figures: int = 0
    error: str = ""
    copy: str = ""


def execute(job: Job, quiet: bool = False, scratch: Path | None = None) -> Result:
    """Run one notebook to a copy below ``results/executed``; with ``update``, put the clean copy in its place.

    ``quiet``: without progress, for where several notebooks run at a time. ``scratch``: a folder on the same disk.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    began = time.monotonic()
    notebook, final = job.notebook, executed(job.notebook)
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(final.parent, ".run-*")
    with tempfile.TemporaryDirectory(dir=scratch or final.parent, prefix=".run-") as folder:
        copy, events = Path(folder) / notebook.name, Path(folder) / "events"
        result = Result(notebook.stem, "ok", 0.0, copy=paths.relative(final))
        with (
            tempfile.TemporaryDirectory(dir=SHORT, prefix="entp-") as sockets,
            kernel_environment(events, job.figures),
            contextlib.nullcontext() if quiet else Watcher(notebook.stem, events),
        ):
            try:
                # Kernels on sockets of the file system, in a folder of their own: no ports to race for, and no
                # warning about open ones.
                place = {"transport": "ipc", "ip": str(Path(sockets) / "kernel")}
                papermill.execute_notebook(
                    str(notebook),
                    str(copy),
                    job.parameters,
                    kernel_name=KERNEL,
                    progress_bar=False,
                    config=Config({"KernelManager": place}),
                    extra_arguments=["--log-level=CRITICAL"],  # a kernel that is ended need not tell the terminal
                )
            except PapermillExecutionError as error:
                partial = sum(e.get("partial", 0) for e in read_events(events) if e["event"] == "records")
                result.status, result.error = "failed", error_line(error.ename, error.evalue, error.traceback, partial)
            except Exception as error:  # a kernel that died, not a cell that failed: the next notebook still runs
                where = f": {paths.relative(copy)}" if isinstance(error, OSError) and not error.filename else ""
                result.status, result.error = "failed", f"{type(error).__name__}: {error}{where}"
            finally:
                if copy.exists():
                    os.replace(copy, final)
        for entry in read_events(events):
            if entry["event"] == "records":
                result.reused += entry["reused"]
                result.computed += entry["computed"]
            result.figures += entry["event"] == "figure"
    if job.update and result.computed and result.status == "ok":
        again = execute(job, quiet, scratch)  # committed is what the records give, without the traces of computing
        return dataclasses.replace(again, computed=result.computed, seconds=time.monotonic() - began)
    if job.update and result.status == "ok":
        install(final, notebook)
    if final.exists():
        link_figures(final)
        note_parameters(final, job.parameters)
    result.seconds = time.monotonic() - began
    return result


NO_RESULT = ("jobs", "time_limit", "fresh")  # parameters that leave results as they are


def link_figures(copy: Path) -> None:
    """Rewrite the links of an executed copy to the project's figures and files, which start from another folder."""
    text = copy.read_text(encoding="utf-8")
    figures, root = (os.path.relpath(p, copy.parent).replace(os.sep, "/") for p in (paths.figures(), paths.root()))
    linked = text.replace("](../figures/", f"]({figures}/")
    linked = re.sub(r"\]\(\.\./(?!\.\./)", f"]({root}/", linked)
    if linked != text:
        write_atomically(copy, linked.encode())


def note_parameters(copy: Path, parameters: Mapping[str, Any]) -> None:
    """Note on an executed copy's first screen that its words are those of other parameters, where any were given.

    With changes to the runs, text about the committed ones is folded: the answer, and the text below outputs.
    """
    given = {k: v for k, v in parameters.items() if k not in NO_RESULT and (k, v) != ("tier", "best")}
    if not given:
        return
    import nbformat

    notebook = nbformat.read(copy, as_version=4)
    first = next((cell for cell in notebook.cells if cell.cell_type == "markdown"), None)
    if first is not None:
        if parameters.get("changes"):
            fold_committed(notebook.cells)
        asked = ", ".join(f"{name} = {value!r}" for name, value in given.items())
        words = "the words and pictures of its text are those of the committed records; what it found is in the outputs"
        first.source = f"> **This copy ran with {asked}:** {words}.\n\n{first.source}"
        write_atomically(copy, nbformat.writes(notebook).encode())


SECTIONS = re.compile(r"(# .*?\n\n)?(.*?)(^## .*)?", re.MULTILINE | re.DOTALL)  # title, text, what has a heading
FOLDED = "<details><summary>Of the committed runs, not of yours</summary>\n\n{}\n\n</details>\n\n"


def fold_committed(cells: Sequence[Any]) -> None:
    """Fold, in an executed notebook, the first cell and the text between an output of changed runs and a heading."""
    from entp_lib.experiments.compare_with_committed import (
        YOURS,
    )  # torch comes with it, which the processes of notebooks do without

    below = True
    for cell in cells:
        if cell.cell_type == "code":
            below = any(YOURS in str(output.get("data")) for output in cell.outputs)
        elif below:
            title, text, rest = SECTIONS.fullmatch(cell.source).groups("")
            cell.source = title + FOLDED.format(text.strip()) * bool(text.strip()) + rest
            below = not rest


def executed(notebook: Path) -> Path:
    """Path of a notebook's executed copy."""
    return paths.results() / "executed" / notebook.name


def execute_side_by_side(jobs: Sequence[Job], at_a_time: int, threads: int) -> Iterator[tuple[Job, Result]]:
    """Run notebooks in processes of their own, several at a time, and give each job with its result when it is there.

    papermill cannot run two in one process: it hands the process's own environment to its kernels. The processes are
    a group apart, so that Ctrl-C reaches this one alone, which ends them; their kernels go with them. ``threads``: for
    each kernel.
    """
    place = executed(jobs[0].notebook).parent
    place.mkdir(parents=True, exist_ok=True)
    with (  # both go with what a process that is ended leaves in them
        tempfile.TemporaryDirectory(dir=place, prefix=".run-") as scratch,
        tempfile.TemporaryDirectory(dir=SHORT, prefix="entp-") as sockets,
    ):
        context = multiprocessing.get_context("spawn")
        pool = cf.ProcessPoolExecutor(at_a_time, context, leave_terminal, (threads, sockets))
        try:
            futures = {pool.submit(execute, job, True, Path(scratch)): job for job in jobs}
            for future in cf.as_completed(futures):
                name = futures[future].notebook.stem
                try:
                    yield futures[future], future.result()
                except cf.BrokenExecutor:
                    yield futures[future], Result(name, "failed", 0.0, error="its process was killed")
        except BaseException:
            for process in list(pool._processes.values()):
                process.kill()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def leave_terminal(threads: int, sockets: str) -> None:
    """Begin a process of ``execute_side_by_side``: few threads, and no signals from the terminal."""
    os.setpgrp()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    tempfile.tempdir = sockets
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    multiprocessing.parent_process().join()
    os._exit(1)


@contextlib.contextmanager
def kernel_environment(events: Path, figures: Path):
    """Set the kernel's environment: where to report and where figures go, and no progress bars in the outputs."""
    changes = {EVENTS_VARIABLE: str(events), paths.NEW_FIGURES_VARIABLE: str(figures)}
    changes |= {"TQDM_DISABLE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    # a backend of the user's would keep figures out of the notebook, and Python without asserts its checks
    left_out = ("MPLBACKEND", "PYTHONOPTIMIZE")
    before = {name: os.environ.get(name) for name in (*changes, *left_out)}
    os.environ.update(changes)
    for name in left_out:
        os.environ.pop(name, None)
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
                line += f", {sweep}: {latest['finished']} of {latest['runs']} runs, {done / total:.0%} of the work"
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
    """Replace a committed notebook by its executed copy, without papermill's and the kernel's passing traces.

    Its pictures lose the channel of transparency, of which they make no use and which takes a tenth of their bytes.
    """
    import nbformat

    from entp_lib.experiments.png_files import lean

    content = nbformat.read(executed, as_version=4)
    content.cells = [c for c in content.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    clean(content)
    for shown in (o.get("data", {}) for c in content.cells for o in c.get("outputs", [])):
        if "image/png" in shown:
            shown["image/png"] = base64.b64encode(lean(base64.b64decode(shown["image/png"]))).decode()
    write_atomically(notebook, f"{nbformat.writes(nbformat.from_dict(content))}\n".encode())


def duration(seconds: float | None) -> str:
    """A time in seconds, or above 90 in minutes, as text."""
    if seconds is None:
        return "unknown"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


ARROW = re.compile(r"^-+>\s*\d+\s(.*)$", re.MULTILINE)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def error_line(name: str, value: str, traceback: Sequence[str] = (), partial: int = 0) -> str:
    """An error as one line: its name and text, or the line of code that raised it where it has no text.

    ``traceback``: as Jupyter gives it, coloured. ``partial``: how many runs of the notebook a time limit cut short,
    which is why checks of whole tables fail.
    """
    lines = ARROW.findall(COLOURS.sub("", "\n".join(traceback)))
    text = value.strip() or (f"this does not hold: {lines[-1].strip()}" if lines else "without a word")
    if partial:
        text += f"; {partial} runs are partial, as the time limit cut them: the same command continues them"
    return f"{name}: {text}"
