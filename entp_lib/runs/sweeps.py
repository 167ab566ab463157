"""From configurations to records: cached, resumable, several at once, one failure never losing the others."""

import concurrent.futures as cf
import contextlib
import logging
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from entp_lib.config import ON_CPU, RunConfig, canonical_json, config_id, to_dict
from entp_lib.models.entp import token_forwards
from entp_lib.models.transformer import check_device
from entp_lib.runs import cluster, scheduler, stopping
from entp_lib.runs.deadlines import Deadline, deadline_after, local_deadline
from entp_lib.runs.execution import Config, check_can_compute, device_for, tidy
from entp_lib.runs.generations import begin_or_continue, end, is_done
from entp_lib.runs.pairs import begun_here_first
from entp_lib.runs.progress import Meter, event, progress_folder
from entp_lib.runs.records import Record, Store
from entp_lib.runs.studies import told_steps
from entp_lib.runs.workers import InProcess, available_cores, execute, local_processes
from entp_lib.strict import ConfigError, check_types, require
from entp_lib.tasks import build_task

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
    continue a fresh generation of all records. ``label`` names the sweep where its progress is shown. ``cluster``:
    where runs are computed instead of here (``entp_lib.runs.cluster``; default: what ENTP_CLUSTER says), unless
    ``jobs`` is 1; ``mixed``: its workers may have other versions.
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
        require(self.jobs >= 0, f"jobs = {self.jobs}: must be 0 (one per core) or more")
        require(0 <= self.time_limit < math.inf, f"time_limit = {self.time_limit}: must be 0 (none) or more seconds")
        require(self.threads >= 1, f"threads = {self.threads}: must be at least 1")
        if self.cluster:
            scheduler.parsed(self.cluster)


def usual_device(configs: Iterable[Config]) -> str:
    """Where runs are computed if nobody says so: on the GPU from tier ``gpu`` on, where torch sees one."""
    on_gpu = torch.cuda.is_available() and any(config.tier not in ON_CPU for config in configs)
    return "cuda" if on_gpu else "cpu"


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
    generation = ""
    if options.fresh and by_id:
        check_can_compute(configs, version, store)
        generation = begin_or_continue(store, configs[0].experiment, by_id)
    found: dict[str, Record] = {}
    stored: list[Record] = []
    for record_id, config in by_id.items():
        record = store.find(config, version)
        stored += [record] if record is not None else []
        if is_done(record, generation):
            tidy(store, record)
            found[record_id] = record
    todo = {record_id: config for record_id, config in by_id.items() if record_id not in found}
    result = Sweep(reused=len(found))
    if todo:
        check_can_compute(list(todo.values()), version, store)
        if executor is None and not options.cluster:
            if options.device:
                check_device(options.device)
            todo = begun_here_first(todo, stored, options.device or usual_device(todo.values()))
        try:
            found |= compute(todo, Job(version, store, generation, options), executor, result)
        except stopping.Terminated:
            raise
        except KeyboardInterrupt:
            raise stopping.Stopped(
                f"stopped: {result.reused + result.computed} of {len(by_id)} runs are complete and kept; run it again, "
                "and the others go on from their last checkpoints"
            ) from None
    if generation and all(i in found and is_done(found[i], generation) for i in by_id):
        end(store, configs[0].experiment, by_id)
    result.records = [found[i] for i in by_id if i in found]
    partial = len(result.records) - len(result.complete)
    event("records", reused=result.reused, computed=result.computed, failed=len(result.failures), partial=partial)
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
    """Run what is missing, on ``executor`` or here, watch it, and gather records and failures."""
    options, jobs = job.options, 1
    where = "" if executor is not None or options.jobs == 1 else options.cluster or os.environ.get(cluster.VARIABLE, "")
    with contextlib.ExitStack() as stack:
        if where:
            mixed = options.mixed or bool(os.environ.get(cluster.MIXED_VARIABLE))
            executor = stack.enter_context(cluster.connected(where, mixed))
        elif executor is None:
            devices = {options.device or device_for(c.tier) for c in todo.values()}  # an error at once, not per worker
            jobs = min(options.jobs or (available_cores() if devices == {"cpu"} else 1), len(todo))
            executor = InProcess() if jobs == 1 else None
        else:
            executor = cluster.adopted(executor)
        for experiment in {config.experiment for config in todo.values()}:
            job.store.remove_leftovers(experiment)
        deadline = deadline_after(options.time_limit)
        folder = stack.enter_context(progress_folder(job.store.root / "progress"))
        meter = Meter(folder, {i: told_steps(c) for i, c in todo.items()}, options.label, step_weights(todo))
        stack.callback(meter.close)
        gathering = Gathering(todo, job, deadline, result, meter)
        if isinstance(executor, cluster.Remote):
            gathering.watch_cluster(executor)
        elif executor is not None:
            gathering.watch(executor)
        while gathering.missing:
            jobs = gathering.watch_processes(jobs)
    return gathering.found


def step_weights(todo: dict[str, Config]) -> dict[str, float]:
    """What a step of each run costs, in the cheapest one's: tokens through all layers, times the weights of a layer.

    A study's step counts as the cheapest; so does that of a run whose data are not there, which will say so itself.
    """
    tokens: dict[str, float] = {}
    costs: dict[str, float] = {}
    for i, config in todo.items():
        if not isinstance(config, RunConfig):
            continue
        model = config.model
        params = {name: value for name, value in config.task_params.items() if not name.endswith("seed")}
        key = canonical_json([config.task, params, model.architecture, model.full_layers, model.n_layers])
        if key not in tokens:
            try:
                wanted_BT = build_task(config.task, config.task_params).wanted_sample()
                tokens[key] = token_forwards(model, wanted_BT) / len(wanted_BT)
            except (ConfigError, OSError) as error:
                log.debug("what a step of %s costs is not known: %s", config.experiment, error)
                tokens[key] = 0.0
        costs[i] = tokens[key] * config.train.batch_size * model.n_layers * model.width**2
    least = min((cost for cost in costs.values() if cost > 0), default=1.0)
    return {i: max(1.0, costs.get(i, 0.0) / least) for i in todo}


