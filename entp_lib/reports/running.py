"""The command ``run``, which is ``run_all.sh``: notebooks, JupyterLab, the site. Imports nothing slow by itself."""

import argparse
import sys
from collections.abc import Sequence

from entp_lib.config import TIERS
from entp_lib.reports import training
from entp_lib.reports.command_line import add_native, noted_seconds, seconds
from entp_lib.validation import require


def add_parser(commands) -> None:
    """Add ``run`` to the commands."""
    run = commands.add_parser(
        "run",
        prog="run_all.sh",
        help="execute the notebooks",
        description="Execute the notebooks and regenerate every figure. Without options: the best records there "
        "are, and the quick tier where there are none.",
    )
    run.add_argument("--tier", choices=TIERS, help="show this tier and compute what is missing of it")
    run.add_argument("--only", default="", metavar="03,06", help="these notebooks alone, by number or name")
    run.add_argument("--fresh", action="store_true", help="compute again what has a record, in its place")
    run.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: one per core; on a GPU one)")
    run.add_argument(
        "--time-limit",
        metavar="T",
        help="for each notebook's runs: 900, 900s, 15m or 2h, 0 for none; continued by the next call",
    )
    run.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a notebook parameter",
    )
    run.add_argument("--yes", action="store_true", help="start what takes more than an hour without a question")
    add_native(run)
    run.add_argument("--cluster", default="", metavar="WHERE", help=training.CLUSTER_HELP)
    run.add_argument("--mixed", action="store_true", help="with --cluster: workers may have other versions")
    run.add_argument("--list", action="store_true", help="list notebooks, experiments and their records")
    run.add_argument("--update", action="store_true", help="re-execute the committed notebooks in place")
    run.add_argument("--lab", action="store_true", help="open JupyterLab on working copies of the notebooks, in lab/")
    run.add_argument(
        "--reset",
        nargs="?",
        const="",
        metavar="03,06",
        help="with --lab: make the working copies (of these notebooks, else all) anew; your edits of them are lost",
    )
    run.add_argument("--port", type=int, metavar="N", help="with --lab: the port it listens on")
    run.add_argument("--site", action="store_true", help="build the site from the committed notebooks and open it")
    run.add_argument("--no-browser", action="store_true", help="with --lab or --site: only print its address")
    run.set_defaults(command=run_command)


def run_command(options) -> int:
    from entp_lib.reports import lab
    from entp_lib.reports import options as checks

    check_alone(options, "lab", ("port", "no_browser", "reset"))
    check_alone(options, "site", ("no_browser",))
    check_alone(options, "list")
    require(options.lab or options.port is None, "--port goes with --lab")
    require(options.lab or options.reset is None, "--reset goes with --lab")
    require(options.port is None or 0 < options.port < 65536, f"--port {options.port}: must be from 1 to 65535")
    require(options.lab or options.site or not options.no_browser, "--no-browser goes with --lab or --site")
    if options.site:
        from entp_lib.reports.site import build as site

        return site.site_command(options)
    if options.lab:
        reset = [] if options.reset is None else checks.notebook_paths(options.reset)
        lab.open_lab(options.port, not options.no_browser, reset)
    require(options.jobs is None or options.jobs >= 0, f"--jobs {options.jobs}: must be 0 (one per core) or more")
    given = {"tier": options.tier, "jobs": options.jobs, "fresh": options.fresh or None}
    given["time_limit"] = noted_seconds(options.time_limit) or None
    given = {name: value for name, value in given.items() if value is not None}
    twice = [name for name in given if name in {text.partition("=")[0] for text in options.parameter}]
    require(not twice, f"{', '.join(twice)}: given as an option and by -p; leave out one of them")
    checks.check(options.only, given, options.parameter)  # before torch, which takes its seconds

    from entp_lib.records import cluster, execution
    from entp_lib.reports import notebooks as launcher

    if options.list:
        print(launcher.listing())
        return 0
    if options.tier == "gpu" and not options.cluster:
        execution.device_for("gpu")
    require(options.cluster or not options.mixed, "--mixed goes with --cluster")
    with cluster.published(options.cluster, options.mixed):
        return run_notebooks(options, given)


def run_notebooks(options, given: dict) -> int:
    """``run`` with its options for notebooks already checked."""
    from entp_lib import paths
    from entp_lib.records.store import Store
    from entp_lib.reports import estimates, findings, ledger, readme
    from entp_lib.reports import notebooks as launcher

    if options.tier == "overnight" and not asks_for_other_runs(options):
        from entp_lib.reports import tiers

        numbers = [paths.number_of(path.name) for path in launcher.notebook_paths(options.only)]
        store = Store()
        missing = [c for e in tiers.experiments_of("overnight", numbers) for c in e.missing(store, "overnight")]
        what = f"{len(missing)} overnight runs without a record"
        estimates.announce_runs(what, missing, options.jobs or 0, options.yes, seconds(options.time_limit), store)
        tiers.run_tier("overnight", jobs=options.jobs or 0, time_limit=seconds(options.time_limit), only=numbers)
    plan = launcher.plan(only=options.only, options=given, extra=options.parameter, update=options.update)
    limit = seconds(options.time_limit) * len(plan.jobs)
    what = f"{len(plan.todo)} runs without a record"
    if not options.cluster:  # whose machines nothing here measures
        estimates.announce_runs(what, plan.todo, options.jobs or 0, options.yes, limit)
    results = launcher.run_all(plan)
    judged = None
    if options.tier != "smoke" and not Store().read_only:
        judged = ledger.write_ledger(folder=None if plan.in_place else paths.new_figures().parent)
    if options.update:
        readme.write()
    print(launcher.table(results))
    if not plan.in_place and options.tier != "smoke":
        beside = paths.new_figures()
        print(
            f"\nfigures and ledger of this run: {paths.relative(beside)} and {paths.relative(beside.parent)}/claims.csv"
        )
    if judged is not None and not options.only:
        print(f"\n{findings.headline(judged)}\n\nWhere to look next: ./run_all.sh --lab, or docs/findings.md")
    failed = [r for r in results if r.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed else 0


def asks_for_other_runs(options: argparse.Namespace) -> bool:
    """True where other runs than the tier's own are wanted, or these again: the notebooks compute such themselves."""
    names = {text.partition("=")[0] for text in options.parameter}
    return options.fresh or bool(names & {"seeds", "changes", "fresh"})


def check_alone(options: argparse.Namespace, name: str, takes: Sequence[str] = ()) -> None:
    """ConfigError where the option ``name`` of ``run`` is given together with one that it would ignore."""
    others = "tier only fresh jobs time_limit parameter yes cluster mixed list update lab site port no_browser".split()
    ignored = [other for other in others if other not in (name, *takes) and getattr(options, other)]
    flags = ", ".join("--" + other.replace("_", "-") for other in ignored)
    require(not (getattr(options, name) and ignored), f"--{name} does not take {flags}")
