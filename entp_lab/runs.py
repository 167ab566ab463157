"""From configurations to records: existing ones are reused, the others are computed, several at once.

``sweep`` takes many configurations and ``run`` one. A training run is computed by ``resume.train_run``, a study by its
function; both continue from a checkpoint after an interruption. A failed run never loses the others.
"""

import concurrent.futures as cf
import contextlib
import functools
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import torch

from entp_lab import progress, ranks, stopping
from entp_lab.cluster import connected
from entp_lab.configs import (
    ON_CPU,
    Config,
    Configs,
    RunConfig,
    StudyConfig,
    canonical_json,
    record_name,
    to_dict,
)
from entp_lab.provenance import available_cores, peak_memory, prepare_memory, provenance
from entp_lab.registry import STUDIES, task_class
from entp_lab.resume import CURRENT, Checkpoint, OnStep, train_run
from entp_lab.stopping import Cut
from entp_lab.store import CLUSTER_VARIABLE, Record, RecordError, Records, Store
from entp_lab.weights import save_weights, weights_of
from entp_lib import kernels
from entp_lib.files import remove_stale
from entp_lib.validation import Json, OneLine, require

POLL_SECONDS = 0.5
DEADLINE_VARIABLE = "ENTP_DEADLINE"  # when all sweeps of a command end, as ``time.time`` counts
log = logging.getLogger(__name__)


def run(
    config: Config,
    version: int,
    *,
    store: Store,
    fresh: bool = False,
    threads: int = 1,
    deadline: float | None = None,
    on_step: OnStep = lambda step, last: None,
    stop: Callable[[], bool] = lambda: False,
) -> Record:
    """Return the stored record of ``config``; if there is none, compute it.

    ``fresh``: compute it anyway, from its checkpoint, which ``sweep`` removes first; the stored record stays until the
    new one is complete. There is one thread, so that results do not depend on the number of cores. A run that is cut by
    ``deadline`` (a time of ``time.time``), by ``stop`` (called between steps) or by SIGTERM leaves its checkpoint and
    raises Cut; the next call continues. A damaged checkpoint is set aside with a warning. Under ``torchrun`` the ranks
    compute it together.
    """
    name = record_name(config, version)
    with store.lock(name):
        found = None if fresh else store.find(config, version)
        if found:  # a crash after saving the record leaves the checkpoint
            store.remove_checkpoint(name)
        if found:
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        study_device = config.params.get("device", "cpu") if isinstance(config, StudyConfig) else ""
        device = study_device or device_for(config.tier)
        checkpoint = Checkpoint(
            store.checkpoint_path(name),
            canonical_json(to_dict(config)),
            provenance(device, threads, modules_of(config)),
            store.set_aside,
            deadline,
            stop,
            on_step,
        )
        prepare_memory(device)
        token = CURRENT.set(checkpoint)
        try:
            with computing_threads(threads), checkpoint.deferred:
                record = compute(config, version, store, checkpoint, device)
                store.save(record)
        finally:
            CURRENT.reset(token)
        store.remove_checkpoint(name)
    return record


