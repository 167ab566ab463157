"""A finished run's trained model, by the name of its record: one call."""

from pathlib import Path

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig
from entp_lib.models import Transformer
from entp_lib.runs.execution import OWN_COMMANDS, own_command, train_command, weights_of
from entp_lib.runs.records import OWN, Store
from entp_lib.strict import ConfigError, require
from entp_lib.training.tensors import DamagedFileError
from entp_lib.training.weights import trained_model

SUFFIX = ".weights.safetensors"


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
    """The file of weights that a run's name, or its own path, stands for. ConfigError as ``load_model``."""
    name = str(name)
    if name.endswith(".safetensors"):
        require(Path(name).is_file(), f"{name}: no such file of weights")
        return Path(name)
    experiment, slash, beginning = name.partition("/")
    require(
        bool(slash and experiment and beginning), f"run {name!r}: write experiment/id, as in count3/0117429f1920aca1"
    )
    stores = [store] if store else usual_stores()
    found = sorted({i for s in stores for i in run_ids(s, experiment) if i.startswith(beginning)})
    require(bool(found), f"no run {name}; {known_runs(stores, experiment)}")
    require(len(found) == 1, f"run {name}: begins {len(found)} ids, {', '.join(found[:3])}; write more of it")
    having = [s for s in stores if found[0] in run_ids(s, experiment)]
    with_weights = [s for s in having if s.weights_path(experiment, found[0]).exists()]
    if store is None and not with_weights and paths.has_repository():
        require(restorable(having[0], experiment, found[0]), missing(having[0], experiment, found[0]))
    where = (with_weights or having)[0]
    return weights_of(where, f"{experiment}/{found[0]}")


def usual_stores() -> list[Store]:
    """The stores where weights are looked for: of the tiers, of one's own runs, and the few that git keeps."""
    return [Store(), *(Store(paths.results() / name) for name in (OWN, "weights"))]


def restorable(store: Store, experiment: str, record_id: str) -> bool:
    """Whether weights that are not there can be taken from the checkpoint of the run's end, where a crash left it."""
    return store.checkpoint_path(experiment, record_id).exists()


def missing(store: Store, experiment: str, record_id: str) -> str:
    """That a run's weights are not here, and the command that makes them beside the project's records."""
    record = store.load(experiment, record_id)
    if record is not None and isinstance(record.config, StudyConfig):
        return f"{experiment}/{record_id} is a study, which leaves a record and no weights"
    if record is not None and experiment in OWN_COMMANDS:
        return f"the weights of {experiment}/{record_id} are missing; {own_command(record)}"
    command = train_command(experiment, record)
    own = paths.relative(paths.results() / "own")
    if store.root.name == OWN:  # of changed settings, or of more seeds than a tier has
        return (
            f"the weights of {experiment}/{record_id} are missing; what made that run, with --fresh, or fresh = True "
            "in its notebook, makes them again"
        )
    return (
        f"the weights of {experiment}/{record_id} are missing: git does not keep them; this makes them, beside the "
        f"records that are here: {command} --results {own}"
    )


def run_ids(store: Store, experiment: str) -> list[str]:
    """Ids of an experiment that have a record or weights."""
    records = (path.stem for path in (store.root / "records" / experiment).glob("*.json"))
    weights = (path.name.removesuffix(SUFFIX) for path in (store.root / "checkpoints" / experiment).glob(f"*{SUFFIX}"))
    return sorted({*records, *weights})


def loadable(stores: list[Store] | None = None) -> list[str]:
    """The runs whose weights are on this machine, as "experiment/id"."""
    stores = stores or usual_stores()
    found = (path for s in stores for path in (s.root / "checkpoints").glob(f"*/*{SUFFIX}"))
    return sorted(f"{path.parent.name}/{path.name.removesuffix(SUFFIX)}" for path in found)


def known_runs(stores: list[Store], experiment: str) -> str:
    """What to say instead of a run that is not there."""
    here = [name for name in loadable(stores) if name.startswith(f"{experiment}/")] or loadable(stores)
    return f"weights here: {', '.join(here[:4])}{' …' if len(here) > 4 else ''}" if here else "no weights are here yet"
