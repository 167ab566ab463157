"""Many runs on the workers of a Dask scheduler, ``--cluster ADDRESS``. Needs the extra ``cluster``.

How a scheduler and its workers are started, and with what encryption, is Dask's own configuration (docs/scale.md).
"""

import concurrent.futures as cf
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from entp_lab.store import CLUSTER_VARIABLE
from entp_lib.data.sources import library
from entp_lib.validation import ConfigError

CONNECT_SECONDS = 10.0


def publish(address: str) -> None:
    """Let sweeps of this process and those it starts use the cluster at ``address``; ConfigError where none answers."""
    if address:
        with connected(address):
            os.environ[CLUSTER_VARIABLE] = address


@contextlib.contextmanager
def connected(address: str) -> Iterator["Workers"]:
    """Connect to the scheduler at ``address``; ConfigError where none answers. Runs that are left end with the block.

    The scheduler gives a dead worker's run to another, which continues it from its checkpoint.
    """
    distributed = library("distributed", "--cluster", "cluster")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"--cluster {address}: no scheduler answers there ({reason})"
        raise ConfigError(message) from error
    try:
        yield Workers(client)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone cannot say goodbye
            client.close(timeout=5)


class Workers(cf.Executor):
    """Dask's executor, whose runs stop when nobody waits for them any more."""

    def __init__(self, client: Any):
        self.executor = client.get_executor(pure=False)

    def submit(self, function: Callable, /, *args, **options) -> cf.Future:
        """Have a worker call ``function``, with ``stop`` to ask whether it is cancelled."""
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
