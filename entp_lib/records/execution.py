"""One configuration to its record: trained or studied here and now, or found."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from entp_lib.config import ON_CPU, RunConfig, StudyConfig, canonical_json, config_id, to_dict
from entp_lib.records import ranks, stopping
from entp_lib.records.loading import restore_weights, weights_of
from entp_lib.records.provenance import load_average, peak_memory, provenance, reset_peak_memory
from entp_lib.records.resuming import Cut, StudyCheckpoint, checkpointed
from entp_lib.records.store import Record, RecordError, Store, is_complete
from entp_lib.registry import STUDIES, resumable
from entp_lib.training.loop import Outcome, train
from entp_lib.training.tensors import DamagedFileError
from entp_lib.training.weights import save_weights
from entp_lib.validation import ConfigError

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

    ``fresh``: computed all the same; the stored one stays until its successor is complete. One thread per run is the
    default, so that results do not depend on the number of cores. A run cut by ``deadline`` (on ``time.monotonic``), by
    ``stop``, which is asked between steps, or by SIGTERM leaves its checkpoint, and a record marked partial where no
    complete one is; the next call continues. Under ``torchrun`` the ranks compute it together.

    A damaged checkpoint is set aside with a warning and the run starts anew.
    """
    store = store or Store()
    record_id = config_id(config, version)
    with store.lock(config.experiment, record_id):
        found = store.find(config, version)
        if is_complete(found) and not fresh:
            finish_interrupted_save(store, found)
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        if isinstance(config, StudyConfig):
            device = config.params.get("device", "cpu")  # nothing else gives a study a GPU
        device = device or device_for(config.tier)
        checkpoint = store.checkpoint_path(config.experiment, record_id)
        reset_peak_memory(device)
        where, before = provenance(device, threads), torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with contextlib.ExitStack() as deferred:  # a loop that was asked to end leaves its record, too
                if isinstance(config, StudyConfig):
                    kept = StudyCheckpoint(checkpoint, canonical_json(to_dict(config)), store.set_aside, where)
                    kept.deadline, kept.stop, kept.on_step, kept.deferred = deadline, stop, on_step, deferred
                    found, model = study_record(config, version, where, store, kept), None
                else:
                    deferred.enter_context(stopping.defer_signals())
                    options = dict(device=device, deadline=deadline, on_step=on_step)
                    options["stop"] = lambda: stopping.REQUEST.made() or (stop is not None and stop())
                    outcome, team = trained(config, store, checkpoint, where, **options)
                    found, model = training_record(config, version, where | team, outcome), outcome.model
                record = save(store, found, device, model)
            stopping.raise_if_asked()
        finally:
            torch.set_num_threads(before)
    return record


def save(store: Store, record: Record, device: str, model: torch.nn.Module | None) -> Record:
    """Save a record that was just computed and return it as stored, so that new and reused records are equal.

    The weights of a complete run come first, so that it never lacks them.
    """
    record.provenance["peak_memory_bytes"] = peak_memory(device)
    record.provenance["load_at_end"] = load_average()
    if device.startswith("cuda"):
        del record.provenance["cpu_seconds"]  # says nothing of a run that waits for a GPU
    record = Record.from_json(record.to_json())
    if model is not None and is_complete(record):
        weights = store.weights_path(record.experiment, record.id)
        save_weights(weights, record.config, model, f"{record.experiment}/{record.id}")
    store.save(record)
    if is_complete(record):
        store.checkpoint_path(record.experiment, record.id).unlink(missing_ok=True)
    return record


def continued(config: RunConfig, store: Store, checkpoint: Path, **options) -> Outcome:
    """Train from the checkpoint if there is a sound one, else from the beginning."""

    def start() -> Path | None:
        begins = config.start_from and not checkpoint.exists()
        return weights_of(store, config.start_from, config.tier) if begins else None

    try:
        return train(config, checkpoint=checkpoint, start=start(), **options)
    except DamagedFileError as error:
        if error.path != checkpoint:
            raise
        store.set_aside(checkpoint, error.why)
    return train(config, checkpoint=checkpoint, start=start(), **options)


