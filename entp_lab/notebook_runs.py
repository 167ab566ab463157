"""Executing notebooks by papermill, one with its progress or several side by side, each in a kernel of its own."""

import concurrent.futures as cf
import contextlib
import dataclasses
import logging
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

from tqdm import tqdm

from entp_lab import paths
from entp_lab.notebooks import COMMON, clean
from entp_lab.progress import EVENTS_VARIABLE, LOGGED_SECONDS, read_events
from entp_lab.runs import Config
from entp_lib.files import remove_stale, write_atomically

SHORT = "/tmp" if os.access("/tmp", os.W_OK) else None  # folder for sockets, whose paths the system limits
RUNNING: list[Any] = []  # managers of the kernels that were started
NO_RESULT = ("jobs", "time_limit", "fresh")  # parameters that leave results as they are


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
    def settled(self) -> bool:
        """Whether it certainly computes none: one with a parameter of its own may ask for others than are planned."""
        return not (self.todo or self.parameters.keys() - COMMON)


@dataclass
class Result:
    """One notebook's line in the closing table. ``copy``: its executed copy, as the table shows it.

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


def execute(job: Job, quiet: bool = False, **environment: str) -> Result:
    """Run one notebook, ``quiet`` or with progress, to a copy; ``environment``: the kernel's, beside this process's."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    began, notebook, final = time.monotonic(), job.notebook, paths.results() / "executed" / job.notebook.name
    final.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(final.parent, ".run-*")
    with (
        tempfile.TemporaryDirectory(dir=final.parent, prefix=".run-") as folder,
        tempfile.TemporaryDirectory(dir=SHORT, prefix="entp-") as sockets,
    ):
        copy, events = Path(folder) / notebook.name, Path(folder) / "events"
        result = Result(notebook.stem, "ok", 0.0, copy=paths.relative(final))
        told = {EVENTS_VARIABLE: str(events), paths.NEW_FIGURES_VARIABLE: str(job.figures)}
        options = kernel_options(environment | told, Path(sockets))
        with contextlib.nullcontext() if quiet else watched(notebook.stem, events):
            try:
                papermill.execute_notebook(str(notebook), str(copy), job.parameters, **options)
            except PapermillExecutionError as error:
                result.status, result.error = "failed", error_line(error.ename, error.evalue, error.traceback)
                if len(error.traceback) > 1:
                    result.traceback = "\n".join(error.traceback)
            except Exception as error:  # a kernel that died, not a cell that failed: the next notebook still runs
                where = f": {paths.relative(final)}" if isinstance(error, OSError) and not error.filename else ""
                result.status, result.error = "failed", f"{type(error).__name__}: {error}{where}"
            finally:
                if copy.exists():
                    os.replace(copy, final)
        for entry in read_events(events):
            result.reused += entry.get("reused", 0)
            result.computed += entry.get("computed", 0)
            result.figures += entry["event"] == "figure"
    if job.update and result.computed and result.status == "ok":
        again = execute(job, quiet, **environment)  # committed is what records give, without the traces of computing
        return dataclasses.replace(again, computed=result.computed, seconds=time.monotonic() - began)
    if job.update and result.status == "ok":
        install(final, notebook)
    if final.exists():
        finish_copy(final, job.parameters)
    result.seconds = time.monotonic() - began
    return result


def kernel_options(environment: Mapping[str, str], sockets: Path) -> dict[str, Any]:
    """Options of papermill for a kernel with these variables beside this process's own, without progress bars.

    Its sockets are of the file system, in a folder of their own: no ports to race for, and no warning about open ones.
    """
    from jupyter_client import AsyncKernelManager
    from traitlets.config import Config

    # a backend of the user's would keep figures out of the notebook, and Python without asserts its checks
    own = {name: value for name, value in os.environ.items() if name not in ("MPLBACKEND", "PYTHONOPTIMIZE")}
    own |= {**environment, "TQDM_DISABLE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    class Kernel(AsyncKernelManager):
        async def start_kernel(self, **options):
            await super().start_kernel(env=own, **options)
            RUNNING.append(self)

    place = {"transport": "ipc", "ip": str(sockets / "kernel")}
    quiet = ["--log-level=CRITICAL"]  # a kernel that is ended need not tell the terminal
    started = {"kernel_manager_class": Kernel, "config": Config({"KernelManager": place}), "extra_arguments": quiet}
    return started | {"kernel_name": "python3", "progress_bar": False}


def execute_side_by_side(jobs: Sequence[Job], at_a_time: int, threads: int) -> Iterator[tuple[Job, Result]]:
    """Each job with its result when it is there; ``threads``: for each kernel. An interrupt ends the kernels."""
    from entp_lab.forked import forked_kernels

    limit = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    fork = at_a_time > 1 and sys.platform == "linux"  # elsewhere libraries of the system may not survive it
    with cf.ThreadPoolExecutor(at_a_time) as pool, forked_kernels(limit) if fork else contextlib.nullcontext():
        futures = {pool.submit(execute, job, True, **limit): job for job in jobs}
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


@contextlib.contextmanager
def watched(name: str, events: Path) -> Iterator[None]:
    """Show the steps of a notebook's latest sweep as a bar on stderr; where that is no terminal, as a line a minute."""
    ended, look = threading.Event(), "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    options = dict(bar_format=look, leave=False)
    if not sys.stderr.isatty():
        options |= dict(bar_format=look + "\n", mininterval=LOGGED_SECONDS, miniters=1)

    def watch() -> None:
        bar, shown = None, None
        while not ended.wait(1.0):
            for latest in [e for e in read_events(events) if e["event"] == "progress"][-1:]:
                if (latest["label"], latest["total"]) != shown:
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


def install(executed: Path, notebook: Path) -> None:
    """Replace a committed notebook by its executed copy, without papermill's and the kernel's passing traces."""
    import nbformat

    content = nbformat.read(executed, as_version=4)
    content.cells = [c for c in content.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    clean(content)
    write_atomically(notebook, f"{nbformat.writes(nbformat.from_dict(content))}\n".encode())


def duration(seconds: float | None) -> str:
    """A time in seconds, or above 90 in minutes, as text."""
    if seconds is None:
        return "unknown"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def error_line(name: str, value: str, traceback: Sequence[str]) -> str:
    """An error as one line: name and text, or where it has no text the line of code, of a coloured traceback."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(traceback))
    lines = re.findall(r"^-+>\s*\d+\s(.*)$", plain, re.MULTILINE)
    return f"{name}: {value.strip() or (f'this does not hold: {lines[-1].strip()}' if lines else 'without a word')}"
