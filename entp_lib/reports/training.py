"""``python -m entp_lib train``: an experiment's records without a notebook, here, on a cluster, or over several ranks.

Imports nothing slow until a command runs: torch takes a second, which mistakes and ``--help`` need not wait for.
"""

import argparse
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from entp_lib import paths
from entp_lib.config import ARCHITECTURES, TIERS, RunConfig
from entp_lib.reports.command_line import add_native, check_limits, seconds
from entp_lib.validation import one_of, require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from entp_lib.experiments.experiment import Experiment, PlannedRun
    from entp_lib.records.execution import Config
    from entp_lib.records.sweeps import Sweep

CLUSTER_HELP = "compute on a Dask cluster: tls://HOST:PORT, local:4 or slurm:partition=gpu,gpus=1 (docs/scale.md)"


def add_parser(commands) -> None:
    """Add ``train`` to the commands."""
    train = commands.add_parser(
        "train",
        help="compute an experiment's records without a notebook (GPU machines)",
        description="Compute what is missing of an experiment's records at a tier, without a notebook, and print a "
        "line for each training run. What is stopped is continued by the same command. The tiers smoke, quick and "
        "overnight compute on the CPU everywhere, gpu on a CUDA GPU, paper on one if there is one.",
    )
    train.add_argument("experiment", help="its name, as run_all.sh --list has it")
    train.add_argument("--tier", choices=TIERS, default="quick", help="the scale of the runs (default: quick)")
    train.add_argument("--architecture", action="append", default=[], metavar="NAME", help="this one alone; repeatable")
    train.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="ID",
        help="this one alone, by its record's name or the beginning of it; repeatable",
    )
    train.add_argument("--seeds", type=int, default=0, metavar="N", help="number of seeds (default: the tier's own)")
    train.add_argument("--time-limit", metavar="T", help="for all runs together: 900, 900s, 15m or 2h")
    train.add_argument("--results", metavar="DIR", help="where records go (default: the project's results)")
    train.add_argument("--jobs", type=int, default=0, metavar="N", help="runs at a time; 0: one per core, one on a GPU")
    train.add_argument("--fresh", action="store_true", help="compute again what has a record, in its place")
    train.add_argument("--yes", action="store_true", help="start what takes more than an hour without a question")
    add_native(train)
    train.add_argument("--cluster", metavar="WHERE", help=CLUSTER_HELP)
    train.add_argument("--mixed", action="store_true", help="with --cluster: workers may have other versions")
    train.add_argument(
        "--gradient-shards",
        type=int,
        metavar="N",
        help="cut each batch in N parts, whose gradients are added (default: 1, under torchrun one a rank)",
    )
    train.set_defaults(command=train_command)


def train_command(options) -> int:
    one_of("experiment", options.experiment, known_experiments())
    for name in options.architecture:
        one_of("architecture", name, ARCHITECTURES)
    check_limits(options)
    check_places(options)
    from entp_lib.records import ranks

    with ranks.team() as team:
        if team is not None and not team.leads:
            return team.follow()
        return train_here(options, team.size if team else 0)


def known_experiments() -> dict:
    from entp_lib.registry import EXPERIMENTS

    return EXPERIMENTS


def check_places(options: argparse.Namespace) -> None:
    """ConfigError, before anything is started, for a combination of places that makes no sense."""
    from entp_lib.records import ranks

    require(options.cluster or not options.mixed, "--mixed goes with --cluster")
    asked, ranked = options.gradient_shards, ranks.size()
    require(asked is None or asked >= 1, f"--gradient-shards {asked}: must be at least 1")
    require(
        not (ranked and asked and asked != ranked),
        f"--gradient-shards {asked} under torchrun with {ranked} ranks: each computes one; leave it out",
    )
    require(not (ranked and options.cluster), "--cluster under torchrun: a cluster computes runs, torchrun one run")


