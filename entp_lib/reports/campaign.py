"""The first half hour on a GPU: checks, measurements, the ``gpu`` tier in order of value, and one archive to take home.

On a bare machine, from a plain copy of the tree, with torch, numpy, pandas, scipy, safetensors, filelock and tqdm.
Every part says what it found in ``campaign.log``; whatever is cut goes on when the same command is given again.
"""

import argparse
import json
import logging
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch

from entp_lib import paths
from entp_lib.config import RunConfig, StudyConfig
from entp_lib.experiments.budgets import training_operations
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.plans import PlannedRun, by_seed
from entp_lib.models import packed_attention
from entp_lib.records.execution import run
from entp_lib.records.store import Store
from entp_lib.records.sweeps import SweepError, sweep
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports.checks import CHECKS
from entp_lib.reports.command_line import seconds
from entp_lib.validation import ConfigError, require

ENGINE, ENGINE_VERSION = "engine", 1  # the experiment under which the choice of attention is recorded
ARCHIVE_BYTES = 16 * 2**20
CHECK_SECONDS = 60.0
BENCHMARK_SHARE = 0.15  # of the budget, at most
# Experiments in order of value, and the share each has of the time that is left when its turn comes.
ORDER = (("count3", 0.8), ("addition", 0.4), ("in_context", 0.5), ("openwebtext", 1.0))
log = logging.getLogger(__name__)


@dataclass
class Campaign:
    """State of a campaign: device, tier, store, folder, and when it ends."""

    device: str
    tier: str
    store: Store
    folder: Path
    ends: float

    def left(self) -> float:
        """Seconds of the budget."""
        return self.ends - time.monotonic()

    def say(self, what: str, **found) -> None:
        """Write a line to the terminal and, with the findings, to the log."""
        print(what, file=sys.stderr, flush=True)
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "left": round(self.left()), "what": what, **found}
        with (self.folder / "campaign.log").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def run_campaign(device: str, tier: str, budget: float, folder: Path, seeds: int = 0) -> int:
    """All parts within ``budget`` seconds; records and logs below ``folder``. Returns an exit status.

    ConfigError where the device is not there or the tier has no runs; a check that fails ends it before any training.
    """
    require(device != "cuda" or torch.cuda.is_available(), "--device cuda: torch sees no GPU; --device cpu rehearses")
    require(device == "cuda" or tier != "gpu", "--tier gpu on a CPU would take weeks; --tier smoke rehearses it")
    require(budget > 0, f"--budget {budget:g}: must be more than 0 seconds")
    store = Store(folder, read_only=False)
    store.check_writable()
    campaign = Campaign(device, tier, store, folder, time.monotonic() + budget)
    campaign.say(f"campaign on {device}, tier {tier}, {budget:.0f} s, torch {torch.__version__}")
    status = 0
    try:
        if not checked(campaign):
            campaign.say("a check failed: nothing is trained")
            return 1
        choose_attention(campaign)
        for place, (name, share) in enumerate(ORDER):
            status |= experiment_within(campaign, EXPERIMENTS[name], share, seeds)
            if place == 0:  # what the machine is lent for comes first
                benchmark(campaign)
        return status
    finally:
        path = archive(folder)
        campaign.say(f"archive: {path}, {path.stat().st_size} bytes; docs/scale.md says how its records come home")


def checked(campaign: Campaign) -> bool:
    """Run all checks: whether they pass; those that a minute has no room for are said to be left out."""
    began, good = time.monotonic(), True
    for name, check in CHECKS.items():
        if time.monotonic() - began > CHECK_SECONDS:
            campaign.say(f"check {name}: left out, the minute is over")
            continue
        started = time.monotonic()
        try:
            found, passed = check(campaign.device)
        except Exception as error:  # whatever a new machine comes up with is a finding
            log.debug("check %s", name, exc_info=True)
            found, passed = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", False
        took = time.monotonic() - started
        campaign.say(f"check {name}: {'passed' if passed else 'FAILED'}: {found} ({took:.1f} s)", passed=passed)
        good &= passed
    return good


def choose_attention(campaign: Campaign) -> None:
    """Measure the ways to attend among packed prefixes, keep that as a record, and use the fastest."""
    cuda = campaign.device == "cuda"
    params = {"device": campaign.device, "dtype": "bf16" if cuda else "fp32", "rows": 512 if cuda else 2, "repeat": 3}
    config = StudyConfig(ENGINE, campaign.tier, "packed_attention", params)
    try:
        record = run(config, ENGINE_VERSION, store=campaign.store, device=campaign.device)
    except Exception as error:  # the ordinary way works everywhere: the runs are worth more than the choice
        log.debug("choice", exc_info=True)
        campaign.say(f"attention: not measured ({type(error).__name__}: {error}); masked is used")
        return
    packed_attention.use(record.metrics["choice"])
    totals = {way: sum(times.values()) for way, times in record.metrics["seconds"].items()}
    campaign.say(f"attention: {record.metrics['choice']} is used", seconds=totals, left_out=record.metrics["left_out"])


