"""The command ``run``, which is ``run_all.sh``: its options are checked here, before anything slow is loaded."""

import argparse
from collections.abc import Sequence

from entp_lib.reports import lab
from entp_lib.reports.command_line import seconds
from entp_lib.reports.parameters import checked_for_all, notebook_paths, parse_parameter
from entp_lib.validation import require

OPTIONS = "tier only fresh jobs time_limit parameter yes cluster list update lab site port no_browser".split()


def run_command(options: argparse.Namespace) -> int:
    """List, open or execute the notebooks, or build the site: the exit status."""
    check_alone(options, "lab", ("port", "no_browser", "reset"))
    check_alone(options, "site", ("no_browser",))
    check_alone(options, "list")
    require(options.lab or options.port is None, "--port goes with --lab")
    require(options.lab or options.reset is None, "--reset goes with --lab")
    require(options.port is None or 0 < options.port < 65536, f"--port {options.port}: must be from 1 to 65535")
    require(options.lab or options.site or not options.no_browser, "--no-browser goes with --lab or --site")
    if options.site:
        from entp_lib.reports import site

        return site.site_command(options.no_browser)
    if options.lab:
        reset = [] if options.reset is None else notebook_paths(options.reset)
        lab.open_lab(options.port, not options.no_browser, reset)
    limit = seconds(options.time_limit)
    given = {"tier": options.tier, "jobs": options.jobs, "fresh": options.fresh, "time_limit": limit}
    given = {name: value for name, value in given.items() if value}
    extra = dict(map(parse_parameter, options.parameter))
    twice = [name for name in given if name in extra]
    require(not twice, f"{', '.join(twice)}: given as an option and by -p; leave out one of them")
    checked_for_all(given, extra, notebook_paths(options.only))

    from entp_lib.records import cluster
    from entp_lib.reports import launcher

    if options.list:
        print(launcher.listing())
        return 0
    cluster.publish(options.cluster)
    return launcher.run_notebooks(options, given)


def check_alone(options: argparse.Namespace, name: str, takes: Sequence[str] = ()) -> None:
    """ConfigError where the option ``name`` of ``run`` is given together with one that it would ignore."""
    ignored = [other for other in OPTIONS if other not in (name, *takes) and getattr(options, other)]
    flags = ", ".join("--" + other.replace("_", "-") for other in ignored)
    require(not (getattr(options, name) and ignored), f"--{name} does not take {flags}")