@contextlib.contextmanager
def computing_threads(count: int) -> Iterator[None]:
    """Let torch compute on ``count`` threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute(
    config: Config, version: int, store: Store, checkpoint: Checkpoint, device: str
) -> Record:
    """Compute ``config``, up to the end or a cut, and return its record in the form that is stored.

    A training run is shared with the other ranks, if there are any.
    """
    where = checkpoint.process
    if isinstance(config, StudyConfig):
        metrics, curves = study(config, store, checkpoint)
        costs = checkpoint.times()
    else:
        if config.train.precision == "bf16" and device == "cpu":
            where["kernels"] = kernels.kernel_names()
        team = ranks.joined()
        if team:
            where["ranks"] = team.size
        with team.together(device) if team else contextlib.nullcontext():
            outcome = train_run(config, store=store, device=device, ranks=team)
        metrics = outcome.metrics
        curves = outcome.state.curves
        costs = {**outcome.costs, **checkpoint.times(), "train_seconds": outcome.state.seconds}
    where = {
        **where,
        **costs,
        "peak_memory_bytes": peak_memory(device),
        "load_at_end": round(os.getloadavg()[0], 2),
    }
    if checkpoint.processes:
        where["steps"] = checkpoint.state.step
    if len(checkpoint.processes) > 1:
        where["earlier_processes"] = checkpoint.processes[:-1]
        where["from_step"] = checkpoint.processes[-1]["from_step"]
    if device.startswith("cuda"):
        del where["cpu_seconds"]  # means nothing for a run that waits for a GPU
    record = Record(config.experiment, version, config, metrics, curves, where)
    # saved before the record, which must never lack its weights
    if isinstance(config, RunConfig):
        save_weights(store.weights_path(record.name), config, outcome.model, record.name)
    # in the stored form, so that new and reused records are equal
    return Record.from_json(record.to_json())


def study(
    config: StudyConfig, store: Store, checkpoint: Checkpoint
) -> tuple[Json, dict[str, list]]:
    """Call a study's function and return its metrics and curves; Cut if the deadline has passed already.

    A study of a trained model has the name of its run as the parameter ``weights``, and is given their file.
    """
    if checkpoint.deadline is not None and time.time() >= checkpoint.deadline:
        raise Cut(0)
    params = dict(config.params)
    if "weights" in params:
        params["weights"] = weights_of(store, params["weights"], config.tier)
    metrics, curves = STUDIES.named(config.study)(**params)
    for name, value in {**metrics, **curves}.items():
        if has_nan(value):  # in a record it would be None, which the largest error passes over
            raise ArithmeticError(f"{config.study}: {name} has a value that is not a number")
    return metrics, curves


def has_nan(value: Any) -> bool:
    """Tell whether a number in lists or dictionaries is NaN."""
    if isinstance(value, dict):
        return any(map(has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def modules_of(config: Config) -> tuple[str, ...]:
    """Return the modules that computing ``config`` begins with."""
    if isinstance(config, StudyConfig):
        return (STUDIES.places.get(config.study, "").partition(":")[0],)
    return "entp_lab.resume", task_class(config.task).__module__


def check_can_compute(todo: Configs, version: int, store: Store) -> None:
    """Raise RecordError, before anything is computed, if the store is read-only or cannot be written."""
    if store.read_only:
        names = [record_name(config, version) for config in todo]
        more = f" and {len(todo) - 3} more" if len(todo) > 3 else ""
        raise RecordError(
            f"missing: record {', '.join(names[:3])}{more} (tier {todo[0].tier}, below {store.root}); "
            "the store is read-only, so nothing is computed. Run ./run_all.sh to make it."
        )
    store.check_writable()


def device_for(tier: str) -> str:
    """Return ``cpu`` up to overnight, so that records are comparable; ``cuda`` for gpu; for paper what there is."""
    gpu = tier not in ON_CPU and torch.cuda.is_available()
    require(
        gpu or tier != "gpu",
        "tier gpu needs a CUDA GPU and torch sees none; use --tier quick, or run it on a machine that has one",
    )
    return "cuda" if gpu else "cpu"


@dataclass
class Sweep:
    """Records of the complete runs of a sweep, in order; which runs were cut, at what step; and what failed."""

    complete: Records = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)  # by the name of the record
    failures: list[tuple[Config, str]] = field(default_factory=list)
    reused: int = 0
    # of failures that are programming errors, by reason
    tracebacks: dict[str, str] = field(default_factory=dict)

    def add_failure(self, config: Config, error: BaseException) -> None:
        """Note why a run failed: in one line, and with the traceback of a programming error."""
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError | cf.BrokenExecutor):
            reason += "; what was saved before is kept"
        elif not isinstance(error, OneLine) and not type(error).__module__.startswith(
            "distributed."
        ):
            self.tracebacks[reason] = "".join(traceback.format_exception(error))
        self.failures.append((config, reason))


class SweepError(OneLine, RuntimeError):
    """Some runs of a sweep failed; the records of the others are stored. ``sweep`` holds what there is.

    ``report``: the tracebacks of programming errors, then the message.
    """

    def __init__(self, sweep: Sweep):
        self.sweep = sweep
        names: dict[str, list[str]] = {}  # a missing corpus fails all runs with the same message
        for config, reason in sweep.failures:
            names.setdefault(reason, []).append(f"{config.experiment} {config.label}")
        total = len(sweep.complete) + len(sweep.cut) + len(sweep.failures)
        lines = [f"{len(sweep.failures)} of {total} runs failed:"]
        for reason, (first, *others) in names.items():
            more = f" and {len(others)} more" if others else ""
            lines.append(f"  {first}{more}: {reason}")
        super().__init__("\n".join(lines))
        self.report = "\n".join([*sweep.tracebacks.values(), str(self)])

    def _render_traceback_(self) -> list[str]:
        return [*self.sweep.tracebacks.values(), *super()._render_traceback_()]


def sweep(
    configs: Configs,
    version: int,
    *,
    store: Store,
    fresh: bool = False,
    jobs: int = 0,
    time_limit: float = 0.0,
    label: str = "",
    cluster: str = "",
    executor: cf.Executor | None = None,
) -> Sweep:
    """Return the records of all ``configs``: those that exist are reused, the others computed, several at once.

    ``fresh``: compute again all runs of the first one's experiment; each record stays until the new one is complete.
    ``jobs``: 0 for as many processes as cores on a CPU, or one on a GPU. ``time_limit``: seconds for all, 0 for none.
    ``label``: the sweep's name in its progress bar. ``cluster``: where to compute instead (``entp_lab.cluster``;
    default: ENTP_CLUSTER), unless ``jobs`` is 1. ``executor``: any of ``concurrent.futures`` to use instead; its
    workers must see the same results.

    Raises SweepError at the end if runs failed, RecordError at once if the store is read-only and a record is missing,
    or if it cannot be written, and ConfigError for a tier without its GPU.
    """
    planned = {record_name(config, version): config for config in configs}
    anew = {name for name, c in planned.items() if fresh and c.experiment == configs[0].experiment}
    found = {
        name: record
        for name, config in planned.items()
        if name not in anew and (record := store.find(config, version))
    }
    for name in (*found, *anew):  # left by a crash after saving, or by an earlier run
        store.remove_checkpoint(name)
    options = {"store": store, "deadline": deadline_of(time_limit)}
    left = [name for name in planned if name not in found]
    calls: dict[str, tuple] = {
        name: (planned[name], version, place, options | {"fresh": name in anew})
        for place, name in enumerate(left)
    }
    result = Sweep(reused=len(found))
    if calls:
        todo = [planned[name] for name in calls]
        check_can_compute(todo, version, store)
        for pattern in ("records/*/.*.json.*", "checkpoints/*/.*.safetensors.*", ".*.csv.*"):
            remove_stale(store.root, pattern)  # files that killed processes left half written
        try:
            with contextlib.ExitStack() as stack:
                meter = stack.enter_context(contextlib.closing(progress.Meter(len(todo), label)))
                address = "" if jobs == 1 else cluster or os.environ.get(CLUSTER_VARIABLE, "")
                executor = executor or stack.enter_context(connected(address))
                at_a_time = len(todo) if executor else min(jobs_for(c.tier, jobs) for c in todo)
                for name, outcome in outcomes(calls, min(len(todo), at_a_time), executor, meter):
                    try:
                        found[name] = outcome()
                    except Cut as cut:
                        result.cut[name] = cut.step
                    except Exception as error:
                        result.add_failure(planned[name], error)
                    meter.update(ended=left.index(name))
        except stopping.Terminated:
            raise
        except KeyboardInterrupt:
            raise stopping.Stopped(
                f"{len(found)} of {len(planned)} runs are complete and kept; run it again, "
                "and the others go on from their last checkpoints"
            ) from None
    result.complete = [found[name] for name in planned if name in found]
    if result.failures:
        raise SweepError(result)
    return result


def deadline_of(time_limit: float) -> float | None:
    """Return when a sweep ends: after ``time_limit`` seconds, or earlier with its command; None for never."""
    ends = [time.time() + time_limit] if time_limit else []
    if DEADLINE_VARIABLE in os.environ:
        ends.append(float(os.environ[DEADLINE_VARIABLE]))
    return min(ends, default=None)


def jobs_for(tier: str, jobs: int) -> int:
    """Return how many runs of a tier are computed at a time: ``jobs``, or for 0 one per core (one on a GPU)."""
    device = device_for(tier)  # raises one error, not one per run
    return jobs or (available_cores() if device == "cpu" else 1)


def outcomes(
    calls: Mapping[str, tuple], jobs: int, executor: cf.Executor | None, meter: progress.Meter
) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Make the ``calls`` of ``execute``; yield with each a function that returns its record, or raises its error.

    They are computed by ``executor``, else by ``jobs`` processes, or for one job by this process. If a process is
    killed, the others end after their step, and the remaining runs continue with one process fewer, since memory may be
    short. A run that is killed while it is the only one has failed.
    """
    if executor is None and jobs == 1:
        yield from ((i, functools.partial(execute, *call)) for i, call in calls.items())
        return
    left = dict(calls)
    while left:
        broken = None
        with (
            contextlib.nullcontext(executor)
            if executor
            else worker_processes(jobs, meter.shares) as workers
        ):
            running = {workers.submit(execute, *call): i for i, call in left.items()}
            try:
                while running:
                    done, _ = cf.wait(running, POLL_SECONDS, cf.FIRST_COMPLETED)
                    for future in done:
                        i = running.pop(future)
                        if executor is None and isinstance(future.exception(), BrokenProcessPool):
                            broken = future
                        else:
                            del left[i]
                            yield i, future.result
                    meter.update()
            finally:
                for future in running:
                    future.cancel()
        if broken and jobs == 1:
            i = next(iter(left))  # a single process takes runs in order
            del left[i]
            yield i, broken.result
        elif broken:
            jobs -= 1
            log.warning(
                "a worker process was killed, perhaps for lack of memory; going on with %d at a time",
                jobs,
            )


