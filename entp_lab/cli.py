"""``entp …``, or ``python -m entp_lab …``: what the shell scripts and a machine without notebooks need.

Commands load what they need when they run, so that their help does not wait for torch.
"""

import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from entp_lab import paths
from entp_lab.configs import TierName
from entp_lib.config import ARCHITECTURES
from entp_lib.validation import ConfigError, one_of, printable, require

LONGEST_MESSAGE = 2000  # signs
MISTAKE = 2  # exit statuses
INTERRUPTED = 128 + signal.SIGINT  # also typer's, for KeyboardInterrupt
# Options of ``run`` that stand alone, and what each takes.
ALONE: dict[str, set[str]] = {
    "lab": {"port", "reset", "no_browser"},
    "site": {"no_browser"},
    "list_": set(),
}
# Environment variables of few values, of which another one would count for none in silence.
VARIABLES = {"ENTP_RECORDS": ("", "read-only"), "ENTP_LIVE": ("", "short")}
OURS = ("entp_lib", "entp_lab", "entp_papers")
log = logging.getLogger("entp_lab")

app = typer.Typer(
    name="entp",
    help="Compute and show what this project's notebooks rest on.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
new = typer.Typer(help="Begin a task or a notebook of your own with a small example that works.")
app.add_typer(new, name="new", no_args_is_help=True)


def set_verbose(verbose: bool) -> bool:
    """Have errors say where in the code they were, or not."""
    for name in OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.NOTSET)
    return verbose


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        print(f"entp {importlib.metadata.version('entp_lib')}")
        raise typer.Exit


Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", callback=set_verbose, help="show where in the code an error was"),
]
TimeLimit = Annotated[
    str, typer.Option(metavar="T", help="for all of it: 900, 900s, 15m or 2h; the same command continues")
]
Jobs = Annotated[int, typer.Option(min=0, metavar="N", help="runs at a time; 0: one per core, one on a GPU")]
Yes = Annotated[bool, typer.Option("--yes", help="start what takes more than an hour without a question")]
Fresh = Annotated[bool, typer.Option("--fresh", help="compute again what has a record, in its place")]
Cluster = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="compute on a Dask scheduler's workers, as tcp://127.0.0.1:8786"),
]
Only = Annotated[str, typer.Option(metavar="03,06", help="these notebooks alone, by number or name")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="an identifier in lower case, such as parity")]


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True)] = False,
) -> None:
    """Compute and show what this project's notebooks rest on."""


@app.command()
def run(
    context: typer.Context,
    tier: Annotated[TierName | None, typer.Option(help="show this tier and compute what is missing of it")] = None,
    only: Only = "",
    fresh: Fresh = False,
    time_limit: TimeLimit = "0",
    jobs: Jobs = 0,
    yes: Yes = False,
    cluster: Cluster = "",
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="set a notebook parameter")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="list notebooks, experiments and their records")] = False,
    update: Annotated[bool, typer.Option("--update", help="re-execute the committed notebooks in place")] = False,
    lab: Annotated[
        bool, typer.Option("--lab", help="open JupyterLab on working copies of the notebooks, in lab/")
    ] = False,
    reset: Annotated[
        str, typer.Option(metavar="03,06", help="with --lab: make these copies (or all) anew; edits are lost")
    ] = "",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="with --lab: the port it listens on")
    ] = None,
    site: Annotated[
        bool, typer.Option("--site", help="build the site from the committed notebooks and open it")
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="with --lab or --site: only print its address")
    ] = False,
    verbose: Verbose = False,
) -> int:
    """Execute the notebooks and regenerate every figure.

    Without options: the best records there are, and the quick tier where there are none.
    """
    from entp_lab import cluster as clusters
    from entp_lab import commands, notebooks
    from entp_lab.parameters import seconds

    sources = {name: context.get_parameter_source(name) for name in context.params}
    check_together({name for name, source in sources.items() if source and source.name == "COMMANDLINE"} - {"verbose"})
    if site:
        from entp_lab.site import open_site

        return open_site(browser=not no_browser)
    if lab:
        copies = notebooks.notebook_paths("" if reset == "all" else reset) if reset else []
        notebooks.open_lab(port, not no_browser, copies)
    limit = seconds(time_limit)
    options = {"tier": tier, "jobs": jobs, "fresh": fresh, "time_limit": limit}
    given = {name: value for name, value in options.items() if value}
    extra = dict(map(notebooks.parse_parameter, parameter or ()))
    twice = ", ".join(given.keys() & extra.keys())
    require(not twice, f"{twice}: given as an option and by -p; leave out one of them")
    parameters = notebooks.checked_for_all(given, extra, notebooks.notebook_paths(only))
    if list_:
        print(commands.listing())
        return 0
    clusters.publish(cluster)
    return commands.run_notebooks(
        parameters,
        is_whole=not only,
        update=update,
        jobs=jobs,
        yes=yes,
        on_cluster=bool(cluster),
        verbose=verbose,
    )


