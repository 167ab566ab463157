"""The runs of a sweep while processes, a cluster or an executor compute them: handed out, watched, taken in."""

import concurrent.futures as cf
import logging
import time
from dataclasses import dataclass

from entp_lib.config import to_dict
from entp_lib.runs import cluster
from entp_lib.runs.deadlines import Deadline, local_deadline
from entp_lib.runs.execution import Config
from entp_lib.runs.generations import is_done
from entp_lib.runs.progress import Meter
from entp_lib.runs.records import Record, Store
from entp_lib.runs.workers import execute, local_processes

POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What all runs of a sweep have in common.

    ``generation`` names the fresh generation that they belong to, if any. ``device``: None lets each worker choose by
    its run's tier; ``threads``: torch's, in each of them.
    """

    version: int
    store: Store
    generation: str = ""
    device: str | None = None
    threads: int = 1


class Gathering:
    """The runs of a sweep while they are computed: what is asked of workers, and what came of it.

    ``found`` and ``failures`` are what it ends with: every run is in one of them, unless the sweep is stopped.
    """

    def __init__(self, todo: dict[str, Config], job: Job, deadline: Deadline | None, meter: Meter) -> None:
        self.todo, self.job, self.deadline, self.meter = todo, job, deadline, meter
        self.found: dict[str, Record] = {}
        self.failures: list[tuple[Config, str]] = []

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
        job, folder = self.job, self.meter.folder
        place = job.store.place(self.todo[i].experiment, i)
        plain = (to_dict(self.todo[i]), job.version, str(place), job.generation)
        return (*plain, job.device, job.threads, self.deadline, str(folder / i) if folder else "")

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
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            self.failures.append((config, f"{error.strerror or error}{where}; what was saved before is kept"))
        except cluster.SchedulerLost:
            why = "the cluster's scheduler was lost and not found again; what was saved before is kept"
            self.failures.append((config, why))
        except cluster.WorkerDied as error:
            self.failures.append((config, str(error)))
        except cf.BrokenExecutor:
            why = "a worker process was killed, perhaps for lack of memory; what was saved before is kept"
            self.failures.append((config, why))
        except Exception as error:
            log.debug("run %s failed", i, exc_info=True)
            self.failures.append((config, f"{type(error).__name__}: {error}"))
