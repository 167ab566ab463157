"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from entp_lib.config import ConfigError, RunConfig, StudyConfig, config_from, config_id, one_of, to_dict
from entp_lib.progress import Heartbeat, Meter, event
from entp_lib.records import Record, RecordError, Store, provenance
from entp_lib.training import Outcome, train
from entp_lib.weights import save_weights, weights_of

Config = RunConfig | StudyConfig
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


def run(
    config: Config,
    version: int,
    *,
    store: Store | None = None,
    fresh: bool = False,
    device: str | None = None,
    threads: int = 1,
    deadline: float | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Record:
    """The record of ``config``: the stored one if it is complete and ``fresh`` is not set, else computed now.

    One thread per run is the default, so that results do not depend on the number of cores. A run cut by
    ``deadline`` (on ``time.monotonic``) leaves a record marked partial and continues at the next call.
    """
    store = store or Store()
    record_id = config_id(config, version)
    with store.lock(config.experiment, record_id):
        found = None if fresh else store.find(config, version)
        if found is not None and found.status == "complete":
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        checkpoint = store.checkpoint_path(config.experiment, record_id)
        if fresh:
            checkpoint.unlink(missing_ok=True)
        start = None
        if getattr(config, "start_from", "") and not checkpoint.exists():
            start = weights_of(store, config.start_from)
        device = device or device_for(config.tier)
        reset_peak_memory(device)
        where = provenance(device, threads)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if isinstance(config, StudyConfig):
                record = study_record(config, version, where, deadline, store)
            else:
                options = dict(checkpoint=checkpoint, start=start, deadline=deadline, on_step=on_step)
                outcome = train(config, device=device, **options)
                record = training_record(config, version, where, outcome)
        finally:
            torch.set_num_threads(before)
        record.provenance["peak_memory_bytes"] = peak_memory(device)
        store.save(record)
        if isinstance(config, RunConfig) and outcome.complete:
            save_weights(store.weights_path(config.experiment, record_id), config, outcome.model)
            checkpoint.unlink(missing_ok=True)
    return Record.from_json(record.to_json())  # rounded as stored, so that new and reused records are equal


def training_record(config: RunConfig, version: int, where: dict, outcome: Outcome) -> Record:
    """What ``train`` left, as a record; partial where it did not reach its end."""
    state = outcome.state
    where = where | {
        "steps": state.step,
        "token_forwards": state.token_forwards,
        "train_seconds": state.seconds,
        "wall_seconds": state.wall_seconds,
    }
    status = "complete" if outcome.complete else "partial"
    return Record(config.experiment, version, config, outcome.metrics, state.curves, where, status)


def study_record(config: StudyConfig, version: int, where: dict, deadline: float | None, store: Store) -> Record:
    """What a study finds, as a record. A study is short: it starts before the deadline, or not at all.

    One that is about a trained model has its run as the parameter ``weights`` and is given their file.
    """
    from entp_lib.theory import STUDIES

    one_of("study", config.study, STUDIES)
    begun = time.monotonic()
    if deadline is not None and begun >= deadline:
        raise TimeoutError("the time limit passed before it started")
    params = dict(config.params)
    if "weights" in params:
        params["weights"] = weights_of(store, params["weights"])
    metrics, curves = STUDIES[config.study](**params)
    where = where | {"wall_seconds": time.monotonic() - begun}
    return Record(config.experiment, version, config, metrics, curves, where)


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


def check_can_compute(todo: Sequence[Config], version: int, store: Store) -> None:
    """Raise before any compute is spent where records are missing from a read-only or unwritable store."""
    if store.read_only:
        names = ", ".join(f"{c.experiment}/{config_id(c, version)}" for c in todo[:3])
        more = f" and {len(todo) - 3} more" if len(todo) > 3 else ""
        raise RecordError(
            f"missing or partial: record {names}{more} (tier {todo[0].tier}, below {store.root / 'records'}); "
            "the store is read-only, so nothing is computed. Run ./run_all.sh to make it."
        )
    store.check_writable()


def device_for(tier: str) -> str:
    """``cpu`` for smoke and quick, so that their records are comparable; ``cuda`` for gpu; either for paper."""
    if tier in ("smoke", "quick"):
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if tier == "gpu":
        raise ConfigError(
            "tier gpu needs a CUDA GPU and torch sees none; use --tier quick, or run it on a machine that has one"
        )
    return "cpu"


def reset_peak_memory(device: str) -> None:
    """Start counting the peak anew, where the system can."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        log.debug("peak memory is that of the whole process: this system cannot reset it")


def peak_memory(device: str) -> int:
    """Peak bytes since ``reset_peak_memory``: allocated on the GPU, or resident in this process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    except OSError:
        log.debug("no /proc here")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