def check_together(asked: set[str]) -> None:
    """Raise ConfigError where options of ``run`` do not go together."""
    for name, takes in ALONE.items():
        others = sorted(asked - takes - {name}) if name in asked else []
        flags = ", ".join("--" + other.strip("_").replace("_", "-") for other in others)
        require(not others, f"--{name.strip('_')} does not take {flags}")
    for name in ("port", "reset"):
        require(name not in asked or "lab" in asked, f"--{name} goes with --lab")
    with_browser = not asked.isdisjoint({"lab", "site"})
    require("no_browser" not in asked or with_browser, "--no-browser goes with --lab or --site")


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="its name, as run_all.sh --list has it")],
    tier: Annotated[TierName, typer.Option(help="the scale of the runs")] = "quick",
    architecture: Annotated[list[str] | None, typer.Option(metavar="NAME", help="this one alone; repeatable")] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="this one alone, by the beginning of its record's name; repeatable"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, max=1000, metavar="N", help="number of seeds; 0: the tier's own")] = 0,
    results: Annotated[str, typer.Option(metavar="DIR", help="where records go, if not to the project's")] = "",
    fresh: Fresh = False,
    time_limit: TimeLimit = "0",
    jobs: Jobs = 0,
    yes: Yes = False,
    cluster: Cluster = "",
    verbose: Verbose = False,
) -> int:
    """Compute an experiment's missing records without a notebook (GPU machines).

    What is stopped is continued by the same command. The tiers smoke, quick and overnight compute on the CPU
    everywhere, gpu on a CUDA GPU, paper on one if there is one.
    """
    from entp_lab import commands
    from entp_lab.parameters import seconds

    for name in architecture or ():
        one_of("architecture", name, ARCHITECTURES)
    return commands.train(
        experiment_named(experiment),
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
def tier(
    tier: Annotated[TierName, typer.Argument(help="overnight takes two cores about 40 hours in all")],
    only: Only = "",
    time_limit: TimeLimit = "0",
    jobs: Jobs = 0,
    yes: Yes = False,
    verbose: Verbose = False,
) -> int:
    """Complete the records of every experiment that has a design for a tier, at lowest priority.

    Ctrl-C stops it; the same command continues every run from its last checkpoint.
    """
    from entp_lab import commands
    from entp_lab.notebooks import notebook_paths
    from entp_lab.parameters import seconds

    numbers = [paths.number_of(path.name) for path in notebook_paths(only)] if only else []
    return commands.complete_tier(tier, numbers, seconds(time_limit), jobs, yes)


@app.command()
def claims(verbose: Verbose = False) -> int:
    """Recompute claims.csv and questions.csv and print them."""
    from entp_lab import report
    from entp_lab.claims import multiplicity, readable
    from entp_lab.store import Store

    table = report.write_ledger(Store(read_only=True))
    columns = ["ours", "95 % interval", "tier", "seeds", "where"]
    is_question = table["kind"] == "question"
    print(readable(table[~is_question], ["paper", "paper excluded", *columns]).to_string())
    print(f"\nOur own questions\n{readable(table[is_question], columns).to_string()}\n\n{multiplicity(table)}")
    return 0


@app.command()
def records(
    results: Annotated[str, typer.Argument(metavar="[DIR]", help="a folder of results, if not the project's")] = "",
    verbose: Verbose = False,
) -> int:
    """Read every record and name the damaged: changed, renamed, or of another version.

    Records that were made elsewhere are copied to results/records and then verified so.
    """
    from entp_lab.commands import check_records

    return check_records(results)


@app.command()
def verify(
    experiment: str,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="how many records, drawn by --seed")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="draws the sample")] = 0,
    tier: TierName = "quick",
    verbose: Verbose = False,
) -> int:
    """Compute some records of an experiment again, apart, and compare every number but times."""
    from entp_lab.commands import verify_records

    return verify_records(experiment_named(experiment), sample, seed, tier)


