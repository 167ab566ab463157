"""Records that several machines made, brought into one store.

Records are named by what they compute, so merging never conflicts: a complete record that is here already stays, else
the first complete one comes in, else the partial one that got furthest, with its checkpoint. What is damaged, or of
another project, is named and left out.
"""

import contextlib
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from entp_lib import paths
from entp_lib.config import RunConfig, canonical_json, to_dict
from entp_lib.runs import shards
from entp_lib.runs.records import Record, RecordError, Store
from entp_lib.runs.verification import compare
from entp_lib.strict import ConfigError, require
from entp_lib.training.checkpoints import checkpoint_step
from entp_lib.training.tensors import DamagedFileError
from entp_lib.training.weights import trained_model


@dataclass
class Merge:
    """What a merge did. ``left_out``: why each file, or group of them, was; ``missing`` and ``twice``: of shards.

    ``differing``: records that came twice with other numbers, of which the first is kept.
    """

    added: int = 0
    present: int = 0
    files: int = 0
    left_out: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Found:
    """A record and the store that it was read from."""

    record: Record
    store: Store


def merge(places: Sequence[Path], into: Store, versions: Mapping[str, int], mixed: bool = False) -> Merge:
    """Bring the records of ``places`` (folders of results, folders or archives of such) into ``into``.

    ``versions``: by experiment, the version whose records count. ``mixed``: whether runs that are compared in pairs
    may come from different versions of torch, and shards of one plan from different code.

    Raises ConfigError, and changes nothing, where a place holds no records, is ``into`` itself, or would mix such
    pairs; RecordError where ``into`` cannot be written.
    """
    into.check_writable()
    done = Merge()
    with contextlib.ExitStack() as opened:
        names = {root: name for place in places for root, name in opened.enter_context(results_of(place)).items()}
        stores = [Store(root, read_only=True) for root in names]
        for root, name in names.items():
            require(root.resolve() != into.root.resolve(), f"{name} is the store that records would come to")
        found: dict[tuple[str, str], list[Found]] = {}
        for store in stores:
            for record in sound_records(store, names[store.root], versions, done):
                found.setdefault((record.experiment, record.id), []).append(Found(record, store))
        noted = [(note, names[s.root]) for s in stores for note in read_notes(s, names[s.root], versions, done)]
        incoming = {note.name for note, _ in noted}
        earlier = shards.notes(into.root)[0]
        here = [(note, str(into.root)) for note in earlier if note.name not in incoming]
        if not mixed:
            check_pairs(found, into)
            check_notes([*earlier, *(note for note, _ in noted)])
        for (experiment, record_id), candidates in sorted(found.items()):
            with into.lock(experiment, record_id):
                take_best(candidates, into, done)
    for note, _ in noted:
        shards.write_note(into.root, note)
    done.missing, done.twice = shards.gaps([*noted, *here], lambda *name: is_complete(into, *name))
    return done


def is_complete(store: Store, experiment: str, record_id: str) -> bool:
    record = store.load(experiment, record_id)
    return record is not None and record.status == "complete"


