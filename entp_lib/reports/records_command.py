"""The commands ``records``, ``verify`` and ``corpus``: check stored records, or compute them again."""

import argparse
import shutil
import sys
from pathlib import Path

from tqdm.auto import tqdm

from entp_lib.corpora.sources import TextFile, embedded_file
from entp_lib.records import verification
from entp_lib.records.store import RecordError, Store
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports.campaign import ENGINE, ENGINE_VERSION
from entp_lib.validation import printable, require


def records_command(options: argparse.Namespace) -> int:
    """``records``: read every record and name the damaged; 1 where there are some."""
    known = {name: experiment.version for name, experiment in EXPERIMENTS.items()} | {ENGINE: ENGINE_VERSION}
    store, sound, wrong = Store(options.results, read_only=True), 0, []
    folder = store.root / "records"
    require(options.results is None or folder.is_dir(), f"{options.results}: has no records/ with records of runs")
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = store.load(path.parent.name, path.stem)
            if record is None:
                raise RecordError(f"record {path.name} is not there (a link that leads nowhere?)")
            if known.get(record.experiment) != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            sound += 1
        except RecordError as error:
            wrong.append(str(error))
    print(printable("\n".join([*wrong, f"{sound} records are sound, {len(wrong)} are not"])))
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
