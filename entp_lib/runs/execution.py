"""One configuration to its record: trained or studied here and now, or found."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig, config_id
from entp_lib.runs.provenance import peak_memory, provenance, reset_peak_memory
from entp_lib.runs.records import Record, RecordError, Store
from entp_lib.runs.studies import study_named
from entp_lib.strict import ConfigError
from entp_lib.training.loop import Outcome, train
from entp_lib.training.weights import save_weights

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
) -> Record:
    """The record of ``config``: the stored one if it is complete and ``fresh`` is not set, else computed now.

    One thread per run is the default, so that results do not depend on the number of cores. A run cut by
    ``deadline`` (on ``time.monotonic``) leaves a record marked partial and continues at the next call.
    """
    store = store or Store()
    record_id = config_id(config, version)
    with store.lock(config.experiment, record_id):
        found = None if fresh else store.find(config, version)
        if found is not None and found.status == "complete":
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        checkpoint = store.checkpoint_path(config.experiment, record_id)
        if fresh:
            checkpoint.unlink(missing_ok=True)
        start = None
        if getattr(config, "start_from", "") and not checkpoint.exists():
            start = weights_of(store, config.start_from)
        device = device or device_for(config.tier)
        reset_peak_memory(device)
        where = provenance(device, threads)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            if isinstance(config, StudyConfig):
                record = study_record(config, version, where, deadline, store)
            else:
                options = dict(checkpoint=checkpoint, start=start, deadline=deadline, on_step=on_step)
                outcome = train(config, device=device, **options)
                record = training_record(config, version, where, outcome)
        finally:
            torch.set_num_threads(before)
        record.provenance["peak_memory_bytes"] = peak_memory(device)
        store.save(record)
        if isinstance(config, RunConfig) and outcome.complete:
            save_weights(store.weights_path(config.experiment, record_id), config, outcome.model)
            checkpoint.unlink(missing_ok=True)
    return Record.from_json(record.to_json())  # rounded as stored, so that new and reused records are equal


def training_record(config: RunConfig, version: int, where: dict, outcome: Outcome) -> Record:
    """What ``train`` left, as a record; partial where it did not reach its end."""
    state = outcome.state
    where = where | {
        "steps": state.step,
        "token_forwards": state.token_forwards,
        "train_seconds": state.seconds,
        "wall_seconds": state.wall_seconds,
    }
    status = "complete" if outcome.complete else "partial"
    return Record(config.experiment, version, config, outcome.metrics, state.curves, where, status)


def study_record(config: StudyConfig, version: int, where: dict, deadline: float | None, store: Store) -> Record:
    """What a study finds, as a record. A study is short: it starts before the deadline, or not at all.

    One that is about a trained model has its run as the parameter ``weights`` and is given their file.
    """
    study = study_named(config.study)
    begun = time.monotonic()
    if deadline is not None and begun >= deadline:
        raise TimeoutError("the time limit passed before it started")
    params = dict(config.params)
    if "weights" in params:
        params["weights"] = weights_of(store, params["weights"])
    metrics, curves = study(**params)
    where = where | {"wall_seconds": time.monotonic() - begun}
    return Record(config.experiment, version, config, metrics, curves, where)


def check_can_compute(todo: Sequence[Config], version: int, store: Store) -> None:
    """Raise before any compute is spent where records are missing from a read-only or unwritable store."""
    if store.read_only:
        names = ", ".join(f"{c.experiment}/{config_id(c, version)}" for c in todo[:3])
        more = f" and {len(todo) - 3} more" if len(todo) > 3 else ""
        raise RecordError(
            f"missing or partial: record {names}{more} (tier {todo[0].tier}, below {store.root / 'records'}); "
            "the store is read-only, so nothing is computed. Run ./run_all.sh to make it."
        )
    store.check_writable()


def device_for(tier: str) -> str:
    """``cpu`` up to overnight, so that those records are comparable; ``cuda`` for gpu; either for paper."""
    if tier in ("smoke", "quick", "overnight"):
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if tier == "gpu":
        raise ConfigError(
            "tier gpu needs a CUDA GPU and torch sees none; use --tier quick, or run it on a machine that has one"
        )
    return "cpu"


def weights_of(store: Store, name: str) -> Path:
    """Where the run ``name`` ("experiment/id") left its weights; ConfigError with the command that makes them."""
    experiment, record_id = name.split("/")
    path = store.weights_path(experiment, record_id)
    if not path.exists():
        record, command = store.load(experiment, record_id), f"python -m entp_lib train {experiment}"
        if record is not None:  # records are kept in git, weights are not
            architecture = record.config.model.architecture
            command += f" --tier {record.config.tier} --architecture {architecture} --fresh"
        raise ConfigError(f"the weights of {name} are missing ({paths.shown(path)}); this makes them: {command}")
    return path
