"""What the commands do: execute notebooks; compute, check and verify records; and name the embedded corpus."""

import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from entp_lab import live, notebooks, paths, ranks, report
from entp_lab import verify as verification
from entp_lab.configs import BEST_FIRST, TIERS, RunConfig, config_id
from entp_lab.embedded_corpus import embedded_file
from entp_lab.estimates import announce_runs
from entp_lab.experiment import Experiment, own
from entp_lab.frames import spent, summary
from entp_lab.registry import EXPERIMENTS, nightly_order
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import Config, Sweep, SweepError, device_for, sweep
from entp_lab.stopping import Cut
from entp_lab.store import CLUSTER_VARIABLE, RecordError, Store
from entp_lab.weights import weights_of
from entp_lib.data.sources import TextFile
from entp_lib.validation import ConfigError, printable, require

SUMMARY = ["arm", "seed", "loss", "token_accuracy", "sequence_accuracy", "steps", "wall_seconds"]


# Notebooks.


def listing() -> str:
    """List each notebook with its experiments, the tiers that have records, and the cost of a whole ``quick``."""
    store = Store()
    rows = []
    for path in notebooks.notebook_paths():
        for experiment in (e for e in EXPERIMENTS.values() if e.notebook == path.stem):
            there = []
            cost = "unknown" if experiment.configs("quick") else "no quick"
            for tier in reversed(BEST_FIRST):
                configs = experiment.configs(tier)
                found = sum(store.has(config, experiment.version) for config in configs)
                if found:
                    there.append(tier if found == len(configs) else f"{tier} ({found} of {len(configs)})")
                if tier == "quick" and 0 < found == len(configs):
                    cost = duration(sum(map(spent, own(experiment, experiment.stored(store, tier)))))
            rows.append(
                {
                    "notebook": path.stem,
                    "experiment": experiment.name,
                    "records at": ", ".join(there) or "none",
                    "quick takes one core": cost,
                }
            )
    frame = pd.DataFrame(rows)
    others = [p.stem for p in notebooks.notebook_paths() if p.stem not in set(frame["notebook"])]
    return f"{frame.to_string(index=False)}\nwithout runs of their own: {', '.join(others) or 'none'}"


