"""The commands ``records``, ``verify`` and ``corpus``: check stored records, or compute them again."""

import argparse
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from entp_lib.corpora import TextFile, embedded_file
from entp_lib.records import verification
from entp_lib.records.store import Record, RecordError, Store
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports.campaign import ENGINE, ENGINE_VERSION
from entp_lib.validation import printable, require

FEWEST = 3  # siblings that say what their kind of run writes
NUMBER, NOTHING = "a number", "None"
KINDS = {int: NUMBER, float: NUMBER, str: "a text", bool: "True or False", list: "a list", dict: "a dictionary"}


def records_command(options: argparse.Namespace) -> int:
    """``records``: read every record, compare it with its siblings, and name the damaged; 1 where there are some."""
    known = {name: experiment.version for name, experiment in EXPERIMENTS.items()} | {ENGINE: ENGINE_VERSION}
    store, sound, wrong = Store(options.results, read_only=True), [], []
    folder = store.root / "records"
    require(options.results is None or folder.is_dir(), f"{options.results}: has no records/ with records of runs")
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = store.load(path.parent.name, path.stem)
            if record is None:
                raise RecordError(f"record {path.name} is not there (a link that leads nowhere?)")
            if known.get(record.experiment) != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            sound.append(record)
        except RecordError as error:
            wrong.append(str(error))
    unlike = unlike_siblings(sound)
    wrong += [f"record {name}: {why}" for name, why in unlike.items()]
    print(printable("\n".join([*wrong, f"{len(sound) - len(unlike)} records are sound, {len(wrong)} are not"])))
    return 1 if wrong else 0


def verify_command(options: argparse.Namespace) -> int:
    """``verify``: compute some records of an experiment again and compare; 1 where one differs."""
    experiment, store, found = EXPERIMENTS[options.experiment], Store(read_only=True), []
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == options.tier]
    require(bool(stored), f"{options.experiment} has no records at tier {options.tier}; run_all.sh --list says which")
    for record in verification.sample(stored, options.sample, options.seed):
        print(f"computing {record.experiment}/{record.id} again: {record.config.label}", file=sys.stderr)
        with tqdm(total=record.config.steps, leave=False) as bar:
            found.append(verification.verify(record, store, lambda step, bar=bar: bar.update(step - bar.n)))
    print(verification.report(found))
    return 1 if any(f.outcome == "differs" for f in found) else 0


def corpus_command(options: argparse.Namespace) -> int:
    """``corpus``: name the embedded text corpus by its checksum, or copy it to a file."""
    if options.export:
        require(Path(options.export).parent.is_dir(), f"--export {options.export}: no such folder")
        require(not Path(options.export).is_dir(), f"--export {options.export}: is a folder; name a file in it")
    source = TextFile(embedded_file())
    if options.export:
        shutil.copyfile(source.path, options.export)
    size = source.path.stat().st_size
    print(f"embedded corpus: {source.count()} documents, {size} bytes, checksum {source.checksum[:16]}")
    return 0


def unlike_siblings(records: Sequence[Record]) -> dict[str, str]:
    """Records that hold something else than most of their study or task, by name, each with the first difference."""
    groups, found = defaultdict(list), {}
    for record in records:
        kind = getattr(record.config, "study", "") or record.config.task
        content = {"metrics": record.metrics, "curves": record.curves}
        groups[record.experiment, kind].append((f"{record.experiment}/{record.id}", dict(shape(content))))
    for (_, kind), members in groups.items():
        types = defaultdict(Counter)
        for _, held in members:
            for path, what in held.items():
                types[path][what] += 1
        for name, held in members if len(members) >= FEWEST else ():
            for path, counts in types.items():
                (usual, count), mine = counts.most_common(1)[0], held.get(path)
                top = path.count(".") == 1 and not path.endswith("[]")
                if top and mine is None and counts.total() == len(members) - 1:
                    found.setdefault(name, f"{path} is missing, which all others of {kind} have")
                if {mine, usual}.isdisjoint({None, NOTHING}) and mine != usual and 2 * count > len(members):
                    found.setdefault(name, f"{path} is {mine}, in others of {kind} {usual}")
    return found


def shape(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, type in words) of everything in nested dictionaries and lists."""
    if path:
        yield path, KINDS.get(type(value), NOTHING)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from shape(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from shape(inner, f"{path} []")
