"""One configuration to its record: trained or studied here and now, or found."""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from entp_lib import paths
from entp_lib.config import ON_CPU, RunConfig, StudyConfig, canonical_json, config_id, to_dict
from entp_lib.runs import ranks, stopping
from entp_lib.runs.generations import is_done
from entp_lib.runs.provenance import load_average, peak_memory, provenance, reset_peak_memory
from entp_lib.runs.records import OWN, Record, RecordError, Store
from entp_lib.runs.resuming import Cut, Keeping, kept
from entp_lib.runs.studies import study_named
from entp_lib.strict import ConfigError
from entp_lib.training.checkpoints import weights_from_checkpoint
from entp_lib.training.loop import Outcome, train
from entp_lib.training.tensors import DamagedFileError
from entp_lib.training.weights import save_weights, trained_model

Config = RunConfig | StudyConfig


def run(
    config: Config,
    version: int,
    *,
    store: Store | None = None,
    generation: str = "",
    device: str | None = None,
    threads: int = 1,
    deadline: float | None = None,
    on_step: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Record:
    """The record of ``config``: the stored one if it is complete, else computed now.

    ``generation``: the token of a fresh generation, for which only its own records count. One thread per run is the
    default, so that results do not depend on the number of cores. A run cut by ``deadline`` (on ``time.monotonic``),
    by ``stop``, which is asked between steps, or by SIGTERM leaves its checkpoint, and a record marked partial where
    no complete one is; the next call continues. Under ``torchrun`` the ranks compute it together.

    A damaged checkpoint is set aside with a warning and the run starts anew.
    """
    store = store or Store()
    record_id = config_id(config, version)
    with store.lock(config.experiment, record_id):
        found = store.find(config, version)
        if is_done(found, generation):
            tidy(store, found)
            return found  # stored before, or by another process while this one waited for the lock
        check_can_compute([config], version, store)
        if isinstance(config, StudyConfig):
            device = config.params.get("device", "cpu")  # nothing else gives a study a GPU
        device = device or device_for(config.tier)
        reset_peak_memory(device)
        where = provenance(device, threads) | ({"generation": generation} if generation else {})
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            checkpoint = own_checkpoint(store, config.experiment, record_id, generation)
            if isinstance(config, StudyConfig):
                keeping = Keeping(checkpoint, canonical_json(to_dict(config)), store.set_aside, where, deadline, stop)
                keeping.on_step = on_step
                with keeping.inside:  # a loop that was asked to end leaves its record, too
                    record = study_record(config, version, where, store, keeping)
                    save(store, record, device)
                stopping.end_if_asked()
            else:
                with stopping.finishing_first():
                    options = dict(device=device, deadline=deadline, on_step=on_step)
                    options["stop"] = lambda: stopping.REQUEST.made() or (stop is not None and stop())
                    outcome, team = trained(config, store, checkpoint, where, **options)
                    record = training_record(config, version, where | team, outcome)
                    save(store, record, device, outcome.model)
        finally:
            torch.set_num_threads(before)
    return Record.from_json(record.to_json())  # rounded as stored, so that new and reused records are equal


def save(store: Store, record: Record, device: str, model: torch.nn.Module | None = None) -> None:
    """Save a record that was just computed; the weights of a complete run first, so that it never lacks them."""
    record.provenance["peak_memory_bytes"] = peak_memory(device)
    record.provenance["load_at_end"] = load_average()
    if device.startswith("cuda"):
        del record.provenance["cpu_seconds"]  # says nothing of a run that waits for a GPU
    if model is not None and record.status == "complete":
        weights = store.weights_path(record.experiment, record.id)
        save_weights(weights, record.config, model, f"{record.experiment}/{record.id}")
    store.save(record)
    if record.status == "complete":
        remove_checkpoints(store, record.experiment, record.id)


def own_checkpoint(store: Store, experiment: str, record_id: str, generation: str) -> Path:
    """Where the run continues from. Without a generation it takes over what a fresh run left unfinished."""
    path = store.checkpoint_path(experiment, record_id, generation)
    left = store.fresh_checkpoints(experiment, record_id)
    if not generation and left and not path.exists():
        os.replace(left[-1], path)
    return path


def remove_checkpoints(store: Store, experiment: str, record_id: str) -> None:
    """Remove what a run in progress needed, now that its record and its weights are there."""
    for path in (store.checkpoint_path(experiment, record_id), *store.fresh_checkpoints(experiment, record_id)):
        path.unlink(missing_ok=True)


def continued(config: RunConfig, store: Store, checkpoint: Path, **options) -> Outcome:
    """Train from the checkpoint if there is a sound one, else from the beginning."""

    def start() -> Path | None:
        return (
            weights_of(store, config.start_from, config.tier) if config.start_from and not checkpoint.exists() else None
        )

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


def training_record(config: RunConfig, version: int, where: dict, outcome: Outcome) -> Record:
    """What ``train`` left, as a record; partial where it did not reach its end."""
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


def study_record(config: StudyConfig, version: int, where: dict, store: Store, keeping: Keeping) -> Record:
    """What a study finds, as a record; partial where its training was cut. It starts before the deadline or not at all.

    One that is about a trained model has its run as the parameter ``weights`` and is given their file.
    """
    study = study_named(config.study)
    if keeping.deadline is not None and time.monotonic() >= keeping.deadline:
        raise TimeoutError("the time limit passed before it started")
    params = dict(config.params)
    if "weights" in params:
        params["weights"] = weights_of(store, params["weights"], config.tier)
    status = "complete"
    try:
        with kept(keeping):
            metrics, curves = study(**params)
    except Cut as cut:
        metrics, curves, status = {}, cut.progress.curves, "partial"
    where = where | keeping.times()
    if keeping.processes:
        where["steps"] = keeping.step
    if len(keeping.processes) > 1:
        where["earlier_processes"] = keeping.processes[:-1]
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


def weights_of(store: Store, name: str, tier: str = "") -> Path:
    """Where the run ``name`` ("experiment/id") left its weights, which are sound and its own.

    Damaged ones are set aside with a warning. Weights that are missing are taken from the checkpoint of the run's
    end, where a crash left that; ConfigError with the command that makes them where there is nothing to take. ``tier``:
    that of whoever needs them, for the command where they have no record.
    """
    experiment, record_id = name.split("/")
    path = store.weights_path(experiment, record_id)
    if sound_weights(path, name):
        return path
    if store.root.name == OWN:  # a run of one's own may start from one of the project's
        planned = Store(store.root.parent, store.read_only).weights_path(experiment, record_id)
        if sound_weights(planned, name):
            return planned
    with store.lock(experiment, record_id):  # whoever computes the run may be writing them just now
        try:
            if path.exists():
                trained_model(path, name)
                return path
        except DamagedFileError as error:
            if store.read_only:
                raise
            store.set_aside(path, error.why)
        record = store.load(experiment, record_id)
        if record is not None and record.status == "complete" and restore_weights(store, record):
            return path
    if record is not None and experiment in OWN_COMMANDS:
        raise ConfigError(f"the weights of {name} are missing ({paths.relative(path)}); {own_command(record)}")
    command = train_command(experiment, record, tier) + " --fresh" * (
        record is not None
    )  # git keeps records, not weights
    if not paths.has_repository() or store.root.resolve() != paths.results().resolve():
        command += f" --results {store.root}"
    raise ConfigError(f"the weights of {name} are missing ({paths.relative(path)}); this makes them: {command}")


OWN_COMMANDS = {"own_text": ("text", "corpus"), "own_data": ("data", "file")}  # with the parameter that is the file


def own_command(record: Record) -> str:
    """What makes the weights of a run on the user's own file again."""
    command, field = OWN_COMMANDS[record.experiment]
    file = shlex.quote(str(record.config.task_params[field]))
    return f"this makes them again, with the other options of that run: {paths.program()} {command} {file} --fresh"


def train_command(experiment: str, record: Record | None, tier: str = "") -> str:
    """The command that computes a run: it alone where its record is there, else all of its ``tier``."""
    command = f"{paths.program()} train {experiment}"
    if record is None or not isinstance(record.config, RunConfig):
        return command + (f" --tier {tier}" if tier and record is None else "")
    shards = record.config.train.gradient_shards
    command += f" --tier {record.config.tier} --seeds {record.config.model_seed + 1} --run {record.id}"
    return command + (f" --gradient-shards {shards}" if shards > 1 else "")


def sound_weights(path: Path, name: str) -> bool:
    """Whether the weights of the run ``name`` lie at ``path`` unharmed."""
    try:
        trained_model(path, name)
    except DamagedFileError:
        return False
    return True


def restore_weights(store: Store, record: Record) -> bool:
    """Take the weights of a complete record from its checkpoint, if one of the run's end is left; whether it was."""
    checkpoint, path = (f(record.experiment, record.id) for f in (store.checkpoint_path, store.weights_path))
    if store.read_only or not checkpoint.exists():
        return False
    try:
        found = weights_from_checkpoint(checkpoint, path, record.config, f"{record.experiment}/{record.id}")
    except DamagedFileError as error:
        store.set_aside(checkpoint, error.why)
        return False
    if found:
        checkpoint.unlink(missing_ok=True)
    return found


def tidy(store: Store, record: Record) -> None:
    """Finish what a crash right after saving a complete record left: its checkpoint, and perhaps no weights yet."""
    checkpoint = store.checkpoint_path(record.experiment, record.id)
    if store.read_only or not checkpoint.exists():
        return
    if isinstance(record.config, StudyConfig) or store.weights_path(record.experiment, record.id).exists():
        checkpoint.unlink(missing_ok=True)
    else:
        restore_weights(store, record)