def duration(seconds: float) -> str:
    """Return a time in seconds, or above 90 in minutes, as text."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def run_notebooks(
    parameters: Mapping[Path, dict[str, Any]],
    *,
    is_whole: bool = True,
    update: bool = False,
    jobs: int = 0,
    yes: bool = False,
    on_cluster: bool = False,
    verbose: bool = False,
) -> int:
    """Execute notebooks with checked parameters, judge the claims, and say what came out; 1 where a notebook failed.

    ``is_whole``: all notebooks were asked for. ``on_cluster``: on machines whose speed nothing here measures.
    """
    given = next(iter(parameters.values()))
    tier = given.get("tier", "best")
    limit = given.get("time_limit", 0.0)
    failures = 0
    if tier == "gpu" and not on_cluster:
        device_for("gpu")
    names = {name for values in parameters.values() for name in values}
    if tier == "overnight" and not names & {"seeds", "fresh"}:
        begun = time.monotonic()
        numbers = [paths.number_of(path.name) for path in parameters]
        failures = complete_tier("overnight", numbers, limit, jobs, yes, announce=not on_cluster)
        for values in parameters.values() if limit else ():
            values["time_limit"] = max(1.0, limit - (time.monotonic() - begun))
    if is_whole and not update:
        os.environ.setdefault(live.VARIABLE, "short")
    planned, in_place = notebooks.plan(parameters, update)
    if not on_cluster:
        missing = [config for job in planned for config in job.todo]
        announce_runs(f"{len(missing)} runs without a record", missing, jobs, yes, limit * len(planned))
    results = notebooks.run_all(planned)
    judged = None
    if tier != "smoke" and not Store().read_only:
        judged = report.write_ledger(folder=None if in_place else paths.new_figures().parent)
    if update:
        report.write(judged)
    if verbose:
        frame = pd.DataFrame(map(vars, results)).drop(columns=["error", "traceback"]).round({"seconds": 1})
        print(frame.rename(columns={"reused": "records reused", "copy": "executed copy"}).to_string(index=False))
    if judged is not None and is_whole:
        print(f"\n{report.plain_table(judged)}")
    print(f"\nExecuted notebooks: {paths.relative(notebooks.write_index(results))}")
    if not in_place and tier != "smoke":
        new = paths.relative(paths.new_figures())
        print(f"Figures and claims of this run: {new} and {paths.relative(paths.new_figures().parent)}/claims.csv")
    print("To read and change them: ./run_all.sh --lab. What was found: docs/findings.md")
    failed = [result for result in results if result.status != "ok"]
    for result in failed:
        print(f"{result.notebook}: {result.error}", file=sys.stderr)
    return 1 if failed or failures else 0


# Records: computed without notebooks.


def train(
    experiment: Experiment,
    tier: str,
    *,
    architectures: Sequence[str] = (),
    ids: Sequence[str] = (),
    seeds: int = 0,
    results: str = "",
    fresh: bool = False,
    time_limit: float = 0.0,
    jobs: int = 0,
    yes: bool = False,
    cluster: str = "",
) -> int:
    """Complete an experiment's records at a tier; 1 where runs failed.

    ``architectures`` and ``ids``, beginnings of records' names, choose among its runs; empty for all. ``results``:
    where records go, the project's own place for "".
    """
    team = ranks.joined()
    require(not (team and cluster), "--cluster under torchrun: a cluster computes runs, torchrun one run")
    runs = chosen_runs(experiment, tier, seeds, architectures, ids)
    configs = [run.config for run in runs]
    place = results or (paths.results() / "smoke" if tier == "smoke" else None)
    store = Store(place)
    if team and team.rank > 0:
        train_along(team, configs, experiment.version, store, fresh)
        return 0
    todo = [c for c in configs if fresh or store.find(c, experiment.version) is None]
    at_a_time = jobs or (1 if team else experiment.jobs)
    label = f"{experiment.name} {tier}"
    if not (cluster or os.environ.get(CLUSTER_VARIABLE)):  # whose speed nothing here measures
        announce_runs(label, todo, at_a_time, yes, time_limit, store)
    try:
        done = sweep(
            configs,
            experiment.version,
            store=store,
            fresh=fresh,
            jobs=at_a_time,
            time_limit=time_limit,
            label=label,
            cluster=cluster,
        )
    except SweepError as error:
        done = error.sweep
        print(error.report, file=sys.stderr)
    say_partial(done, fresh)
    trained = [r for r in experiment.labelled(done.complete, runs) if isinstance(r.config, RunConfig)]
    if trained:
        print(summary(trained).reindex(columns=SUMMARY).dropna(axis=1, how="all").to_string(index=False))
    return 1 if done.failures else 0


def chosen_runs(
    experiment: Experiment, tier: str, seeds: int, architectures: Sequence[str], ids: Sequence[str]
) -> list:
    """Return the planned runs of these architectures whose records' names begin with one of ``ids``."""
    by_id = {}
    for run in experiment.plan(tier, seeds):
        if not architectures or run.labels.get("architecture") in architectures:
            by_id[config_id(run.config, experiment.version)] = run
    if not by_id:
        has = ", ".join(t for t in TIERS if experiment.plan(t, 0))
        raise ConfigError(f"experiment {experiment.name} has no such runs at tier {tier}; its tiers: {has}")
    chosen = set() if ids else set(by_id)
    for beginning in (text.removeprefix(f"{experiment.name}/") for text in ids):
        found = [i for i in by_id if beginning and i.startswith(beginning)]
        of = f"--run {beginning}: of the {len(by_id)} runs of {experiment.name} at tier {tier}"
        require(bool(found), f"{of} none begins so; other tiers (--tier) and seeds (--seeds) have others")
        require(len(found) == 1, f"{of} {len(found)} begin so, {', '.join(found[:3])}; write more of it")
        chosen.update(found)
    return [run for run_id, run in by_id.items() if run_id in chosen]


def say_partial(done: Sweep, fresh: bool) -> None:
    """Name the runs of a sweep that a time limit cut, and what continues them."""
    for name, step in done.cut.items():
        print(f"partial: {name} at step {step}")
    if done.cut and fresh:
        print("--fresh begins anew each time, and stored records stay until it comes to the end: give it the time")
    elif done.cut:
        print("what is partial has a checkpoint: the same command continues it")


def train_along(team: ranks.Ranks, configs: Sequence[Config], version: int, store: Store, fresh: bool) -> None:
    """Compute this rank's share of the training runs whose records rank 0 makes, in the same order."""
    torch.set_num_threads(1)
    runs = [c for c in configs if isinstance(c, RunConfig) and (fresh or store.find(c, version) is None)]
    for config in runs:
        device = device_for(config.tier)
        path = store.checkpoint_path(config.experiment, config_id(config, version))
        checkpoint = Checkpoint(None if fresh else path, read_only=True)
        start = functools.partial(weights_of, store, config.start_from, config.tier)
        with contextlib.suppress(Cut), checkpoint.deferred, team.together(device):
            train_run(config, device=device, checkpoint=checkpoint, start=start, ranks=team)


