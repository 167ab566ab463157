"""Weights of finished runs: found by the name of a record, taken from the checkpoint of the end, loaded as a model."""

import contextlib
import shlex
from pathlib import Path

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig
from entp_lib.models import Transformer, build_model
from entp_lib.records.store import OWN, Record, Store, is_complete
from entp_lib.training.checkpoints import read_checkpoint
from entp_lib.training.weights import SUFFIX, DamagedFileError, save_weights, trained_model
from entp_lib.validation import ConfigError, require

OWN_COMMANDS = {"own_text": ("text", "corpus"), "own_data": ("data", "file")}  # with the parameter that is the file


def load_model(name: str | Path, store: Store | None = None) -> Transformer:
    """The trained model of a run, ready for evaluation: ``load_model("count3/0117429f1920aca1")``.

    ``name``: "experiment/id" of its record, the id as short as it is unique, or the path of a file of weights. Runs of
    ``python -m entp_lib text`` are found too. ConfigError where there is no such run, and where its weights, of which
    git keeps two, are not here: it names the command that makes them, for a run of the tiers. A study has none.
    """
    return load_run(name, store)[1]


def load_run(name: str | Path, store: Store | None = None) -> tuple[RunConfig, Transformer]:
    """``load_model`` with the configuration that the weights were trained by."""
    path = find_weights(name, store)
    try:
        return trained_model(path)
    except DamagedFileError as error:
        other = f"{path} holds no weights of a finished run: perhaps the checkpoint of one in progress, or damaged ones"
        raise ConfigError(str(error) if path.name.endswith(SUFFIX) else other) from error


def find_weights(name: str | Path, store: Store | None = None) -> Path:
    """The file of weights of a run's name, or of its own path. ConfigError as ``load_model``."""
    name = str(name)
    if name.endswith(".safetensors"):
        require(Path(name).is_file(), f"{name}: no such file of weights")
        return Path(name)
    experiment, slash, beginning = name.partition("/")
    named = bool(slash and experiment and beginning)
    require(named, f"run {name!r}: write experiment/id, as in count3/0117429f1920aca1")
    # of the tiers, of one's own runs, and the few that git keeps
    kept = paths.of_repository("results") / "weights" if paths.has_repository() else paths.results() / "weights"
    stores = [store] if store else [Store(), Store(paths.results() / OWN), Store(kept)]
    having = {s: run_ids(s, experiment) for s in stores}
    found = sorted({i for ids in having.values() for i in ids if i.startswith(beginning)})
    if not found:
        here = [p for s in stores for p in sorted((s.root / "checkpoints").glob(f"*/*{SUFFIX}"))]
        here = [f"{p.parent.name}/{p.name.removesuffix(SUFFIX)}" for p in here]
        here = [n for n in here if n.startswith(f"{experiment}/")] or here
        known = f"weights here: {', '.join(here[:4])}{' …' if len(here) > 4 else ''}" if here else "no weights are here"
        raise ConfigError(f"no run {name}; {known}")
    require(len(found) == 1, f"run {name}: begins {len(found)} ids, {', '.join(found[:3])}; write more of it")
    where = [s for s, ids in having.items() if found[0] in ids]
    with_weights = [s for s in where if s.weights_path(experiment, found[0]).exists()]
    place, name = (with_weights or where)[0], f"{experiment}/{found[0]}"
    if store is None and not with_weights and paths.has_repository():
        left = place.checkpoint_path(experiment, found[0]).exists()  # of the run's end, where a crash left it
        require(left, missing(place, name, place.load(experiment, found[0]), apart=True))
    return weights_of(place, name)


def run_ids(store: Store, experiment: str) -> set[str]:
    """Ids of an experiment that have a record or weights."""
    weights = (store.root / "checkpoints" / experiment).glob(f"*{SUFFIX}")
    records = (store.root / "records" / experiment).glob("*.json")
    return {path.name.removesuffix(SUFFIX).removesuffix(".json") for path in (*records, *weights)}


def weights_of(store: Store, name: str, tier: str = "") -> Path:
    """Where the run ``name`` ("experiment/id") left its weights, which are sound and its own.

    Damaged ones are set aside with a warning. Weights that are missing are taken from the checkpoint of the run's
    end, where a crash left that; ConfigError with the command that makes them where there is nothing to take. ``tier``:
    that of the run that starts from them, for the command where they have no record.
    """
    experiment, record_id = name.split("/")
    path = store.weights_path(experiment, record_id)
    places = [path]
    if store.root.name == OWN:  # a run of one's own may start from one of the project's
        places.append(Store(store.root.parent, store.read_only).weights_path(experiment, record_id))
    for place in places:
        with contextlib.suppress(DamagedFileError):
            trained_model(place, name)
            return place
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
        if is_complete(record) and restore_weights(store, record):
            return path
    raise ConfigError(missing(store, name, record, tier))


def restore_weights(store: Store, record: Record) -> bool:
    """Take the weights of a complete record from its checkpoint, if one of the run's end is left; whether it was."""
    checkpoint = store.checkpoint_path(record.experiment, record.id)
    if store.read_only or not checkpoint.exists():
        return False
    config, model = record.config, build_model(record.config.model)
    try:
        state, tensors = read_checkpoint(checkpoint, config, model)
    except DamagedFileError as error:
        store.set_aside(checkpoint, error.why)
        return False
    if not state.has_ended(config):
        return False
    model.load_state_dict({key: tensors[f"model.{key}"] for key, _ in model.named_parameters()}, strict=False)
    save_weights(store.weights_path(record.experiment, record.id), config, model, record.name)
    checkpoint.unlink(missing_ok=True)
    return True


def missing(store: Store, name: str, record: Record | None, tier: str = "", apart: bool = False) -> str:
    """Message that a run's weights are not here, with the command that makes them.

    ``apart``: in a store of their own, so that no committed record is written over.
    """
    experiment, record_id = name.split("/")
    said = f"the weights of {name} are missing ({paths.relative(store.weights_path(experiment, record_id))})"
    if record is not None and experiment in OWN_COMMANDS:
        command, field = OWN_COMMANDS[experiment]
        file = shlex.quote(str(record.config.task_params[field]))
        again = f"{paths.program()} {command} {file} --fresh"
        return f"{said}; this makes them again, with the other options of that run: {again}"
    if record is not None and isinstance(record.config, StudyConfig):
        return f"{name} is a study, which leaves a record and no weights"
    if apart and store.root.name == OWN:  # of changed settings, or of more seeds than a tier has
        return f"{said}; what made that run, with --fresh, or fresh = True in its notebook, makes them again"
    command = f"{paths.program()} train {experiment}"
    if record is not None:
        config = record.config
        command += f" --tier {config.tier} --seeds {config.model_seed + 1} --run {record.id}"
        if config.train.gradient_shards > 1:
            command += f" --gradient-shards {config.train.gradient_shards}"
    elif tier:
        command += f" --tier {tier}"
    if apart:
        own = paths.relative(paths.results() / OWN)
        return f"{said}: git keeps records, not weights; this makes them: {command} --results {own}"
    command += " --fresh" * (record is not None)
    if not paths.has_repository() or store.root.resolve() != paths.results().resolve():
        command += f" --results {store.root}"
    return f"{said}; this makes them: {command}"
