"""``python -m entp_lab …``: what the shell scripts and a machine without notebooks need.

Commands are declared here, without anything slow; the module of the one that is asked for is loaded when it runs.
"""

import argparse
import logging
import os
import pkgutil
import signal
import sys
from collections.abc import Callable

from entp_lab import paths
from entp_lab.configs import TIERS
from entp_lab.notebooks import checked_for_all, notebook_paths, open_lab, parse_parameter
from entp_lab.parameters import MAX_SEEDS, seconds
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import RecordError
from entp_lib.config import ARCHITECTURES
from entp_lib.validation import ConfigError, one_of, printable, require

LIMIT = "for all of it: 900, 900s, 15m or 2h; the same command continues"
MISTAKE = 2  # exit status
ALONE = {"lab": ("port", "reset", "no_browser"), "site": ("no_browser",), "list": ()}  # of ``run``, and what they take
OURS = ("entp_lib", "entp_lab", "entp_papers")
log = logging.getLogger("entp_lab")


def main(arguments: list[str] | None = None) -> int:
    """Parse and run one command; a mistake of the user's is one line on stderr and exit status 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(make_printable)
    options = build_parser().parse_args(arguments)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if options.verbose else logging.NOTSET)
    paths.make_absolute()
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> int:
    """Check the options that commands share, load the command and run it: its exit status."""
    given = vars(options)
    if "experiment" in given:
        one_of("experiment", options.experiment, EXPERIMENTS)
    for name in given.get("architecture", ()):
        one_of("architecture", name, ARCHITECTURES)
    jobs, seeds = given.get("jobs", 0), given.get("seeds", 0)
    require(jobs >= 0, f"--jobs {jobs}: must be 0 (one per core) or more")
    require(0 <= seeds <= MAX_SEEDS, f"--seeds {seeds}: must be from 0 (the tier's own) to {MAX_SEEDS}")
    command = options.command
    return (command if callable(command) else pkgutil.resolve_name(f"entp_lab.{command}"))(options)


def make_printable(record: logging.LogRecord) -> bool:
    """Write what is logged, names of files in it, without a terminal's control characters."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def exit_status(command: Callable[[], int]) -> int:
    """Run ``command``: its exit status; after a line on stderr 2 for a mistake or a disk, 128 + n for signal n."""
    from entp_lab import stopping

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
        log.debug("where it was", exc_info=True)
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
    """``run``: list, open or execute the notebooks, or build the site: the exit status."""
    asked = [name for name, value in vars(options).items() if value and name not in ("command", "verbose")]
    for name in (name for name in ALONE if name in asked):
        ignored = ["--" + other.replace("_", "-") for other in asked if other not in (name, *ALONE[name])]
        require(not ignored, f"--{name} does not take {', '.join(ignored)}")
    require(options.lab or options.port is None, "--port goes with --lab")
    require(options.lab or options.reset is None, "--reset goes with --lab")
    require(options.port is None or 0 < options.port < 65536, f"--port {options.port}: must be from 1 to 65535")
    require(options.lab or options.site or not options.no_browser, "--no-browser goes with --lab or --site")
    if options.site:
        from entp_lab import site

        return site.site_command(options.no_browser)
    if options.lab:
        reset = [] if options.reset is None else notebook_paths(options.reset)
        open_lab(options.port, not options.no_browser, reset)
    limit = seconds(options.time_limit)
    given = {"tier": options.tier, "jobs": options.jobs, "fresh": options.fresh, "time_limit": limit}
    given = {name: value for name, value in given.items() if value}
    extra = dict(map(parse_parameter, options.parameter))
    twice = [name for name in given if name in extra]
    require(not twice, f"{', '.join(twice)}: given as an option and by -p; leave out one of them")
    parameters = checked_for_all(given, extra, notebook_paths(options.only))

    from entp_lab import cluster
    from entp_lab import run_command as launcher

    if options.list:
        print(launcher.listing())
        return 0
    cluster.publish(options.cluster)
    return launcher.run_notebooks(options, parameters)


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line, without the usage before it."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; ``command`` of its result is a function, or one's place in ``entp_lab``."""
    parser = Parser(prog="python -m entp_lab", description="Compute and show what this project's notebooks rest on.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (add_run, add_train, add_own, add_records):
        add(commands)
    return parser


def declare(commands, name: str, command: Callable | str, words: str, more: str = "", **options) -> Parser:
    """A new command, which is listed with ``words``; its own help begins with these and ``more``."""
    parser = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}. {more}", **options)
    parser.add_argument("-v", "--verbose", action="store_true", help="show where in the code an error was")
    parser.set_defaults(command=command)
    return parser


