"""Running notebooks: a command is planned, then executed, and a table closes."""

import argparse
import concurrent.futures as cf
import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from entp_lab import costs, findings, ledger, live, paths
from entp_lab import train_command as training
from entp_lab.configs import BEST_FIRST
from entp_lab.experiment import NoRuns, own, spent
from entp_lab.notebook_runs import Job, Result, duration, execute, execute_side_by_side
from entp_lab.notebooks import COMMON, OVERVIEW, defaults, notebook_paths
from entp_lab.parameters import NotebookParameters, seconds
from entp_lab.provenance import available_cores
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import Config, device_for
from entp_lab.store import Store, is_complete
from entp_lib.validation import require

LEDGER_SHOWN = (OVERVIEW, "90")  # notebooks that show the whole ledger, and change with any of its rows
AT_A_TIME = 4  # notebooks side by side, at most
OWN_WORDS = ("ConfigError", "RecordError", "SweepError")  # errors that say themselves what is wrong


def plan(parameters: Mapping[Path, dict[str, Any]], update: bool = False) -> tuple[list[Job], bool]:
    """Plan the notebooks to execute, with the parameters of each, which are checked.

    ``update`` puts the copies in the place of the committed notebooks, the overview's with them. Also whether figures
    and ledger belong to the project, because they show its best records; else they go next to the executed copies.
    """
    right = "--update takes no other option: it runs the notebooks as committed"
    require(not (update and any(parameters.values())), right)
    if update:
        parameters = {**parameters, **{p: {} for p in notebook_paths() if p.name.startswith(LEDGER_SHOWN)}}
    todo, in_place = [], True
    for path, given in parameters.items():
        values = defaults(path) | given
        todo.append(planned(path.stem, values))
        in_place &= common(values).as_committed and not todo[-1] and not given.keys() - {"jobs"}
    in_place |= update
    place = paths.figures() if in_place else paths.new_figures()
    return [Job(*job, place, update, runs) for job, runs in zip(parameters.items(), todo, strict=True)], in_place


