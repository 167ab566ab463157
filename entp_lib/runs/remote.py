"""A cluster worker's side: one run in this process, and what tells whether it is fit for it. Plain types in and out."""

import platform
import time
from pathlib import Path
from typing import Any

import torch

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig, config_from
from entp_lib.files import write_atomically
from entp_lib.runs.deadlines import local_deadline
from entp_lib.runs.execution import run
from entp_lib.runs.progress import Heartbeat
from entp_lib.runs.provenance import sources
from entp_lib.runs.records import Store
from entp_lib.strict import require

STEPS, BEGUN, TELL_SECONDS = "entp-steps", "entp-begun", 2.0


def versions() -> dict[str, str]:
    """What must agree between processes whose records are compared."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"sources": sources(), "torch": torch.__version__.split("+")[0], "python": python}


def describe(dask_worker: Any) -> dict[str, Any]:
    """``versions`` of a worker's process, and how many runs it would compute at a time."""
    return {**versions(), "nthreads": dask_worker.state.nthreads}


def check(found: dict[str, Any], expected: dict[str, str], who: str) -> None:
    """ConfigError where a process computes several runs at a time, or has other versions than expected."""
    require(
        found["nthreads"] == 1,
        f"{who} computes {found['nthreads']} runs at a time in one process: start it with --nthreads 1",
    )
    for name, wanted in expected.items():
        what = "sources of entp_lib" if name == "sources" else name
        require(
            found[name] == wanted,
            f"{who} has {what} {found[name]}, not {wanted}: pairs would be compared across both; --mixed allows it",
        )


def needed_weights(config: RunConfig | StudyConfig) -> list[str]:
    """The runs ("experiment/id") whose weights a configuration starts from."""
    name = config.params.get("weights") if isinstance(config, StudyConfig) else config.start_from
    return [name] if name else []


def sees(folder: str) -> bool:
    """Whether this process sees the caller's folder of progress, and so its store."""
    return bool(folder) and Path(folder).is_dir()


def compute(expected: dict[str, str], arguments: list, given: dict[str, bytes]) -> tuple[str, bytes | None]:
    """What ``workers.execute`` does with ``arguments``, on a cluster's worker: the record's text.

    Where this machine does not see the caller's disk, the run goes to the results of its own and the weights come
    back too; ``given`` are weights by name that it may start from. The run stops at its next step, leaving its
    checkpoint, when nobody wants it any more: cancelled, its caller gone, or the scheduler.
    """
    from distributed import Reschedule, get_worker

    worker = get_worker()
    check(describe(worker), expected, f"worker {worker.address}")
    config, version, root, generation, device, threads, deadline, beat = arguments
    config, key = config_from(config), worker.get_current_task()
    worker.log_event(BEGUN, key)
    shared = sees(str(Path(beat).parent) if beat else "")
    store = Store(root if shared else paths.results(), read_only=False)
    for name, content in given.items():
        path = store.weights_path(*name.split("/"))
        with store.lock(*name.split("/")):
            if not path.exists() or path.read_bytes() != content:  # those of an earlier sweep, or damaged
                write_atomically(path, content)
    if torch.cuda.device_count() > 1 and str(worker.name).isdigit():
        torch.cuda.set_device(int(worker.name) % torch.cuda.device_count())
    record = run(
        config,
        version,
        store=store,
        generation=generation,
        device=device,
        threads=threads,
        deadline=local_deadline(deadline),
        on_step=Heartbeat(Path(beat)) if shared else Teller(worker, Path(beat).name),
        stop=lambda: unwanted(worker, key),
    )
    if record.status == "partial" and not at_work(worker):
        raise Reschedule  # this worker ends, another one goes on
    weights = store.weights_path(record.experiment, record.id)
    fetch = not shared and record.status == "complete" and weights.exists()
    return record.to_json(), weights.read_bytes() if fetch else None


def unwanted(worker: Any, key: str) -> bool:
    """Whether a worker's task is computed for nobody any more."""
    task = worker.state.tasks.get(key)
    return not at_work(worker) or task is None or task.state in ("cancelled", "released")


def at_work(worker: Any) -> bool:
    """Whether a worker is not about to end."""
    return worker.status.name in ("running", "paused")


class Teller:
    """Tells a run's steps through the scheduler, at most every other second: for a worker with another disk."""

    def __init__(self, worker: Any, name: str):
        self.worker, self.name, self.last = worker, name, 0.0

    def __call__(self, step: int) -> None:
        now = time.monotonic()
        if self.name and now - self.last > TELL_SECONDS:
            self.last = now
            self.worker.log_event(STEPS, (self.name, step))