@contextlib.contextmanager
def results_of(place: Path) -> Iterator[dict[Path, str]]:
    """The folder of results that ``place`` is, or those in it, or in it as an archive; each with a name for messages.

    ConfigError where there are no records.
    """
    require(place.exists(), f"{place}: no such folder or archive")
    with contextlib.ExitStack() as opened:
        root = place.absolute()  # as a store's is
        if place.is_file():
            root = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            try:
                with tarfile.open(place) as archive:
                    archive.extractall(root, filter="data")  # nothing outside the folder, no links out of it
                    require(ends_whole(archive), f"{place} is no archive of results (cut or damaged in the middle)")
            except (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                raise ConfigError(f"{place} is no archive of results ({str(error).splitlines()[0]})") from error
        inner = sorted(path.parent for path in root.glob("*/records") if path.is_dir())
        roots = [root] if (root / "records").is_dir() else inner
        require(bool(roots), f"{place} holds no records: a folder of results has records/<experiment>/<id>.json")
        yield {r: str(place / r.relative_to(root)) if len(roots) > 1 else str(place) for r in roots}


def ends_whole(archive: tarfile.TarFile) -> bool:
    """Whether an archive that was read ends in blocks of zeros and nothing else: a damaged member ends its list too.

    Reads to the end, and so to a compressor's checksum.
    """
    archive.fileobj.seek(archive.offset)
    zeros = 0
    while block := archive.fileobj.read(2**20):
        if any(block):
            return False
        zeros += len(block)
    return zeros >= tarfile.BLOCKSIZE


def sound_records(store: Store, place: str, versions: Mapping[str, int], done: Merge) -> Iterator[Record]:
    """The records of ``store`` that this project knows; the others are named in ``done.left_out``."""
    foreign: dict[str, int] = {}
    for path in sorted((store.root / "records").glob("*/*.json")):
        try:
            record = store.read(path.parent.name, path.stem)
        except RecordError as error:
            done.left_out.append(str(error))
            continue
        if record is None:
            done.left_out.append(f"{place}: {path.name} is not there (a link that leads nowhere?)")
            continue
        version = versions.get(record.experiment)
        if version is None or record.experiment != path.parent.name:
            why = f"{place}: records of {path.parent.name}, which is no experiment of this project"
            foreign[why] = foreign.get(why, 0) + 1
        elif record.version != version:
            why = f"{place}: records of version {record.version} of {record.experiment}, which is at {version}"
            foreign[why] = foreign.get(why, 0) + 1
        else:
            yield record
    done.left_out += [f"{why} ({count})" for why, count in foreign.items()]


def read_notes(store: Store, place: str, versions: Mapping[str, int], done: Merge) -> list[shards.Note]:
    """The notes of shards in ``store`` that this project knows; damaged ones are named in ``done.left_out``."""
    found, damaged = shards.notes(store.root)
    done.left_out += [f"{place}: {path.name} says nothing of a shard" for path in damaged]
    return [note for note in found if versions.get(note.experiment) == note.version]


def check_pairs(found: Mapping[tuple[str, str], Sequence[Found]], into: Store) -> None:
    """ConfigError where a run that comes in would be compared with one of another version of torch.

    Compared are runs that differ in the architecture alone, whether the other comes too or is here already.
    """
    known = {(r.experiment, r.id): r for name in sorted({e for e, _ in found}) for r in into.all(name)}
    done = {key for key, record in known.items() if record.status == "complete"}
    twins: dict[str, list[Record]] = {}
    for record in known.values():
        twins.setdefault(twin_key(record), []).append(record)
    for key, group in found.items():
        record = next((f.record for f in group if f.record.status == "complete"), group[0].record)
        if key in done or twin_key(record) is None:
            continue
        for other in twins.setdefault(twin_key(record), []):
            mine, theirs = torch_version(record), torch_version(other)
            require(
                mine == theirs,
                f"{record.experiment}, {record.config.tier}: {record.config.label} was computed with torch {mine}, "
                f"its twin, {other.config.label}, with {theirs}; --mixed merges them all the same",
            )
        twins[twin_key(record)].append(record)


def twin_key(record: Record) -> str | None:
    """What twins have in common: everything but the architecture. None for a study, and for a partial record."""
    if not isinstance(record.config, RunConfig) or record.status != "complete":
        return None
    model = replace(record.config.model, architecture="decoder", full_layers=None)
    return canonical_json([record.version, to_dict(replace(record.config, model=model))])


def torch_version(record: Record) -> str:
    """The release of torch that made a record, without the kind of build: 2.13.0 of 2.13.0+cpu."""
    return str(record.provenance.get("versions", {}).get("torch", "?")).split("+")[0]


def check_notes(found: Sequence[shards.Note]) -> None:
    """ConfigError where shards of one plan were computed by different code."""
    first: dict[tuple[str, str, str], shards.Note] = {}
    for note in found:
        other = first.setdefault((note.experiment, note.tier, note.plan_id), note)
        require(
            other.sources == note.sources,
            f"{note.experiment} {note.tier}: shard {other.index}/{other.count} was computed by other code (sources "
            f"{other.sources}) than {note.index}/{note.count} ({note.sources}); --mixed merges them all the same",
        )


def take_best(candidates: Sequence[Found], into: Store, done: Merge) -> None:
    """Save the best of the records of one id, with the weights or the checkpoint that lie beside it."""
    first = candidates[0].record
    here = into.find(first.config, first.version)
    complete = [f for f in candidates if f.record.status == "complete"]
    best = complete[0] if complete else max(candidates, key=steps_of)
    kept = here if here is not None and here.status == "complete" else best.record
    for other in complete:
        comparison = compare(kept, other.record)
        if kept.status == "complete" and other.record is not kept and comparison.outcome != "identical":
            name = f"{first.experiment}/{first.id}"
            done.differing.append(f"{name}: {comparison.largest:.2g} apart in {comparison.where}")
            break
    if here is not None and (here.status == "complete" or not better(best.record, here)):
        done.present += 1
        if here != best.record:
            return
    else:
        into.save(best.record)
        done.added += 1
        leave_weights(best, into)
    for found in (f for f in candidates if f.record == best.record):
        if brought := copy_beside(found, into):  # a copy of the same record may have come without
            done.files += brought
            break


def steps_of(found: Found) -> int:
    return int(found.record.provenance.get("steps", 0))


def better(record: Record, here: Record) -> bool:
    """Whether a record is complete, or further than the partial one that is here."""
    return record.status == "complete" or record.provenance.get("steps", 0) > here.provenance.get("steps", 0)


def leave_weights(found: Found, into: Store) -> None:
    """Set aside weights that lie where those of a record will be which has just come in: they are another run's."""
    path, source = (s.weights_path(found.record.experiment, found.record.id) for s in (into, found.store))
    if path.exists() and not (source.exists() and path.read_bytes() == source.read_bytes()):
        into.set_aside(path, f"weights {paths.relative(path)} were here before the record that was merged")


def copy_beside(found: Found, into: Store) -> int:
    """Copy the weights of a complete record, or the checkpoint of a partial one, where there are any; how many files.

    Damaged weights stay behind: whoever needs them is told so. A damaged checkpoint is set aside by the run that
    would continue from it. One that is further along is kept: a run that was killed leaves it without a record. A cut
    run of a fresh generation comes under the name that any later run goes on from.
    """
    record, source = found.record, found.store
    if record.status == "complete":
        path, target = (s.weights_path(record.experiment, record.id) for s in (source, into))
        try:
            if target.exists() or not path.exists():
                return 0
            trained_model(path, f"{record.experiment}/{record.id}")
        except DamagedFileError:
            return 0
    else:
        path, target = (s.checkpoint_path(record.experiment, record.id) for s in (source, into))
        left = [p for p in (path, *source.fresh_checkpoints(record.experiment, record.id)) if p.exists()]
        path = max(left, key=checkpoint_step, default=path)
        if not left or checkpoint_step(target) > checkpoint_step(path):
            return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        temporary = Path(file.name)
    shutil.copyfile(path, temporary)
    temporary.replace(target)
    return 1
