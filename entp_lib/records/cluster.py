"""Many runs on a Dask cluster, one process per run, on other machines if need be. Needs the extra ``cluster``.

``tls://HOST:PORT`` is a scheduler that runs already, ``slurm:8`` so many jobs of a queue, as Dask's own configuration
describes them (``jobqueue.slurm``). Dask's protocol runs what it is sent, so that a connection leaves this machine as
TLS or not at all.
"""

import concurrent.futures as cf
import contextlib
import functools
import logging
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from entp_lib.corpora import sources as corpora
from entp_lib.records.execution import Config, run
from entp_lib.records.provenance import sources
from entp_lib.records.store import CLUSTER_VARIABLE, Record, Store
from entp_lib.validation import ConfigError, require

QUEUES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "sge": "SGECluster", "lsf": "LSFCluster", "oar": "OARCluster"}
FORMS = "write tls://HOST:PORT, tcp://127.0.0.1:PORT, or slurm:8 for eight jobs of a queue (docs/scale.md)"
CONNECT_SECONDS = 10.0
library = functools.partial(corpora.library, what="--cluster", extra="cluster")


def check_place(where: str) -> None:
    """ConfigError unless ``where`` is a queue with a number of jobs, or an address, of TLS if off this machine."""
    queue, _, jobs = where.partition(":")
    if queue in QUEUES:
        right = re.fullmatch(r"0*[1-9]\d*", jobs, re.ASCII) is not None
        require(right, f"--cluster {where}: write {queue}:8 for eight jobs; Dask's configuration says what a job is")
        return
    found = re.fullmatch(r"(tls|tcp)://(.+):\d+", where, re.ASCII)
    require(found is not None, f"--cluster {where}: {FORMS}")
    require(
        found[1] == "tls" or found[2] in ("localhost", "127.0.0.1", "[::1]"),
        f"--cluster {where}: a connection off this machine must be TLS (tls://{where[6:]}), as whoever can speak to it "
        "can run code; or reach it through ssh -L (docs/scale.md)",
    )


def publish(where: str) -> None:
    """Let sweeps of this process and those it starts use the cluster ``where``, if any; ConfigError without it."""
    if where:
        check_place(where)
        with connected(where) if "//" in where else contextlib.nullcontext():
            os.environ[CLUSTER_VARIABLE] = where


@contextlib.contextmanager
def jobs_of(queue: str, count: int) -> Iterator[Any]:
    """A scheduler here, over TLS, and so many jobs of one worker each, which end with the block."""
    library("cryptography")  # which makes the certificates
    cluster = getattr(library("dask_jobqueue"), QUEUES[queue])(
        cores=1,
        processes=1,
        protocol="tls://",
        security=library("distributed").Security.temporary(),
        shared_temp_directory=str(Path.home()),  # where jobs read their certificates, by their owner alone
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # it has no TLS
    )
    cluster.scale(jobs=count)
    try:
        yield cluster
    finally:
        with contextlib.suppress(Exception):  # jobs that have ended by themselves need no ending
            cluster.close(timeout=10)


@contextlib.contextmanager
def connected(where: str) -> Iterator["Remote"]:
    """An executor on the cluster that ``where`` names; a queue's jobs begin here and end with the block.

    ConfigError where nobody listens, where TLS is not configured, and for workers of other sources or versions, or of
    several runs at a time in one process.
    """
    check_place(where)
    distributed = library("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # a worker that dies is the scheduler's to replace
    with contextlib.ExitStack() as stack:
        address, security = where, distributed.Security(require_encryption=True) if where.startswith("tls:") else None
        try:
            if "//" not in where:
                queue, _, count = where.partition(":")
                jobs = stack.enter_context(jobs_of(queue, int(count)))
                address, security = jobs.scheduler_address, jobs.security
            client = distributed.Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
        except ConfigError:
            raise
        except (OSError, TimeoutError, ValueError, RuntimeError, TypeError) as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(f"--cluster {where}: no scheduler answers there ({why})") from error
        executor = Remote(client)
        try:
            for worker, error in client.run(check, versions(), on_error="return").items():  # later ones by themselves
                require(error is None, f"worker {worker} cannot compute these runs: {error}")
            yield executor
        finally:
            for end in (executor.shutdown, lambda: client.close(timeout=5)):
                with contextlib.suppress(Exception):  # a scheduler that is gone cannot say goodbye
                    end()


class Remote(cf.Executor):
    """Runs on the workers of a Dask client, by Dask's own executor: a drop-in for local processes in a sweep.

    The scheduler gives a dead worker's run to another, which goes on from the checkpoint. No more runs are handed over
    than there are workers, so that a death is blamed on the run that caused it.
    """

    def __init__(self, client: Any):
        self.client, self.executor = client, client.get_executor(pure=False)

    def room(self) -> int:
        """How many runs it takes at a time: one for each worker."""
        try:
            return len(self.client.scheduler_info()["workers"])
        except Exception:  # a lost scheduler, which the next run fails by
            return 1

    def submit(self, fn, /, config, version, root, place, deadline, how) -> cf.Future:
        """Have a worker compute what ``sweeps.execute`` would with these arguments."""
        try:
            return self.executor.submit(compute, versions(), config, version, root, deadline, how)
        except Exception as error:
            failed: cf.Future = cf.Future()
            failed.set_exception(error)
            return failed

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take back all runs that were handed over and have not ended."""
        self.executor.shutdown(wait=False)


def versions() -> dict[str, str]:
    """Versions that must agree between processes whose records are compared."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"sources of entp_lib": sources(), "torch": torch.__version__.split("+")[0], "python": python}


def check(expected: dict[str, str], dask_worker: Any) -> None:
    """ConfigError on a worker that computes several runs at a time, or has other versions than expected."""
    count, mine = dask_worker.state.nthreads, versions()
    require(count == 1, f"it computes {count} runs at a time in one process: start it with --nthreads 1")
    for name, wanted in expected.items():
        require(mine[name] == wanted, f"it has {name} {mine[name]}, not {wanted}, and pairs would be of both")


def compute(expected: dict[str, str], config: Config, version: int, root: str, deadline, how) -> Record:
    """A run's record, made on a worker; it stops at its next step when it is cancelled or its caller is gone."""
    from distributed import Reschedule, get_worker

    worker = get_worker()
    check(expected, worker)
    right = f"worker {worker.address} does not see {root}: a cluster needs the results on one disk"
    require(Path(root).is_dir(), right)
    key = worker.get_current_task()

    def at_work() -> bool:
        return worker.status.name in ("running", "paused")

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        return not at_work() or task is None or task.state in ("cancelled", "released")

    store = Store(root, read_only=False)
    record = run(config, version, store=store, deadline=deadline, stop=unwanted, **how)
    if record.status == "partial" and not at_work():
        raise Reschedule  # this worker ends, another one goes on
    return record
