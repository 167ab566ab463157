"""``python -m entp_lib …``: what the shell scripts and a bare GPU machine need."""

import argparse
import logging
import sys

from entp_lib import arithmetic
from entp_lib.config import TIERS
from entp_lib.reports import (
    continuing,
    own_commands,
    records_command,
    running,
    starting,
    training,
)
from entp_lib.reports.command_line import add_native, check_limits, check_seeds, exit_status, seconds
from entp_lib.validation import printable, require


def main(arguments: list[str] | None = None) -> int:
    """Parse and run one command; a mistake of the user's is one line on stderr and exit status 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Printable())
    parser = build_parser()
    options = parser.parse_args(arguments)
    if getattr(options, "native", False):
        arithmetic.restart_native()
    return exit_status(lambda: options.command(options))


class Printable(logging.Filter):
    """Has what is logged, names of files in it, without a terminal's control characters."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), ()
        return True


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

    running.add_parser(commands)
    training.add_parser(commands)
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
    tier = commands.add_parser(
        "tier",
        help="complete a whole tier's records without notebooks, at lowest priority",
        description="Complete the records of every experiment that has a design for this tier, one experiment after "
        "the other, at the lowest priority, with a line for each. Ctrl-C stops it; the same command continues every "
        "run from its last checkpoint, at most a minute old. run_all.sh --tier does it with notebooks and says first "
        "how long it takes.",
    )
    tier.add_argument("tier", choices=TIERS, help="overnight takes two cores about 30 hours in all")
    tier.add_argument("--only", default="", metavar="03,07", help="the experiments of these notebooks alone")
    tier.add_argument("--time-limit", metavar="T", help="for all of it: 900, 900s, 15m or 2h")
    tier.add_argument("--jobs", type=int, default=0, metavar="N", help="runs at a time; 0 for one per core")
    add_native(tier)
    tier.set_defaults(command=tier_command)

    own_commands.add_parser(commands)
    claims = commands.add_parser("claims", help="recompute claims.csv and questions.csv and print them")
    claims.set_defaults(command=claims_command)
    records_command.add_parser(commands)
    again = commands.add_parser(
        "verify",
        help="compute some records of an experiment again and compare them with what is stored",
        description="Compute some records of an experiment again, in a folder of their own, and compare every number "
        "but times. On the machine of a record, with its versions, it should be identical. Another processor rounds "
        "otherwise: a model at its plateau ends within the bound that the last lines name, one in mid-course as "
        "another seed would.",
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


def campaign_command(options) -> int:
    from entp_lib.reports import campaign

    check_seeds(options.seeds)
    return campaign.command(options.device, options.tier, seconds(options.budget), options.out, options.seeds)


def tier_command(options) -> int:
    from entp_lib.paths import number_of
    from entp_lib.reports import tiers
    from entp_lib.reports.options import notebook_paths

    check_limits(options)
    only = [number_of(path.name) for path in notebook_paths(options.only)] if options.only else []
    known = ", ".join(sorted({number_of(e.notebook) for e in tiers.experiments_of(options.tier)})) or "none"
    right = f"--only {options.only}: notebooks whose experiments are run in turn at {options.tier}: {known}"
    require(not only or bool(tiers.experiments_of(options.tier, only)), right)
    limit = seconds(options.time_limit)
    return 1 if tiers.run_tier(options.tier, jobs=options.jobs, time_limit=limit, only=only) else 0


def claims_command(_) -> int:
    from entp_lib.experiments import claims
    from entp_lib.records.store import Store
    from entp_lib.reports import ledger

    # damaged records are named, not passed over
    table, columns = ledger.write_ledger(Store(read_only=True)), ["ours", "95 % interval", "tier", "seeds", "where"]
    print(claims.readable(ledger.papers_claims(table), ["paper", *columns]).to_string())
    print("\nOur own questions")
    print(claims.readable(ledger.questions(table), columns).to_string())
    print(f"\n{claims.multiplicity(table)}")
    return 0


def verify_command(options) -> int:
    from tqdm.auto import tqdm

    from entp_lib.records import verification
    from entp_lib.records.store import Store
    from entp_lib.registry import EXPERIMENTS
    from entp_lib.validation import one_of

    one_of("experiment", options.experiment, EXPERIMENTS)
    experiment, store, found = EXPERIMENTS[options.experiment], Store(read_only=True), []
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == options.tier]
    require(bool(stored), f"{options.experiment} has no records at tier {options.tier}; run_all.sh --list says which")
    for record in verification.sample(stored, options.sample, options.seed):
        print(f"computing {record.experiment}/{record.id} again: {record.config.label}", file=sys.stderr)
        with tqdm(total=record.config.steps, leave=False) as bar:
            found.append(verification.verify(record, store, lambda step, bar=bar: bar.update(step - bar.n), stored))
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
    from entp_lib.reports import readme

    if options.check:
        found = readme.outdated()
        print("README.md and the generated pages are up to date" if not found else f"out of date: {', '.join(found)}")
        return 1 if found else 0
    readme.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
