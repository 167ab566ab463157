"""Many runs on a Dask cluster, one process per run, on other machines if need be. Needs the extra ``cluster``.

``tls://HOST:PORT`` is a scheduler that runs already, ``local:4`` so many processes of this machine,
``slurm:partition=gpu,gpus=1,workers=8`` jobs of a queue. Dask's protocol runs what it is sent, so that a connection
leaves this machine as TLS or not at all.
"""

import concurrent.futures as cf
import contextlib
import importlib
import ipaddress
import logging
import os
import platform
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from entp_lib import paths
from entp_lib.config import StudyConfig, config_from, to_dict
from entp_lib.files import write_atomically
from entp_lib.records import progress
from entp_lib.records.execution import local_deadline, run
from entp_lib.records.loading import weights_of
from entp_lib.records.provenance import sources
from entp_lib.records.store import Record, Store
from entp_lib.validation import ConfigError, one_of, require

VARIABLE, MIXED_VARIABLE = "ENTP_CLUSTER", "ENTP_CLUSTER_MIXED"  # how a notebook's kernel hears of a cluster
FORMS = "write tls://HOST:PORT, tcp://127.0.0.1:PORT, local:4, or slurm:partition=gpu,gpus=1 (docs/scale.md)"
# Options of slurm: the default, a pattern, and what is right.
SLURM = {
    "partition": ("", r".+", "a text"),
    "account": ("", r".+", "a text"),
    "gpus": ("0", r"\d+", "a whole number from 0 on"),
    "workers": ("4", r"0*[1-9]\d*", "a whole number from 1 on"),
    "cores": ("1", r"0*[1-9]\d*", "a whole number from 1 on"),
    "memory": ("8GB", r"\d+(\.\d+)? ?[KMGT]i?B", "like 8GB"),
    "time": ("04:00:00", r"\d+:\d\d:\d\d", "HH:MM:SS"),
}
STEPS, TELL_SECONDS, CONNECT_SECONDS = "entp-steps", 2.0, 10.0


def parsed(where: str) -> tuple[str, dict[str, str]]:
    """(``address``, ``local`` or ``slurm``) and its options; ConfigError for anything else.

    An address off this machine must be TLS.
    """
    kind, _, rest = where.partition(":")
    if kind in ("tls", "tcp"):
        place = rest.removeprefix("//")
        host, _, port = place.rpartition(":")
        require(bool(host) and port.isdecimal(), f"--cluster {where}: write {kind}://HOST:PORT")
        near = host == "localhost"
        with contextlib.suppress(ValueError):
            near = near or ipaddress.ip_address(host.strip("[]")).is_loopback
        require(
            kind == "tls" or near,
            f"--cluster {where}: a connection off this machine must be TLS (tls://{place}), as whoever can speak to it "
            "can run code; or reach it through ssh -L (docs/scale.md)",
        )
        return "address", {"address": where}
    if kind == "local":
        right = re.fullmatch(r"0*[1-9]\d*", rest, re.ASCII) is not None
        require(right, f"--cluster {where}: write local:4 for four processes")
        return kind, {"workers": rest}
    require(kind == "slurm", f"--cluster {where}: {FORMS}")
    options = {name: default for name, (default, *_) in SLURM.items()}
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        one_of(f"--cluster {where}: option", name, SLURM)
        _, pattern, words = SLURM[name]
        right = re.fullmatch(pattern, value, re.ASCII) is not None
        require(right, f"--cluster {where}: option {name} = {value!r} must be {words}")
        options[name] = value
    return kind, options


