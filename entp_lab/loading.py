"""Weights of finished runs: found by the name of a record, and loaded as a model."""

import contextlib
import shlex
from pathlib import Path

from entp_lab import paths
from entp_lab.configs import RunConfig, StudyConfig
from entp_lab.store import OWN, Record, Store
from entp_lab.weights import trained_model
from entp_lib.checkpoint import SUFFIX, DamagedFileError
from entp_lib.model import Transformer
from entp_lib.validation import ConfigError, require


def load_model(name: str | Path, store: Store | None = None) -> Transformer:
    """The trained model of a run, ready for evaluation: ``load_model("count3/0117429f1920aca1")``.

    ``name``: "experiment/id" of its record, the id as short as it is unique, or the path of a file of weights. Runs of
    ``python -m entp_lab text`` are found too. ConfigError where there is no such run, or where its weights are not
    here: it names the command that makes them. A study has none.
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
    files = [p for s in stores for p in sorted((s.root / "checkpoints").glob(f"*/*{SUFFIX}"))]
    records = [p for s in stores for p in (s.root / "records" / experiment).glob("*.json")]
    mine = [p for p in (*files, *records) if p.parent.name == experiment]
    found = sorted({i for p in mine if (i := p.name.partition(".")[0]).startswith(beginning)})
    if not found:
        here = [f"{p.parent.name}/{p.name.removesuffix(SUFFIX)}" for p in files]
        here = [n for n in here if n.startswith(f"{experiment}/")] or here
        known = f"weights here: {', '.join(here[:4])}{' …' if len(here) > 4 else ''}" if here else "no weights are here"
        raise ConfigError(f"no run {name}; {known}")
    require(len(found) == 1, f"run {name}: begins {len(found)} ids, {', '.join(found[:3])}; write more of it")
    name = f"{experiment}/{found[0]}"
    for place in stores:
        if place.weights_path(experiment, found[0]).exists():
            return weights_of(place, name)
    place = next((s for s in stores if s.path(experiment, found[0]).exists()), stores[0])
    committed = store is None and paths.has_repository()
    raise ConfigError(missing(place, name, place.load(experiment, found[0]), apart=committed))


def weights_of(store: Store, name: str, tier: str = "") -> Path:
    """Where the run ``name`` ("experiment/id") left its weights, sound and its own; damaged ones are set aside.

    ConfigError with the command that makes them where there are none; ``tier``: that of the run that starts from them.
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
    with store.lock(experiment, record_id):  # whoever computes the run may have written them just now
        try:
            if path.exists():
                trained_model(path, name)
                return path
        except DamagedFileError as error:
            if store.read_only:
                raise
            store.set_aside(path, error.why)
        raise ConfigError(missing(store, name, store.load(experiment, record_id), tier))


def missing(store: Store, name: str, record: Record | None, tier: str = "", apart: bool = False) -> str:
    """Message that weights are not here, and what makes them; ``apart``: in a store of their own."""
    experiment, record_id = name.split("/")
    said = f"the weights of {name} are missing ({paths.relative(store.weights_path(experiment, record_id))})"
    config = record and record.config
    if isinstance(config, StudyConfig):
        return f"{name} is a study, which leaves a record and no weights"
    if experiment.startswith("own_") or (apart and store.root.name == OWN):  # of one's own file, or changed settings
        return f"{said}; what made that run, with --fresh, or fresh = True in its notebook, makes them again"
    command = f"{paths.program()} train {experiment}"
    if config:
        command += f" --tier {config.tier} --seeds {config.model_seed + 1} --run {record_id}"
    elif tier:
        command += f" --tier {tier}"
    if apart:
        own = paths.relative(paths.results() / OWN)
        return f"{said}: git keeps records, not weights; this makes them: {command} --results {shlex.quote(str(own))}"
    place = f" --results {shlex.quote(str(store.root))}"
    elsewhere = not paths.has_repository() or store.root.resolve() != paths.results().resolve()
    return f"{said}; this makes them: {command}" + " --fresh" * bool(config) + place * elsewhere
