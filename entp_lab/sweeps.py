"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

from entp_lab import progress, stopping
from entp_lab.configs import config_id
from entp_lab.provenance import available_cores
from entp_lab.runs import Config, check_can_compute, device_for, run
from entp_lab.store import CLUSTER_VARIABLE, Record, Store, is_complete
from entp_lib.files import remove_stale
from entp_lib.model import check_device
from entp_lib.validation import OneLine, require

POLL_SECONDS = 0.5
KILLED = "a worker process was killed, perhaps for lack of memory; what was saved before is kept"
log = logging.getLogger(__name__)


@dataclass
class Sweep:
    """Records of a sweep in the order of the configurations, and what failed."""

    records: list[Record] = field(default_factory=list)
    failures: list[tuple[Config, str]] = field(default_factory=list)
    reused: int = 0
    computed: int = 0
    tracebacks: list[str] = field(default_factory=list)  # of failures that are mistakes of code, each once

    @property
    def complete(self) -> list[Record]:
        """The records that ran to their end: the only ones a verdict may use."""
        return list(filter(is_complete, self.records))


class SweepError(OneLine, RuntimeError):
    """Some runs of a sweep failed; the others' records are safe. ``sweep`` holds what there is.

    ``report``: the message, behind the tracebacks of mistakes of code.
    """

    def __init__(self, sweep: Sweep):
        self.sweep = sweep
        total = sweep.reused + sweep.computed + len(sweep.failures)
        alike: dict[str, list[str]] = {}  # a missing corpus fails all runs in the same words
        for config, why in sweep.failures:
            alike.setdefault(why, []).append(f"{config.experiment} {config.label}")
        lines = [f"{len(sweep.failures)} of {total} runs failed:"]
        for why, names in alike.items():
            lines.append(f"  {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}")
        super().__init__("\n".join(lines))
        self.report = "\n".join([*sweep.tracebacks, str(self)])

    def _render_traceback_(self) -> list[str]:
        return [*self.sweep.tracebacks, *super()._render_traceback_()]


def sweep(
    configs: Sequence[Config],
    version: int,
    *,
    store: Store | None = None,
    fresh: bool = False,
    jobs: int = 0,
    time_limit: float = 0.0,
    device: str | None = None,
    label: str = "",
    cluster: str = "",
    executor: cf.Executor | None = None,
) -> Sweep:
    """Records of all ``configs``: those that exist are reused, the others computed, several at once.

    ``fresh``: compute the runs of the first one's experiment again, each record staying until its successor is
    complete. ``jobs`` = 0: as many processes as cores on a CPU, one on a GPU. ``time_limit``: seconds for all, 0 for
    none. ``device``: for all runs; None: by the run's tier. ``label``: the sweep's name in its progress. ``cluster``:
    where to compute instead (``entp_lab.cluster``; default: ENTP_CLUSTER), unless ``jobs`` is 1. ``executor``:
    any of ``concurrent.futures`` instead, whose workers see the same results.

    Raises SweepError at the end if runs failed, RecordError at once if the store is read-only and a record is missing,
    or if it cannot be written, and ConfigError for options that make no sense, or a tier without its GPU.
    """
    require(jobs >= 0, f"jobs = {jobs}: must be at least 0")
    require(0 <= time_limit < float("inf"), f"time_limit = {time_limit}: must be at least 0 and finite")
    store = store or Store()
    by_id = {config_id(config, version): config for config in configs}
    again = {i for i, c in by_id.items() if fresh and c.experiment == configs[0].experiment}
    found: dict[str, Record] = {}
    for i, config in by_id.items():
        record = None if i in again else store.find(config, version)
        if is_complete(record):
            if not store.read_only:  # a crash right after it was saved has left its checkpoint
                store.checkpoint_path(config.experiment, i).unlink(missing_ok=True)
            found[i] = record
    todo, reused = {i: config for i, config in by_id.items() if i not in found}, len(found)
    deadline, calls = time.time() + time_limit if time_limit else None, {}  # of ``execute``
    for place, (i, config) in enumerate(todo.items()):
        calls[i] = (config, version, str(store.root), place, deadline, dict(fresh=i in again, device=device))
    pool = Pool(todo, calls, device)
    if todo:
        check_can_compute(list(todo.values()), version, store)
        if device and not (executor or cluster):
            check_device(device)
        for i in again:  # from the beginning
            with store.lock(todo[i].experiment, i):
                store.checkpoint_path(todo[i].experiment, i).unlink(missing_ok=True)
        for experiment in {config.experiment for config in todo.values()}:
            for kind, name in (("records", ".*.json.*"), ("checkpoints", ".*.safetensors.*")):
                remove_stale(store.root / kind / experiment, name)
        remove_stale(store.root, ".*.csv.*")  # what killed processes left half written
        try:
            pool.compute(jobs, cluster, executor, label)
        except stopping.Terminated:
            raise
        except KeyboardInterrupt:
            raise stopping.Stopped(
                f"{reused + len(pool.found)} of {len(by_id)} runs are complete and kept; run it again, "
                "and the others go on from their last checkpoints"
            ) from None
    found |= pool.found
    records = [found[i] for i in by_id if i in found]
    result = Sweep(records, list(pool.failed.values()), reused, len(pool.found), list(pool.tracebacks.values()))
    progress.event("records", reused=reused, computed=result.computed)
    if result.failures:
        raise SweepError(result)
    return result


