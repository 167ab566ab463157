"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import logging
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entp_lib.config import config_from, config_id, to_dict
from entp_lib.runs.execution import Config, check_can_compute, device_for, run
from entp_lib.runs.progress import Heartbeat, Meter, event
from entp_lib.runs.records import Record, Store

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


def sweep(
    configs: Sequence[Config],
    version: int,
    *,
    store: Store | None = None,
    fresh: bool = False,
    jobs: int = 0,
    time_limit: float = 0.0,
    device: str | None = None,
    threads: int = 1,
    executor: cf.Executor | None = None,
    label: str = "",
) -> Sweep:
    """Records of all ``configs``: those that exist are reused, the others computed, several at once.

    ``jobs`` = 0: as many processes as cores on a CPU, one on a GPU. ``time_limit``: seconds for the whole sweep,
    0 for none. ``executor``: any ``concurrent.futures`` executor in place of local processes. Raises SweepError at
    the end if runs failed, RecordError at once if the store is read-only and a record is missing, or if it cannot
    be written, and ConfigError if the tier needs a GPU and there is none.
    """
    store = store or Store()
    by_id = {config_id(config, version): config for config in configs}
    found: dict[str, Record] = {}
    for record_id, config in by_id.items():
        record = None if fresh else store.find(config, version)
        if record is not None and record.status == "complete":
            found[record_id] = record
    todo = {record_id: config for record_id, config in by_id.items() if record_id not in found}
    result = Sweep(reused=len(found))
    if todo:
        check_can_compute(list(todo.values()), version, store)
        devices = {i: device or device_for(c.tier) for i, c in todo.items()}
        found |= compute(todo, version, store, result, devices, fresh, jobs, time_limit, threads, executor, label)
    result.records = [found[i] for i in by_id if i in found]
    event("records", reused=result.reused, computed=result.computed, failed=len(result.failures))
    if result.failures:
        raise SweepError(result)
    return result


def compute(
    todo: dict[str, Config],
    version,
    store,
    result,
    devices,
    fresh,
    jobs,
    time_limit,
    threads,
    executor,
    label,
) -> dict[str, Record]:
    """Run what is missing on an executor, watch it, and gather records and failures."""
    jobs = jobs or (1 if any(d != "cpu" for d in devices.values()) else available_cores())
    deadline = time.time() + time_limit if time_limit else None
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(Path(folder), {i: c.steps for i, c in todo.items()}, label)
        own = None
        if executor is None:
            own = executor = InProcess() if min(jobs, len(todo)) == 1 else local_processes(min(jobs, len(todo)))
        futures: dict[cf.Future, str] = {}
        try:
            for i, config in todo.items():
                beat = str(Path(folder) / i)
                job = (to_dict(config), version, str(store.root), fresh, devices[i], threads, deadline, beat)
                future = executor.submit(execute, *job)
                futures[future] = i
                if isinstance(executor, InProcess):
                    collect(future, i, todo, found, result, meter)
            pending = {f for f, i in futures.items() if i not in meter.finished}
            while pending:
                done, pending = cf.wait(pending, timeout=POLL_SECONDS, return_when=cf.FIRST_COMPLETED)
                for future in done:
                    collect(future, futures[future], todo, found, result, meter)
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


def collect(future: cf.Future, i: str, todo, found, result: Sweep, meter: Meter) -> None:
    """Take one finished run's record, or its failure in words."""
    meter.finished.add(i)
    meter.update()
    try:
        found[i] = Record.from_json(future.result())
        result.computed += 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        result.failures.append((todo[i], f"{error.strerror or error}{where}; what was saved before is kept"))
    except cf.BrokenExecutor:
        why = "a worker process was killed, perhaps for lack of memory; what was saved before is kept"
        result.failures.append((todo[i], why))
    except Exception as error:
        log.debug("run %s failed", i, exc_info=True)
        result.failures.append((todo[i], f"{type(error).__name__}: {error}"))


def execute(config: dict, version: int, root: str, fresh: bool, device: str, threads: int, deadline, beat: str) -> str:
    """One run in whatever process an executor chose; plain types in, the record's text out.

    ``deadline`` is wall-clock time, the only clock that processes share.
    """
    if multiprocessing.parent_process() is not None:
        threading.Thread(target=leave_with_parent, daemon=True).start()
    remaining = None if deadline is None else time.monotonic() + deadline - time.time()
    record = run(
        config_from(config),
        version,
        store=Store(root, read_only=False),  # whoever called has checked, and may be another process
        fresh=fresh,
        device=device,
        threads=threads,
        deadline=remaining,
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