@app.command()
def corpus(
    export: Annotated[str, typer.Option(metavar="FILE", help="write it to a file, to take elsewhere")] = "",
    verbose: Verbose = False,
) -> int:
    """Name the embedded text corpus by its checksum."""
    from entp_lab.commands import describe_corpus

    return describe_corpus(export)


@app.command()
def readme(
    check: Annotated[bool, typer.Option("--check", help="only say whether they are up to date")] = False,
    verbose: Verbose = False,
) -> int:
    """Rewrite README.md's findings and the generated pages of docs/; with --check, 1 where one is out of date."""
    from entp_lab import report

    if not check:
        report.write()
        return 0
    found = report.outdated()
    print(f"out of date: {', '.join(found)}" if found else "README.md and the generated pages are up to date")
    return 1 if found else 0


@new.command()
def task(name: Name, verbose: Verbose = False) -> int:
    """Write a task (parity of every prefix), its line among the others, and its test."""
    from entp_lab.new import new_task

    return new_task(name)


@new.command()
def notebook(
    name: Name,
    task: Annotated[str, typer.Option(help="the task it trains on")] = "counting",
    no_run: Annotated[bool, typer.Option("--no-run", help="write the files and execute nothing")] = False,
    verbose: Verbose = False,
) -> int:
    """Write an experiment (decoder and ENTP), its test, records and a notebook."""
    from entp_lab.new import new_notebook

    return new_notebook(name, task, execute=not no_run)


def experiment_named(name: str) -> Any:
    """Return the experiment of this name; ConfigError for an unknown one."""
    from entp_lab.registry import EXPERIMENTS

    return EXPERIMENTS.named(name)


def main(arguments: list[str] | None = None) -> int:
    """Parse and run one command; a mistake of the user's is one line on stderr and exit status 2."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(make_printable)
    return exit_status(lambda: command(arguments))


def command(arguments: list[str] | None) -> int:
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


def exit_status(command: Callable[[], int]) -> int:
    """Run ``command``: its exit status; after a line on stderr 2 for a mistake or a disk, 128 + n for signal n."""
    from entp_lab import stopping
    from entp_lab.store import RecordError

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without the signs of a table shows others
    try:
        with stopping.handled():
            status = command()
            sys.stdout.flush()
            if status == INTERRUPTED:
                logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it would report the notebook's cell, too
                print(
                    "stopped; finished records are kept, and the same command continues from the last checkpoint",
                    file=sys.stderr,
                )
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


def mistake(message: str) -> int:
    """Say in a line on stderr what is wrong, with -v also where it was."""
    with contextlib.suppress(OSError):  # the exit status says so, too, where nothing can be written
        print(printable(f"entp: {shortened(message)}"), file=sys.stderr)
    log.debug("where it was", exc_info=True)
    return MISTAKE


def shortened(message: str) -> str:
    """Return a message without the middle of what is too long to read, as a value of 100,000 signs is."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2
    return f"{message[:half]} … {message[-half:]}"
