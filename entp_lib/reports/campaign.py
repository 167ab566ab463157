"""The first half hour on a GPU: checks, measurements, the ``gpu`` tier in order of value, and one archive to take home.

On a bare machine, from a plain copy of the tree, with torch, numpy, pandas, scipy, safetensors, filelock and tqdm.
Every part says what it found in ``campaign.log``; whatever is cut goes on when the same command is given again.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from entp_lib import paths
from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.parameters import seconds
from entp_lib.experiments.plans import by_seed
from entp_lib.models import build_model
from entp_lib.records.store import Store
from entp_lib.records.sweeps import SweepError, sweep
from entp_lib.registry import EXPERIMENTS
from entp_lib.reports.costs import expected
from entp_lib.tasks import generator_for
from entp_lib.training.evaluation import autocast
from entp_lib.training.loop import train
from entp_lib.validation import require

ARCHIVE_BYTES = 16 * 2**20
BENCHMARK_SHARE = 0.15  # of the budget, at most
# Experiments in order of value, and the share each has of the time that is left when its turn comes.
ORDER = (("count3", 0.8), ("addition", 0.4), ("in_context", 0.5), ("openwebtext", 1.0))
BOUNDS = {"fp32": 2e-4, "bf16": 6e-2}  # of the largest entry: a GPU's fp32 products may round as TF32 does not
SHAPE = dict(n_layers=3, n_heads=3, width=48, vocab_size=32, max_length=24)


def campaign_command(options: argparse.Namespace) -> int:
    """``campaign``: all parts within the budget; records and logs below ``--out``. Returns an exit status.

    ConfigError where the device is not there or the tier has no runs, OSError for a folder that cannot be used; a check
    that fails ends it before any training.
    """
    device, tier, budget = options.device, options.tier, seconds(options.budget)
    require(device != "cuda" or torch.cuda.is_available(), "--device cuda: torch sees no GPU; --device cpu rehearses")
    require(device == "cuda" or tier != "gpu", "--tier gpu on a CPU would take weeks; --tier smoke rehearses it")
    require(budget > 0, f"--budget {budget:g}: must be more than 0 seconds")
    folder = Path(options.out).absolute()  # the benchmark runs in the repository
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder, read_only=False)
    store.check_writable()
    campaign = Campaign(device, tier, store, folder, time.monotonic() + budget)
    campaign.say(f"campaign on {device}, tier {tier}, {budget:.0f} s, torch {torch.__version__}")
    status = 0
    try:
        if not campaign.passes_checks():
            campaign.say("a check failed: nothing is trained")
            return 1
        for place, (name, share) in enumerate(ORDER):
            status |= campaign.experiment(name, share, options.seeds)
            if place == 0:  # what the machine is lent for comes first
                campaign.benchmark()
        return status
    finally:
        path = archive(folder)
        campaign.say(f"archive: {path}, {path.stat().st_size} bytes; docs/scale.md says how its records come home")


@dataclass
class Campaign:
    """State of a campaign: device, tier, store, folder, and when it ends; and its parts."""

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

    def passes_checks(self) -> bool:
        """Run all checks: whether they pass."""
        good = True
        for name, check in CHECKS.items():
            try:
                found, passed = check(self.device)
            except Exception as error:  # whatever a new machine comes up with is a finding
                found, passed = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", False
            self.say(f"check {name}: {'passed' if passed else 'FAILED'}: {found}", passed=passed)
            good &= passed
        return good

    def benchmark(self) -> None:
        """``benchmarks.engine`` within its share of the time; its rows go to ``engine.json``."""
        rows, limit = self.folder / "engine.json", BENCHMARK_SHARE * max(0.0, self.left())
        if rows.exists() or not (paths.root() / "benchmarks").is_dir():
            return
        command = [sys.executable, "-m", "benchmarks.engine", "--device", self.device, "--json", str(rows)]
        command += ["--dtype", "bf16"] if self.device == "cuda" else ["--quick"]
        try:
            done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, timeout=max(1.0, limit))
            (self.folder / "engine.log").write_text(done.stdout + done.stderr, encoding="utf-8")
            self.say(f"benchmarks.engine: {'done' if done.returncode == 0 else 'failed, see engine.log'}")
        except subprocess.TimeoutExpired:
            self.say(f"benchmarks.engine: ended after {limit:.0f} s, its share of the time")

    def experiment(self, name: str, share: float, seeds: int) -> int:
        """Run an experiment seed after seed while its share of the time is enough for the next; 1 where a run failed.

        The first seed is begun whatever it takes, as the next campaign goes on from its checkpoint.
        """
        experiment, began, limit = EXPERIMENTS[name], time.monotonic(), share * self.left()
        runs, done = by_seed(experiment.plan(self.tier, seeds)), []
        for seed in dict.fromkeys(planned.labels["seed"] for planned in runs):
            some = [planned.config for planned in runs if planned.labels["seed"] == seed]
            left = limit - (time.monotonic() - began)
            if left <= 0 or (done and expected(some, 1, self.store, self.device)[0] > left):
                break
            options = dict(jobs=1, time_limit=left, device=self.device, label=f"{name} {self.tier}")
            try:
                done.append(sweep(some, experiment.version, store=self.store, **options))
            except SweepError as error:
                done.append(error.sweep)
                self.say(error.report)
        records, complete, failed = (sum(len(getattr(d, n)) for d in done) for n in ("records", "complete", "failures"))
        took = f"in {time.monotonic() - began:.0f} of {max(0.0, limit):.0f} s"
        counts = f"{complete} complete, {records - complete} cut, {failed} failed of {len(runs)} planned, {took}"
        self.say(f"{name}: {counts if runs else 'has no such tier'}")
        return 1 if failed else 0


def archive(folder: Path) -> Path:
    """``campaign.tar.gz`` of logs and records, of bounded size; ``left_out.txt`` in it names what did not fit."""
    path, left_out = folder / "campaign.tar.gz", []
    patterns = ("campaign.log", "engine.json", "engine.log", "records/*/*.json")
    files = {str(f.relative_to(folder)): f.read_bytes() for p in patterns for f in sorted(folder.glob(p))}
    while True:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            extra = {"left_out.txt": ("\n".join(left_out) + "\n").encode()} if left_out else {}
            for name, content in (files | extra).items():
                entry = tarfile.TarInfo(f"campaign/{name}")
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
        if len(buffer.getvalue()) <= ARCHIVE_BYTES or not files:
            path.write_bytes(buffer.getvalue())
            return path
        left_out.append(max(files, key=lambda name: len(files[name])))
        del files[left_out[-1]]


# Checks of a new machine, in its first minute: what was found, and whether that will do.


def engine(device: str, precision: str) -> tuple[str, bool]:
    """Every architecture, and ENTP in each of its ways: values and gradients against the reference in fp64 on a CPU."""
    tokens_BT = torch.randint(32, (6, 24), generator=generator_for("cpu", "check"))
    inputs = tokens_BT, torch.arange(24).expand(6, 24) >= 5, torch.full((6,), 6)

    def outcome(model: nn.Module, where: str, precision: str) -> list[Tensor]:
        with autocast(where, precision):
            logits_NV = model(*(x.to(where) for x in inputs))
        logits_NV.float().square().mean().backward()
        return [logits_NV.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])]

    off = {}
    for name, way in (("decoder", "fast"), ("prefix_decoder", "fast"), ("entp", "grouped"), ("entp", "packed")):
        exact, model = (build_model(ModelConfig(architecture=name, **SHAPE), 1) for _ in range(2))
        with torch.no_grad():
            for p in exact.double().parameters():
                p.mul_(6) if p.dim() > 1 else None  # so that attention matters
        model.to(device).load_state_dict(exact.state_dict())
        exact.entp_method, model.entp_method = "reference" if name == "entp" else "fast", way
        pairs = zip(outcome(model, device, precision), outcome(exact, "cpu", "fp32"), strict=True)
        apart = [float((mine.double().cpu() - right).abs().max() / right.abs().max()) for mine, right in pairs]
        off[f"{name} {way}"] = max(apart)
    said = ", ".join(f"{way} {apart:.1e}" for way, apart in off.items())
    return f"off by {said}, at most {BOUNDS[precision]:g}", max(off.values()) <= BOUNDS[precision]


def resume(device: str) -> tuple[str, bool]:
    """A run stopped behind a step and continued from its checkpoint against one that was not: the same curves."""
    schedule = dict(warmup_steps=2, eval_every=4, eval_sequences=64, final_eval_sequences=64)
    task, model = dict(length=8, seed_length=3, symbols=8), ModelConfig("entp", 2, 2, 32, 8, 8)
    config = RunConfig("check", "smoke", "counting", task, model, TrainConfig(steps=8, batch_size=8, **schedule))
    whole, steps = train(config, device=device), iter([False] * 3 + [True])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        cut = train(config, device=device, checkpoint=path, stop=lambda: next(steps))
        rest = train(config, device=device, checkpoint=path)
    first, second = ({**found.state.curves, "seconds": []} for found in (whole, rest))
    said = f"stopped behind step {cut.state.step}, {'the same' if first == second else 'other'} curves"
    return said, first == second and not cut.complete


CHECKS: dict[str, Callable[[str], tuple[str, bool]]] = {
    "engine fp32": lambda device: engine(device, "fp32"),
    "engine bf16": lambda device: engine(device, "bf16"),
    "resume": resume,
}
