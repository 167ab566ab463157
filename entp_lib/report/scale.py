"""Commands for what was computed elsewhere: ``merge`` and ``campaign``. Imports nothing slow until one runs."""

import sys

from entp_lib.config import TIERS
from entp_lib.report.limits import check_seeds, seconds


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
    merge.add_argument(
        "--mixed", action="store_true", help="pairs may come from other versions of torch, shards from other code"
    )
    merge.set_defaults(command=merge_command)
    campaign = commands.add_parser(
        "campaign",
        help="the first half hour on a GPU: checks, measurements, runs in order of value, one archive",
        description="On a bare machine: a minute of checks, the fastest attention chosen by measurement, "
        "benchmarks.engine, the tier's runs in order of value within the time, and one archive of at most 16 MiB. The "
        "same command continues what was cut.",
    )
    campaign.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    campaign.add_argument("--tier", choices=TIERS, default="gpu")
    campaign.add_argument("--budget", default="30m", metavar="T", help="for all of it: 900, 900s, 30m or 2h")
    campaign.add_argument("--seeds", type=int, default=0, help="number of seeds (default: the tier's own)")
    campaign.add_argument("--out", default="campaign", metavar="DIR", help="where records, logs and the archive go")
    campaign.set_defaults(command=campaign_command)


def merge_command(options) -> int:
    from pathlib import Path

    from entp_lib.report.campaign import versions
    from entp_lib.runs.merging import merge
    from entp_lib.runs.records import Store

    done = merge([Path(place) for place in options.places], Store(options.into), versions(), options.mixed)
    for line in (*done.left_out, *done.twice, *done.missing):
        print(line, file=sys.stderr)
    for line in done.differing:
        print(f"computed twice, with other numbers: {line}; the first is kept", file=sys.stderr)
    print(f"{done.added} records came in, {done.present} were here, {len(done.left_out)} things were left out")
    return 1 if done.left_out or done.missing else 0


def campaign_command(options) -> int:
    from entp_lib.report import campaign

    check_seeds(options.seeds)
    return campaign.command(options.device, options.tier, seconds(options.budget), options.out, options.seeds)
