"""Commands on records: ``train`` and ``tier`` compute them, ``records`` and ``verify`` check them; and ``corpus``."""

import argparse
import contextlib
import functools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm.auto import tqdm

from entp_lab import paths, ranks
from entp_lab import verify as verification
from entp_lab.configs import TIERS, RunConfig, config_id
from entp_lab.costs import announce_runs
from entp_lab.embedded_corpus import embedded_file
from entp_lab.experiment import Experiment
from entp_lab.frames import summary
from entp_lab.notebook_runs import duration
from entp_lab.notebooks import notebook_paths
from entp_lab.parameters import seconds
from entp_lab.registry import EXPERIMENTS, nightly_order
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import Config, Sweep, SweepError, device_for, sweep
from entp_lab.stopping import Cut
from entp_lab.store import CLUSTER_VARIABLE, RecordError, Store, is_complete
from entp_lab.weights import weights_of
from entp_lib.data.sources import TextFile
from entp_lib.validation import ConfigError, printable, require


def train_command(options: argparse.Namespace) -> int:
    """``train``: complete an experiment's records at a tier; 1 where runs failed."""
    team = ranks.joined()
    require(not (team and options.cluster), "--cluster under torchrun: a cluster computes runs, torchrun one run")
    experiment = EXPERIMENTS[options.experiment]
    claims_nothing = options.results is None and options.tier == "smoke"
    by_id = {}
    for run in experiment.plan(options.tier, options.seeds):
        if not options.architecture or run.labels.get("architecture") in options.architecture:
            by_id[config_id(run.config, experiment.version)] = run
    if not by_id:
        has = ", ".join(t for t in TIERS if experiment.plan(t, 0))
        raise ConfigError(f"experiment {experiment.name} has no such runs at tier {options.tier}; its tiers: {has}")
    chosen = set() if options.run else set(by_id)
    for beginning in (text.removeprefix(f"{experiment.name}/") for text in options.run):
        found = [i for i in by_id if beginning and i.startswith(beginning)]
        of = f"--run {beginning}: of the {len(by_id)} runs of {experiment.name} at tier {options.tier}"
        require(bool(found), f"{of} none begins so; other tiers (--tier) and seeds (--seeds) have others")
        require(len(found) == 1, f"{of} {len(found)} begin so, {', '.join(found[:3])}; write more of it")
        chosen.update(found)
    runs = [run for run_id, run in by_id.items() if run_id in chosen]
    configs = [run.config for run in runs]
    store = Store(paths.results() / "smoke" if claims_nothing else options.results)
    if team and team.rank > 0:
        train_along(team, configs, experiment.version, store, options.fresh)
        return 0
    jobs = 1 if team else experiment.jobs
    done = run_sweep(options, configs, experiment.version, store, f"{experiment.name} {options.tier}", jobs)
    trained = [r for r in experiment.labelled(done.complete, runs) if isinstance(r.config, RunConfig)]
    if trained:
        shown = ["arm", "seed", "loss", "token_accuracy", "sequence_accuracy", "steps", "wall_seconds"]
        print(summary(trained).reindex(columns=shown).dropna(axis=1, how="all").to_string(index=False))
    return 1 if done.failures else 0


def train_along(team: ranks.Ranks, configs: Sequence[Config], version: int, store: Store, fresh: bool) -> None:
    """Compute this rank's share of the training runs whose records rank 0 makes, in the same order."""
    torch.set_num_threads(1)
    runs = [c for c in configs if isinstance(c, RunConfig) and (fresh or not is_complete(store.find(c, version)))]
    for config in runs:
        device = device_for(config.tier)
        path = store.checkpoint_path(config.experiment, config_id(config, version))
        checkpoint = Checkpoint(None if fresh else path, read_only=True)
        start = functools.partial(weights_of, store, config.start_from, config.tier)
        with contextlib.suppress(Cut), checkpoint.deferred, team.together(device):
            train_run(config, device=device, checkpoint=checkpoint, start=start, ranks=team)


def run_sweep(
    options: argparse.Namespace,
    configs: Sequence[Config],
    version: int,
    store: Store,
    label: str,
    jobs: int = 0,
    device: str | None = None,
) -> Sweep:
    """The runs of a command, by its options for jobs, time and what exists; failures and partial runs are printed."""
    todo = [c for c in configs if options.fresh or not is_complete(store.find(c, version))]
    cluster, limit, jobs = getattr(options, "cluster", ""), seconds(options.time_limit), options.jobs or jobs
    if not (cluster or os.environ.get(CLUSTER_VARIABLE)):  # whose speed nothing here measures
        announce_runs(label, todo, jobs, options.yes, limit, store, device)
    how = dict(jobs=jobs, time_limit=limit, device=device, label=label, cluster=cluster)
    try:
        done = sweep(configs, version, store=store, fresh=options.fresh, **how)
    except SweepError as error:
        done = error.sweep
        print(error.report, file=sys.stderr)
    partial = [record for record in done.records if record.status == "partial"]
    for record in partial:
        print(f"partial: {record.name} at step {record.provenance['steps']}")
    if partial:
        anew = "--fresh begins anew each time, and stored records stay until it comes to the end: give it the time"
        print(anew if options.fresh else "what is partial has a checkpoint: the same command continues it")
    return done