def experiments_of(tier: str, only: Sequence[str] = ()) -> list[Experiment]:
    """Return the experiments that have a design for a tier, those first that decide most.

    ``only``: of the notebooks with these numbers.
    """
    found = [EXPERIMENTS[name] for name in nightly_order()]
    return [e for e in found if e.plan(tier, 0) and (not only or paths.number_of(e.notebook) in only)]


def complete_tier(
    tier: str,
    only: Sequence[str] = (),
    time_limit: float = 0.0,
    jobs: int = 0,
    yes: bool = False,
    announce: bool = True,
) -> int:
    """Complete a tier's records within so many seconds (0: no limit), in the order of their plans; 1 where runs failed.

    ``only``: of the experiments of these notebooks. Everything else on the machine comes first.
    """
    experiments = experiments_of(tier, only)
    known = ", ".join(sorted({paths.number_of(e.notebook) for e in experiments_of(tier)})) or "none"
    asked = ",".join(only)
    require(bool(experiments or not only), f"--only {asked}: notebooks with experiments for the tier {tier}: {known}")
    store = Store(paths.results() / "smoke") if tier == "smoke" else Store()
    missing = [config for e in experiments for config in e.missing(store, tier)]
    if announce:
        announce_runs(f"{len(missing)} runs without a record", missing, jobs, yes, time_limit, store)
    os.nice(19 - os.nice(0))
    begun = time.monotonic()
    failures = 0
    for experiment in experiments:
        todo = experiment.missing(store, tier)
        total = len(experiment.plan(tier, 0))
        print(f"{experiment.name}: {total - len(todo)} of {total} runs are complete", file=sys.stderr, flush=True)
        started = time.monotonic()
        left = time_limit - (started - begun) if time_limit else 0.0
        if not todo or (time_limit and left <= 0):
            continue
        try:
            sweep(
                todo,
                experiment.version,
                store=store,
                jobs=jobs or experiment.jobs,
                time_limit=left,
                label=f"{experiment.name} {tier}",
            )
        except SweepError as error:
            failures += len(error.sweep.failures)
            print(error.report, file=sys.stderr, flush=True)
        done = len(todo) - len(experiment.missing(store, tier))
        took = duration(time.monotonic() - started)
        print(f"{experiment.name}: {done} more in {took}", file=sys.stderr, flush=True)
    return 1 if failures else 0


# Records: checked.


def check_records(results: str = "") -> int:
    """Read every record of a folder of results and name the damaged; 1 where there are some."""
    known = {name: experiment.version for name, experiment in EXPERIMENTS.items()}
    store = Store(results or None, read_only=True)
    folder = store.root / "records"
    require(not results or folder.is_dir(), f"{results}: has no records/ with records of runs")
    sound = 0
    wrong = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = store.load(path.parent.name, path.stem)
            if record is None:
                raise RecordError(f"record {path.name} is not there (a link that leads nowhere?)")
            if known.get(record.experiment) != record.version:
                raise RecordError(f"record {path.name} belongs to no current experiment")
            sound += 1
        except RecordError as error:
            wrong.append(str(error))
    print(printable("\n".join([*wrong, f"{sound} records are sound, {len(wrong)} are not"])))
    return 1 if wrong else 0


def verify_records(experiment: Experiment, sample: int, seed: int, tier: str) -> int:
    """Compute some records of an experiment again and compare; 1 where one differs."""
    store = Store(read_only=True)
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == tier]
    require(bool(stored), f"{experiment.name} has no records at tier {tier}; run_all.sh --list says which")
    found = []
    for record in verification.sample(stored, sample, seed):
        said = f"computing {record.experiment}/{record.id} again: {record.config.label}"
        print(printable(said), file=sys.stderr)
        with tqdm(total=record.config.steps, leave=False) as bar:
            found.append(verification.verify(record, store, functools.partial(move_to, bar)))
    print(verification.report(found))
    return 1 if any(one.outcome == "differs" for one in found) else 0


def move_to(bar: tqdm, step: int) -> None:
    """Move a bar to a step."""
    bar.update(step - bar.n)


def describe_corpus(export: str = "") -> int:
    """Name the embedded text corpus by its checksum, and copy it to the file ``export``."""
    if export:
        require(Path(export).parent.is_dir(), f"--export {export}: no such folder")
        require(not Path(export).is_dir(), f"--export {export}: is a folder; name a file in it")
    source = TextFile(embedded_file())
    if export:
        shutil.copyfile(source.path, export)
    size = source.path.stat().st_size
    print(f"embedded corpus: {source.count()} documents, {size} bytes, checksum {source.checksum[:16]}")
    return 0
