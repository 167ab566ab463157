"""``python -m entp_lib …``: what the shell scripts and a bare GPU machine need."""

import argparse
import logging
import sys
from collections.abc import Sequence

from entp_lib.config import TIERS
from entp_lib.report import continuing, own_data_command, scale, starting, training
from entp_lib.report.limits import check_limits, noted_seconds, seconds
from entp_lib.report.training import run_sweep
from entp_lib.strict import require


def main(arguments: list[str] | None = None) -> int:
    """Parse and run one command; a mistake of the user's is one line on stderr and exit status 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    parser = build_parser()
    options = parser.parse_args(arguments)
    from entp_lib.report.endings import exit_status

    return exit_status(lambda: options.command(options))


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line, without the usage before it."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_known_args(self, args=None, namespace=None):
        """Refuse here what a command does not know, so that the command itself says so, by its name."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m entp_lib", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

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
    run.add_argument("--cluster", default="", metavar="WHERE", help=training.CLUSTER_HELP)
    run.add_argument("--mixed", action="store_true", help="with --cluster: workers may have other versions")
    run.add_argument("--list", action="store_true", help="list notebooks, experiments and their records")
    run.add_argument("--update", action="store_true", help="re-execute the committed notebooks in place")
    run.add_argument("--lab", action="store_true", help="open JupyterLab on the overview")
    run.add_argument("--port", type=int, metavar="N", help="with --lab: the port it listens on")
    run.add_argument("--site", action="store_true", help="build the site from the committed notebooks and open it")
    run.add_argument("--no-browser", action="store_true", help="with --lab or --site: only print its address")
    run.set_defaults(command=run_command)

    training.add_parser(commands)
    scale.add_parsers(commands)
    tier = commands.add_parser(
        "tier",
        help="complete a whole tier's records without notebooks, at lowest priority",
        description="Complete the records of every experiment that has a design for this tier, one experiment after "
        "the other, at the lowest priority, with a line for each. Ctrl-C stops it; the same command continues every "
        "run from its last checkpoint, at most a minute old. run_all.sh --tier does it with notebooks and says first "
        "how long it takes.",
    )
    tier.add_argument("tier", choices=TIERS, help="overnight takes two cores a night or two")
    tier.add_argument("--only", default="", metavar="03,07", help="the experiments of these notebooks alone")
    tier.add_argument("--time-limit", metavar="T", help="for all of it: 900, 900s, 15m or 2h")
    tier.add_argument("--jobs", type=int, default=0, metavar="N", help="runs at a time; 0 for one per core")
    tier.set_defaults(command=tier_command)

    text = commands.add_parser(
        "text",
        help="train decoder and ENTP on a text file of your own",
        description="Train on a UTF-8 text or Parquet file, about its last tenth held out, and print the losses; by "
        "default within minutes. ENTP sends half as many tokens as the context is long through its layers for every "
        "trained position of a window, so that --prefixes decides what it costs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    text.add_argument("file")
    text.add_argument("--architecture", action="append", choices=("decoder", "entp"), help="one instead of both")
    text.add_argument("--tokenizer", default="characters", help="characters, bytes, bpe or gpt2")
    text.add_argument(
        "--vocabulary",
        type=int,
        default=0,
        metavar="N",
        help="tokens that bpe learns; 0 for characters: those of the text",
    )
    text.add_argument("--context", type=int, default=64, metavar="N", help="tokens in a window")
    text.add_argument("--prefixes", type=int, default=8, metavar="N", help="trained positions of a window; 0 for all")
    text.add_argument("--size", default="small", help="one of the paper's model sizes")
    text.add_argument("--steps", type=int, default=0, metavar="N", help="updates of the weights; 0: by the file's size")
    text.add_argument("--batch-size", type=int, default=32, metavar="N", help="windows in a step")
    text.add_argument("--max-lr", type=float, default=1e-3, metavar="RATE", help="learning rate; falls to a tenth")
    text.add_argument("--evaluations", type=int, default=20, metavar="N", help="points of the curves of losses")
    text.add_argument(
        "--published",
        action="store_true",
        help="all positions, steps, batch and rate of the authors' Shakespeare: days on two cores",
    )
    text.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each architecture")
    text.add_argument("--time-limit", metavar="T", help="for all runs together: 900, 900s, 15m or 2h")
    text.add_argument("--results", metavar="DIR", help="where records go, if not to results/own")
    text.add_argument("--jobs", type=int, default=0, metavar="N", help="runs at a time; 0 for one per core")
    text.add_argument("--fresh", action="store_true", help="compute again what has a record")
    text.add_argument("--yes", action="store_true", help="start what takes more than an hour without a question")
    text.set_defaults(command=text_command)

    own_data_command.add(commands, check_limits, run_sweep)
    claims = commands.add_parser("claims", help="recompute claims.csv and questions.csv and print them")
    claims.set_defaults(command=claims_command)
    records = commands.add_parser("records", help="verify every record and list the damaged ones")
    records.set_defaults(command=records_command)
    again = commands.add_parser(
        "verify",
        help="compute some records of an experiment again and compare them with what is stored",
        description="Compute some records of an experiment again, in a folder of their own, and compare every number "
        "but times. On the machine of a record, with its versions, it should be identical; on another instruction set "
        "the scores should agree within the bound that the last line names.",
    )
    again.add_argument("experiment")
    again.add_argument("--sample", type=int, default=1, metavar="N", help="so many records, drawn by --seed")
    again.add_argument("--seed", type=int, default=0, metavar="N", help="draws the sample")
    again.add_argument("--tier", choices=TIERS, default="quick")
    again.set_defaults(command=verify_command)
    corpus = commands.add_parser("corpus", help="name the embedded text corpus by its checksum")
    corpus.add_argument("--export", metavar="FILE", help="write it to a file, for a machine without the packages")
    corpus.set_defaults(command=corpus_command)
    readme = commands.add_parser("readme", help="rewrite README.md's findings and the generated pages of docs/")
    readme.add_argument("--check", action="store_true", help="only say whether they are up to date")
    readme.set_defaults(command=readme_command)
    starting.add_parser(commands)
    continuing.add_parser(commands)
    return parser


def run_command(options) -> int:
    from entp_lib.report import lab
    from entp_lib.report import options as checks

    check_alone(options, "lab", ("port", "no_browser"))
    check_alone(options, "site", ("no_browser",))
    check_alone(options, "list")
    require(options.lab or options.port is None, "--port goes with --lab")
    require(options.port is None or 0 < options.port < 65536, f"--port {options.port}: must be from 1 to 65535")
    require(options.lab or options.site or not options.no_browser, "--no-browser goes with --lab or --site")
    if options.site:
        from entp_lib.report.site import build as site

        return site.site_command(options)
    if options.lab:
        lab.open_lab(options.port, not options.no_browser)
    require(options.jobs is None or options.jobs >= 0, f"--jobs {options.jobs}: must be 0 (one per core) or more")
    given = {"tier": options.tier, "jobs": options.jobs, "fresh": options.fresh or None}
    given["time_limit"] = noted_seconds(options.time_limit) or None
    given = {name: value for name, value in given.items() if value is not None}
    twice = [name for name in given if name in {text.partition("=")[0] for text in options.parameter}]
    require(not twice, f"{', '.join(twice)}: given as an option and by -p; leave out one of them")
    checks.check(options.only, given, options.parameter)  # before torch, which takes its seconds

    from entp_lib.report import notebooks as launcher
    from entp_lib.runs import sweeps as runs

    if options.list:
        print(launcher.listing())
        return 0
    if options.tier == "gpu" and not options.cluster:
        runs.device_for("gpu")
    require(options.cluster or not options.mixed, "--mixed goes with --cluster")
    from entp_lib.runs import cluster

    with cluster.published(options.cluster, options.mixed):
        return run_notebooks(options, given)


def run_notebooks(options, given: dict) -> int:
    """``run`` with its options for notebooks already checked."""
    from entp_lib import paths
    from entp_lib.report import estimates, ledger, readme
    from entp_lib.report import notebooks as launcher
    from entp_lib.runs.records import Store

    if options.tier == "overnight":
        from entp_lib.report import tiers

        numbers = [path.name[:2] for path in launcher.notebook_paths(options.only)]
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
    if options.tier != "smoke" and not Store().read_only:
        ledger.write_ledger(folder=None if plan.in_place else paths.new_figures().parent)
    if options.update:
        readme.write()
    print(launcher.table(results))
    if not plan.in_place and options.tier != "smoke":
        beside = paths.relative(paths.new_figures().parent)
        print(f"\nfigures and ledger of this run: {beside}/figures and {beside}/claims.csv")
    failed = [r for r in results if r.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed else 0


def check_alone(options: argparse.Namespace, name: str, takes: Sequence[str] = ()) -> None:
    """ConfigError where the option ``name`` of ``run`` is given together with one that it would ignore."""
    others = "tier only fresh jobs time_limit parameter yes cluster mixed list update lab site port no_browser".split()
    ignored = [other for other in others if other not in (name, *takes) and getattr(options, other)]
    flags = ", ".join("--" + other.replace("_", "-") for other in ignored)
    require(not (getattr(options, name) and ignored), f"--{name} does not take {flags}")


def tier_command(options) -> int:
    from entp_lib.report import tiers
    from entp_lib.report.options import notebook_paths

    check_limits(options)
    only = [path.name[:2] for path in notebook_paths(options.only)] if options.only else []
    known = ", ".join(sorted({e.notebook[:2] for e in tiers.experiments_of(options.tier)})) or "none"
    right = f"--only {options.only}: notebooks whose experiments are run in turn at {options.tier}: {known}"
    require(not only or bool(tiers.experiments_of(options.tier, only)), right)
    limit = seconds(options.time_limit)
    return 1 if tiers.run_tier(options.tier, jobs=options.jobs, time_limit=limit, only=only) else 0


def text_command(options) -> int:
    from pathlib import Path

    from entp_lib import paths
    from entp_lib.report import own_text, own_text_ending
    from entp_lib.runs import sweeps as runs
    from entp_lib.runs.records import Store

    require(Path(options.file).exists(), f"{options.file}: no such file")
    check_limits(options)
    results = options.results or paths.results() / "own"
    Store(results).check_writable()
    configs = own_text.configs(
        str(Path(options.file).resolve()),
        options.architecture or ("decoder", "entp"),
        **own_text.settings(options),
    )
    device = runs.device_for("paper")  # a GPU if there is one
    done = run_sweep(options, configs, own_text.VERSION, results, Path(options.file).name, device=device)
    print(own_text.report(done.records, Store(results)))
    own_text_ending.show(done.records, own_text.courses(done.records), Store(results))
    return 1 if done.failures else 0


def claims_command(_) -> int:
    from entp_lib.collection import claims
    from entp_lib.report import ledger
    from entp_lib.runs.records import Store

    # damaged records are named, not passed over
    table, columns = ledger.write_ledger(Store(read_only=True)), ["ours", "95 % interval", "tier", "seeds", "where"]
    print(claims.readable(ledger.papers_claims(table), ["paper", *columns]).to_string())
    print("\nOur own questions")
    print(claims.readable(ledger.questions(table), columns).to_string())
    print(f"\n{claims.multiplicity(table)}")
    return 0


def records_command(_) -> int:
    from entp_lib.report.campaign import versions
    from entp_lib.runs.records import RecordError, Store

    known = versions()
    store, good, bad = Store(read_only=True), 0, []
    for path in sorted((store.root / "records").glob("*/*.json")):
        try:
            record = store.load(path.parent.name, path.stem)
            if known.get(record.experiment) != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            good += 1
        except RecordError as error:
            bad.append(str(error))
    print("\n".join([*bad, f"{good} records are sound, {len(bad)} are not"]))
    return 1 if bad else 0


def verify_command(options) -> int:
    from entp_lib.papers import EXPERIMENTS
    from entp_lib.runs import verification
    from entp_lib.runs.records import Store
    from entp_lib.strict import one_of

    one_of("experiment", options.experiment, EXPERIMENTS)
    experiment, store, found = EXPERIMENTS[options.experiment], Store(read_only=True), []
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == options.tier]
    require(bool(stored), f"{options.experiment} has no records at tier {options.tier}; run_all.sh --list says which")
    for record in verification.sample(stored, options.sample, options.seed):
        print(f"computing {record.experiment}/{record.id} again: {record.config.label}", file=sys.stderr)
        found.append(verification.verify(record, store))
    print(verification.report(found))
    return 1 if any(f.outcome == "differs" for f in found) else 0


def corpus_command(options) -> int:
    import shutil
    from pathlib import Path

    from entp_lib.corpora import TextFile, embedded_file

    if options.export:
        require(Path(options.export).parent.is_dir(), f"--export {options.export}: no such folder")
        require(not Path(options.export).is_dir(), f"--export {options.export}: is a folder; name a file in it")
    source = TextFile(embedded_file())
    if options.export:
        shutil.copyfile(source.path, options.export)
    size = source.path.stat().st_size
    print(f"embedded corpus: {source.count()} documents, {size} bytes, checksum {source.checksum[:16]}")
    return 0


def readme_command(options) -> int:
    from entp_lib.report import readme

    if options.check:
        found = readme.outdated()
        print("README.md and the generated pages are up to date" if not found else f"out of date: {', '.join(found)}")
        return 1 if found else 0
    readme.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
