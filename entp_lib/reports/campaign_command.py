"""``python -m entp_lib campaign``: the first half hour on a GPU. Imports nothing slow until it runs."""

from entp_lib.config import TIERS
from entp_lib.reports.limits import check_seeds, seconds


def add_parser(commands) -> None:
    """Add ``campaign`` to the commands."""
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


def campaign_command(options) -> int:
    from entp_lib.reports import campaign

    check_seeds(options.seeds)
    return campaign.command(options.device, options.tier, seconds(options.budget), options.out, options.seeds)