def add_computing(parser: argparse.ArgumentParser, limit: str = LIMIT, cluster: bool = False) -> None:
    """The options of every command that computes runs. ``cluster``: on a Dask cluster, too."""
    parser.add_argument("--time-limit", metavar="T", help=limit)
    jobs = "runs at a time; 0: one per core, one on a GPU"
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help=jobs)
    parser.add_argument("--yes", action="store_true", help="start what takes more than an hour without a question")
    if cluster:
        where = "compute on the workers of a Dask scheduler, such as tcp://127.0.0.1:8786 (docs/scale.md)"
        parser.add_argument("--cluster", default="", metavar="ADDRESS", help=where)


def add_run(commands) -> None:
    more = "Without options: the best records there are, and the quick tier where there are none."
    words = "execute the notebooks and regenerate every figure"
    run = declare(commands, "run", run_command, words, more, prog="run_all.sh")
    run.add_argument("--tier", choices=TIERS, help="show this tier and compute what is missing of it")
    run.add_argument("--only", default="", metavar="03,06", help="these notebooks alone, by number or name")
    run.add_argument("--fresh", action="store_true", help="compute again what has a record, in its place")
    limit = "for each notebook's runs: 900, 900s, 15m or 2h, 0 for none; continued by the next call"
    add_computing(run, limit, cluster=True)
    parameter = dict(action="append", default=[], metavar="NAME=VALUE", help="set a notebook parameter")
    run.add_argument("-p", "--parameter", **parameter)
    run.add_argument("--list", action="store_true", help="list notebooks, experiments and their records")
    run.add_argument("--update", action="store_true", help="re-execute the committed notebooks in place")
    run.add_argument("--lab", action="store_true", help="open JupyterLab on working copies of the notebooks, in lab/")
    again = "with --lab: make the working copies (of these notebooks, else all) anew; your edits of them are lost"
    run.add_argument("--reset", nargs="?", const="", metavar="03,06", help=again)
    run.add_argument("--port", type=int, metavar="N", help="with --lab: the port it listens on")
    run.add_argument("--site", action="store_true", help="build the site from the committed notebooks and open it")
    run.add_argument("--no-browser", action="store_true", help="with --lab or --site: only print its address")


def add_train(commands) -> None:
    words = "compute an experiment's missing records without a notebook (GPU machines)"
    more = "What is stopped is continued by the same command. The tiers smoke, quick and overnight compute on the CPU "
    more += "everywhere, gpu on a CUDA GPU, paper on one if there is one."
    train = declare(commands, "train", "train_command:train_command", words, more)
    train.add_argument("experiment", help="its name, as run_all.sh --list has it")
    train.add_argument("--tier", choices=TIERS, default="quick", help="the scale of the runs (default: quick)")
    one = dict(action="append", default=[])
    train.add_argument("--architecture", **one, metavar="NAME", help="this one alone; repeatable")
    by_name = "this one alone, by its record's name or the beginning of it; repeatable"
    train.add_argument("--run", **one, metavar="ID", help=by_name)
    train.add_argument("--seeds", type=int, default=0, metavar="N", help="number of seeds (default: the tier's own)")
    train.add_argument("--results", metavar="DIR", help="where records go (default: the project's results)")
    train.add_argument("--fresh", action="store_true", help="compute again what has a record, in its place")
    add_computing(train, cluster=True)

    words = "complete the records of every experiment that has a design for a tier, at lowest priority"
    more = "Ctrl-C stops it; the same command continues every run from its last checkpoint."
    tier = declare(commands, "tier", "train_command:tier_command", words, more)
    tier.add_argument("tier", choices=TIERS, help="overnight takes two cores about 40 hours in all")
    tier.add_argument("--only", default="", metavar="03,07", help="the experiments of these notebooks alone")
    add_computing(tier)


