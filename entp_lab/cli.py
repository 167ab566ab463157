"""``entp …``, or ``python -m entp_lab …``: what the shell scripts and a machine without notebooks need.

Commands load what they need when they run, so that their help does not wait for torch.
"""

import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from entp_lab import paths, stopping
from entp_lab.cluster import publish
from entp_lab.configs import TierName
from entp_lab.parameters import seconds
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import RecordError
from entp_lab.texts import printable
from entp_lib.config import ARCHITECTURES
from entp_lib.validation import ConfigError, one_of, require

LONGEST_MESSAGE = 2000  # signs
KEPT = "stopped; finished records are kept, and the same command continues from the last checkpoint"
INTERRUPTED = 128 + signal.SIGINT  # also typer's, for KeyboardInterrupt
# Environment variables of few values, of which another one would count for none in silence.
VARIABLES = {"ENTP_RECORDS": ("", "read-only"), "ENTP_LIVE": ("", "short")}

app = typer.Typer(
    name="entp",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
new = typer.Typer(help="Begin a task of your own with a small example that works.")
app.add_typer(new, name="new", no_args_is_help=True)

Texts = list[str] | None  # a command's arguments, or the values of a repeatable option
Name = Annotated[str, typer.Argument(help="its name")]
TimeLimit = Annotated[
    str,
    typer.Option(
        metavar="T", help="for all of it: 900, 900s, 15m or 2h; the same command continues"
    ),
]
Jobs = Annotated[
    int, typer.Option(min=0, metavar="N", help="runs at a time; 0: one per core, one on a GPU")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="start what takes more than an hour without a question")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="compute again what has a record, in its place")
]
Cluster = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="compute on a Dask scheduler's workers, as tcp://127.0.0.1:8786"
    ),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="only print its address")]


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        print(f"entp {importlib.metadata.version('entp_lib')}")
        raise typer.Exit


@app.callback()
def entp(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    """Compute and show what this project's notebooks rest on."""


@app.command()
def run(
    tier: Annotated[
        TierName | None, typer.Option(help="show this tier and compute what is missing of it")
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="03,06", help="these notebooks alone, by number or name")
    ] = "",
    fresh: Fresh = False,
    time_limit: TimeLimit = "0",
    jobs: Jobs = 0,
    yes: Yes = False,
    cluster: Cluster = "",
    parameter: Annotated[
        Texts,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="set a parameter of the notebooks that have it",
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="re-execute the committed notebooks in place")
    ] = False,
) -> int:
    """Execute the notebooks and regenerate every figure.

    Without options: the best records there are, and the quick tier where there are none. ./run_all.sh takes three
    options more: --lab and --site, which have options of their own (./run_all.sh --lab --help), and --list.
    """
    from entp_lab import commands, notebooks

    options = {"tier": tier, "jobs": jobs, "fresh": fresh, "time_limit": seconds(time_limit)}
    given = {name: value for name, value in options.items() if value}
    extra = dict(map(notebooks.parse_parameter, parameter or ()))
    twice = ", ".join(given.keys() & extra.keys())
    require(not twice, f"{twice}: given as an option and by -p; leave out one of them")
    parameters = notebooks.parameters_for(notebooks.notebook_paths(only), given | extra)
    publish(cluster)
    return commands.run_notebooks(parameters, is_whole=not only, update=update, yes=yes)


@app.command()
def lab(
    reset: Annotated[
        str, typer.Option(metavar="03,06", help="make these copies (or all) anew; edits are lost")
    ] = "",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="the port it listens on")
    ] = None,
    no_browser: NoBrowser = False,
) -> None:
    """Open JupyterLab on working copies of the notebooks, in lab/."""
    from entp_lab.notebooks import notebook_paths
    from entp_lab.working_copies import open_lab

    open_lab(port, not no_browser, notebook_paths("" if reset == "all" else reset) if reset else ())


@app.command()
def site(no_browser: NoBrowser = False) -> None:
    """Build the site from the committed notebooks and open it."""
    from entp_lab.site import open_site

    open_site(browser=not no_browser)


@app.command(name="list")
def list_() -> None:
    """List notebooks, experiments and their records."""
    from entp_lab.commands import listing

    print(listing())


@app.command()
def train(
    experiment: Annotated[
        str,
        typer.Argument(
            help="its name, as run_all.sh --list has it; none: those of a night, in its order"
        ),
    ] = "",
    tier: Annotated[TierName, typer.Option(help="the scale of the runs")] = "quick",
    architecture: Annotated[
        Texts, typer.Option(metavar="NAME", help="this one alone; repeatable")
    ] = None,
    run: Annotated[
        Texts,
        typer.Option(
            metavar="ID", help="this one alone, by the beginning of its record's name; repeatable"
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            metavar="N",
            help="number of seeds, of a finished experiment at most its own; 0: the tier's own",
        ),
    ] = 0,
    results: Annotated[
        str, typer.Option(metavar="DIR", help="where records go, if not to the project's")
    ] = "",
    fresh: Fresh = False,
    time_limit: TimeLimit = "0",
    jobs: Jobs = 0,
    yes: Yes = False,
    cluster: Cluster = "",
) -> int:
    """Compute missing records without a notebook (GPU machines): an experiment's, or many experiments' at a tier.

    Without a name: those that a night's budget is for, not every experiment of the tier. What is stopped is continued
    by the same command. The tiers smoke, quick and overnight compute on the CPU everywhere, gpu on a CUDA GPU, paper on
    one if there is one. docs/costs.md says what each took.
    """
    from entp_lab import commands

    for name in architecture or ():
        one_of("architecture", name, ARCHITECTURES)
    return commands.train(
        [EXPERIMENTS.named(experiment)] if experiment else commands.experiments_of(tier),
        tier,
        architectures=architecture or (),
        ids=run or (),
        seeds=seeds,
        results=results,
        fresh=fresh,
        time_limit=seconds(time_limit),
        jobs=jobs,
        yes=yes,
        cluster=cluster,
    )


