"""The results store: one JSON file per run, written atomically, checksummed, with its provenance.

Nothing else is a result. A record lies at ``results/records/<experiment>/<id>.json``, where the id is the hash of
its configuration and the experiment's version.
"""

import contextlib
import difflib
import hashlib
import json
import logging
import math
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

from entp_lab import paths
from entp_lab.configs import RunConfig, StudyConfig, canonical_json, config_from, config_id, to_dict
from entp_lib.files import file_lock, write_atomically
from entp_lib.validation import ConfigError, OneLine, check_types, describe, matches, one_of, require

STATUSES = ("complete", "partial")
OWN = "own"  # below a store: records of runs that the project did not plan, ignored by git
LARGEST_FILE = 2**24  # bytes of a record
STATUS_BYTES = 160  # at the end of a record, which hold its status
READ_ONLY_VARIABLE = "ENTP_RECORDS"  # set to "read-only" under tests
CLUSTER_VARIABLE = "ENTP_CLUSTER"  # where sweeps compute, unless told otherwise (``entp_lab.cluster``)
log = logging.getLogger(__name__)


class RecordError(OneLine, RuntimeError):
    """A record that is missing, damaged or cannot be written; the message names it."""


class Entries(dict):
    """Metrics, curves or provenance of a stored record, which ``where`` names; asking for others is a RecordError."""

    def __init__(self, values: dict[str, Any], where: str):
        super().__init__(values)
        self.where = where

    def __missing__(self, name: str) -> Any:
        near = difflib.get_close_matches(str(name), self, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        again = "if other code made it, `train` with --fresh makes it again"
        raise RecordError(f"record {self.where.format(repr(name))}{hint}; {again}")


@dataclass(frozen=True)
class Record:
    """Result of one run. ``metrics`` are final values, ``curves`` lists over training or over cases.

    ``labels`` are no part of the file: the experiment that asks for a record gives it those of the run it planned.
    """

    experiment: str
    version: int
    config: RunConfig | StudyConfig
    metrics: dict[str, Any]
    curves: dict[str, list]
    provenance: dict[str, Any]
    status: str = "complete"
    labels: dict[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def id(self) -> str:
        return config_id(self.config, self.version)

    @property
    def name(self) -> str:
        """ "experiment/id", as claims, figures and files of weights name it."""
        return f"{self.experiment}/{self.id}"

    def to_json(self) -> str:
        """Return the file's text: one line per key, numbers with six significant digits, closed by the checksum."""
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "labels"}
        body = {name: to_dict(value) if name == "config" else rounded(value) for name, value in body.items()}
        body["checksum"] = checksum(body)
        lines = [f"{json.dumps(key)}: {canonical_json(value)}" for key, value in body.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, expected: RunConfig | StudyConfig | None = None) -> "Record":
        """Read the record in ``text``; RecordError where it is truncated, edited, malformed or not what a run writes.

        ``expected``: the configuration that is looked for, so that it is not checked again (``config_from``).
        """
        try:
            body = json.loads(text)
            claimed = body.pop("checksum")
            if claimed != checksum(body):
                raise RecordError("its checksum does not match its content (edited by hand?)")
            body["config"] = config_from(body["config"], expected)
            record = cls(**body)
            check_types(record)
            check_content(record)
            for kind in ("metrics", "curves", "provenance"):
                where = f"{record.name} has no {{}} in its {kind}"
                object.__setattr__(record, kind, Entries(body[kind], where))
            return record
        except ConfigError as error:
            raise RecordError(str(error)) from error
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise RecordError(f"it cannot be read ({type(error).__name__}: {error})") from error


# Types of what a record says of its making, where it says it; and of what a training run finds at its end.
PROVENANCE = {
    **dict.fromkeys(("commit", "started", "device", "sources", "cpu_capability", "arithmetic", "kernels", "cuda"), str),
    **dict.fromkeys(("threads", "cores", "steps", "token_forwards", "peak_memory_bytes", "from_step", "ranks"), int),
    **dict.fromkeys(("wall_seconds", "cpu_seconds", "train_seconds"), float),
    **dict.fromkeys(("load_at_start", "load_at_end"), float | None),
    **{"versions": dict[str, Any], "dirty": bool | None, "multiplies_bf16": bool},
}
TRAINED: dict[str, Any] = {"loss": float | None, "sequences": int, "baseline": dict[str, Any]}
TRAINED |= {"position": list, "loss_by_position": list}
ALWAYS = ("commit", "started", "device", "threads", "versions", "wall_seconds")
CURVES = ("step", "token_forwards", "seconds", "train_loss", "loss")
LARGEST = 1e30  # of all numbers


def check_content(record: "Record") -> None:
    """Raise ConfigError unless metrics, curves and provenance are of the types and sizes that its run writes."""
    one_of("status", record.status, STATUSES)
    complete = is_complete(record)
    trained = isinstance(record.config, RunConfig)
    where = record.provenance
    check_entries("provenance", where, PROVENANCE, ALWAYS if complete and not trained else (*ALWAYS, "steps"))
    earlier = where.get("earlier_processes", [])
    require(isinstance(earlier, list), f"provenance.earlier_processes = {earlier!r:.40}: must be a list")
    for process in earlier:
        check_entries("provenance.earlier_processes", process, PROVENANCE)
    curves = record.curves
    check_entries("curves", curves, dict.fromkeys(curves, list), CURVES if trained and complete else ())
    if trained and complete:
        check_entries("metrics", record.metrics, TRAINED, TRAINED)
        lengths = {name: len(curve) for name, curve in curves.items()}
        require(len(set(lengths.values())) == 1, f"curves differ in their lengths: {lengths}")
        positions = len(record.metrics["position"])
        for name, value in record.metrics.items():
            if name.endswith("_by_position") and not (isinstance(value, list) and len(value) == positions):
                message = f"metrics.{name} = {value!r:.40}: must have a value for each of {positions} positions"
                raise ConfigError(message)
    require(bool(record.metrics or curves or not complete), "metrics and curves are both empty")
    check_numbers(metrics=record.metrics, curves=curves, provenance=where)


def check_entries(kind: str, values: Any, types: Mapping[str, Any], needed: Iterable[str] = ()) -> None:
    """Raise ConfigError unless ``values`` has what is ``needed``, each of its type where ``types`` says it."""
    require(isinstance(values, dict), f"{kind} = {values!r:.40}: must be dictionaries")
    for name in needed:
        require(name in values, f"{kind}.{name} is missing")
    for name, value in values.items():
        if name in types and not matches(value, types[name]):
            raise ConfigError(f"{kind}.{name} = {value!r:.40}: must be {describe(types[name])}")


def check_numbers(**parts: Any) -> None:
    """Raise ConfigError for a number beyond ``LARGEST``, and for an accuracy that is not from 0 to 1."""
    left = [(name, value, False) for name, value in parts.items()]  # with whether it is an accuracy
    while left:
        name, value, score = left.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                left.append((f"{name}.{key}", inner, "accuracy" in key or (score and key.isdigit())))  # or by length
        elif isinstance(value, list):
            if value and {*map(type, value)} <= {int, float}:
                value = (min(value), max(value))  # of so many numbers only the extremes are looked at
            left += [(name, inner, score) for inner in value]
        elif score and not (value is None or (type(value) in (int, float) and 0 <= value <= 1)):
            raise ConfigError(f"{name} = {value!r:.40}: must be a number from 0 to 1")
        elif type(value) in (int, float) and not -LARGEST <= value <= LARGEST:
            raise ConfigError(f"{name} = {value!r:.40}: must be within {LARGEST:g}")


def is_complete(record: Record | None) -> TypeGuard[Record]:
    """Say whether there is a record, of a run that came to its end."""
    return record is not None and record.status == "complete"


class Store:
    """Records below ``root`` (default: the project's ``results``). Safe for several processes at once.

    ``read_only`` (default: as ``ENTP_RECORDS`` says): a missing or damaged record is a RecordError. Looking changes
    nothing, and an unchanged record is read once by a process; callers must not change it. ``committed``: a store whose
    complete records are found here, too; nothing is written to it.
    """

    seen: ClassVar[dict[Path, tuple[tuple[int, ...], Record | str]]] = {}  # or what is wrong with it

    def __init__(self, root: Path | str | None = None, read_only: bool | None = None, committed: "Store | None" = None):
        self.root = Path(root).absolute() if root is not None else paths.results()  # workers start elsewhere
        if read_only is None:
            read_only = os.environ.get(READ_ONLY_VARIABLE) == "read-only"
        self.read_only = read_only
        self.committed = committed
        self.warned: set[str] = set()

    def own(self) -> "Store":
        """Return the store below this one for runs that the project did not plan; it has this one's records, too."""
        return Store(self.root / OWN, self.read_only, committed=self)

    def path(self, experiment: str, record_id: str) -> Path:
        return self.root / "records" / experiment / f"{record_id}.json"

    def checkpoint_path(self, experiment: str, record_id: str) -> Path:
        """Return where a run in progress leaves its state."""
        return self.root / "checkpoints" / experiment / f"{record_id}.safetensors"

    def weights_path(self, experiment: str, record_id: str) -> Path:
        return self.root / "checkpoints" / experiment / f"{record_id}.weights.safetensors"

    def remove_checkpoint(self, experiment: str, record_id: str) -> None:
        """Remove the checkpoint of a run that has ended, if there is one."""
        path = self.checkpoint_path(experiment, record_id)
        if not self.read_only and path.exists():
            path.unlink(missing_ok=True)

    def load(
        self, experiment: str, record_id: str, strict: bool = False, expected: RunConfig | StudyConfig | None = None
    ) -> Record | None:
        """Read a record; None if there is none, or after a warning if it is damaged: a RecordError if ``strict``.

        So it is in a store that is only read. ``expected``: the configuration that has this id, if the caller knows it.
        """
        path = self.path(experiment, record_id)
        try:
            state = path.stat()
            signature = (state.st_ino, state.st_mtime_ns, state.st_size)
            if path not in self.seen or self.seen[path][0] != signature:
                self.seen[path] = (signature, read_record(path, state, expected))
            found = self.seen[path][1]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
        if isinstance(found, Record):
            return found
        message = f"record {paths.relative(path)}: {found}"
        if strict or self.read_only:
            raise RecordError(message)
        if message not in self.warned:
            self.warned.add(message)
            log.warning("%s. It is not used; a computed one takes its place.", message)
        return None

    def find(self, config: RunConfig | StudyConfig, version: int) -> Record | None:
        """Return the record of a configuration, complete or partial, or None."""
        found = self.committed.find(config, version) if self.committed else None
        if is_complete(found):
            return found
        return self.load(config.experiment, config_id(config, version), expected=config)

    def has(self, config: RunConfig | StudyConfig, version: int) -> bool:
        """Say whether a configuration has a record that is not marked partial; ``find`` says whether it is sound."""
        if self.committed and self.committed.has(config, version):
            return True
        path = self.path(config.experiment, config_id(config, version))
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return True  # what is no file is damaged, and would block a reader
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - STATUS_BYTES))
                return b'"status": "partial"' not in file.read(STATUS_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def all(self, experiment: str, version: int | None = None) -> list[Record]:
        """Return every readable record of an experiment, in the order of their ids."""
        folder = self.root / "records" / experiment
        found = (self.load(experiment, path.stem) for path in sorted(folder.glob("*.json")))
        return [r for r in found if r is not None and version in (None, r.version)]

    def save(self, record: Record) -> Path:
        """Write a record in place of an older one of its id, all or nothing; a partial one replaces no complete one.

        A damaged one in its place is set aside with a warning. Raises OSError where nothing can be written.
        """
        if self.read_only:
            raise RecordError(f"the store is read-only: {record.experiment}/{record.id} was not written")
        path = self.path(record.experiment, record.id)
        try:
            before = self.load(record.experiment, record.id, strict=True)
            if record.status == "partial" and is_complete(before):
                return path
        except RecordError as error:
            self.set_aside(path, str(error))
        write_atomically(path, record.to_json().encode())
        return path

    def set_aside(self, path: Path, why: str) -> None:
        """Move a damaged file, which ``why`` names, into ``set_aside``; only under its run's lock. Raises OSError."""
        name = f"{path.parent.name}-{path.name}"
        folder = self.root / "set_aside"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / name
        count = 1
        while os.path.lexists(target):  # each is kept, also the second of a name
            count += 1
            target = folder / f"{name}.{count}"
        os.replace(path, target)
        log.warning("%s. It is kept as %s and not used.", why, paths.relative(target))

    def lock(self, experiment: str, record_id: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a record, so that two processes never compute it twice; nothing where read-only."""
        if self.read_only:
            return contextlib.nullcontext()
        path = self.root / "locks" / f"{experiment}-{record_id}.lock"
        return file_lock(path, f"it computes {experiment}/{record_id}")

    def check_writable(self) -> None:
        """Raise RecordError, before any compute is spent, where records could not be written."""
        folder = self.root / "records"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return
        except OSError as error:
            raise RecordError(f"results cannot be written to {folder}: {error.strerror or error}") from error


def read_record(path: Path, state: os.stat_result, expected: RunConfig | StudyConfig | None) -> Record | str:
    """Read a file's record, or what is wrong with it. Raises OSError."""
    if not stat.S_ISREG(state.st_mode):
        return "it cannot be read (no regular file)"
    if state.st_size > LARGEST_FILE:
        return "it cannot be read (larger than any record)"
    try:
        found = Record.from_json(path.read_bytes().decode("utf-8", errors="replace"), expected)
    except RecordError as error:
        return str(error)
    if (found.experiment, found.id) != (path.parent.name, path.stem):
        return f"it is the record {found.name} (moved or renamed?)"
    return found


def checksum(body: dict[str, Any]) -> str:
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