def experiments_of(tier: str, only: Sequence[str] = ()) -> list[Experiment]:
    """The experiments of a tier that have a design, those first that decide most; ``only``: of these notebooks."""
    found = [EXPERIMENTS[name] for name in nightly_order()]
    return [e for e in found if e.plan(tier, 0) and (not only or paths.number_of(e.notebook) in only)]


def run_tier(tier: str, *, jobs: int = 0, time_limit: float = 0.0, only: Sequence[str] = ()) -> int:
    """Complete a tier's records within so many seconds (0: no limit), in the order of their plans; returns failures."""
    os.nice(19 - os.nice(0))  # everything else on the machine comes first
    store = Store(paths.results() / "smoke") if tier == "smoke" else Store()
    say = functools.partial(print, file=sys.stderr, flush=True)
    begun, failures = time.monotonic(), 0
    for experiment in experiments_of(tier, only):
        todo, total = experiment.missing(store, tier), len(experiment.plan(tier, 0))
        say(f"{experiment.name}: {total - len(todo)} of {total} runs are complete")
        started = time.monotonic()
        left = time_limit - (started - begun) if time_limit else 0.0
        if not todo or (time_limit and left <= 0):
            continue
        how = dict(jobs=jobs or experiment.jobs, time_limit=left, label=f"{experiment.name} {tier}")
        try:
            sweep(todo, experiment.version, store=store, **how)
        except SweepError as error:
            failures += len(error.sweep.failures)
            say(error.report)
        done = len(todo) - len(experiment.missing(store, tier))
        say(f"{experiment.name}: {done} more in {duration(time.monotonic() - started)}")
    return failures


def tier_command(options: argparse.Namespace) -> int:
    """``tier``: complete a whole tier's records; 1 where runs failed."""
    only = [paths.number_of(path.name) for path in notebook_paths(options.only)] if options.only else []
    known = ", ".join(sorted({paths.number_of(e.notebook) for e in experiments_of(options.tier)})) or "none"
    right = f"--only {options.only}: notebooks whose experiments are run in turn at {options.tier}: {known}"
    require(not only or bool(experiments_of(options.tier, only)), right)
    limit, store = seconds(options.time_limit), Store()
    todo = [c for e in experiments_of(options.tier, only) for c in e.missing(store, options.tier)]
    announce_runs(f"{len(todo)} runs without a record", todo, options.jobs, options.yes, limit, store)
    return 1 if run_tier(options.tier, jobs=options.jobs, time_limit=limit, only=only) else 0


def records_command(options: argparse.Namespace) -> int:
    """``records``: read every record and name the damaged; 1 where there are some."""
    known = {name: experiment.version for name, experiment in EXPERIMENTS.items()}
    store, sound, wrong = Store(options.results, read_only=True), 0, []
    folder = store.root / "records"
    require(options.results is None or folder.is_dir(), f"{options.results}: has no records/ with records of runs")
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


def verify_command(options: argparse.Namespace) -> int:
    """``verify``: compute some records of an experiment again and compare; 1 where one differs."""
    experiment, store, found = EXPERIMENTS[options.experiment], Store(read_only=True), []
    stored = [r for r in store.all(experiment.name, experiment.version) if r.config.tier == options.tier]
    require(bool(stored), f"{options.experiment} has no records at tier {options.tier}; run_all.sh --list says which")
    for record in verification.sample(stored, options.sample, options.seed):
        print(f"computing {record.experiment}/{record.id} again: {record.config.label}", file=sys.stderr)
        with tqdm(total=record.config.steps, leave=False) as bar:
            found.append(verification.verify(record, store, lambda step, bar=bar: bar.update(step - bar.n)))
    print(verification.report(found))
    return 1 if any(one.outcome == "differs" for one in found) else 0


def corpus_command(options: argparse.Namespace) -> int:
    """``corpus``: name the embedded text corpus by its checksum, or copy it to a file."""
    if options.export:
        require(Path(options.export).parent.is_dir(), f"--export {options.export}: no such folder")
        require(not Path(options.export).is_dir(), f"--export {options.export}: is a folder; name a file in it")
    source = TextFile(embedded_file())
    if options.export:
        shutil.copyfile(source.path, options.export)
    size = source.path.stat().st_size
    print(f"embedded corpus: {source.count()} documents, {size} bytes, checksum {source.checksum[:16]}")
    return 0
