"""Running notebooks: a command is planned, then executed, and a table closes."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from entp_lib import paths
from entp_lib.config import BEST_FIRST
from entp_lib.experiments.experiment import Experiment, NoRuns, own, spent
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.execution import Config, device_for
from entp_lib.records.store import Store, is_complete
from entp_lib.records.sweeps import available_cores
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports import estimates, findings, ledger, readme, training
from entp_lib.reports.command_line import seconds
from entp_lib.reports.execution import Job, Result, duration, execute, execute_side_by_side
from entp_lib.reports.parameters import COMMON, OVERVIEW, checked_for_all, defaults, notebook_paths, parse_parameter
from entp_lib.validation import require

LEDGER_SHOWN = (OVERVIEW, "90")  # notebooks that show the whole ledger, and change with any of its rows
AT_A_TIME = 4  # notebooks side by side, at most
OWN_WORDS = ("ConfigError", "RecordError", "SweepError")  # errors that say themselves what is wrong


@dataclass(frozen=True)
class Plan:
    """Notebooks that a command executes. ``settled``: those all of whose runs have records, which may run in parallel;
    one with a parameter of its own, which may ask for others, is not among them.

    ``in_place``: figures and ledger belong to the project, because they show its best records; else they go next to
    the executed copies. ``todo``: the runs that it will compute.
    """

    jobs: list[Job]
    settled: list[Job]
    in_place: bool
    todo: Sequence[Config] = ()


def plan(
    *, only: str = "", options: dict[str, Any] | None = None, extra: Sequence[str] = (), update: bool = False
) -> Plan:
    """Plan the notebooks to execute, with every parameter of each checked.

    ``options`` go to every notebook, ``extra`` (texts name=value) to those that were asked for. ``update`` puts the
    copies in the place of the committed notebooks, the overview's with them. ConfigError names what does not fit.
    """
    options = options or {}
    own = dict(parse_parameter(text) for text in extra)
    require(not (update and (options or own)), "--update takes no other option: it runs the notebooks as committed")
    notebooks = notebook_paths(only)
    if update:
        notebooks = list(dict.fromkeys([*notebooks, *(p for p in notebook_paths() if p.name.startswith(LEDGER_SHOWN))]))
    parameters = checked_for_all(options, own, notebooks)
    whole = [defaults(p) | given for p, given in zip(notebooks, parameters, strict=True)]
    found = [planned(p.stem, values) for p, values in zip(notebooks, whole, strict=True)]
    missing = [runs.missing for runs in found]
    edited = not all(common(values).as_committed for values in whole)  # in the notebook itself, as JupyterLab does
    in_place = update or not (own or edited or options.keys() - {"jobs"} or any(missing))
    figures = paths.figures() if in_place else paths.new_figures()
    jobs = [Job(path, given, figures, update) for path, given in zip(notebooks, parameters, strict=True)]
    overview = [job.notebook.name.startswith(OVERVIEW) for job in jobs]
    asked = [bool(given.keys() - COMMON) for given in parameters]  # of its own: who knows for which runs
    rows = zip(jobs, missing, overview, asked, strict=True)
    settled = [job for job, lacks, last, others in rows if not (lacks or last or others)]
    return Plan(jobs, settled, in_place, [config for runs in found for config in runs.todo])


def run_all(plan: Plan) -> list[Result]:
    """Execute a plan, going on where a notebook fails, and return a line for each, in the plan's order.

    Where nothing has to be computed, as many notebooks at a time as there are cores, at most 4; the others follow one
    after another, since their runs take all cores, and the overview last.
    """
    at_a_time = min(AT_A_TIME, available_cores(), len(plan.settled))
    first = plan.settled if at_a_time > 1 else []
    results: dict[str, Result] = {}

    def say(text: str, job: Job, number: int) -> None:
        print(f"[{number}/{len(plan.jobs)}] {job.notebook.stem}{text}", file=sys.stderr, flush=True)

    threads = available_cores() // max(1, at_a_time)
    for job, result in execute_side_by_side(first, at_a_time, threads) if first else ():
        results[result.notebook] = with_missing_runs(job, result)
        say(f", {result.seconds:.0f} s", job, len(results))
    for job in (job for job in plan.jobs if job not in first):
        say("", job, len(results) + 1)
        results[job.notebook.stem] = with_missing_runs(job, execute(job))
    return [results[job.notebook.stem] for job in plan.jobs]


def with_missing_runs(job: Job, result: Result) -> Result:
    """The result; its error says how many runs are missing where a cell needed more of them than there are."""
    if not result.error:
        return result
    runs = planned(job.notebook.stem, defaults(job.notebook) | job.parameters | {"fresh": False})
    if runs.missing and not result.error.startswith(OWN_WORDS):
        again = "the same command" + (" without --fresh" if job.parameters.get("fresh") else "")
        result.error = (
            f"{runs.complete} of {runs.total} runs are complete, too few for this notebook; "
            f"{again} continues with the others (it ended in {result.error})"
        )
    print(f"  failed: {result.error}", file=sys.stderr, flush=True)
    return result


def table(results: Sequence[Result]) -> str:
    """The closing table."""
    frame = pd.DataFrame(
        {
            "notebook": r.notebook,
            "status": r.status,
            "seconds": f"{r.seconds:.1f}",
            "records reused": r.reused,
            "computed": r.computed,
            "figures": r.figures,
            "executed copy": r.copy,
        }
        for r in results
    )
    return frame.to_string(index=False)


def stored_runs(experiment: Experiment, store: Store) -> tuple[str, float | None]:
    """The tiers that have records, with how many where some are missing, and the seconds of a whole ``quick``."""
    said, quick = [], None
    for tier in reversed(BEST_FIRST):
        configs = experiment.configs(tier)
        there = sum(store.has(config, experiment.version) for config in configs)
        if there:
            said.append(tier if there == len(configs) else f"{tier} ({there} of {len(configs)})")
        if tier == "quick" and 0 < there == len(configs):
            quick = sum(map(spent, own(experiment, experiment.found(store, experiment.plan(tier, 0)) or [])))
    return ", ".join(said) or "none", quick


def listing() -> str:
    """Table of each notebook with its experiments, the tiers that have records, and the cost of ``quick``."""
    store, rows = Store(), []
    for path in notebook_paths():
        for experiment in (e for e in EXPERIMENTS.values() if e.notebook == path.stem):
            said, quick = stored_runs(experiment, store)
            row = {"notebook": path.stem, "experiment": experiment.name, "records at": said}
            takes = duration(quick) if experiment.plan("quick", 0) else "no quick"
            rows.append(row | {"quick takes one core": takes})
    frame = pd.DataFrame(rows)
    others = [p.stem for p in notebook_paths() if p.stem not in set(frame["notebook"])]
    return frame.to_string(index=False) + f"\nwithout runs of their own: {', '.join(others) or 'none'}"


@dataclass(frozen=True)
class Planned:
    """Runs that a notebook's experiments ask for, how many are complete, and the configurations of the others."""

    total: int = 0
    complete: int = 0
    todo: Sequence[Config] = field(default=(), compare=False)

    @property
    def missing(self) -> int:
        return self.total - self.complete


