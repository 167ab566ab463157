"""Weights of finished runs: written with their configuration and run name, found by name, loaded as a model."""

import contextlib
import json
import shlex
import sys
from pathlib import Path

import torch
from torch import nn

from entp_lab import paths
from entp_lab.configs import RunConfig, StudyConfig, canonical_json, to_dict
from entp_lab.store import OWN, Store
from entp_lab.texts import read_text
from entp_lib.checkpoint import SUFFIX, DamagedFileError, check_tensors, read_tensors, save_tensors
from entp_lib.data.tokenizers import Tokenizer, restore
from entp_lib.files import write_atomically
from entp_lib.model import Transformer, build_model
from entp_lib.tasks import Task
from entp_lib.tasks.text import Text
from entp_lib.validation import ConfigError, from_dict, require

# fields that a run must share with the run whose weights it starts from
SHAPE = ("n_layers", "n_heads", "width", "positions", "input_dim", "output_dim")
LEARNED = ("characters",)  # tokenizers that are learned from a corpus
TABLES = ("embedding.weight", "positions.weight")  # of which a model may have further rows


def save_weights(path: Path, config: RunConfig, model: nn.Module, name: str) -> None:
    """Write the weights with the configuration and the run's ``name`` ("experiment/id"). Atomic.

    For text in characters, what the tokenizer learned is written to a file beside them.
    """
    if config.task == "text" and config.task_params.get("tokenizer") in LEARNED:
        state = from_dict(Text, config.task_params).tokens().tokenizer().state
        write_atomically(beside(path), json.dumps({"state": state}).encode())
    header = {"config": canonical_json(to_dict(config)), "run": name}
    save_tensors(path, dict(model.named_parameters()), header)


def beside(path: Path) -> Path:
    """Return the path of the tokenizer file that belongs to a file of weights."""
    return path.with_name(f"{path.name.removesuffix(SUFFIX)}.tokenizer.json")