def library(name: str) -> Any:
    """A package of the extra; ConfigError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        install = ".venv/bin/python -m pip install -e '.[cluster]'"
        raise ConfigError(f"--cluster needs the package {error.name}: {install}") from error


@contextlib.contextmanager
def started(where: str) -> Iterator[tuple[str, Any]]:
    """Address and security of the cluster that ``where`` names, ended with the block where it is begun here."""
    kind, options = parsed(where)
    distributed = library("distributed")
    if kind == "address":
        security = distributed.Security(require_encryption=True) if where.startswith("tls://") else None
        names = ("tls_ca_file", "tls_client_key", "tls_client_cert") if security else ()
        missing = ", ".join(name for name in names if not getattr(security, name))
        lacks = f"--cluster {where}: Dask's configuration has no {missing} (distributed.comm.tls; docs/scale.md)"
        require(not missing, lacks)
        yield where, security
        return
    if kind == "local":
        cluster = distributed.LocalCluster(
            n_workers=int(options["workers"]),
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,  # Dask would end a worker at a share of it
            silence_logs=logging.ERROR,
        )
    else:
        cluster = slurm_cluster(options)
        cluster.scale(jobs=int(options["workers"]))
    try:
        yield cluster.scheduler_address, getattr(cluster, "security", None)
    finally:
        with contextlib.suppress(Exception):  # jobs that have ended by themselves need no ending
            cluster.close(timeout=10)


def slurm_cluster(options: dict[str, str]) -> Any:
    """A scheduler here, over TLS, and jobs of one worker each; anything richer is a matter of Dask's jobqueue.slurm.

    A worker hands its run over five minutes before its job's time limit.
    """
    jobqueue, distributed, _ = (library(name) for name in ("dask_jobqueue", "distributed", "cryptography"))
    hours, minutes, seconds = map(int, options["time"].split(":"))
    lifetime = max(60, 3600 * hours + 60 * minutes + seconds - 300)
    return jobqueue.SLURMCluster(
        queue=options["partition"] or None,
        account=options["account"] or None,
        cores=1,
        processes=1,
        job_cpu=int(options["cores"]),
        memory=options["memory"],
        walltime=options["time"],
        job_extra_directives=[f"--gres=gpu:{options['gpus']}"] if options["gpus"] != "0" else [],
        worker_extra_args=["--lifetime", f"{lifetime}s"],
        protocol="tls://",
        security=distributed.Security.temporary(),
        shared_temp_directory=str(Path.home()),  # where jobs read their certificates, by their owner alone
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # it has no TLS
    )


@contextlib.contextmanager
def connected(where: str, mixed: bool = False) -> Iterator["Remote"]:
    """An executor on the cluster that ``where`` names, started here unless it is an address.

    ConfigError where nobody listens, where TLS is not configured, and for workers that would compute something else
    than this process: with other sources or another torch, unless ``mixed``, or several runs at a time in one process.
    """
    distributed = library("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # a worker that dies is the scheduler's to replace
    with started(where) as (address, security):
        try:
            client = distributed.Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError, RuntimeError, TypeError) as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(f"--cluster {address}: no scheduler answers there ({why})") from error
        executor = Remote(client, mixed or bool(os.environ.get(MIXED_VARIABLE)))
        try:  # workers that come later check themselves
            for worker, found in client.run(describe, on_error="return").items():
                require(isinstance(found, dict), f"worker {worker} cannot run this project: {found}")
                check(found, executor.expected, f"worker {worker}")
            yield executor
        finally:
            executor.shutdown()
            with contextlib.suppress(Exception):  # a scheduler that is gone cannot say goodbye
                client.close(timeout=5)


@contextlib.contextmanager
def published(where: str, mixed: bool = False) -> Iterator[None]:
    """Within it, sweeps of this process and of those it starts use the cluster that ``where`` names; "" for none."""
    if not where:
        yield
        return
    with started(where) as (address, security):
        changes = {VARIABLE: address} | ({MIXED_VARIABLE: "1"} if mixed else {})
        if security is not None and address != where:  # made for this command: Dask takes the certificates' text, too
            texts = security.get_tls_config_for_role("client")
            for place, name in (("CA_FILE", "ca_file"), ("CLIENT__CERT", "cert"), ("CLIENT__KEY", "key")):
                changes[f"DASK_DISTRIBUTED__COMM__TLS__{place}"] = texts[name]
        refresh = library("dask").config.refresh  # what Dask took from the environment
        with mock.patch.dict(os.environ, changes):
            refresh()
            with connected(address, mixed):  # a mistake ends this command, not each notebook
                pass
            yield
        refresh()


class Remote(cf.Executor):
    """Runs on the workers of a Dask client, by Dask's own executor: a drop-in for local processes in a sweep.

    A worker's death is the scheduler's matter: it gives the run to another worker, which goes on from the checkpoint
    where the store is shared. No more runs are handed over than there are workers, so that a death is blamed on the
    run that caused it and not on those that wait.
    """

    def __init__(self, client: Any, mixed: bool = False):
        self.client, self.executor, self.expected = client, client.get_executor(pure=False), {} if mixed else versions()
        self.token = os.urandom(8).hex()  # tells steps of these runs from those of others
        with contextlib.suppress(Exception):  # without it, finished runs alone are seen
            client.subscribe_topic(STEPS, self.hear_step)

    def room(self) -> int:
        """How many runs it takes at a time: one for each worker."""
        try:
            return len(self.client.scheduler_info()["workers"])
        except Exception:  # a lost scheduler, which the next run fails by
            return 1

    def submit(self, fn, /, config, version, root, place, deadline, how) -> cf.Future:
        """Have a worker compute what ``sweeps.execute`` would with these arguments; the result is for ``received``."""
        name = config.params.get("weights") if isinstance(config, StudyConfig) else config.start_from
        try:
            given = {name: weights_of(Store(root, read_only=False), name).read_bytes()} if name else {}
            arguments = (self.expected, to_dict(config), version, root, deadline, how, given, (self.token, place))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sending large graph")  # weights
                return self.executor.submit(compute, *arguments)
        except Exception as error:
            failed: cf.Future = cf.Future()
            failed.set_exception(error)
            return failed

    def hear_step(self, event: tuple) -> None:
        (token, place), step = event[1]
        if token == self.token:
            progress.tell(place, step)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take back all runs that were handed over and have not ended."""
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self.executor.shutdown(wait=False)


