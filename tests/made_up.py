"""Records of runs that nobody made, filled up with what every run writes, so that a store takes and gives them."""

import json
import time
from dataclasses import replace

from entp_lab.configs import RunConfig
from entp_lab.resume import Checkpoint, train_run
from entp_lab.stopping import Cut
from entp_lab.store import CURVES, Record
from entp_lib.checkpoint import read_tensors

PROVENANCE = dict(commit="none", started="", device="cpu", threads=1, versions={}, wall_seconds=1.0)


def sound(record: Record) -> Record:
    """``record`` with whatever it lacks of a complete one."""
    if not isinstance(record.config, RunConfig):
        return replace(record, metrics=record.metrics or {"n": 1}, provenance=PROVENANCE | record.provenance)
    points = len(next(iter(record.curves.values()), []))
    metrics = dict(loss=1.0, sequences=1, baseline={}, position=[], loss_by_position=[]) | record.metrics
    curves = {name: [0.0] * points for name in CURVES} | record.curves
    return replace(record, metrics=metrics, curves=curves, provenance=PROVENANCE | {"steps": 1} | record.provenance)


def record_of(run, curves=None, **metrics):
    """A complete record of a planned run with given metrics and curves, its costs all 1; nothing is trained."""
    cost = dict.fromkeys(("steps", "token_forwards", "train_seconds", "wall_seconds", "peak_memory_bytes"), 1)
    cost["device"] = "cpu"
    return Record(run.config.experiment, 1, run.config, metrics, curves or {}, cost, labels=run.labels)


def checkpoint_step(path, field="step"):
    """The step that a checkpoint was written at, or another field of its state."""
    return json.loads(read_tensors(path, {"config", "state"})[1]["state"])[field]


def train_until(config, step, path=None, **options):
    """Train ``step`` steps at most, from the checkpoint if there is one: the outcome, None where cut, and the state."""
    made = []
    checkpoint = Checkpoint(path, on_step=made.append, stop=lambda: len(made) == step)
    try:
        outcome = train_run(config, checkpoint=checkpoint, **options)
    except Cut:
        return None, checkpoint.state
    return outcome, outcome.state


def timeless(records):
    """What two computations of the same runs must have in common: all but times."""
    parts = [
        [{k: v for k, v in x.items() if not k.endswith("seconds")} for x in (r.metrics, r.curves)] for r in records
    ]
    return [(r.id, r.status, *part) for r, part in zip(records, parts, strict=True)]


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
