"""What the commands do: execute notebooks; compute, check and verify records."""

import contextlib
import functools
import os
import sys
import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from entp_lab import execution, ledger, live, notebooks, paths, ranks, report
from entp_lab import verify as verification
from entp_lab.answers import tally_sentence
from entp_lab.configs import BEST_FIRST, TIERS, Configs, RunConfig, config_id, record_name
from entp_lab.estimates import announce_runs
from entp_lab.experiment import Experiment, PlannedRun, of_experiment
from entp_lab.frames import spent, summary
from entp_lab.registry import EXPERIMENTS, nightly_order
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import DEADLINE_VARIABLE, SweepError, device_for, sweep
from entp_lab.stopping import Cut
from entp_lab.store import CLUSTER_VARIABLE, OWN, RecordError, Records, Store
from entp_lab.texts import printable
from entp_lib.validation import ConfigError, Json, require

SUMMARY = ["arm", "seed", "loss", "token_accuracy", "sequence_accuracy", "steps", "wall_seconds"]


# Notebooks.


def listing() -> str:
    """List each notebook with its experiments, the tiers that have records, and the cost of a whole ``quick``."""
    store = Store()
    lines = []
    for path in notebooks.notebook_paths():
        lines.append(path.stem)
        for experiment in (e for e in EXPERIMENTS.values() if e.notebook == path.stem):
            there = []
            for tier in reversed(BEST_FIRST):
                configs = experiment.configs(tier)
                found = len(configs) - len(store.missing(configs, experiment.version))
                if found:
                    there.append(
                        tier if found == len(configs) else f"{tier} ({found} of {len(configs)})"
                    )
            quick = sum(map(spent, of_experiment(experiment, experiment.stored(store, "quick"))))
            cost = f"; quick takes one core {quick / 60:.1f} min" if quick else ""
            lines.append(
                f"    {experiment.name:26} records at {', '.join(there) or 'no tier'}{cost}"
            )
    return "\n".join(lines)


def run_notebooks(
    parameters: Mapping[Path, Json], *, is_whole: bool, update: bool, yes: bool
) -> int:
    """Execute notebooks with checked parameters, judge the claims and print a summary; return 1 if a notebook failed.

    ``is_whole``: all notebooks were asked for.
    """
    on_cluster = os.environ.get(CLUSTER_VARIABLE)  # where the time of runs cannot be estimated
    given = ChainMap(*parameters.values())
    tier = given.get("tier", "best")
    limit = given.get("time_limit", 0.0)
    jobs = given.get("jobs", 0)
    failures = 0
    if limit:
        os.environ[DEADLINE_VARIABLE] = str(time.time() + limit)
    if tier == "gpu" and not on_cluster:
        device_for("gpu")
    if tier == "overnight" and not given.keys() & {"seeds", "fresh"}:
        failures = train(
            experiments_of(tier, list(parameters)), tier, time_limit=limit, jobs=jobs, yes=yes
        )
    if is_whole and not update:
        os.environ.setdefault(live.VARIABLE, "short")
    execution.start_server(len(parameters) + update)  # which adds those that show the ledger
    planned, in_place = execution.plan(parameters, update)
    if not on_cluster:
        missing = [config for job in planned for config in job.todo]
        announce_runs(f"{len(missing)} runs without a record", missing, jobs, yes, limit, Store())
    place = paths.figures() if in_place else paths.new_figures()
    os.environ[paths.NEW_FIGURES_VARIABLE] = str(place)
    results = execution.run_all(planned)
    print(f"Executed notebooks: {paths.relative(paths.results() / 'executed')}")
    if tier != "smoke" and not Store().read_only:
        folder = paths.results() if in_place else paths.results() / "executed"
        judged = ledger.write_ledger(Store(), folder)
        if update:
            report.write(judged)
        print(
            f"Figures and claims: {paths.relative(place)} and {paths.relative(folder)}/claims.csv"
        )
        print(f"What was found: docs/findings.md. {tally_sentence(judged)}")
    print("To read and change the notebooks: ./run_all.sh --lab")
    return 1 if failures or any(result.error for result in results) else 0


