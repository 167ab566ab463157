"""``python -m entp_lib …``: what the shell scripts and a bare GPU machine need."""

import argparse
import logging
import re
import sys

from entp_lib.config import TIERS, ConfigError, require


def main(arguments: list[str] | None = None) -> int:
    """Parse and run one command; a mistake of the user's is one line on stderr and exit status 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    parser = build_parser()
    options = parser.parse_args(arguments)
    from entp_lib.records import RecordError

    try:
        return options.command(options)
    except (ConfigError, RecordError) as error:
        print(f"entp_lib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # else the notebook's abandoned cell is reported too
        print(
            "\nstopped; finished records are kept, and the same command continues from the last checkpoint",
            file=sys.stderr,
        )
        return 130


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line, without the usage before it."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


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
    run.add_argument("--only", default="", metavar="03,06", help="these notebooks alone")
    run.add_argument("--fresh", action="store_true", help="compute again what has a record")
    run.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: one per core; on a GPU one)")
    run.add_argument(
        "--time-limit",
        metavar="T",
        help="for each notebook's runs: 900, 900s, 15m or 2h; continued by the next call",
    )
    run.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a notebook parameter",
    )
    run.add_argument("--list", action="store_true", help="list notebooks, experiments and their records")
    run.add_argument("--update", action="store_true", help="re-execute the committed notebooks in place")
    run.add_argument("--lab", action="store_true", help="open JupyterLab on the overview")
    run.set_defaults(command=run_command)

    train = commands.add_parser("train", help="compute an experiment's records without a notebook (GPU machines)")
    train.add_argument("experiment")
    train.add_argument("--tier", choices=TIERS, default="quick")
    train.add_argument("--architecture", action="append", default=[], help="only this one; may be repeated")
    train.add_argument("--seeds", type=int, default=0, help="number of seeds (default: the tier's own)")
    train.add_argument("--time-limit", metavar="T", help="for all runs together: 900, 900s, 15m or 2h")
    train.add_argument("--results", metavar="DIR", help="where records go (default: the project's results)")
    train.add_argument("--jobs", type=int, default=0)
    train.add_argument("--fresh", action="store_true")
    train.set_defaults(command=train_command)

    claims = commands.add_parser("claims", help="recompute results/claims.csv from the records and print it")
    claims.set_defaults(command=claims_command)
    records = commands.add_parser("records", help="verify every record and list the damaged ones")
    records.set_defaults(command=records_command)
    corpus = commands.add_parser("corpus", help="name the embedded text corpus by its checksum")
    corpus.add_argument("--export", metavar="FILE", help="write it to a file, for a machine without the packages")
    corpus.set_defaults(command=corpus_command)
    readme = commands.add_parser("readme", help="rewrite the generated tables of README.md")
    readme.add_argument("--check", action="store_true", help="only say whether they are up to date")
    readme.set_defaults(command=readme_command)
    return parser


def seconds(text: str | None) -> float:
    """A time limit in seconds from 900, 900s, 15m or 2h; 0 for None."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    require(match is not None, f"time limit {text!r}: write 900, 900s, 15m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def run_command(options) -> int:
    from entp_lib import claims, launcher, readme, runs
    from entp_lib.records import Store

    if options.lab:
        launcher.open_lab()
    if options.list:
        print(launcher.listing())
        return 0
    if options.tier == "gpu":
        runs.device_for("gpu")
    given = {"tier": options.tier, "jobs": options.jobs, "fresh": options.fresh or None}
    given["time_limit"] = seconds(options.time_limit) or None
    given = {name: value for name, value in given.items() if value is not None}
    require(options.jobs is None or options.jobs >= 1, f"--jobs {options.jobs}: must be at least 1")
    results = launcher.run_all(only=options.only, options=given, extra=options.parameter, update=options.update)
    if options.tier != "smoke" and not Store().read_only:
        claims.write_ledger()
    if options.update:
        readme.write()
    print(launcher.table(results))
    failed = [r for r in results if r.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed else 0


def train_command(options) -> int:
    from entp_lib.config import ARCHITECTURES, RunConfig, one_of
    from entp_lib.experiments import EXPERIMENTS, summary
    from entp_lib.records import Store
    from entp_lib.runs import SweepError, sweep

    one_of("experiment", options.experiment, EXPERIMENTS)
    for name in options.architecture:
        one_of("architecture", name, ARCHITECTURES)
    require(options.jobs >= 0, f"--jobs {options.jobs}: must be 0 (one per core) or more")
    experiment = EXPERIMENTS[options.experiment]
    configs = experiment.configs(options.tier, options.seeds)
    if options.architecture:
        configs = [c for c in configs if isinstance(c, RunConfig) and c.model.architecture in options.architecture]
    require(bool(configs), f"experiment {experiment.name} has no such runs at tier {options.tier}")
    try:
        done = sweep(
            configs,
            experiment.version,
            store=Store(options.results),
            fresh=options.fresh,
            jobs=options.jobs or experiment.jobs,
            time_limit=seconds(options.time_limit),
            label=f"{experiment.name} {options.tier}",
        )
    except SweepError as error:
        done = error.sweep
        print(error, file=sys.stderr)
    partial = [r for r in done.records if r.status == "partial"]
    trained = [r for r in done.complete if isinstance(r.config, RunConfig)]
    if trained:
        shown = [
            "architecture",
            "seed",
            "loss",
            "token_accuracy",
            "sequence_accuracy",
            "steps",
            "wall_seconds",
        ]
        print(summary(trained).reindex(columns=shown).dropna(axis=1, how="all").to_string(index=False))
    for record in partial:
        print(f"partial: {record.experiment}/{record.id} at step {record.provenance['steps']}")
    return 1 if done.failures else 0


def claims_command(_) -> int:
    from entp_lib import claims

    print(claims.shown(claims.write_ledger(), ["paper", "ours", "95 % interval", "tier", "seeds", "where"]).to_string())
    return 0


def records_command(_) -> int:
    from entp_lib.experiments import EXPERIMENTS
    from entp_lib.records import RecordError, Store

    store, good, bad = Store(read_only=True), 0, []
    for path in sorted((store.root / "records").glob("*/*.json")):
        try:
            record = store.load(path.parent.name, path.stem)
            experiment = EXPERIMENTS.get(record.experiment)
            if experiment is None or experiment.version != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            good += 1
        except RecordError as error:
            bad.append(str(error))
    print("\n".join([*bad, f"{good} records are sound, {len(bad)} are not"]))
    return 1 if bad else 0


def corpus_command(options) -> int:
    import shutil
    from pathlib import Path

    from entp_lib.text import TextFile, embedded_file

    if options.export:
        require(Path(options.export).parent.is_dir(), f"--export {options.export}: no such folder")
    source = TextFile(embedded_file())
    if options.export:
        shutil.copyfile(source.path, options.export)
    size = source.path.stat().st_size
    print(f"embedded corpus: {source.count()} documents, {size} bytes, checksum {source.checksum[:16]}")
    return 0


def readme_command(options) -> int:
    from entp_lib import readme

    if options.check:
        print("README.md is up to date" if readme.is_current() else "README.md differs from the records")
        return 0 if readme.is_current() else 1
    readme.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
