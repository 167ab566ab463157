"""Records of runs that nobody made, filled up with what every run writes, so that a store takes and
gives them.
"""

import json
import time
from dataclasses import replace

import pytest

from entp_lab.configs import RunConfig, record_name
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import run
from entp_lab.stopping import Cut
from entp_lab.store import Record
from entp_lib.checkpoint import read_tensors, save_tensors

PROVENANCE = dict(commit="none", started="", device="cpu", threads=1, versions={}, wall_seconds=1.0)


def sound(record: Record) -> Record:
    """``record`` with whatever it lacks of a complete one."""
    provenance = PROVENANCE | {"steps": 1} | record.provenance
    metrics = record.metrics or {"n": 1}
    return replace(
        record, metrics=metrics, curves=record.curves or {"step": []}, provenance=provenance
    )


def record_of(run, curves=None, **metrics):
    """A complete record of a planned run with given metrics and curves, its other costs 1.

    Nothing is trained.
    """
    numbers = (
        "token_forwards",
        "train_seconds",
        "wall_seconds",
        "cpu_seconds",
        "peak_memory_bytes",
    )
    steps = run.config.train.steps if isinstance(run.config, RunConfig) else 1
    cost = dict.fromkeys(numbers, 1) | {"steps": steps, "device": "cpu"}
    return Record(
        run.config.experiment, 1, run.config, metrics, curves or {}, cost, labels=run.labels
    )


def checkpoint_state(path):
    """The state that a checkpoint holds."""
    return json.loads(read_tensors(path, {"config", "state"})[1]["state"])


def checkpoint_step(path):
    """The step that a checkpoint was written at."""
    return checkpoint_state(path)["step"]


def train_until(config, step, path=None, **options):
    """Train ``step`` steps at most, from the checkpoint if there is one: the outcome, None where
    cut, and the state.
    """
    made = []
    checkpoint = Checkpoint(
        path, on_step=lambda step, last: made.append(step), stop=lambda: len(made) == step
    )
    try:
        outcome = train_run(config, checkpoint=checkpoint, **options)
    except Cut:
        return None, checkpoint.state
    return outcome, outcome.state


def stop_behind(step):
    """Options of ``run`` by which it is asked to end behind a step."""
    reached = []
    return {
        "on_step": lambda step, last: reached.append(step),
        "stop": lambda: bool(reached) and reached[-1] >= step,
    }


def cut_at(config, step, store):
    """Run ``config`` until it is cut behind a step; the path of its checkpoint."""
    with pytest.raises(Cut) as cut:
        run(config, 1, store=store, **stop_behind(step))
    assert cut.value.step == step and store.find(config, 1) is None
    return store.checkpoint_path(record_name(config, 1))


def turn_bit(path):
    """Change one bit of a file, not far from its end."""
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


def rewritten(path, change):
    """Change header and state of a checkpoint, with a checksum that fits, as a faulty program might
    write them.
    """
    tensors, header = read_tensors(path, {"config", "state"})
    state = json.loads(header["state"])
    before = dict(header)
    change(header, state)
    if header["state"] == before["state"]:
        header["state"] = json.dumps(state)
    save_tensors(path, tensors, header)


def timeless(records):
    """What two computations of the same runs must have in common: all but times."""
    parts = [
        [{k: v for k, v in x.items() if not k.endswith("seconds")} for x in (r.metrics, r.curves)]
        for r in records
    ]
    return [(r.id, *part) for r, part in zip(records, parts, strict=True)]


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