def common(parameters: dict[str, Any]) -> NotebookParameters:
    """Parameters common to all notebooks, from those of one. ConfigError for a value that makes no sense."""
    return NotebookParameters(**{name: value for name, value in parameters.items() if name in COMMON})


def planned(notebook: str, parameters: dict[str, Any]) -> Planned:
    """The runs of a notebook (its name without suffix) at these parameters; with ``fresh`` none counts as complete.

    Runs that the notebook shows where they are stored, and does not compute at ``best``, are not among them; nor does
    a parameter of the notebook's own count that puts other runs in their place.

    ConfigError for ``changes`` that fit none of its experiments' runs.
    """
    wanted = common(parameters)
    total, todo = 0, []
    for experiment in (e for e in EXPERIMENTS.values() if e.notebook == notebook):
        try:
            store, runs = experiment.runs_for(wanted)
        except NoRuns:
            continue
        if experiment.show_only and wanted.tier == "best":
            continue
        total += len(runs)
        for run in runs:
            found = None if wanted.fresh else store.find(run.config, experiment.version)
            if not is_complete(found):
                todo.append(run.config)
    return Planned(total, total - len(todo), todo)


def run_notebooks(options: argparse.Namespace, given: dict[str, Any]) -> int:
    """The command ``run`` with its options for notebooks already checked; 1 where a notebook failed."""
    if options.tier == "gpu" and not options.cluster:
        device_for("gpu")
    jobs, limit = options.jobs, seconds(options.time_limit)
    names = {text.partition("=")[0] for text in options.parameter}
    if options.tier == "overnight" and not (options.fresh or names & {"seeds", "changes", "fresh"}):
        numbers, store = [paths.number_of(path.name) for path in notebook_paths(options.only)], Store()
        missing = [c for e in training.experiments_of("overnight", numbers) for c in e.missing(store, "overnight")]
        what = f"{len(missing)} overnight runs without a record"
        estimates.announce_runs(what, missing, jobs, options.yes, limit, store)
        training.run_tier("overnight", jobs=jobs, time_limit=limit, only=numbers)
    todo = plan(only=options.only, options=given, extra=options.parameter, update=options.update)
    if not options.cluster:  # whose machines nothing here measures
        what = f"{len(todo.todo)} runs without a record"
        estimates.announce_runs(what, todo.todo, jobs, options.yes, limit * len(todo.jobs))
    results, judged = run_all(todo), None
    if options.tier != "smoke" and not Store().read_only:
        judged = ledger.write_ledger(folder=None if todo.in_place else paths.new_figures().parent)
    if options.update:
        readme.write()
    print(table(results))
    if not todo.in_place and options.tier != "smoke":
        new = paths.relative(paths.new_figures())
        print(f"\nfigures and ledger of this run: {new} and {paths.relative(paths.new_figures().parent)}/claims.csv")
    if judged is not None and not options.only:
        print(f"\n{findings.headline(judged)}\n\nWhere to look next: ./run_all.sh --lab, or docs/findings.md")
    failed = [r for r in results if r.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed else 0