class Gathering:
    """The runs of a sweep while they are computed: what is asked of workers, and what came of it."""

    def __init__(
        self, todo: dict[str, Config], job: Job, deadline: Deadline | None, result: Sweep, meter: Meter
    ) -> None:
        self.todo, self.job, self.deadline, self.result, self.meter = todo, job, deadline, result, meter
        self.found: dict[str, Record] = {}

    @property
    def missing(self) -> list[str]:
        """Runs that have neither ended nor failed, in their order."""
        return [i for i in self.todo if i not in self.meter.finished]

    def watch_processes(self, jobs: int) -> int:
        """Compute what is missing in so many local processes; with how many to go on where one was killed.

        A kill ends the whole pool: the others go on in a new one, one fewer at a time, as memory may be short. With
        a single process it is known whose fault it was.
        """
        pool = local_processes(jobs)
        try:
            broken = self.watch(pool, survives=True)
        except BaseException:
            for process in list(pool._processes.values()):  # records and checkpoints are written atomically
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        if broken is not None and jobs == 1:
            self.collect(broken, self.missing[0])
        elif broken is not None:
            log.warning("a worker process was killed, perhaps for lack of memory; going on with %d at a time", jobs - 1)
        return max(1, jobs - 1)

    def watch_cluster(self, executor: "cluster.Remote") -> None:
        """Compute what is missing on a cluster, on and on while its scheduler is lost and found again."""
        try:
            while self.missing:
                lost = self.watch(executor, survives=True)
                if lost is None:
                    continue
                log.warning("the cluster's scheduler was lost; waiting for it")
                if not executor.recovered():
                    for i in self.missing:
                        self.collect(lost, i)
        finally:
            executor.shutdown()

    def watch(self, executor: cf.Executor, survives: bool = False) -> cf.Future | None:
        """Have ``executor`` compute what is missing; with ``survives`` a run lost with its worker is no failure yet.

        Returns a future that was lost, if there is one.
        """
        futures: dict[cf.Future, str] = {}
        lost = None
        try:
            for i in self.missing:
                future = executor.submit(execute, *self.arguments(i))
                if future.done() and not survives:  # it ran in this process
                    self.collect(future, i)
                else:
                    futures[future] = i
            while futures:
                done, _ = cf.wait(futures, timeout=POLL_SECONDS, return_when=cf.FIRST_COMPLETED)
                for future in done:  # a future holds its result: let go of it when that is taken
                    i = futures.pop(future)
                    if survives and isinstance(future.exception(), cf.BrokenExecutor):
                        lost = future
                    else:
                        self.collect(future, i)
                self.meter.update()
                if not done and self.unattended(executor):
                    while futures:
                        future, i = futures.popitem()
                        self.give_up(future, i)
        except cf.BrokenExecutor as error:  # while runs were still being handed over
            if not survives:
                raise
            lost = cf.Future()
            lost.set_exception(error)
            for future, i in futures.items():
                if not future.cancel() and future.exception() is None:  # it had ended
                    self.collect(future, i)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return lost

    def unattended(self, executor: cf.Executor) -> bool:
        """Whether the time is over and no worker is there to end its runs."""
        late = self.deadline is not None and time.monotonic() >= local_deadline(self.deadline)
        return late and isinstance(executor, cluster.Remote) and not executor.staffed()

    def give_up(self, future: cf.Future, i: str) -> None:
        """Take back a run that nobody computes."""
        future.cancel()
        never = cf.Future()
        never.set_exception(TimeoutError("the time limit passed, and the cluster has no worker"))
        self.collect(never, i)

    def arguments(self, i: str) -> tuple:
        """The arguments of ``execute`` for a run, all of plain types, for any executor to send."""
        job, options, folder = self.job, self.job.options, self.meter.folder
        place = job.store.place(self.todo[i].experiment, i)
        plain = (to_dict(self.todo[i]), job.version, str(place), job.generation)
        return (*plain, options.device, options.threads, self.deadline, str(folder / i) if folder else "")

    def collect(self, future: cf.Future, i: str) -> None:
        """Take one finished run's record, saved here if the worker's store is another, or its failure in words."""
        self.meter.finished.add(i)
        self.meter.update()
        store, config = self.job.store, self.todo[i]
        try:
            record = Record.from_json(future.result())
            here = store.find(config, self.job.version)
            if here != record and not is_done(here, self.job.generation):
                store.save(record)
            self.found[i] = record
            self.result.computed += 1
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            self.result.failures.append((config, f"{error.strerror or error}{where}; what was saved before is kept"))
        except cluster.SchedulerLost:
            why = "the cluster's scheduler was lost and not found again; what was saved before is kept"
            self.result.failures.append((config, why))
        except cluster.WorkerDied as error:
            self.result.failures.append((config, str(error)))
        except cf.BrokenExecutor:
            why = "a worker process was killed, perhaps for lack of memory; what was saved before is kept"
            self.result.failures.append((config, why))
        except Exception as error:
            log.debug("run %s failed", i, exc_info=True)
            self.result.failures.append((config, f"{type(error).__name__}: {error}"))
