"""Many runs on a Dask cluster: one process per run, on other machines if need be. Needs the extra ``cluster``."""

import concurrent.futures as cf
import contextlib
import logging
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from entp_lib.config import config_from
from entp_lib.files import write_atomically
from entp_lib.runs import remote
from entp_lib.runs.execution import weights_of
from entp_lib.runs.records import Record, Store
from entp_lib.runs.scheduler import CONNECT_SECONDS, check_listening, library, parsed, started, words
from entp_lib.strict import ConfigError

VARIABLE, MIXED_VARIABLE = "ENTP_CLUSTER", "ENTP_CLUSTER_MIXED"  # how a notebook's kernel hears of a cluster
RECOVER_SECONDS, TURNS = 600.0, 10
LOST = ("CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError", "ClosedClientError")


class SchedulerLost(cf.BrokenExecutor):
    """The connection to the scheduler ended while a run was computed."""


class WorkerDied(RuntimeError):
    """So many workers died with a run that the scheduler gave it up."""


@contextlib.contextmanager
def connected(where: str, mixed: bool = False) -> Iterator["Remote"]:
    """An executor on the cluster that ``where`` names, started here unless it is an address.

    ConfigError where nobody listens, where TLS is not configured, and for workers that would compute something else
    than this process: with other sources or another torch, unless ``mixed``, or several runs at a time in one process.
    """
    distributed = library("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # a worker that dies is the scheduler's to replace
    with contextlib.ExitStack() as stack:
        address, security = stack.enter_context(started(*parsed(where)))
        check_listening(address)
        try:
            client = distributed.Client(
                address, security=security, timeout=CONNECT_SECONDS, set_as_default=False, name="entp"
            )
        except (OSError, TimeoutError, ValueError, RuntimeError, TypeError) as error:
            raise ConfigError(f"--cluster {address}: no scheduler answers there ({words(error)})") from error
        client._timeout = RECOVER_SECONDS  # to connect again; there is no other way to have it longer than the first
        stack.callback(close_quietly, client)
        executor = Remote(client, mixed)
        stack.callback(executor.shutdown)
        executor.check_workers()
        yield executor


def adopted(executor: cf.Executor) -> cf.Executor:
    """``executor``, or where it is what ``client.get_executor`` gives, one that minds a cluster's ways."""
    if type(executor).__module__.startswith("distributed.") and hasattr(executor, "_client"):
        return Remote(executor._client)
    return executor


def close_quietly(client) -> None:
    with contextlib.suppress(Exception):  # a scheduler that is gone cannot say goodbye
        client.close(timeout=5)


class Remote(cf.Executor):
    """Runs on the workers of a Dask client: a drop-in for local processes in a sweep, which knows what to expect.

    A worker's death is the scheduler's matter: it gives the run to another worker, which goes on from the checkpoint
    where the store is shared. A future is let go of as soon as its record is here, so that nothing is computed again
    for a result that lay on a dying worker. The scheduler blames a worker's death on runs that merely waited there,
    too, and gives them up with the run that killed it: a run that no worker began is handed over again.
    """

    def __init__(self, client: Any, mixed: bool = False):
        self.client, self.mixed = client, mixed
        self.expected = {} if mixed else remote.versions()
        self.futures: dict[str, Any] = {}
        self.folders: dict[str, Path] = {}
        self.apart: dict[str, bool] = {}
        self.begun: set[str] = set()
        self.lock = threading.Lock()
        with contextlib.suppress(Exception):  # without it, finished runs alone are seen
            client.subscribe_topic(remote.STEPS, self.note_step)
            client.subscribe_topic(remote.BEGUN, lambda event: self.begun.add(event[1]))

    def check_workers(self) -> None:
        """ConfigError for workers whose records would not be this process's; those that come later check themselves."""
        for address, found in self.client.run(remote.describe, on_error="return").items():
            if isinstance(found, BaseException):
                raise ConfigError(f"worker {address} cannot run this project: {words(found)}")
            remote.check(found, self.expected, f"worker {address}")

    def submit(self, fn, /, *arguments, **_) -> cf.Future:
        """Have a worker compute what ``workers.execute`` would with these arguments."""
        local: cf.Future = cf.Future()
        try:
            self.hand_over(local, arguments)
        except ConfigError as error:
            local.set_exception(error)
        return local

    def hand_over(self, local: cf.Future, arguments: tuple, turn: int = 0) -> None:
        """Give a run to the scheduler; what comes of it goes to ``local``.

        SchedulerLost where there is none any more, ConfigError for weights that are missing.
        """
        if self.client.status != "running":
            raise SchedulerLost("the scheduler is gone")
        config, root, beat = config_from(arguments[0]), Path(arguments[2]), arguments[7]
        given = self.weights_for(config, Store(root, read_only=False), beat)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # weights, where no disk is shared
            try:
                future = self.client.submit(
                    remote.compute, self.expected, list(arguments), given, pure=False, key=f"entp-{os.urandom(8).hex()}"
                )
            except Exception as error:
                raise in_words(error) from error
        with self.lock:
            self.futures[future.key] = future
            if beat:
                self.folders[Path(beat).name] = Path(beat).parent
        local.add_done_callback(lambda done: self.forget(future) if done.cancelled() else None)
        future.add_done_callback(lambda done: self.deliver(done, local, arguments, turn))

    def weights_for(self, config: Any, store: Store, beat: str) -> dict[str, bytes]:
        """The weights that a run starts from, by name, where some worker does not see this store."""
        names = remote.needed_weights(config)
        folder = str(Path(beat).parent) if beat else ""
        if names and folder not in self.apart:
            try:
                seen = self.client.run(remote.sees, folder, on_error="return").values()
            except Exception as error:
                raise SchedulerLost("the scheduler was lost") from error
            self.apart[folder] = not all(answer is True for answer in seen)
        return {name: weights_of(store, name).read_bytes() for name in names if self.apart[folder]}

    def deliver(self, future: Any, local: cf.Future, arguments: tuple, turn: int) -> None:
        """Say what came of a run, in words where it failed, and let go of it; one that never began has another turn."""
        try:
            status = future.status
            if status == "cancelled":
                raise SchedulerLost("the scheduler was lost")
            text, weights = future.result()
            if weights:
                record = Record.from_json(text)
                store = Store(Path(arguments[2]))
                write_atomically(store.weights_path(record.experiment, record.id), weights)
            result, error = text, None
        except Exception as caught:
            result, error = None, in_words(caught)
        innocent = isinstance(error, WorkerDied) and future.key not in self.begun
        self.forget(future)
        if innocent and turn < TURNS and not local.cancelled():
            try:
                return self.hand_over(local, arguments, turn + 1)
            except Exception as caught:
                error = caught
        with contextlib.suppress(cf.InvalidStateError):  # cancelled meanwhile
            local.set_exception(error) if error is not None else local.set_result(result)

    def forget(self, future: Any) -> None:
        """Let go of a run: the cluster drops its result, and a worker that is still at it stops at its next step."""
        with self.lock:
            self.futures.pop(future.key, None)
            self.begun.discard(future.key)
        with contextlib.suppress(Exception):  # the scheduler may be gone
            future.release()

    def note_step(self, event: tuple) -> None:
        """Write a step, which a worker without this disk tells, where the progress of a sweep is read."""
        name, step = event[1]
        folder = self.folders.get(name)
        with contextlib.suppress(OSError):  # the sweep may be over
            if folder is not None:
                (folder / name).write_text(str(step))

    def recovered(self, seconds: float | None = None) -> bool:
        """Whether the scheduler was found again, within ten minutes, with a worker to compute what is missing."""
        limit = time.monotonic() + (RECOVER_SECONDS if seconds is None else seconds)
        while time.monotonic() < limit and self.client.status not in ("closed", "closing"):
            with contextlib.suppress(Exception):  # not yet
                if self.client.status == "running" and self.client.run(os.getpid):
                    return True
            time.sleep(0.5)
        return False

    def staffed(self) -> bool:
        """Whether there is a worker; True where it cannot be told."""
        try:
            return bool(self.client.scheduler_info()["workers"])
        except Exception:  # a lost scheduler is another matter
            return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take back all runs that were handed over and have not ended."""
        with self.lock:
            futures, self.futures = list(self.futures.values()), {}
        if futures:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self.client.cancel(futures, force=True)


def in_words(error: Exception) -> Exception:
    """What a run's user should hear of an error of the cluster; an error of the run itself as it is."""
    kind = type(error).__name__
    if kind == "KilledWorker":
        return WorkerDied(
            f"{getattr(error, 'allowed_failures', 3) + 1} workers died computing it, perhaps for lack of memory; what "
            "was saved before is kept"
        )
    if kind in LOST:
        return SchedulerLost("the scheduler was lost")
    return error


@contextlib.contextmanager
def published(where: str, mixed: bool = False) -> Iterator[None]:
    """Within it, sweeps of this process and of those it starts use the cluster that ``where`` names; "" for none."""
    if not where:
        yield
        return
    with contextlib.ExitStack() as stack:
        kind, options = parsed(where)
        library("distributed")
        address, security = stack.enter_context(started(kind, options))
        changes = {VARIABLE: address, **({MIXED_VARIABLE: "1"} if mixed else {})}
        if kind != "address" and security is not None and address.startswith("tls://"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="entp-tls-")))  # its owner's alone
            for name, text in security.get_tls_config_for_role("client").items():
                if text and name in ("ca_file", "cert", "key"):
                    file = folder / f"{name}.pem"
                    file.write_text(text)
                    place = "CA_FILE" if name == "ca_file" else f"CLIENT__{name.upper()}"
                    changes[f"DASK_DISTRIBUTED__COMM__TLS__{place}"] = str(file)
        before = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)
        try:
            with connected(address, mixed):  # a mistake is told now, not by every notebook
                pass
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