def benchmark(campaign: Campaign) -> None:
    """``benchmarks.engine`` within its share of the time; its rows go to ``engine.json``."""
    rows, limit = campaign.folder / "engine.json", BENCHMARK_SHARE * max(0.0, campaign.left())
    if rows.exists() or not (paths.root() / "benchmarks").is_dir():
        return
    cuda = campaign.device == "cuda"
    command = [sys.executable, "-m", "benchmarks.engine", "--device", campaign.device, "--json", str(rows)]
    command += ["--dtype", "bf16"] if cuda else ["--quick"]
    try:
        done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, timeout=max(1.0, limit))
        (campaign.folder / "engine.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        campaign.say(f"benchmarks.engine: {'done' if done.returncode == 0 else 'failed, see engine.log'}")
    except subprocess.TimeoutExpired:
        campaign.say(f"benchmarks.engine: ended after {limit:.0f} s, its share of the time")


def experiment_within(campaign: Campaign, experiment: Experiment, share: float, seeds: int = 0) -> int:
    """Run an experiment seed after seed while its share of the time is enough for the next; 1 where a run failed.

    The first seed is begun whatever it takes, as the next campaign goes on from its checkpoint.
    """
    began, limit = time.monotonic(), share * campaign.left()
    runs = by_seed(experiment.plan(campaign.tier, seeds))
    complete, cut, failures = 0, 0, []
    for seed in dict.fromkeys(planned.labels["seed"] for planned in runs):
        some = [planned for planned in runs if planned.labels["seed"] == seed]
        left = limit - (time.monotonic() - began)
        needed = seconds_of(some, operations_per_second(campaign.store))
        if left <= 0 or (complete and needed > left):
            break
        options = dict(jobs=1, time_limit=left, device=campaign.device, label=f"{experiment.name} {campaign.tier}")
        try:
            done = sweep([planned.config for planned in some], experiment.version, store=campaign.store, **options)
        except SweepError as error:
            done = error.sweep
            campaign.say(str(error))
        complete, cut = complete + len(done.complete), cut + len(done.records) - len(done.complete)
        failures += done.failures
    if not runs:
        campaign.say(f"{experiment.name}: has no such tier")
        return 0
    campaign.say(
        f"{experiment.name}: {complete} complete, {cut} cut, {len(failures)} failed of {len(runs)} planned, in "
        f"{time.monotonic() - began:.0f} of {max(0.0, limit):.0f} s"
    )
    return 1 if failures else 0


def seconds_of(runs: Sequence[PlannedRun], rate: float | None) -> float:
    """Seconds that runs take at ``rate`` multiply-adds a second; 0 where that is not known."""
    trained = [planned.config for planned in runs if isinstance(planned.config, RunConfig)]
    return sum(map(training_operations, trained)) / rate if rate else 0.0


def operations_per_second(store: Store) -> float | None:
    """Multiply-adds a second of the training that this campaign did so far; None before its first run."""
    operations = seconds = 0.0
    for name, _ in ORDER:
        for record in store.all(name):
            if isinstance(record.config, RunConfig) and record.provenance.get("train_seconds"):
                share = record.provenance["steps"] / record.config.train.steps
                operations += share * training_operations(record.config)
                seconds += record.provenance["train_seconds"]
    return operations / seconds if seconds else None


def archive(folder: Path, most: int = ARCHIVE_BYTES) -> Path:
    """``campaign.tar.gz`` of logs and records, at most so many bytes; ``left_out.txt`` in it names what did not fit."""
    path, left_out = folder / "campaign.tar.gz", []
    patterns = ("campaign.log", "engine.json", "engine.log", "records/*/*.json")
    files = {str(f.relative_to(folder)): f.read_bytes() for p in patterns for f in sorted(folder.glob(p))}
    while True:
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            extra = {"left_out.txt": ("\n".join(left_out) + "\n").encode()} if left_out else {}
            for name, content in (files | extra).items():
                entry = tarfile.TarInfo(f"campaign/{name}")
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, BytesIO(content))
        if len(buffer.getvalue()) <= most or not files:
            path.write_bytes(buffer.getvalue())
            return path
        left_out.append(max(files, key=lambda name: len(files[name])))
        del files[left_out[-1]]


def campaign_command(options: argparse.Namespace) -> int:
    """``campaign``: all parts within the budget; ConfigError for a folder that cannot be used."""
    place = Path(options.out).absolute()  # the benchmark runs in the repository
    require(not place.exists() or place.is_dir(), f"--out {options.out}: is a file")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {options.out}: {error.strerror}") from error
    return run_campaign(options.device, options.tier, seconds(options.budget), place, options.seeds)