def trained(config: RunConfig, store: Store, checkpoint: Path, where: dict, **options) -> tuple[Outcome, dict]:
    """``continued``, by all ranks together where this one leads some; and what provenance says of them."""
    team = ranks.current()
    if team is None:
        return continued(config, store, checkpoint, process=where, **options), {}
    said = {"ranks": team.size}
    options["device"] = ranks.own_device(options["device"])
    with team.announced(config, options["device"]):
        return continued(config, store, checkpoint, process=where | said, team=team, **options), said


def training_record(config: RunConfig, version: int, where: dict[str, Any], outcome: Outcome) -> Record:
    """The record of a training run; partial where it did not reach its end."""
    state = outcome.state
    where = where | {
        "steps": state.step,
        "token_forwards": state.token_forwards,
        "train_seconds": state.seconds,
        "wall_seconds": state.wall_seconds,
        "cpu_seconds": state.cpu_seconds,
    }
    if len(state.processes) > 1:
        where["earlier_processes"] = state.processes[:-1]
    status = "complete" if outcome.complete else "partial"
    return Record(config.experiment, version, config, outcome.metrics, state.curves, where, status)


def study_record(
    config: StudyConfig, version: int, where: dict[str, Any], store: Store, kept: StudyCheckpoint
) -> Record:
    """The record of a study; partial where its training was cut. It starts before the deadline or not at all.

    One that is about a trained model has its run as the parameter ``weights`` and is given their file.
    """
    study = STUDIES.named(config.study)
    if kept.deadline is not None and time.monotonic() >= kept.deadline:
        raise TimeoutError("the time limit passed before it started")
    params = dict(config.params)
    if "weights" in params:
        params["weights"] = weights_of(store, params["weights"], config.tier)
    status = "complete"
    try:
        with checkpointed(kept):
            metrics, curves = study(**params)
    except Cut as cut:
        metrics, curves, status = {}, cut.progress.curves, "partial"
    where = where | kept.times()
    if kept.processes:
        where["steps"] = kept.step
    if len(kept.processes) > 1:
        where["earlier_processes"] = kept.processes[:-1]
    return Record(config.experiment, version, config, metrics, curves, where, status)


def check_can_compute(todo: Sequence[Config], version: int, store: Store) -> None:
    """Raise before any compute is spent where records are missing from a read-only or unwritable store."""
    if store.read_only:
        names = ", ".join(f"{c.experiment}/{config_id(c, version)}" for c in todo[:3])
        place = store.path(todo[0].experiment, config_id(todo[0], version)).parent.parent
        more = f" and {len(todo) - 3} more" if len(todo) > 3 else ""
        raise RecordError(
            f"missing or partial: record {names}{more} (tier {todo[0].tier}, below {place}); "
            "the store is read-only, so nothing is computed. Run ./run_all.sh to make it."
        )
    store.check_writable()


def progress_steps(config: Config) -> int:
    """Steps that a run reports while it goes on: those of its training loop, 1 where it has none."""
    return config.steps if isinstance(config, RunConfig) or resumable(config.study) else 1


def device_for(tier: str) -> str:
    """``cpu`` up to overnight, so that those records are comparable; ``cuda`` for gpu; either for paper."""
    if tier in ON_CPU:
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if tier == "gpu":
        raise ConfigError(
            "tier gpu needs a CUDA GPU and torch sees none; use --tier quick, or run it on a machine that has one"
        )
    return "cpu"


def local_deadline(deadline: float | None) -> float | None:
    """A deadline on ``time.time`` as one on this process's ``time.monotonic``."""
    return None if deadline is None else time.monotonic() + deadline - time.time()


def finish_interrupted_save(store: Store, record: Record) -> None:
    """Finish what a crash right after saving a complete record left: its checkpoint, and perhaps no weights yet."""
    checkpoint = store.checkpoint_path(record.experiment, record.id)
    if store.read_only or not checkpoint.exists():
        return
    if isinstance(record.config, StudyConfig) or store.weights_path(record.experiment, record.id).exists():
        checkpoint.unlink(missing_ok=True)
    else:
        restore_weights(store, record)
