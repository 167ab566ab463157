"""One configuration to its record: trained or studied here and now, or found."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from entp_lab import ranks, stopping
from entp_lab.configs import ON_CPU, RunConfig, StudyConfig, canonical_json, config_id, to_dict
from entp_lab.loading import weights_of
from entp_lab.provenance import peak_memory, provenance, reset_peak_memory
from entp_lab.registry import STUDIES
from entp_lab.resume import CURRENT, StudyCheckpoint, trained
from entp_lab.stopping import Cut
from entp_lab.store import Record, RecordError, Store, is_complete
from entp_lab.weights import save_weights
from entp_lib import kernels
from entp_lib.validation import require

Config = RunConfig | StudyConfig


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
    stop: Callable[[], bool] | None = None,
) -> Record:
    """The record of ``config``: the stored one if it is complete, else computed now.

    ``fresh``: computed all the same; the stored one stays until its successor is complete. One thread, so that results
    do not depend on the number of cores. A run cut by ``deadline`` (on ``time.time``), by ``stop``, which is asked
    between steps, or by SIGTERM leaves its checkpoint, and a record marked partial where no complete one is; the next
    call continues. A damaged checkpoint is set aside with a warning. Under ``torchrun`` the ranks compute it together.
    """
    store, record_id = store or Store(), config_id(config, version)
    path = store.checkpoint_path(config.experiment, record_id)
    with store.lock(config.experiment, record_id):
        found = store.find(config, version)
        if is_complete(found) and not fresh:
            if not store.read_only:
                path.unlink(missing_ok=True)
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        study, status, threads_before = isinstance(config, StudyConfig), "complete", torch.get_num_threads()
        device = config.params.get("device", "cpu") if study else device or device_for(config.tier)
        reset_peak_memory(device)
        where = provenance(device, threads)
        text = canonical_json(to_dict(config))
        checkpoint = StudyCheckpoint(path, text, store.set_aside, where, deadline, stop, on_step)
        token = CURRENT.set(checkpoint)
        torch.set_num_threads(threads)
        if not study and config.train.precision == "bf16" and device == "cpu":
            where["kernels"] = kernels.kernel_names()
        try:
            # a loop that was asked to end leaves its record, too; what a study does behind its loop ends at once
            with checkpoint.deferred, contextlib.nullcontext() if study else stopping.defer_signals():
                try:
                    metrics, curves, model = computed(config, store, checkpoint, device)
                except Cut:
                    metrics, curves, model, status = {}, checkpoint.progress.curves, None, "partial"
                where |= checkpoint.times() | ({} if study else checkpoint.counts)
                where |= {"peak_memory_bytes": peak_memory(device), "load_at_end": round(os.getloadavg()[0], 2)}
                if checkpoint.processes:
                    where["steps"] = checkpoint.progress.step
                if len(checkpoint.processes) > 1:
                    where["earlier_processes"] = checkpoint.processes[:-1]
                    where["from_step"] = checkpoint.processes[-1]["from_step"]
                if device.startswith("cuda"):
                    del where["cpu_seconds"]  # says nothing of a run that waits for a GPU
                record = Record(config.experiment, version, config, metrics, curves, where, status)
                record = Record.from_json(record.to_json())  # as it is stored, so that new and reused ones are equal
                if model is not None:  # before the record, so that a complete one never lacks its weights
                    save_weights(store.weights_path(config.experiment, record_id), config, model, record.name)
                store.save(record)
                if is_complete(record):
                    path.unlink(missing_ok=True)
            if stopping.REQUEST.made and threading.current_thread() is threading.main_thread():
                raise stopping.Terminated
        finally:
            torch.set_num_threads(threads_before)
            CURRENT.reset(token)
    return record


def computed(
    config: Config, store: Store, checkpoint: StudyCheckpoint, device: str
) -> tuple[dict[str, Any], dict[str, list], nn.Module | None]:
    """Metrics, curves, and the model where a training run has one; Cut where it was asked to end.

    A study starts before the deadline or not at all. One that is about a trained model has its run as the parameter
    ``weights`` and is given their file.
    """
    if isinstance(config, StudyConfig):
        study, params = STUDIES.named(config.study), dict(config.params)
        if checkpoint.deadline is not None and time.time() >= checkpoint.deadline:
            raise TimeoutError("the time limit passed before it started")
        if "weights" in params:
            params["weights"] = weights_of(store, params["weights"], config.tier)
        return *study(**params), None
    start = functools.partial(weights_of, store, config.start_from, config.tier) if config.start_from else None
    team = ranks.joined()
    if team is not None:
        checkpoint.process["ranks"] = team.size
    with team.together(device) if team else contextlib.nullcontext():
        outcome = trained(config, start=start, device=device, ranks=team)
    return outcome.metrics, outcome.state.curves, outcome.model


def check_can_compute(todo: Sequence[Config], version: int, store: Store) -> None:
    """Raise before any compute is spent where records are missing from a read-only or unwritable store."""
    if store.read_only:
        names = [f"{c.experiment}/{config_id(c, version)}" for c in todo]
        more = f" and {len(todo) - 3} more" if len(todo) > 3 else ""
        raise RecordError(
            f"missing or partial: record {', '.join(names[:3])}{more} (tier {todo[0].tier}, below {store.root}); "
            "the store is read-only, so nothing is computed. Run ./run_all.sh to make it."
        )
    store.check_writable()


def device_for(tier: str) -> str:
    """``cpu`` up to overnight, so that those records are comparable; ``cuda`` for gpu; either for paper."""
    gpu = tier not in ON_CPU and torch.cuda.is_available()
    hint = "use --tier quick, or run it on a machine that has one"
    require(gpu or tier != "gpu", f"tier gpu needs a CUDA GPU and torch sees none; {hint}")
    return "cuda" if gpu else "cpu"
