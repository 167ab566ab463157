"""Who computes a run: this process, a pool of local ones, or any executor's worker."""

import concurrent.futures as cf
import contextlib
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

from entp_lib.config import config_from
from entp_lib.runs import stopping
from entp_lib.runs.deadlines import Deadline, local_deadline
from entp_lib.runs.execution import run
from entp_lib.runs.progress import Heartbeat
from entp_lib.runs.records import Store


def execute(
    config: dict,
    version: int,
    root: str,
    generation: str,
    device: str | None,
    threads: int,
    deadline: Deadline | None,
    beat: str,
) -> str:
    """One run in whatever process an executor chose; plain types in, the record's text out.

    Without ``device`` the worker's own machine decides. ``beat``: the file that tells the steps; "" for none.
    """
    with ends_with_parent():
        record = run(
            config_from(config),
            version,
            store=Store(root, read_only=False),  # whoever called has checked, and may be another process
            generation=generation,
            device=device,
            threads=threads,
            deadline=local_deadline(deadline),
            on_step=Heartbeat(Path(beat) if beat and Path(beat).parent.is_dir() else None),
        )
        return record.to_json()


@contextlib.contextmanager
def ends_with_parent() -> Iterator[None]:
    """In a worker process: a kill of the process that started it ends it, and leaves no half files.

    A SIGTERM ends it too, behind the step it is at and with a checkpoint.
    """
    if multiprocessing.parent_process() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    watch_parent()
    try:
        with stopping.handled():
            yield
    except stopping.Terminated:
        os._exit(128 + signal.SIGTERM)  # as an exception it would be taken for the run's result


@functools.cache  # a process computes many runs
def watch_parent() -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent() -> None:
    """End this worker when the process that started it is gone, so that a kill leaves no orphans computing."""
    multiprocessing.parent_process().join()
    os._exit(1)


class Worker(SpawnProcess):
    """A process that an interrupt does not reach, not even while it starts: whoever started it will end it.

    A terminal, and JupyterLab, send an interrupt to all processes of a group. A worker would end in the middle of a
    step with a traceback, where the SIGTERM that follows lets it leave a checkpoint.
    """

    def start(self) -> None:
        if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
            super().start()
            return
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a process inherits what is ignored
        try:
            super().start()
        finally:
            signal.signal(signal.SIGINT, before)


class Workers(SpawnContext):
    """Spawned processes: a forked copy of a process that has used threads or CUDA may hang."""

    Process = Worker


def local_processes(jobs: int) -> cf.ProcessPoolExecutor:
    """Worker processes, which end when they are told to and not by an interrupt."""
    return cf.ProcessPoolExecutor(jobs, mp_context=Workers())


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class InProcess(cf.Executor):
    """An executor that runs at once, in this process: for a single job, and for the GPU."""

    def submit(self, fn, /, *args, **kwargs) -> cf.Future:
        future = cf.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
