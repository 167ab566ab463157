"""Commands for what was computed elsewhere: ``merge`` and ``campaign``. Imports nothing slow until one runs."""

import sys


def add_parsers(commands) -> None:
    """Add ``merge`` and ``campaign`` to the commands."""
    merge = commands.add_parser(
        "merge",
        help="bring records that other machines made into this project's results",
        description="Bring the records of folders of results, or of archives of them, into one store. Records are "
        "named by what they compute, so nothing conflicts: what is here stays, damaged records and those of other "
        "projects are named and left out, and shards that are missing or came twice are told.",
    )
    merge.add_argument("places", nargs="+", metavar="DIR", help="a folder of results, or an archive of one (.tar.gz)")
    merge.add_argument("--into", metavar="DIR", help="where records go (default: the project's results)")
    merge.add_argument("--mixed", action="store_true", help="pairs may come from different code or versions of torch")
    merge.set_defaults(command=merge_command)


def merge_command(options) -> int:
    from pathlib import Path

    from entp_lib.papers import EXPERIMENTS
    from entp_lib.runs.merging import merge
    from entp_lib.runs.records import Store

    versions = {name: experiment.version for name, experiment in EXPERIMENTS.items()}
    done = merge([Path(place) for place in options.places], Store(options.into), versions, options.mixed)
    for line in (*done.left_out, *done.twice, *done.missing):
        print(line, file=sys.stderr)
    for line in done.differing:
        print(f"computed twice, with other numbers: {line}; the first is kept", file=sys.stderr)
    print(f"{done.added} records came in, {done.present} were here, {len(done.left_out)} things were left out")
    return 1 if done.left_out or done.missing else 0