def train_here(options, ranked: int) -> int:
    """The command itself, in the only process or in the rank that leads ``ranked`` ones."""
    from entp_lib.experiments.frames import summary

    experiment = known_experiments()[options.experiment]
    if options.results is None and options.tier == "smoke":  # which claims nothing
        options.results = paths.results() / "smoke"
    runs = experiment.plan(options.tier, options.seeds)
    if options.architecture:
        runs = [run for run in runs if run.labels.get("architecture") in options.architecture]
    has = ", ".join(t for t in TIERS if experiment.plan(t, 0))
    require(bool(runs), f"experiment {experiment.name} has no such runs at tier {options.tier}; its tiers: {has}")
    runs = cut(runs, options.gradient_shards or ranked or 1)
    if options.run:
        runs = named(runs, options.run, experiment, options.tier)
    configs = [run.config for run in runs]
    label = f"{experiment.name} {options.tier}"
    done = run_sweep(options, configs, experiment.version, options.results, label, 1 if ranked else experiment.jobs)
    trained = [r for r in experiment.labelled(done.complete, runs) if isinstance(r.config, RunConfig)]
    if trained:
        shown = ["arm", "seed", "loss", "token_accuracy", "sequence_accuracy", "steps", "wall_seconds"]
        print(summary(trained).reindex(columns=shown).dropna(axis=1, how="all").to_string(index=False))
    return 1 if done.failures else 0


def named(
    runs: "Sequence[PlannedRun]", beginnings: "Sequence[str]", experiment: "Experiment", tier: str
) -> "list[PlannedRun]":
    """The runs whose records have these names; ConfigError where one begins no record's name, or several."""
    from entp_lib.config import config_id

    ids, wanted = [config_id(run.config, experiment.version) for run in runs], set()
    for beginning in beginnings:
        beginning = beginning.removeprefix(f"{experiment.name}/")
        found = [i for i in ids if beginning and i.startswith(beginning)]
        of = f"--run {beginning}: of the {len(ids)} runs of {experiment.name} at tier {tier}"
        require(bool(found), f"{of} none begins so; other tiers (--tier) and seeds (--seeds) have others")
        require(len(found) == 1, f"{of} {len(found)} begin so, {', '.join(found[:3])}; write more of it")
        wanted.update(found)
    return [run for run, run_id in zip(runs, ids, strict=True) if run_id in wanted]


def cut(runs: "Sequence[PlannedRun]", shards: int) -> "list[PlannedRun]":
    """The same runs with every batch in so many parts, which is another configuration: their sums round otherwise."""

    def sharded(config: "Config") -> "Config":
        if not isinstance(config, RunConfig) or shards == config.train.gradient_shards:
            return config
        return replace(config, train=replace(config.train, gradient_shards=shards))

    return [replace(run, config=sharded(run.config)) for run in runs]


def run_sweep(
    options: argparse.Namespace,
    configs: "Sequence[Config]",
    version: int,
    results: "Path | str | None",
    label: str,
    jobs: int = 0,
    device: str | None = None,
) -> "Sweep":
    """The runs of a command, by its options for jobs, time and what exists; failures and partial runs are printed.

    Raises RecordError where ``results`` cannot be written.
    """
    from entp_lib.config import config_id
    from entp_lib.records.cluster import VARIABLE
    from entp_lib.records.store import Store
    from entp_lib.records.sweeps import SweepError, sweep
    from entp_lib.reports.estimates import announce_runs

    store = Store(results)
    known = [] if options.fresh else [store.find(config, version) for config in configs]
    complete = {r.id for r in known if r is not None and r.status == "complete"}
    todo = [config for config in configs if config_id(config, version) not in complete]
    if not (getattr(options, "cluster", None) or os.environ.get(VARIABLE)):  # whose speed nothing here measures
        limit, yes = seconds(options.time_limit), getattr(options, "yes", True)
        announce_runs(label, todo, options.jobs or jobs, yes, limit, store)
    try:
        done = sweep(
            configs,
            version,
            store=store,
            fresh=options.fresh,
            jobs=options.jobs or jobs,
            time_limit=seconds(options.time_limit),
            device=device,
            label=label,
            cluster=getattr(options, "cluster", None) or "",
            mixed=getattr(options, "mixed", False),
        )
    except SweepError as error:
        done = error.sweep
        print(error, file=sys.stderr)
    for record in done.records:
        if record.status == "partial":
            print(f"partial: {record.experiment}/{record.id} at step {record.provenance['steps']}")
    if any(record.status == "partial" for record in done.records):
        print("what is partial has a checkpoint: the same command continues it")
    return done
