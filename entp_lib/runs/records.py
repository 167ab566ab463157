"""The results store: one JSON file per run, written atomically, checksummed, with its provenance.

Nothing else is a result. A record lies at ``results/records/<experiment>/<id>.json``, where the id is the hash of
its configuration and the experiment's version.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig, canonical_json, config_from, config_id, to_dict
from entp_lib.files import locked, remove_stale, write_atomically
from entp_lib.strict import OneLine, check_types, one_of

STATUSES = ("complete", "partial")
OWN = "own"  # below a store: records of runs that the project did not plan, ignored by git
READ_ONLY_VARIABLE = "ENTP_RECORDS"  # set to "read-only" under tests
log = logging.getLogger(__name__)


class RecordError(OneLine, RuntimeError):
    """A record that is missing, damaged or cannot be written; the message names it."""


@dataclass(frozen=True)
class Record:
    """What one run left behind. ``metrics`` are final values, ``curves`` lists over training or over cases.

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

    def to_json(self) -> str:
        """The file's text: one line per key, numbers with six significant digits, closed by the checksum."""
        body = {
            "experiment": self.experiment,
            "version": self.version,
            "config": to_dict(self.config),
            "metrics": rounded(self.metrics),
            "curves": rounded(self.curves),
            "provenance": rounded(self.provenance),
            "status": self.status,
        }
        body["checksum"] = checksum(body)
        lines = [f"{json.dumps(key)}: {canonical_json(value)}" for key, value in body.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """The record in ``text``; RecordError where it is truncated, edited or malformed."""
        try:
            body = json.loads(text)
            claimed = body.pop("checksum")
            if claimed != checksum(body):
                raise RecordError("its checksum does not match its content (edited by hand?)")
            body["config"] = config_from(body["config"])
            record = cls(**body)
            check_types(record)
            one_of("status", record.status, STATUSES)
            return record
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise RecordError(f"it cannot be read ({type(error).__name__}: {error})") from error


class Store:
    """Records below ``root`` (default: the project's ``results``). Safe for several processes at once.

    ``read_only`` (default: from the environment variable ``ENTP_RECORDS``) turns a missing or damaged record into
    a RecordError instead of hours of training. Looking at a store never changes it, and a record that did not change
    since it was last looked at is read once; whoever gets it must not change it.
    """

    def __init__(self, root: Path | str | None = None, read_only: bool | None = None):
        self.root = Path(root).absolute() if root is not None else paths.results()  # whoever computes may be elsewhere
        if read_only is None:
            read_only = os.environ.get(READ_ONLY_VARIABLE) == "read-only"
        self.read_only = read_only
        self.seen: dict[Path, tuple[tuple[int, ...], Record | str]] = {}  # or what is wrong with it
        self.said: set[str] = set()

    def place(self, experiment: str, record_id: str) -> Path:
        """The folder that a run's record, checkpoints, weights and lock lie below."""
        return self.root

    def path(self, experiment: str, record_id: str) -> Path:
        return self.place(experiment, record_id) / "records" / experiment / f"{record_id}.json"

    def checkpoint_path(self, experiment: str, record_id: str, generation: str = "") -> Path:
        """Where a run in progress leaves its state; each fresh generation has a checkpoint of its own."""
        name = f"{record_id}.fresh-{generation}" if generation else record_id
        return self.place(experiment, record_id) / "checkpoints" / experiment / f"{name}.safetensors"

    def fresh_checkpoints(self, experiment: str, record_id: str) -> list[Path]:
        """What cut runs of fresh generations left, the oldest first."""
        folder = self.place(experiment, record_id) / "checkpoints" / experiment
        return sorted(folder.glob(f"{record_id}.fresh-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)

    def weights_path(self, experiment: str, record_id: str) -> Path:
        return self.place(experiment, record_id) / "checkpoints" / experiment / f"{record_id}.weights.safetensors"

    def load(self, experiment: str, record_id: str) -> Record | None:
        """The record, or None where there is none. A damaged one is named in a warning and counts as missing."""
        try:
            return self.read(experiment, record_id)
        except RecordError as error:
            if self.read_only:
                raise
            if str(error) not in self.said:
                self.said.add(str(error))
                log.warning("%s. It is not used; a computed one takes its place.", error)
            return None

    def read(self, experiment: str, record_id: str) -> Record | None:
        """The record, or None where there is none. RecordError where it is damaged: unreadable, edited or renamed."""
        path = self.path(experiment, record_id)
        try:
            state = path.stat()
            signature = (state.st_ino, state.st_mtime_ns, state.st_size)
            if self.seen.get(path, ((), None))[0] != signature:
                self.seen[path] = (signature, parsed(path, experiment, record_id))
            found = self.seen[path][1]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            found = f"it cannot be read ({error.strerror})"
        if isinstance(found, str):
            raise RecordError(f"record {paths.relative(path)}: {found}")
        return found

    def find(self, config: RunConfig | StudyConfig, version: int) -> Record | None:
        """The record of a configuration, complete or partial, or None."""
        return self.load(config.experiment, config_id(config, version))

    def all(self, experiment: str, version: int | None = None) -> list[Record]:
        """Every readable record of an experiment, in the order of their ids."""
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
            before = self.read(record.experiment, record.id)
            if record.status == "partial" and before is not None and before.status == "complete":
                return path
        except RecordError as error:
            self.set_aside(path, str(error))
        write_atomically(path, record.to_json().encode())
        return path

    def set_aside(self, path: Path, why: str) -> None:
        """Move a damaged file out of the way, keeping it for whoever wants to look. Only under its run's lock.

        ``why`` names the file. Raises OSError where it cannot be moved.
        """
        name, count = f"{path.parent.name}-{path.name}", 1
        target = self.root / "set_aside" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        while os.path.lexists(target):  # each is kept, also the second of a name
            count += 1
            target = target.with_name(f"{name}.{count}")
        os.replace(path, target)
        log.warning("%s. It is kept as %s and not used.", why, paths.relative(target))

    @contextlib.contextmanager
    def lock(self, experiment: str, record_id: str) -> Iterator[None]:
        """Held while a record is computed, so that two processes never compute it twice; nothing where read-only.

        Whoever has to wait for it says so after a few seconds.
        """
        if self.read_only:
            yield
            return
        path = self.place(experiment, record_id) / "locks" / f"{experiment}-{record_id}.lock"
        with locked(path, f"it computes {experiment}/{record_id}"):
            yield

    def remove_leftovers(self, experiment: str) -> None:
        """Remove what killed processes left half written among an experiment's files."""
        remove_stale(self.root / "records" / experiment, ".*.json.*")
        for pattern in (".*.safetensors.*", ".generation-*.json.*"):
            remove_stale(self.root / "checkpoints" / experiment, pattern)
        remove_stale(self.root, ".*.csv.*")

    def check_writable(self) -> None:
        """Raise RecordError, before any compute is spent, where records could not be written."""
        folder = self.root / "records"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return
        except OSError as error:
            raise RecordError(f"results cannot be written to {folder}: {error.strerror or error}") from error


class DividedStore(Store):
    """The project's store for the runs ``planned`` (ids) and whatever it has; ``own`` below it for all others.

    So that runs nobody planned, as with more seeds than the tier has, leave no records among the committed ones. Runs
    are found by their configurations; ``all`` lists those in ``own`` alone.
    """

    def __init__(self, project: Store, planned: Collection[str]):
        super().__init__(project.root / OWN, project.read_only)
        self.project, self.planned = project, frozenset(planned)

    def place(self, experiment: str, record_id: str) -> Path:
        theirs = record_id in self.planned or self.project.path(experiment, record_id).exists()
        return self.project.root if theirs else self.root

    def remove_leftovers(self, experiment: str) -> None:
        self.project.remove_leftovers(experiment)
        super().remove_leftovers(experiment)

    def check_writable(self) -> None:
        self.project.check_writable()
        super().check_writable()


def parsed(path: Path, experiment: str, record_id: str) -> "Record | str":
    """The record in a file, or what is wrong with it. Raises OSError."""
    try:
        record = Record.from_json(path.read_bytes().decode("utf-8", errors="replace"))
    except RecordError as error:
        return str(error)
    if record.experiment != experiment:
        return f"it belongs to the experiment {record.experiment} (moved?)"
    if record.id != record_id:
        return f"its configuration belongs to the id {record.id} (renamed?)"
    return record


def checksum(body: dict[str, Any]) -> str:
    """SHA-256 of a record's content, the checksum itself left out."""
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def rounded(value: Any) -> Any:
    """Floats to six significant digits, through lists and dictionaries; NaN and infinities become None."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
