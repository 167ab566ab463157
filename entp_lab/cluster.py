"""Compute runs on the workers of a Dask scheduler, ``--cluster ADDRESS``. Needs the extra ``cluster``.

Starting a scheduler and its workers, and their encryption, is left to Dask's own configuration (docs/scale.md).
"""

import concurrent.futures as cf
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from entp_lab.store import CLUSTER_VARIABLE
from entp_lib.data.sources import import_optional
from entp_lib.validation import ConfigError

CONNECT_SECONDS = 10.0


def publish(address: str) -> None:
    """Let sweeps of this process and its children use the cluster at ``address``; ConfigError if none answers."""
    if address:
        with connected(address):
            os.environ[CLUSTER_VARIABLE] = address


@contextlib.contextmanager
def connected(address: str) -> Iterator["Workers | None"]:
    """Connect to the scheduler at ``address``; ConfigError if none answers. Unfinished runs end with the block.

    If a worker dies, the scheduler gives its run to another one, which continues from the checkpoint. Yields None for
    no address.
    """
    if not address:
        yield None
        return
    distributed = import_optional("distributed", "--cluster", "cluster")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"--cluster {address}: no scheduler answers there ({reason})") from error
    try:
        yield Workers(client)
    finally:
        with contextlib.suppress(Exception):  # closing fails if the scheduler is gone
            client.close(timeout=5)


class Workers(cf.Executor):
    """Dask's executor, whose runs stop once they are cancelled."""

    def __init__(self, client: Any):
        self.executor = client.get_executor(pure=False)

    def submit(self, function: Callable, /, *args, **options) -> cf.Future:
        """Call ``function`` on a worker; its argument ``stop`` says whether the call was cancelled."""
        return self.executor.submit(until_cancelled, function, *args, **options)


def until_cancelled(function: Callable, *args, **options) -> Any:
    """Call ``function`` on a worker with a ``stop`` that says whether this call was cancelled."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state in ("cancelled", "released")

    return function(*args, stop=cancelled, **options)
