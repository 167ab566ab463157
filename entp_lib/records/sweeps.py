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
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from entp_lib.config import config_id
from entp_lib.models.transformer import check_device
from entp_lib.records import cluster, progress, stopping
from entp_lib.records.execution import (
    Config,
    check_can_compute,
    device_for,
    finish_interrupted_save,
    local_deadline,
    progress_steps,
    run,
)
from entp_lib.records.store import Record, Store, is_complete
from entp_lib.validation import OneLine, check_intervals, check_types

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

    @property
    def complete(self) -> list[Record]:
        """The records that ran to their end: the only ones a verdict may use."""
        return [r for r in self.records if is_complete(r)]


class SweepError(OneLine, RuntimeError):
    """Some runs of a sweep failed; the others' records are safe. ``sweep`` holds what there is."""

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


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep goes about its runs; nothing here decides what they find.

    ``jobs`` = 0: as many processes as cores on a CPU, one on a GPU. ``time_limit``: seconds for the whole sweep, 0 for
    none. ``device``: one for all runs; None lets each worker choose by the run's tier. ``fresh``: compute the runs of
    the first one's experiment again from the beginning, each record staying until its successor is complete; what they
    are only compared with stays. ``label`` names the sweep where its progress is shown. ``cluster``: where runs are
    computed instead of here (``entp_lib.records.cluster``; default: what ENTP_CLUSTER says), unless ``jobs`` is 1;
    ``mixed``: its workers may have other versions.
    """

    fresh: bool = False
    jobs: int = 0
    time_limit: float = 0.0
    device: str | None = None
    threads: int = 1
    label: str = ""
    cluster: str = ""
    mixed: bool = False

    def __post_init__(self):
        check_types(self)
        check_intervals(self, {"jobs": "[0, inf)", "time_limit": "[0, inf)", "threads": "[1, inf)"})
        if self.cluster:
            cluster.parsed(self.cluster)


def sweep(
    configs: Sequence[Config],
    version: int,
    *,
    store: Store | None = None,
    executor: cf.Executor | None = None,
    **options,
) -> Sweep:
    """Records of all ``configs``: those that exist are reused, the others computed, several at once.

    ``options``: those of ``SweepOptions``. ``executor``: any ``concurrent.futures`` executor in place of local
    processes, Dask's too; a worker that leaves its records elsewhere is no matter, they are saved here.

    Raises SweepError at the end if runs failed, RecordError at once if the store is read-only and a record is missing,
    or if it cannot be written, and ConfigError for options that make no sense, or if the tier needs a GPU and there
    is none.
    """
    store, options = store or Store(), SweepOptions(**options)
    by_id = {config_id(config, version): config for config in configs}
    again = {i for i, c in by_id.items() if options.fresh and c.experiment == configs[0].experiment}
    known = {i: store.find(config, version) for i, config in by_id.items() if i not in again}
    found: dict[str, Record] = {i: record for i, record in known.items() if is_complete(record)}
    for record in found.values():
        finish_interrupted_save(store, record)
    todo, result = {i: config for i, config in by_id.items() if i not in found}, Sweep(reused=len(found))
    if todo:
        check_can_compute(list(todo.values()), version, store)
        if options.device and executor is None and not options.cluster:
            check_device(options.device)
        for i in again:  # from the beginning
            with store.lock(todo[i].experiment, i):
                store.checkpoint_path(todo[i].experiment, i).unlink(missing_ok=True)
        pool = Pool(todo, version, store, options, again)
        try:
            pool.compute(executor)
        except stopping.Terminated:
            raise
        except KeyboardInterrupt:
            raise stopping.Stopped(
                f"{len(found) + len(pool.found)} of {len(by_id)} runs are complete and kept; run it again, "
                "and the others go on from their last checkpoints"
            ) from None
        result.computed, result.failures = len(pool.found), list(pool.failed.values())
        found |= pool.found
    result.records = [found[i] for i in by_id if i in found]
    partial = len(result.records) - len(result.complete)
    counts = dict(reused=result.reused, computed=result.computed, failed=len(result.failures), partial=partial)
    progress.event("records", **counts)
    if result.failures:
        raise SweepError(result)
    return result


class Pool:
    """Runs of a sweep while processes, a cluster or an executor compute them.

    Each ends in ``found``, or in ``failed`` with its configuration and the reason, unless the sweep is stopped.
    """

    def __init__(
        self, todo: Mapping[str, Config], version: int, store: Store, options: SweepOptions, again: set[str]
    ) -> None:
        self.todo, self.version, self.store, self.options, self.again = todo, version, store, options, again
        self.places = {i: place for place, i in enumerate(todo)}
        self.found: dict[str, Record] = {}
        self.failed: dict[str, tuple[Config, str]] = {}
        limit = options.time_limit
        self.deadline = time.time() + limit if limit else None  # on the wall, which other machines have too

    def compute(self, executor: cf.Executor | None) -> None:
        """Run everything: on ``executor``, on the cluster that the options name, or here.

        Where a local process was killed the others go on in new ones, one fewer at a time, as memory may be short. A
        run that is alone when that happens has failed.
        """
        options, jobs = self.options, 0
        where = "" if options.jobs == 1 else options.cluster or os.environ.get(cluster.VARIABLE, "")
        with contextlib.ExitStack() as stack:
            if executor is None and where:
                executor = stack.enter_context(cluster.connected(where, options.mixed))
            elif executor is None:
                devices = {options.device or device_for(c.tier) for c in self.todo.values()}  # one error, not one a run
                jobs = min(options.jobs or (available_cores() if devices == {"cpu"} else 1), len(self.todo))
                executor = InProcess() if jobs == 1 else None
            for experiment in {config.experiment for config in self.todo.values()}:
                self.store.remove_leftovers(experiment)
            steps = [progress_steps(config) for config in self.todo.values()]
            self.meter = stack.enter_context(progress.Meter(steps, options.label))
            if executor is not None:
                for i in self.watch(executor):
                    self.fail(i, "the time limit passed, and the cluster has no worker")
                return
            waiting = list(self.todo)
            while waiting:
                with local_processes(jobs, self.meter.board) as processes:
                    waiting = self.watch(processes, waiting)
                if waiting and jobs == 1:
                    self.fail(waiting.pop(0), KILLED)
                elif waiting:
                    said = "a worker process was killed, perhaps for lack of memory; going on with %d at a time"
                    log.warning(said, jobs - 1)
                jobs = max(1, jobs - 1)

    def watch(self, executor: cf.Executor, local: Sequence[str] = ()) -> list[str]:
        """Have ``executor`` compute what is to do, as many runs at a time as it has room for; what it did not compute.

        ``local``: the runs to compute in processes of this machine. One that was killed takes the others along, which
        are no failures yet.
        """
        waiting, futures, lost = list(local or self.todo), {}, set()
        try:
            while futures or (waiting and not lost):
                room = executor.room() if hasattr(executor, "room") else len(self.todo)
                while waiting and not lost and len(futures) < room:
                    try:
                        futures[executor.submit(execute, *self.arguments(waiting[0]))] = waiting[0]
                        waiting.pop(0)
                    except cf.BrokenExecutor:
                        if not local:
                            raise
                        lost.add(waiting[0])
                if not futures and not lost:  # a cluster whose workers are yet to come
                    time.sleep(POLL_SECONDS)
                done, _ = cf.wait(futures, timeout=POLL_SECONDS, return_when=cf.FIRST_COMPLETED)
                for future in done:  # a future holds its result: let go of it when that is taken
                    i = futures.pop(future)
                    if local and isinstance(future.exception(), cf.BrokenExecutor):
                        lost.add(i)
                    else:
                        self.take(i, future)
                self.meter.update()
                if room == 0 and self.deadline is not None and time.time() >= self.deadline:
                    break  # the time is over, and nobody is there to end the runs
        finally:
            for future in futures:
                future.cancel()
        return [i for i in self.todo if i not in self.found and i not in self.failed]

    def arguments(self, i: str) -> tuple:
        """The arguments of ``execute`` for a run."""
        config, options = self.todo[i], self.options
        how = dict(fresh=i in self.again, device=options.device, threads=options.threads)
        return config, self.version, str(self.store.place(config.experiment, i)), self.places[i], self.deadline, how

    def take(self, i: str, future: cf.Future) -> None:
        """Take one finished run's record, saved here if the worker's store is another, or its failure in words."""
        try:
            record = future.result()
            if not isinstance(record, Record):
                record = cluster.received(self.store, *record)
            here = self.store.find(self.todo[i], self.version)
            if here != record and (i in self.again or not is_complete(here)):
                self.store.save(record)
            self.found[i] = record
            self.meter.end(self.places[i])
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            self.fail(i, f"{error.strerror or error}{where}; what was saved before is kept")
        except cf.BrokenExecutor:
            self.fail(i, KILLED)
        except Exception as error:
            log.debug("run %s failed", i, exc_info=True)
            self.fail(i, cluster.lost_because(error) or f"{type(error).__name__}: {error}")

    def fail(self, i: str, why: str) -> None:
        self.failed[i] = (self.todo[i], why)
        self.meter.end(self.places[i])


def execute(config: Config, version: int, root: str, place: int, deadline: float | None, how: dict[str, Any]) -> Record:
    """One run in whatever process or thread an executor chose.

    ``place``: of the run in its sweep, for its progress. ``deadline``: on ``time.time``. ``how``: options of ``run``;
    without a device the worker's own machine decides. A worker process ends with the one that started it; SIGTERM ends
    it behind the step it is at, with a checkpoint.
    """
    worker = multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread()
    if worker:
        watch_parent()
    store = Store(root, read_only=False)  # the caller has checked, and may be another process
    options = dict(store=store, deadline=local_deadline(deadline), on_step=functools.partial(progress.tell, place))
    try:
        with stopping.handled() if worker else contextlib.nullcontext():
            return run(config, version, **options, **how)
    except stopping.Terminated:
        if worker:
            os._exit(128 + signal.SIGTERM)  # as an exception it would be taken for the run's result
        raise


@functools.cache  # a process computes many runs
def watch_parent() -> None:
    """End this worker when the process that started it is gone, so that a kill leaves no orphans computing."""

    def leave() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


class Worker(SpawnProcess):
    """A process that an interrupt does not reach, not even while it starts: the one that started it will end it.

    A terminal, and JupyterLab, send an interrupt to all processes of a group. A worker would end in the middle of a
    step with a traceback, where the SIGTERM that follows lets it leave a checkpoint.
    """

    def start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process inherits what is blocked
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers(SpawnContext):
    """Spawned processes: a forked copy of a process that has used threads or CUDA may hang."""

    Process = Worker


@contextlib.contextmanager
def local_processes(jobs: int, board: MutableSequence[int] = ()) -> Iterator[cf.ProcessPoolExecutor]:
    """Worker processes, which write the steps of their runs to ``board``; an error or interrupt here ends them."""
    made = cf.ProcessPoolExecutor(jobs, mp_context=Workers(), initializer=listen, initargs=(board,))
    try:
        yield made
    except BaseException:
        for process in list((made._processes or {}).values()):  # records and checkpoints are written atomically
            process.terminate()
        raise
    finally:
        made.shutdown(wait=True, cancel_futures=True)


def listen(board: MutableSequence[int]) -> None:
    """Write the steps of this process's runs to ``board``: what a worker process does when it begins."""
    progress.LISTENERS[:] = [board.__setitem__] if board else []


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class InProcess(cf.Executor):
    """An executor that runs at once, in this process: for a single job, and for the GPU."""

    def room(self) -> int:
        return 1

    def submit(self, fn, /, *args, **kwargs) -> cf.Future:
        future = cf.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
