"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import logging
import math
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entp_lib.config import config_from, config_id, to_dict
from entp_lib.runs.deadlines import Deadline, deadline_after, local_deadline
from entp_lib.runs.execution import Config, check_can_compute, device_for, run, tidy
from entp_lib.runs.generations import begin_or_continue, end, is_done
from entp_lib.runs.progress import Heartbeat, Meter, event
from entp_lib.runs.records import Record, Store
from entp_lib.strict import check_types, require

POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


@dataclass
class Sweep:
    """What a sweep did: the records in the order of the configurations, and what failed."""

    records: list[Record] = field(default_factory=list)
    failures: list[tuple[Config, str]] = field(default_factory=list)
    reused: int = 0
    computed: int = 0

    @property
    def complete(self) -> list[Record]:
        """The records that ran to their end: the only ones a verdict may use."""
        return [r for r in self.records if r.status == "complete"]


class SweepError(RuntimeError):
    """Some runs of a sweep failed; the others' records are safe. ``sweep`` holds what there is."""

    def __init__(self, sweep: Sweep):
        self.sweep = sweep
        total = sweep.reused + sweep.computed + len(sweep.failures)
        alike: dict[str, list[str]] = {}  # a missing corpus fails all runs in the same words
        for config, why in sweep.failures:
            alike.setdefault(why, []).append(f"{config.experiment} {config.label}")
        more = {why: f" and {len(names) - 1} more" if len(names) > 1 else "" for why, names in alike.items()}
        lines = [f"  {names[0]}{more[why]}: {why}" for why, names in alike.items()]
        super().__init__("\n".join([f"{len(sweep.failures)} of {total} runs failed:", *lines]))


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep goes about its runs; nothing here decides what they find.

    ``jobs`` = 0: as many processes as cores on a CPU, one on a GPU. ``time_limit``: seconds for the whole sweep, 0
    for none. ``device``: one for all runs; None lets each worker choose by the run's tier. ``fresh``: begin or
    continue a fresh generation of all records. ``label`` names the sweep where its progress is shown.
    """

    fresh: bool = False
    jobs: int = 0
    time_limit: float = 0.0
    device: str | None = None
    threads: int = 1
    label: str = ""

    def __post_init__(self):
        check_types(self)
        require(self.jobs >= 0, f"jobs = {self.jobs}: must be 0 (one per core) or more")
        require(0 <= self.time_limit < math.inf, f"time_limit = {self.time_limit}: must be 0 (none) or more seconds")
        require(self.threads >= 1, f"threads = {self.threads}: must be at least 1")


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
    processes; a worker that leaves its records elsewhere is no matter, they are saved here too. Raises SweepError at
    the end if runs failed, RecordError at once if the store is read-only and a record is missing, or if it cannot
    be written, and ConfigError for options that make no sense, or if the tier needs a GPU and there is none.
    """
    store, options = store or Store(), SweepOptions(**options)
    by_id = {config_id(config, version): config for config in configs}
    generation = ""
    if options.fresh and by_id:
        check_can_compute(configs, version, store)
        generation = begin_or_continue(store, configs[0].experiment, by_id)
    found: dict[str, Record] = {}
    for record_id, config in by_id.items():
        record = store.find(config, version)
        if is_done(record, generation):
            tidy(store, record)
            found[record_id] = record
    todo = {record_id: config for record_id, config in by_id.items() if record_id not in found}
    result = Sweep(reused=len(found))
    if todo:
        check_can_compute(list(todo.values()), version, store)
        found |= compute(todo, Job(version, store, generation, options), executor, result)
    if generation and all(i in found and is_done(found[i], generation) for i in by_id):
        end(store, configs[0].experiment, by_id)
    result.records = [found[i] for i in by_id if i in found]
    event("records", reused=result.reused, computed=result.computed, failed=len(result.failures))
    if result.failures:
        raise SweepError(result)
    return result