def execute(
    config: Config,
    version: int,
    place: int,
    options: dict,
    stop: Callable[[], bool] = lambda: False,
) -> Record:
    """Compute one run of a sweep, the one at ``place``, in whatever process or thread an executor chose.

    ``options``: those of ``run``. SIGTERM ends a worker process after its current step, with a checkpoint.
    """
    root = options["store"].root
    require(root.is_dir(), f"this worker does not see {root}: all need the results on one disk")

    def on_step(step: int, last: int) -> None:
        for note_share in progress.ON_STEP:
            note_share(place, step / last)

    in_main = threading.current_thread() is threading.main_thread()
    in_worker = in_main and multiprocessing.parent_process()
    try:
        with stopping.handled() if in_worker else contextlib.nullcontext():
            return run(config, version, on_step=on_step, stop=stop, **options)
    except stopping.Terminated:
        if in_worker:
            os._exit(128 + signal.SIGTERM)  # as an exception it would be taken for the run's result
        raise


class WorkerProcesses(cf.ProcessPoolExecutor):
    """Processes that are spawned, since a fork of a process that has used threads or CUDA may hang.

    They inherit a blocked SIGINT, so that an interrupt of the terminal does not reach them; the SIGTERM that follows
    ends them with a checkpoint.
    """

    def submit(self, function: Callable, /, *args, **options) -> cf.Future:
        """Have a process call ``function``; if the process starts now, it inherits the blocked SIGINT."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(function, *args, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def worker_processes(count: int, shares: MutableSequence[float]) -> Iterator[WorkerProcesses]:
    """Yield ``count`` worker processes; an error or interrupt within the block ends all of them.

    Workers write to ``shares`` how much of their runs is done.
    """
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    with WorkerProcesses(count, context, initializer=begin_worker, initargs=(shares,)) as workers:
        try:
            yield workers
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:  # records and checkpoints are written atomically
                    process.terminate()
            raise


def begin_worker(shares: MutableSequence[float]) -> None:
    """Have this process write its runs' progress to ``shares``, and exit when its parent process exits."""
    parent = multiprocessing.parent_process()

    def leave() -> None:
        if parent:
            parent.join()
            os._exit(1)

    progress.ON_STEP[:] = [shares.__setitem__] if shares else []
    threading.Thread(target=leave, daemon=True).start()