@dataclass
class Pool:
    """Runs of a sweep while this process, others, a cluster or an executor compute them.

    Each ends in ``found``, or in ``failed`` with its configuration and the reason, unless the sweep is stopped.
    ``calls``: arguments of ``execute``.
    """

    todo: Mapping[str, Config]
    calls: Mapping[str, tuple]
    device: str | None
    found: dict[str, Record] = field(default_factory=dict)
    failed: dict[str, tuple[Config, str]] = field(default_factory=dict)
    tracebacks: dict[str, str] = field(default_factory=dict)  # of mistakes of code, by reason

    def compute(self, jobs: int, where: str, executor: cf.Executor | None, label: str) -> None:
        """Run everything: on ``executor``, on a cluster, or here.

        Where a local process was killed the others go on in new ones, one fewer at a time, as memory may be short. A
        run that is alone when that happens has failed.
        """
        where = "" if jobs == 1 else where or os.environ.get(CLUSTER_VARIABLE, "")
        with contextlib.ExitStack() as stack:
            if executor is None and where:
                from entp_lab import cluster

                executor = stack.enter_context(cluster.connected(where))
            elif executor is None:
                devices = {self.device or device_for(c.tier) for c in self.todo.values()}  # one error, not one a run
                jobs = min(jobs or (available_cores() if devices == {"cpu"} else 1), len(self.todo))
            steps = [config.steps for config in self.todo.values()]
            self.meter = stack.enter_context(contextlib.closing(progress.Meter(steps, label)))
            if executor is not None:
                for i in self.watch(executor):
                    self.take(i, reason=KILLED)
            elif jobs == 1:
                for i in self.todo:
                    self.take(i, lambda i=i: execute(*self.calls[i]))
            while left := self.left():
                with local_processes(jobs, self.meter.board) as processes:
                    left = self.watch(processes)
                if left and jobs == 1:
                    self.take(left[0], reason=KILLED)
                elif left:
                    said = "a worker process was killed, perhaps for lack of memory; going on with %d at a time"
                    log.warning(said, jobs - 1)
                jobs = max(1, jobs - 1)

    def left(self) -> list[str]:
        """The runs that have not ended."""
        return [i for i in self.todo if i not in self.found and i not in self.failed]

    def watch(self, executor: cf.Executor) -> list[str]:
        """Have ``executor`` compute what is left; returns what it did not compute.

        A process that was killed takes the others of its pool along.
        """
        futures = {}
        try:
            for i in self.left():
                # An interrupt reaches all processes of a terminal, but not one that begins here, which inherits
                # what is blocked: the SIGTERM that follows ends it with a checkpoint and without a traceback.
                before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    futures[executor.submit(execute, *self.calls[i])] = i
                except cf.BrokenExecutor:
                    break
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
            while futures:
                done, _ = cf.wait(futures, timeout=POLL_SECONDS, return_when=cf.FIRST_COMPLETED)
                for future in done:  # a future holds its result: let go of it when that is taken
                    self.take(futures.pop(future), future.result)
                self.meter.update()
        finally:
            for future in futures:
                future.cancel()
        return self.left()

    def take(self, i: str, result: Callable[[], Record] | None = None, reason: str = "") -> None:
        """Take a run's record, or the ``reason`` of its failure; neither if a local process was killed."""
        try:
            if result is not None:
                self.found[i] = result()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            reason = f"{error.strerror or error}{where}; what was saved before is kept"
        except cf.BrokenExecutor:
            return
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            lost = type(error).__module__.startswith("distributed.")  # a worker or scheduler is gone
            if not (lost or isinstance(error, OneLine)):
                self.tracebacks[reason] = "".join(traceback.format_exception(error))
        if reason:
            self.failed[i] = (self.todo[i], reason)
        self.meter.update(ended=self.calls[i][3])


def execute(config: Config, version: int, root: str, place: int, deadline: float | None, how: dict[str, Any]) -> Record:
    """One run in whatever process or thread an executor chose.

    ``place``: of the run in its sweep, for its progress. ``deadline``: on ``time.time``. ``how``: options of ``run``;
    without a device the worker's own machine decides. SIGTERM ends a worker process behind the step it is at, with a
    checkpoint.
    """
    store = Store(root, read_only=False)  # the caller has checked, and may be another process
    on_step = functools.partial(progress.LISTENERS[0], place) if progress.LISTENERS else None
    worker = multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread()
    try:
        with stopping.handled() if worker else contextlib.nullcontext():
            return run(config, version, store=store, deadline=deadline, on_step=on_step, **how)
    except stopping.Terminated:
        if worker:
            os._exit(128 + signal.SIGTERM)  # as an exception it would be taken for the run's result
        raise


@contextlib.contextmanager
def local_processes(jobs: int, board: MutableSequence[int] = ()) -> Iterator[cf.ProcessPoolExecutor]:
    """Worker processes, which write the steps of their runs to ``board``; an error or interrupt here ends them.

    They are spawned: a forked copy of a process that has used threads or CUDA may hang.
    """
    context = multiprocessing.get_context("spawn")
    made = cf.ProcessPoolExecutor(jobs, mp_context=context, initializer=begin_worker, initargs=(board,))
    try:
        yield made
    except BaseException:
        for process in list((made._processes or {}).values()):  # records and checkpoints are written atomically
            process.terminate()
        raise
    finally:
        made.shutdown(wait=True, cancel_futures=True)


def begin_worker(board: MutableSequence[int]) -> None:
    """Have this process write its runs' steps to ``board``, and end with the one that started it, even by a kill."""

    def leave() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    progress.LISTENERS[:] = [board.__setitem__] if board else []
    threading.Thread(target=leave, daemon=True).start()