def load_tokenizer(path: Path, config: RunConfig) -> Tokenizer:
    """Return the tokenizer with which the weights at ``path`` of a run on text were trained.

    The corpus that the file names is neither opened nor downloaded, since anyone may have written the file. Raises
    ConfigError if the tokenizer learned from a corpus and its file is not beside the weights.
    """
    task = from_dict(Text, config.task_params)
    state = ""
    if task.tokenizer in LEARNED:
        file = beside(path)
        require(
            file.is_file(),
            f"{path}: their tokenizer {file.name} is missing; it lies beside weights where they were trained",
        )
        text = read_text(file)
        try:
            state = json.loads(text)["state"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ConfigError(f"{file}: holds no tokenizer") from error
        require(isinstance(state, str), f"{file}: holds no tokenizer")
        require(len(state) <= task.vocab_size, f"{file}: has more characters than the vocabulary")
    return restore(task.tokenizer, task.vocab_size, state)


def trained_model(path: Path, name: str = "") -> tuple[RunConfig, Transformer]:
    """Return the configuration and the model that a file of weights holds, ready for evaluation.

    Raises DamagedFileError unless it holds exactly the weights of its configuration, and is that of the run ``name``,
    if one is given. Reading takes no more memory than the file's size.
    """
    tensors, header = read_tensors(path, {"config", "run"})
    if name and header["run"] != name:
        raise DamagedFileError(
            path, f"holds the weights of {header['run']}, not those of {name} (renamed?)"
        )
    try:
        config = from_dict(RunConfig, json.loads(header["config"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedFileError(
            path, f"is of a configuration that this version does not know ({error})"
        ) from error
    layers = config.model.n_layers
    if layers > len(tensors):
        raise DamagedFileError(path, f"has {len(tensors)} tensors, and n_layers = {layers}")
    try:
        # shapes without memory
        expected = dict(build_model(config.model, device="meta").named_parameters())
    except (RuntimeError, ConfigError) as error:
        raise DamagedFileError(
            path, f"is of a configuration that no model has ({error})"
        ) from error
    check_tensors(path, tensors, expected)
    model = build_model(config.model)
    model.load_state_dict(tensors, strict=False)  # not strict, since a model has buffers, too
    return config, model.eval()


@torch.no_grad()
def start_from(store: Store | None, config: RunConfig, task: Task, model: nn.Module) -> None:
    """Fill the model of ``config`` with the weights that ``config.start_from`` names, from ``store``.

    Rows that only its own tables have, for the task's added tokens and for later positions, keep their initial values.
    Raises ConfigError if there is no store or no such weights, or if shapes or vocabularies do not fit.
    """
    name = config.start_from
    if store is None:
        raise ConfigError(f"start_from = {name!r}: its file of weights was not given")
    source_config, source = trained_model(weights_of(store, name, config.tier))
    ours = config.model
    theirs = source_config.model
    for field in SHAPE:
        mine = getattr(ours, field)
        other = getattr(theirs, field)
        require(mine == other, f"{field} = {mine}: the weights of {name} have {other}")
    known = ours.vocab_size - task.added_tokens
    require(
        known == theirs.vocab_size,
        f"vocab_size = {ours.vocab_size}, of which the task adds {task.added_tokens}: ids up to {known - 1} should be "
        f"those of {name}, whose vocabulary has {theirs.vocab_size}; use the same tokenizer",
    )
    tensors = dict(source.named_parameters())
    for key, p in model.named_parameters():
        rows = min(len(p), len(tensors[key])) if key in TABLES else len(p)
        p[:rows] = tensors[key][:rows].to(p)


def load_model(name: str | Path) -> Transformer:
    """Return the trained model of a run, ready for evaluation: ``load_model("count3/0117429f1920aca1")``.

    ``name``: "experiment/id" of its record, where a unique beginning of the id is enough, or the path of a file of
    weights. The user's own runs are found too. Raises ConfigError if there is no such run, or if its weights are
    missing: the message has the command that makes them. Studies have no weights.
    """
    return load_run(name)[1]


def load_run(name: str | Path) -> tuple[RunConfig, Transformer]:
    """Return the configuration and the model of a run, found as by ``load_model``."""
    return trained_model(find_weights(name))


def find_weights(name: str | Path) -> Path:
    """Return the path of the weights of a run, given its name or that path. ConfigError as in ``load_model``."""
    name = str(name)
    if name.endswith(".safetensors"):
        require(Path(name).is_file(), f"{name}: no such file of weights")
        require(
            name.endswith(SUFFIX), f"{name}: names of weights end in {SUFFIX}; is it a checkpoint?"
        )
        return Path(name)
    experiment, _, beginning = name.partition("/")
    require(
        experiment and beginning,
        f"run {name!r}: write experiment/id, as in count3/0117429f1920aca1",
    )
    kept = paths.of_repository("results") if paths.has_repository() else paths.results()
    stores = [Store(), Store().own(), Store(kept / "weights")]
    ids: dict[str, Store] = {}  # with the first store that has its weights, or else its record
    for pattern in (f"checkpoints/{experiment}/*{SUFFIX}", f"records/{experiment}/*.json"):
        for place in stores:
            for path in sorted(place.root.glob(pattern)):
                ids.setdefault(path.name.partition(".")[0], place)
    found = [record_id for record_id in ids if record_id.startswith(beginning)]
    require(found, f"no run {name}; runs of {experiment} here: {', '.join([*ids][:5]) or 'none'}")
    require(
        len(found) == 1,
        f"run {name}: begins {len(found)} ids, {', '.join(found[:3])}; write more of it",
    )
    return weights_of(ids[found[0]], f"{experiment}/{found[0]}")


def weights_of(store: Store, name: str, tier: str = "") -> Path:
    """Return the path of the checked weights of the run ``name`` ("experiment/id"); damaged ones are set aside.

    Raises ConfigError with the command that makes them if there are none. ``tier``: that of the run that starts from
    them.
    """
    own = store.weights_path(name)
    # the user's own run may start from a run of the project
    for path in [place.weights_path(name) for place in (store, store.committed) if place]:
        with contextlib.suppress(DamagedFileError):
            trained_model(path, name)
            return path
    # another process may have written them just now
    with store.lock(name):
        try:
            if own.exists():
                trained_model(own, name)
                return own
        except DamagedFileError as error:
            if store.read_only:
                raise
            store.set_aside(own, error.why)
    raise missing_weights(store, name, tier)


def missing_weights(store: Store, name: str, tier: str = "") -> ConfigError:
    """Return the error for missing weights, with the command that makes them if there is one."""
    record = store.load(name)
    if record is None and store.committed:
        return missing_weights(store.committed, name, tier)
    if record and isinstance(record.config, StudyConfig):
        return ConfigError(f"{name} is a study, which leaves a record and no weights")
    problem = f"the weights of {name} are missing ({paths.relative(store.weights_path(name))})"
    experiment, record_id = name.split("/")
    if OWN in (experiment, store.root.name):
        return ConfigError(
            f"{problem}; what made that run, with --fresh or fresh = True, makes them again"
        )
    # the project's own Python if that is running
    python = ".venv/bin/python" if Path(sys.prefix) == paths.root() / ".venv" else "python"
    command = f"{python} -m entp_lab train {experiment}"
    folder = store.root
    if record:
        seeds = record.config.model_seed + 1
        command += f" --tier {record.config.tier} --seeds {seeds} --run {record_id}"
        if folder == paths.results() and not tier:  # that record must not be replaced
            folder = folder / OWN
        else:
            command += " --fresh"
    elif tier:
        command += f" --tier {tier}"
    if folder != paths.results():
        command += f" --results {shlex.quote(paths.relative(folder))}"
    return ConfigError(f"{problem}: git keeps records, not weights; this makes them: {command}")
