"""The results store: one JSON file per run, written atomically, checksummed, with its provenance.

Nothing else is a result. A record lies at ``results/records/<experiment>/<id>.json``, where the id is the hash of
its configuration and the experiment's version.
"""

import contextlib
import copy
import difflib
import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from entp_lab import paths
from entp_lab.configs import (
    TRIAL_SEED,
    Config,
    Configs,
    RunConfig,
    canonical_json,
    config_from,
    config_id,
    record_name,
    to_dict,
)
from entp_lib.files import file_lock, write_atomically
from entp_lib.validation import ConfigError, Json, OneLine, check_types, require

OWN = "own"  # the experiment, and the folder ignored by git, of runs that the project did not plan
READ_ONLY_VARIABLE = "ENTP_RECORDS"  # set to "read-only" under tests
CLUSTER_VARIABLE = "ENTP_CLUSTER"  # where sweeps compute by default (``entp_lab.cluster``)
log = logging.getLogger(__name__)


class RecordError(OneLine, RuntimeError):
    """A record that is missing, damaged or cannot be written; the message names it."""


class Entries(dict):
    """Metrics, curves or provenance of the stored record that ``where`` names; a missing entry is a RecordError."""

    where: str

    def __missing__(self, name: str) -> Any:
        near = difflib.get_close_matches(str(name), self, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise RecordError(
            f"record {self.where.format(repr(name))}{hint}; "
            "if other code made it, `train` with --fresh makes it again"
        )


@dataclass(frozen=True)
class Record:
    """Result of one run. ``metrics`` are final values, ``curves`` lists over training or over cases.

    ``labels`` are not stored: an experiment gives its records the labels of the runs that it planned.
    """

    experiment: str
    version: int
    config: Config
    metrics: Json
    curves: dict[str, list]
    provenance: Json
    status: str = "complete"
    labels: Json = field(default_factory=dict, compare=False)

    @cached_property
    def id(self) -> str:
        return config_id(self.config, self.version)

    @cached_property
    def name(self) -> str:
        """As ``record_name`` of the configuration gives it."""
        return f"{self.experiment}/{self.id}"

    def labelled(self, labels: Json) -> "Record":
        """Return the record with these labels."""
        found = copy.copy(self)  # keeps the id, which is costly to compute
        object.__setattr__(found, "labels", labels)
        return found

    def to_json(self) -> str:
        """Return the file's text: one line per key, numbers with six significant digits, the checksum last."""
        body = {f.name: rounded(getattr(self, f.name)) for f in fields(self) if f.name != "labels"}
        body["config"] = to_dict(self.config)
        body["checksum"] = checksum(body)
        lines = [f"{json.dumps(key)}: {canonical_json(value)}" for key, value in body.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read the record in ``text``; RecordError where it is cut short, edited or not what a run writes."""
        try:
            body = json.loads(text)
            claimed = body.pop("checksum")
            if claimed != checksum(body):
                raise RecordError("its checksum does not match its content (edited by hand?)")
            record = cls(**body | {"config": config_from(body["config"])})
            check_types(record)
            check_content(record)
        except ConfigError as error:
            raise RecordError(str(error)) from error
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise RecordError(f"it cannot be read ({type(error).__name__}: {error})") from error
        for kind in ("metrics", "curves", "provenance"):
            entries = Entries(body[kind])
            entries.where = f"{record.name} has no {{}} in its {kind}"
            object.__setattr__(record, kind, entries)
        return record


Records = Sequence[Record]


def seeds_of(records: Records) -> int:
    """Count the random seeds that records have, without those of trial runs where there are others."""
    seeds = {record.config.model_seed for record in records}
    return len({seed for seed in seeds if seed < TRIAL_SEED} or seeds)


def count_seeds(records: Records) -> str:
    """Return the number of random seeds in words, "5 random seeds"."""
    count = seeds_of(records)
    return f"{count} random seed{'s' if count != 1 else ''}"


LARGEST = 1e30  # the largest absolute value of a number


def check_content(record: Record) -> None:
    """Raise ConfigError for a record of a run that is not whole, and for numbers that no run gives."""
    require(record.status == "complete", f"status = {record.status!r}: must be 'complete'")
    require(record.metrics or record.curves, "metrics and curves are both empty")
    if isinstance(record.config, RunConfig):
        lengths = {name: len(curve) for name, curve in record.curves.items()}
        require(len({*lengths.values()}) == 1, f"curves differ in their lengths: {lengths}")
    for part in ("metrics", "curves", "provenance"):
        check_numbers(part, getattr(record, part))


def check_numbers(name: str, value: Any, score: bool = False) -> None:
    """Raise ConfigError for a number beyond ``LARGEST``, and for an accuracy (``score``) that is not from 0 to 1."""
    if isinstance(value, dict):
        for key, inner in value.items():
            # a key of digits is a length, as in accuracies by length
            check_numbers(f"{name}.{key}", inner, "accuracy" in key or (score and key.isdigit()))
    elif isinstance(value, list):
        if value and {*map(type, value)} <= {int, float}:  # only the extremes need a check
            value = [min(value), max(value)]
        for inner in value:
            check_numbers(name, inner, score)
    elif type(value) in (int, float):
        least = 0 if score else -LARGEST
        most = 1 if score else LARGEST
        if not least <= value <= most:
            raise ConfigError(f"{name} = {value!r:.40}: must be from {least:g} to {most:g}")


class Store:
    """Records below ``root`` (default: the project's ``results``), by their names. Safe for several processes at once.

    ``read_only`` (default: as ``ENTP_RECORDS`` says): nothing is computed or written, and a missing or damaged record
    is a RecordError. Reading changes nothing. A process reads and checks an unchanged record only once, so that callers
    must not change it. ``committed``: a store whose records are found here, too; nothing is written to it.
    """

    # by path: the file's signature, and its record or what is wrong with it
    seen: ClassVar[dict[Path, tuple[tuple[int, ...], Record | str]]] = {}

    def __init__(
        self,
        root: Path | str | None = None,
        read_only: bool | None = None,
        committed: "Store | None" = None,
    ):
        # absolute, since workers start in another folder
        self.root = Path(root).absolute() if root is not None else paths.results()
        if read_only is None:
            read_only = os.environ.get(READ_ONLY_VARIABLE) == "read-only"
        self.read_only = read_only
        self.committed = committed
        self.warned: set[str] = set()

    @classmethod
    def of_tier(cls, tier: str) -> "Store":
        """Return the project's store; for smoke runs one of their own, which can always be written."""
        return cls(paths.results() / "smoke", read_only=False) if tier == "smoke" else cls()

    def own(self) -> "Store":
        """Return the store below this one for runs that the project did not plan.

        It also finds the records of this store, and writes nothing to it.
        """
        return Store(self.root / OWN, self.read_only, committed=self)

    def path(self, name: str) -> Path:
        return self.root / "records" / f"{name}.json"

    def checkpoint_path(self, name: str) -> Path:
        """Return where a run in progress leaves its state."""
        return self.root / "checkpoints" / f"{name}.safetensors"

    def weights_path(self, name: str) -> Path:
        return self.root / "checkpoints" / f"{name}.weights.safetensors"

    def remove_checkpoint(self, name: str) -> None:
        """Remove the checkpoint of a run that has ended, if there is one."""
        path = self.checkpoint_path(name)
        if not self.read_only and path.exists():
            path.unlink(missing_ok=True)

    def load(self, name: str, strict: bool = False) -> Record | None:
        """Read a record; None if there is none, or after a warning if it is damaged.

        A damaged record is a RecordError if ``strict``, or if the store is read-only.
        """
        path = self.path(name)
        try:
            state = path.stat()
            signature = (state.st_ino, state.st_mtime_ns, state.st_size)
            if path not in self.seen or self.seen[path][0] != signature:
                self.seen[path] = (signature, read_record(path))
            found = self.seen[path][1]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
        if not isinstance(found, str):
            return found
        message = f"record {paths.relative(path)}: {found}"
        if strict or self.read_only:
            raise RecordError(message)
        if message not in self.warned:
            self.warned.add(message)
            log.warning("%s. It is not used; a computed one takes its place.", message)
        return None

    def find(self, config: Config, version: int) -> Record | None:
        """Return the record of a configuration, or None; one here goes before a committed one."""
        found = self.load(record_name(config, version))
        return found or (self.committed.find(config, version) if self.committed else None)

    def missing(self, configs: Configs, version: int, fresh: bool = False) -> Configs:
        """Return those of ``configs`` without a record; with ``fresh``, and all of the first one's experiment."""
        return [
            config
            for config in configs
            if (fresh and config.experiment == configs[0].experiment)
            or self.find(config, version) is None
        ]

    def all(self, experiment: str, version: int | None = None) -> Records:
        """Return every readable record of an experiment, in the order of their ids."""
        folder = self.root / "records" / experiment
        found = (self.load(f"{experiment}/{path.stem}") for path in sorted(folder.glob("*.json")))
        return [r for r in found if r and version in (None, r.version)]

    def save(self, record: Record) -> Path:
        """Write a record atomically, in place of an older one of its id.

        A damaged file in its place is set aside with a warning. Raises RecordError if the store is read-only, and
        OSError if nothing can be written.
        """
        if self.read_only:
            raise RecordError(f"the store is read-only: {record.name} was not written")
        path = self.path(record.name)
        try:
            self.load(record.name, strict=True)
        except RecordError as error:
            self.set_aside(path, str(error))
        write_atomically(path, record.to_json().encode())
        return path

    def set_aside(self, path: Path, why: str) -> None:
        """Move a damaged file into ``set_aside`` and log ``why``; only under its run's lock. Raises OSError."""
        name = f"{path.parent.name}-{path.name}"
        folder = self.root / "set_aside"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / name
        count = 1
        while os.path.lexists(target):  # files of the same name are kept, too
            count += 1
            target = folder / f"{name}.{count}"
        os.replace(path, target)
        log.warning("%s. It is kept as %s and not used.", why, paths.relative(target))

    def lock(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a record, so that two processes never compute it twice; do nothing if read-only."""
        if self.read_only:
            return contextlib.nullcontext()
        path = self.root / "locks" / f"{name.replace('/', '-')}.lock"
        return file_lock(path, f"it computes {name}")

    def check_writable(self) -> None:
        """Raise RecordError, before any compute is spent, where records could not be written."""
        folder = self.root / "records"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return
        except OSError as error:
            raise RecordError(
                f"results cannot be written to {folder}: {error.strerror or error}"
            ) from error


def read_record(path: Path) -> Record | str:
    """Return a file's record, or what is wrong with it. Raises OSError."""
    if not path.is_file():  # reading a pipe would never end
        return "it cannot be read (no regular file)"
    try:
        found = Record.from_json(path.read_bytes().decode("utf-8", errors="replace"))
    except RecordError as error:
        return str(error)
    if found.name != f"{path.parent.name}/{path.stem}":
        return f"it is the record {found.name} (moved or renamed?)"
    return found


def checksum(body: Json) -> str:
    """Return the SHA-256 of a record's content, the checksum itself left out."""
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def rounded(value: Any) -> Any:
    """Round floats to six significant digits, through lists and dictionaries; NaN and infinities become None."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