# Records: computed without notebooks.


def experiments_of(tier: str, of_notebooks: Sequence[Path] | None = None) -> list[Experiment]:
    """Return the experiments of a night (``NIGHTLY_ORDER``) with runs at a tier, in its order.

    ``of_notebooks``: only those of these notebooks. Raises ConfigError if no experiment of theirs has runs at the tier.
    """
    found = [
        experiment for name in nightly_order() if (experiment := EXPERIMENTS[name]).configs(tier)
    ]
    if of_notebooks is not None:
        stems = {path.stem for path in of_notebooks}
        known = {
            experiment.notebook for experiment in EXPERIMENTS.values() if experiment.configs(tier)
        }
        numbers = ", ".join(sorted(map(paths.number_of, known))) or "none"
        require(stems & known, f"notebooks with experiments for the tier {tier}: {numbers}")
        found = [experiment for experiment in found if experiment.notebook in stems]
    return found


def train(
    experiments: Sequence[Experiment],
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
    """Complete the records of experiments at a tier, one experiment after the other; return 1 if runs failed.

    ``architectures`` and ``ids`` (prefixes of records' names) select some of their runs; empty for all. ``results``:
    the folder for records, "" for the project's own. ``time_limit``: seconds for everything. With several experiments
    the process takes the lowest priority.
    """
    team = ranks.joined()
    require(
        not (team and cluster),
        "--cluster under torchrun: a cluster computes runs, torchrun one run",
    )
    store = Store(results) if results else Store.of_tier(tier)
    require(
        not (cluster and jobs == 1),
        "--cluster with --jobs 1: one run at a time is computed here; leave out one of them",
    )
    planned = with_runs(experiments, tier, seeds, architectures, ids)
    if team and team.rank > 0:
        for experiment, runs in planned:
            train_along(team, [run.config for run in runs], experiment.version, store, fresh)
        return 0
    todo = {
        e.name: store.missing([run.config for run in runs], e.version, fresh) for e, runs in planned
    }
    for experiment, _ in planned:
        experiment.check_prerequisites(todo[experiment.name])
    # on a cluster the time cannot be estimated
    if jobs == 1 or not (cluster or os.environ.get(CLUSTER_VARIABLE)):
        missing = [config for configs in todo.values() for config in configs]
        announce_runs(
            f"{len(missing)} runs at tier {tier}",
            missing,
            1 if team else jobs,
            yes,
            time_limit,
            store,
        )
    if len(experiments) > 1:
        os.nice(19)
    begun = time.monotonic()
    failures = 0
    for experiment, runs in planned:
        label = f"{experiment.name} {tier}"
        left = time_limit and max(0.1, time_limit - (time.monotonic() - begun))
        print(
            f"{label}: {len(todo[experiment.name])} of {len(runs)} runs are left", file=sys.stderr
        )
        if not todo[experiment.name] and len(experiments) > 1:
            continue
        try:
            done = sweep(
                [run.config for run in runs],
                experiment.version,
                store=store,
                fresh=fresh,
                jobs=1 if team else experiment.jobs or jobs,
                time_limit=left,
                label=label,
                cluster=cluster,
            )
        except SweepError as error:
            done = error.sweep
            failures += len(done.failures)
            print(error.report, file=sys.stderr)
        again = (
            "give it more time, since --fresh begins anew"
            if fresh
            else "the same command continues it"
        )
        for name, step in done.cut.items():
            print(f"partial: {name} at step {step}; {again}")
        print_scores(experiment.labelled(done.complete, runs))
    return 1 if failures else 0


def print_scores(records: Records) -> None:
    """Print a row per training run: its last scores, steps and seconds."""
    trained = [record for record in records if isinstance(record.config, RunConfig)]
    if trained:
        rows = summary(trained).reindex(columns=SUMMARY).dropna(axis=1, how="all")
        print(rows.to_string(index=False))


def with_runs(
    experiments: Sequence[Experiment], tier: str, *chosen: Any
) -> list[tuple[Experiment, list[PlannedRun]]]:
    """Return the chosen runs of each experiment that has some; of several some may lack an architecture."""
    planned = []
    for experiment in experiments:
        try:
            planned.append((experiment, chosen_runs(experiment, tier, *chosen)))
        except ConfigError:
            if not planned and experiment is experiments[-1]:
                raise
    return planned


def chosen_runs(
    experiment: Experiment, tier: str, seeds: int, architectures: Sequence[str], ids: Sequence[str]
) -> list[PlannedRun]:
    """Return the planned runs of these architectures whose records' names begin with one of ``ids``."""
    by_id = {
        config_id(run.config, experiment.version): run
        for run in experiment.plan(tier, seeds)
        if not architectures or run.labels.get("architecture") in architectures
    }
    if not by_id:
        has = ", ".join(t for t in TIERS if experiment.configs(t))
        raise ConfigError(
            f"experiment {experiment.name} has no such runs at tier {tier}; its tiers: {has}"
        )
    chosen = set() if ids else set(by_id)
    for beginning in (text.removeprefix(f"{experiment.name}/") for text in ids):
        found = [i for i in by_id if beginning and i.startswith(beginning)]
        of = f"--run {beginning}: of the {len(by_id)} runs of {experiment.name} at tier {tier}"
        require(
            found,
            f"{of} none begins so: {', '.join(f'{i[:6]} ({r.config.label})' for i, r in by_id.items())}; "
            "other tiers (--tier) and seeds (--seeds) have others",
        )
        require(
            len(found) == 1, f"{of} {len(found)} begin so, {', '.join(found[:3])}; write more of it"
        )
        chosen.update(found)
    return [run for run_id, run in by_id.items() if run_id in chosen]


def train_along(
    team: ranks.Ranks, configs: Configs, version: int, store: Store, fresh: bool
) -> None:
    """Compute this rank's share of the training runs whose records rank 0 writes, in the same order."""
    torch.set_num_threads(1)
    for config in store.missing(configs, version, fresh):
        if not isinstance(config, RunConfig):  # rank 0 computes studies alone
            continue
        device = device_for(config.tier)
        path = store.checkpoint_path(record_name(config, version))
        checkpoint = Checkpoint(None if fresh else path, read_only=True)
        with contextlib.suppress(Cut), checkpoint.deferred, team.together(device):
            train_run(config, device=device, checkpoint=checkpoint, store=store, ranks=team)


# Records: checked.


def check_records(results: str) -> int:
    """Read every record of a results folder and print what is wrong with damaged ones; return 1 if there are any."""
    known = {OWN: 1} | {name: experiment.version for name, experiment in EXPERIMENTS.items()}
    store = Store(results or None, read_only=True)
    folder = store.root / "records"
    require(not results or folder.is_dir(), f"{results}: has no records/ with records of runs")
    sound = 0
    wrong = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            record = store.load(f"{path.parent.name}/{path.stem}")
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
    """Compute a sample of an experiment's records again and compare; return 1 if one differs."""
    store = Store(read_only=True)
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == tier]
    require(
        stored, f"{experiment.name} has no records at tier {tier}; run_all.sh --list says which"
    )
    found = []
    for record in verification.sample(stored, sample, seed):
        print(printable(f"computing {record.name} again: {record.config.label}"), file=sys.stderr)
        with tqdm(leave=False) as bar:
            found.append(verification.verify(record, store, functools.partial(move_to, bar)))
    print(verification.report(found))
    return 1 if any(one.outcome == verification.DIFFERS for one in found) else 0


def move_to(bar: tqdm, step: int, last: int) -> None:
    """Advance a progress bar to a step."""
    bar.total = last
    bar.update(step - bar.n)