def add_own(commands) -> None:
    with_defaults = dict(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    words = "train decoder and ENTP on a text or Parquet file of your own"
    more = "About its last tenth is held out. ENTP sends half as many tokens as the context is long through its layers "
    more += "for every trained position of a window, so that --prefixes decides what it costs."
    text = declare(commands, "text", "own_data:text_command", words, more, **with_defaults)
    words = "train decoder and ENTP on sequences of your own, from a CSV file"
    more = "A CSV file has a column 'sequence' (tokens separated by spaces), and may have 'scored' (which tokens are "
    more += "to be predicted, as 5 or 5-8), 'targets' (other answers at those positions) and 'part' (train, "
    more += "validation, test)."
    data = declare(commands, "data", "own_data:data_command", words, more, **with_defaults)
    for parser, seeds, steps, batch in ((text, 1, 0, 32), (data, 3, 1000, 64)):
        parser.add_argument("file")
        only = "only this one; may be repeated"
        parser.add_argument("--architecture", action="append", default=[], metavar="NAME", help=only)
        by_size = "; 0: by the file's size" if steps == 0 else ""
        parser.add_argument("--steps", type=int, default=steps, metavar="N", help=f"updates of the weights{by_size}")
        parser.add_argument("--batch-size", type=int, default=batch, metavar="N", help="sequences in a step")
        rate = "learning rate; falls to a tenth"
        parser.add_argument("--max-lr", type=float, default=1e-3, metavar="RATE", help=rate)
        parser.add_argument("--seeds", type=int, default=seeds, metavar="N", help="runs of each architecture")
        parser.add_argument("--results", metavar="DIR", help="where records go, if not to results/own")
        parser.add_argument("--fresh", action="store_true", help="compute again what has a record")
        add_computing(parser)
    text.add_argument("--tokenizer", default="characters", help="characters, bytes, bpe or gpt2")
    learned = "tokens that bpe learns; 0 for characters: those of the text"
    text.add_argument("--vocabulary", type=int, default=0, metavar="N", help=learned)
    text.add_argument("--context", type=int, default=64, metavar="N", help="tokens in a window")
    text.add_argument("--prefixes", type=int, default=8, metavar="N", help="trained positions of a window; 0 for all")
    text.add_argument("--size", default="small", help="one of the paper's model sizes")
    data.add_argument("--shape", default="3/4/64", metavar="L/H/D", help="layers, heads and width")
    data.add_argument("--held-out", type=float, default=0.1, metavar="SHARE", help="for validation, and for test")

    words = "continue a text with the model of a finished run"
    more = "RUN is experiment/id of its record, as `text FILE` prints it, or a file of weights. Where tokens are "
    more += "numbers, as in Count3, the prompt is numbers with spaces between them."
    generate = declare(commands, "generate", "generate_command:generate_command", words, more, **with_defaults)
    generate.add_argument("run", metavar="RUN")
    generate.add_argument("--prompt", required=True, metavar="TEXT")
    generate.add_argument("--tokens", type=int, default=100, metavar="N", help="how many to add")
    most_likely, top = "0 takes the most likely token", "draw from the likeliest tokens of mass P"
    generate.add_argument("--temperature", type=float, default=0.8, metavar="T", help=most_likely)
    generate.add_argument("--top-p", type=float, default=1.0, metavar="P", help=top)
    generate.add_argument("--seed", type=int, default=0, metavar="N")

    new = commands.add_parser("new", help="begin a task or a notebook of your own with a small example that works")
    kinds = new.add_subparsers(required=True, metavar="task|notebook")
    task = declare(kinds, "task", "new_command:task_command", "a task (parity of every prefix) with its test")
    task.add_argument("name", metavar="NAME", help="an identifier in lower case, such as parity")
    words = "an experiment (decoder and ENTP), its test, records and a notebook"
    notebook = declare(kinds, "notebook", "new_command:notebook_command", words)
    notebook.add_argument("name", metavar="NAME", help="an identifier in lower case")
    notebook.add_argument("--task", default="counting", help="the task it trains on (default: counting)")
    notebook.add_argument("--no-run", action="store_true", help="write the files and execute nothing")


def add_records(commands) -> None:
    declare(commands, "claims", "ledger:claims_command", "recompute claims.csv and questions.csv and print them")
    words = "read every record and name the damaged: changed, renamed, or of another version"
    more = "Records that were made elsewhere are copied to results/records and then verified so."
    records = declare(commands, "records", "train_command:records_command", words, more)
    records.add_argument("results", nargs="?", metavar="DIR", help="a folder of results (default: the project's)")
    words = "compute some records of an experiment again, apart, and compare every number but times"
    more = "On a processor like the record's it should be identical; another may round otherwise, and a model in "
    more += "mid-course then ends as another seed would."
    verify = declare(commands, "verify", "train_command:verify_command", words, more)
    verify.add_argument("experiment")
    verify.add_argument("--sample", type=int, default=1, metavar="N", help="so many records, drawn by --seed")
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="draws the sample")
    verify.add_argument("--tier", choices=TIERS, default="quick")
    words = "name the embedded text corpus by its checksum"
    corpus = declare(commands, "corpus", "train_command:corpus_command", words)
    corpus.add_argument("--export", metavar="FILE", help="write it to a file, for a machine without the packages")
    words = "rewrite README.md's findings and the generated pages of docs/"
    readme = declare(commands, "readme", "findings:readme_command", words)
    readme.add_argument("--check", action="store_true", help="only say whether they are up to date")