@dataclass(frozen=True)
class Job:
    """What all runs of a sweep have in common."""

    version: int
    store: Store
    generation: str
    options: SweepOptions


def compute(todo: dict[str, Config], job: Job, executor: cf.Executor | None, result: Sweep) -> dict[str, Record]:
    """Run what is missing on an executor, watch it, and gather records and failures."""
    options, own = job.options, None
    if executor is None:
        devices = {options.device or device_for(c.tier) for c in todo.values()}  # an error at once, not per worker
        jobs = min(options.jobs or (available_cores() if devices == {"cpu"} else 1), len(todo))
        own = executor = InProcess() if jobs == 1 else local_processes(jobs)
    deadline = deadline_after(options.time_limit)
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(Path(folder), {i: c.steps for i, c in todo.items()}, options.label)
        futures: dict[cf.Future, str] = {}
        try:
            for i, config in todo.items():
                future = executor.submit(execute, *job_arguments(job, config, deadline, str(Path(folder) / i)))
                if isinstance(executor, InProcess):
                    collect(future, i, todo, job, found, result, meter)
                else:
                    futures[future] = i
            while futures:
                done, _ = cf.wait(futures, timeout=POLL_SECONDS, return_when=cf.FIRST_COMPLETED)
                for future in done:  # a future holds its result: let go of it when that is taken
                    collect(future, futures.pop(future), todo, job, found, result, meter)
                meter.update()
        except BaseException:
            for future in futures:
                future.cancel()
            if isinstance(own, cf.ProcessPoolExecutor):
                for process in list(own._processes.values()):  # records and checkpoints are written atomically
                    process.terminate()
            raise
        finally:
            meter.close()
            if own is not None:
                own.shutdown(wait=True, cancel_futures=True)
    return found


def job_arguments(job: Job, config: Config, deadline: Deadline | None, beat: str) -> tuple:
    """The arguments of ``execute``, all of plain types, for any executor to send."""
    options = job.options
    plain = (to_dict(config), job.version, str(job.store.root), job.generation)
    return (*plain, options.device, options.threads, deadline, beat)


def collect(
    future: cf.Future, i: str, todo: dict[str, Config], job: Job, found: dict[str, Record], result: Sweep, meter: Meter
) -> None:
    """Take one finished run's record, saved here if the worker's store is another, or its failure in words."""
    meter.finished.add(i)
    meter.update()
    try:
        found[i] = Record.from_json(future.result())
        result.computed += 1
        here = job.store.find(todo[i], job.version)
        if here != found[i] and not is_done(here, job.generation):
            job.store.save(found[i])
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        result.failures.append((todo[i], f"{error.strerror or error}{where}; what was saved before is kept"))
    except cf.BrokenExecutor:
        why = "a worker process was killed, perhaps for lack of memory; what was saved before is kept"
        result.failures.append((todo[i], why))
    except Exception as error:
        log.debug("run %s failed", i, exc_info=True)
        result.failures.append((todo[i], f"{type(error).__name__}: {error}"))


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

    Without ``device`` the worker's own machine decides.
    """
    if multiprocessing.parent_process() is not None:
        threading.Thread(target=leave_with_parent, daemon=True).start()
    record = run(
        config_from(config),
        version,
        store=Store(root, read_only=False),  # whoever called has checked, and may be another process
        generation=generation,
        device=device,
        threads=threads,
        deadline=local_deadline(deadline),
        on_step=Heartbeat(Path(beat) if Path(beat).parent.is_dir() else None),
    )
    return record.to_json()


def leave_with_parent() -> None:
    """End this worker when the process that started it is gone, so that a kill leaves no orphans computing."""
    multiprocessing.parent_process().join()
    os._exit(1)


def local_processes(jobs: int) -> cf.ProcessPoolExecutor:
    """Worker processes, spawned: a forked copy of a process that has used threads or CUDA may hang."""
    return cf.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


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