def run_all(jobs: Sequence[Job]) -> list[Result]:
    """Execute notebooks, going on where one fails, and return a line for each, in the same order.

    Those that have nothing to compute go as many at a time as there are cores, at most 4; the others follow one after
    another, since their runs take all cores, and then the overview last.
    """
    settled = [job for job in jobs if job.settled]
    if len(settled) < len(jobs):  # else the overview has nothing to wait for
        settled = [job for job in settled if not job.notebook.name.startswith(OVERVIEW)]
    at_a_time = max(1, min(AT_A_TIME, available_cores(), len(settled)))
    results: dict[str, Result] = {}

    def say(text: str, job: Job, number: int) -> None:
        print(f"[{number}/{len(jobs)}] {job.notebook.stem}{text}", file=sys.stderr, flush=True)

    for job, result in execute_side_by_side(settled, at_a_time, available_cores() // at_a_time):
        results[result.notebook] = with_missing_runs(job, result)
        say(f", {result.seconds:.0f} s", job, len(results))
    for job in (job for job in jobs if job not in settled):
        say("", job, len(results) + 1)
        results[job.notebook.stem] = with_missing_runs(job, execute(job))
    return [results[job.notebook.stem] for job in jobs]


def with_missing_runs(job: Job, result: Result) -> Result:
    """The result; its error says how many runs are missing where a cell needed more of them than there are."""
    if result.error and not result.error.startswith(OWN_WORDS):
        todo = planned(job.notebook.stem, defaults(job.notebook) | job.parameters | {"fresh": False})
        again = "the same command" + " without --fresh" * job.parameters.get("fresh", False)
        short = f"{len(todo)} of its runs are not complete, too many for this notebook; {again} continues with them"
        if todo:
            result.error = f"{short} (it ended in {result.error})"
            result.traceback = ""
    if result.traceback:
        print(result.traceback, file=sys.stderr)
    if result.error:
        print(f"  failed: {result.error}", file=sys.stderr, flush=True)
    return result


def table(results: Sequence[Result]) -> str:
    """The closing table."""
    frame = pd.DataFrame(map(vars, results)).drop(columns=["error", "traceback"]).round({"seconds": 1})
    return frame.rename(columns={"reused": "records reused", "copy": "executed copy"}).to_string(index=False)


def listing() -> str:
    """Table of each notebook with its experiments, the tiers that have records, and the cost of a whole ``quick``."""
    store, rows = Store(), []
    for path in notebook_paths():
        for experiment in (e for e in EXPERIMENTS.values() if e.notebook == path.stem):
            there, takes = [], None
            for tier in reversed(BEST_FIRST):
                configs = experiment.configs(tier)
                found = sum(store.has(config, experiment.version) for config in configs)
                if found:
                    there.append(tier if found == len(configs) else f"{tier} ({found} of {len(configs)})")
                if tier == "quick" and 0 < found == len(configs):
                    takes = sum(map(spent, own(experiment, experiment.stored(store, tier))))
            row = {"notebook": path.stem, "experiment": experiment.name, "records at": ", ".join(there) or "none"}
            rows.append(row | {"quick takes one core": duration(takes) if experiment.configs("quick") else "no quick"})
    frame = pd.DataFrame(rows)
    others = [p.stem for p in notebook_paths() if p.stem not in set(frame["notebook"])]
    return frame.to_string(index=False) + f"\nwithout runs of their own: {', '.join(others) or 'none'}"


def common(parameters: dict[str, Any]) -> NotebookParameters:
    """Parameters common to all notebooks, from those of one. ConfigError for a value that makes no sense."""
    return NotebookParameters(**{name: value for name, value in parameters.items() if name in COMMON})


def planned(notebook: str, parameters: dict[str, Any]) -> list[Config]:
    """The runs that a notebook (its name without suffix) shows at these parameters and that have no record.

    With ``fresh`` none has one. Runs that the notebook shows where they are stored, and does not compute at ``best``,
    are not among them; nor does a parameter of the notebook's own count that puts other runs in their place.
    """
    scored, todo = common(parameters), []
    for experiment in (e for e in EXPERIMENTS.values() if e.notebook == notebook):
        with contextlib.suppress(NoRuns):
            store, runs = experiment.runs_for(scored)
            if not (experiment.show_only and scored.tier == "best"):
                configs = (run.config for run in runs)
                todo += [c for c in configs if scored.fresh or not is_complete(store.find(c, experiment.version))]
    return todo


def run_notebooks(options: argparse.Namespace, parameters: Mapping[Path, dict[str, Any]]) -> int:
    """The command ``run`` for notebooks with checked parameters; 1 where a notebook failed."""
    if options.tier == "gpu" and not options.cluster:
        device_for("gpu")
    limit, failures = seconds(options.time_limit), 0
    others = {name for given in parameters.values() for name in given} & {"seeds", "fresh"}
    if options.tier == "overnight" and not others:
        numbers, store = [paths.number_of(path.name) for path in parameters], Store()
        missing = [c for e in training.experiments_of("overnight", numbers) for c in e.missing(store, "overnight")]
        what = f"{len(missing)} overnight runs without a record"
        if not options.cluster:  # whose machines nothing here measures
            costs.announce_runs(what, missing, options.jobs, options.yes, limit, store)
        begun = time.monotonic()
        failures = training.run_tier("overnight", jobs=options.jobs, time_limit=limit, only=numbers)
        for given in parameters.values() if limit else ():
            given["time_limit"] = max(1.0, limit - (time.monotonic() - begun))
    if not (options.only or options.update):
        os.environ.setdefault(live.VARIABLE, "short")
    jobs, in_place = plan(parameters, options.update)
    if not options.cluster:
        missing = [config for job in jobs for config in job.todo]
        what = f"{len(missing)} runs without a record"
        costs.announce_runs(what, missing, options.jobs, options.yes, limit * len(jobs))

    def judge() -> pd.DataFrame | None:
        silent = options.tier == "smoke" or Store().read_only
        return None if silent else ledger.write_ledger(folder=None if in_place else paths.new_figures().parent)

    with cf.ThreadPoolExecutor(1) as beside:  # a ledger that no run of this command can change
        early = beside.submit(judge) if all(job.settled for job in jobs) else None
        results = run_all(jobs)
    judged = early.result() if early else judge()
    if options.update:
        findings.write(judged)
    print(table(results))
    if not in_place and options.tier != "smoke":
        new = paths.relative(paths.new_figures())
        print(f"\nfigures and ledger of this run: {new} and {paths.relative(paths.new_figures().parent)}/claims.csv")
    if judged is not None and not options.only:
        print(f"\n{findings.plain_table(judged)}\n\nWhere to look next: ./run_all.sh --lab, or docs/findings.md")
    failed = [r for r in results if r.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed or failures else 0
