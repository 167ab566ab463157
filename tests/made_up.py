"""Records of runs that nobody made, filled up with what every run writes, so that a store takes and
gives them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from entp_lab import paths
from entp_lab.configs import RunConfig, record_name
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import run, sweep
from entp_lab.stopping import Cut
from entp_lab.store import Record, checksum
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


def forge_record(path, part=None, **changes):
    """Put other content into a record, or into one of its parts, with a checksum that fits; None
    takes something out.
    """
    body = json.loads(path.read_text())
    del body["checksum"]
    held = body[part] if part else body
    held |= changes
    for name in [name for name, value in changes.items() if value is None]:
        del held[name]
    path.write_text(json.dumps(body | {"checksum": checksum(body)}))


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


def computed(config, store, **options):
    """The record of a run of version 1, computed if the store lacks it."""
    return run(config, 1, store=store, **options)


def swept(configs, store, jobs=1, **options):
    """A sweep of runs of version 1, in this process unless told otherwise."""
    return sweep(configs, 1, store=store, jobs=jobs, **options)


def cut_at(config, step, store):
    """Run ``config`` until it is cut behind a step; the path of its checkpoint."""
    reached = [0]
    with pytest.raises(Cut) as cut:
        computed(
            config,
            store,
            on_step=lambda made, last: reached.append(made),
            stop=lambda: reached[-1] >= step,
        )
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
    before = header["state"]
    change(header, state)
    if header["state"] == before:
        header["state"] = json.dumps(state)
    save_tensors(path, tensors, header)


def timeless(*records):
    """What two computations of the same runs must have in common: all but times."""

    def without_times(values):
        return {name: value for name, value in values.items() if not name.endswith("seconds")}

    return [(r.id, without_times(r.metrics), without_times(r.curves)) for r in records]


def python(*arguments, **options):
    """What this Python did with some arguments, its output as text."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)


def environment_without(*beginnings):
    """The variables around this test whose names begin otherwise."""
    return {name: value for name, value in os.environ.items() if not name.startswith(beginnings)}


def start_process(*command, **options):
    """A process in a group of its own, whose stderr is read and which heeds Ctrl-C.

    Jobs in the background of a shell ignore it, and so would what they start.
    """
    return subprocess.Popen(
        command,
        text=True,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def copy_project(folder, *files):
    """Copy the project's packages and some of its files into a folder."""
    for package in ("entp_lib", "entp_lab", "entp_papers"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(paths.root() / package, folder / package, ignore=ignore)
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(paths.root() / name, folder / name)


@contextmanager
def unchanged(folder, pattern="*"):
    """Expect that nothing is written to a folder or taken from it."""

    def times():
        return {path: path.lstat().st_mtime_ns for path in folder.rglob(pattern)}

    before = times()
    yield
    assert times() == before


def running(*which):
    """How many of the processes that options of ``ps`` select run and are no zombies."""
    found = subprocess.run(["ps", "-o", "stat=", *which], capture_output=True, text=True)
    return sum(not state.startswith("Z") for state in found.stdout.split())


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