def received(store: Store, text: str, weights: bytes | None) -> Record:
    """The record that ``compute`` gave as text, its weights saved in ``store``."""
    record = Record.from_json(text)
    path = store.weights_path(record.experiment, record.id)
    if weights and not (path.exists() and path.read_bytes() == weights):
        write_atomically(path, weights)
    return record


def lost_because(error: BaseException) -> str:
    """Reason why a run was lost with the cluster's workers or scheduler; "" for an error of the run itself."""
    kind, kept = type(error).__name__, "what was saved before is kept"
    if kind == "KilledWorker":
        deaths = getattr(error, "allowed_failures", 3) + 1
        return f"{deaths} workers died computing it, perhaps for lack of memory; {kept}"
    lost = "Cancelled" in kind or "Closed" in kind
    return f"the cluster's scheduler was lost; {kept}, and the same command goes on" if lost else ""


def versions() -> dict[str, str]:
    """Versions that must agree between processes whose records are compared."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"sources": sources(), "torch": torch.__version__.split("+")[0], "python": python}


def describe(dask_worker: Any) -> dict[str, Any]:
    """``versions`` of a worker's process, and how many runs it would compute at a time."""
    return {**versions(), "nthreads": dask_worker.state.nthreads}


def check(found: dict[str, Any], expected: dict[str, str], who: str) -> None:
    """ConfigError where a process computes several runs at a time, or has other versions than expected."""
    count = found["nthreads"]
    require(count == 1, f"{who} computes {count} runs at a time in one process: start it with --nthreads 1")
    for name, wanted in expected.items():
        what = f"{'sources of entp_lib' if name == 'sources' else name} {found[name]}, not {wanted}"
        require(found[name] == wanted, f"{who} has {what}: pairs would be compared across both; --mixed allows it")


def store_for(root: str) -> Store:
    """The caller's store where this machine has its folder, else that of its own results."""
    return Store(root if Path(root).is_dir() else paths.results(), read_only=False)


def compute(expected, config, version, root, deadline, how, given, place) -> tuple[str, bytes | None]:
    """One run on a cluster's worker: the text of its record, and its weights.

    ``given`` are weights by name that it may start from; ``place`` names the run where its steps are seen. It stops at
    its next step, leaving its checkpoint, when nobody wants it any more: cancelled, its caller gone, or the scheduler.
    """
    from distributed import Reschedule, get_worker

    worker = get_worker()
    check(describe(worker), expected, f"worker {worker.address}")
    key, last = worker.get_current_task(), [0.0]
    store = store_for(root)
    for name, content in given.items():
        path = store.weights_path(*name.split("/"))
        with store.lock(*name.split("/")):
            if not path.exists() or path.read_bytes() != content:  # those of an earlier sweep, or damaged
                write_atomically(path, content)
    if torch.cuda.device_count() > 1 and str(worker.name).isdigit():
        torch.cuda.set_device(int(worker.name) % torch.cuda.device_count())

    def tell(step: int) -> None:
        if time.monotonic() - last[0] > TELL_SECONDS:
            last[0] = time.monotonic()
            worker.log_event(STEPS, (place, step))

    def at_work() -> bool:
        return worker.status.name in ("running", "paused")

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        return not at_work() or task is None or task.state in ("cancelled", "released")

    limit = local_deadline(deadline)
    record = run(config_from(config), version, store=store, deadline=limit, on_step=tell, stop=unwanted, **how)
    if record.status == "partial" and not at_work():
        raise Reschedule  # this worker ends, another one goes on
    weights = store.weights_path(record.experiment, record.id)
    return record.to_json(), weights.read_bytes() if record.status == "complete" and weights.exists() else None
