"""Checks of options that commands share, the options of ``run``, and exit statuses. Imports nothing that is slow."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

from entp_lib.config import ARCHITECTURES
from entp_lib.experiments.parameters import MAX_SEEDS, seconds
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports import lab
from entp_lib.reports.notebooks import checked_for_all, notebook_paths, parse_parameter
from entp_lib.validation import ConfigError, one_of, printable, require

MISTAKE = 2
OPTIONS = "tier only fresh jobs time_limit parameter yes cluster list update lab site port no_browser".split()
log = logging.getLogger(__name__)


def check_options(options: argparse.Namespace) -> None:
    """ConfigError, before anything slow is loaded, for options that make no sense in whatever command has them."""
    given = vars(options)
    if "experiment" in given:
        one_of("experiment", options.experiment, EXPERIMENTS)
    for name in given.get("architecture", ()):
        one_of("architecture", name, ARCHITECTURES)
    jobs, seeds = given.get("jobs", 0), given.get("seeds", 0)
    require(jobs >= 0, f"--jobs {jobs}: must be 0 (one per core) or more")
    require(0 <= seeds <= MAX_SEEDS, f"--seeds {seeds}: must be from 0 (the tier's own) to {MAX_SEEDS}")
    limit = given.get("time_limit")
    if limit is not None and not seconds(limit):
        print(f"--time-limit {limit}: no limit", file=sys.stderr)


def exit_status(command: Callable[[], int]) -> int:
    """Run ``command``: its exit status; after a line on stderr 2 for a mistake or a disk, 128 + n for signal n."""
    from entp_lib.records import stopping
    from entp_lib.records.store import RecordError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without the signs of a table shows others
    try:
        with stopping.handled():
            status = command()
            sys.stdout.flush()
        return status
    except (ConfigError, RecordError) as error:
        print(printable(f"entp_lib: {error}"), file=sys.stderr)
        return MISTAKE
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(printable(f"entp_lib: {error.strerror or error}{where}"), file=sys.stderr)
        log.debug("where it was", exc_info=True)
        return MISTAKE
    except KeyboardInterrupt as interrupt:
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # else the notebook's abandoned cell is reported too
        text = "\nstopped; finished records are kept, and the same command continues from the last checkpoint"
        print(text, file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(interrupt, stopping.Terminated) else signal.SIGINT)


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