@app.command()
def claims() -> None:
    """Recompute claims.csv and questions.csv and print them."""
    from entp_lab import ledger
    from entp_lab.claims import multiplicity, readable
    from entp_lab.store import Store

    store = Store(read_only=True)
    table = ledger.write_ledger(store, store.root)
    columns = ["ours", "95 % interval", "tier", "seeds", "where"]
    is_question = table["kind"] == "question"
    print(readable(table[~is_question], ["paper", "paper excluded", *columns]).to_string())
    print(
        f"\nOur own questions\n{readable(table[is_question], columns).to_string()}\n\n{multiplicity(table)}"
    )


@app.command()
def records(
    results: Annotated[
        str, typer.Argument(metavar="[DIR]", help="a folder of results, if not the project's")
    ] = "",
) -> int:
    """Read every record and name the damaged: changed, renamed, or of another version.

    Records that were made elsewhere are copied to results/records and then verified so.
    """
    from entp_lab.commands import check_records

    return check_records(results)


@app.command()
def close(experiment: Name) -> None:
    """List an experiment's runs beside their records: it has them all, and needs no planner any more."""
    from entp_lab import experiment as experiments

    print(experiments.close(EXPERIMENTS.named(experiment)))


@app.command()
def verify(
    experiment: Name,
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", help="how many records, drawn by --seed")
    ] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="draws the sample")] = 0,
    tier: Annotated[TierName, typer.Option(help="the scale of the records")] = "quick",
) -> int:
    """Compute some records of an experiment again, apart, and compare every number but times."""
    from entp_lab.commands import verify_records

    return verify_records(EXPERIMENTS.named(experiment), sample, seed, tier)


@app.command()
def readme(
    check: Annotated[
        bool, typer.Option("--check", help="only say whether they are up to date")
    ] = False,
) -> int:
    """Rewrite README.md's findings and the generated pages of docs/; with --check, 1 where one is out of date."""
    from entp_lab import report

    if not check:
        report.write()
        return 0
    found = report.outdated()
    print(
        f"out of date: {', '.join(found)}"
        if found
        else "README.md and the generated pages are up to date"
    )
    return 1 if found else 0


@new.command()
def task(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="an identifier in lower case, such as parity")
    ],
) -> None:
    """Write a task (parity of every prefix), its two lines among the others, and its test."""
    from entp_lab.new import new_task

    new_task(name)


def main(arguments: Texts = None) -> int:
    """Parse and run one command and return its exit status.

    After a line on stderr it is 2 for a mistake of the user's or of a disk, and 128 + n for signal n.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(make_printable)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))
        elif hasattr(stream, "reconfigure"):
            # a terminal without the signs of a table shows others
            stream.reconfigure(errors="replace")
    try:
        with stopping.handled():
            status = command(arguments)
            sys.stdout.flush()
            if status == INTERRUPTED:
                words = sys.argv[1:] if arguments is None else arguments
                goes_on = {"run", "train"} & set(words[:1]) and "--fresh" not in words
                print(KEPT if goes_on else "stopped", file=sys.stderr)
                status = 128 + signal.SIGTERM if stopping.REQUEST.made else INTERRUPTED
        return status
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except TyperException as error:
        return mistake(error.format_message())
    except (ConfigError, RecordError) as error:
        return mistake(str(error))
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return mistake(f"{error.strerror or error}{where}")


def command(arguments: Texts) -> int:
    """Run one command in an environment whose variables are checked."""
    for variable, values in VARIABLES.items():
        one_of(variable, os.environ.get(variable, ""), values)
    paths.make_absolute()
    return app(arguments, prog_name="entp", standalone_mode=False) or 0


def make_printable(record: logging.LogRecord) -> bool:
    """Write what is logged, names of files in it, without a terminal's control characters."""
    record.msg = printable(record.getMessage())
    record.args = ()
    return True


def mistake(message: str) -> int:
    """Say in a line on stderr what is wrong, without the middle of a message that is too long to read."""
    if len(message) > LONGEST_MESSAGE:
        half = LONGEST_MESSAGE // 2
        message = f"{message[:half]} … {message[-half:]}"
    with contextlib.suppress(OSError):  # the exit status says so, too, where nothing can be written
        print(printable(f"entp: {message}"), file=sys.stderr)
    return 2
