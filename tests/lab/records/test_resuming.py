"""Whatever moment a run is cut at: it goes on bit for bit, and no damaged, forged or strange
checkpoint is used.
"""

import dataclasses
import json
import math
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from made_up import (
    checkpoint_state,
    checkpoint_step,
    computed,
    cut_at,
    rewritten,
    running,
    start_process,
    swept,
    timeless,
    turn_bit,
    wait_for,
)
from mistakes import refused

from entp_lab import paths, stopping
from entp_lab import resume as resuming
from entp_lab.configs import StudyConfig, record_name, to_dict
from entp_lab.registry import EXPERIMENTS
from entp_lab.store import Store
from entp_lab.weights import trained_model, weights_of
from entp_lib import files, kernels


def planned(experiment, *settings):
    """The first study of the smoke plan whose parameters have these settings, written as JSON."""
    for config in EXPERIMENTS[experiment].configs("smoke"):
        if all(setting in json.dumps(config.params) for setting in settings):
            return config
    raise LookupError(f"{experiment} has no study with {settings}")


ASKED = {
    "abstraction, ENTP": ("compact_abstraction", '"architecture": "entp"'),
    "sums, randomised": (
        "compact_lengths",
        '"positions": "randomised"',
        '"architecture": "decoder"',
    ),
    "triplets": ("compact_graph", '"wiring": "described"'),
    "walks, random slopes": ("compact_walk_activations", '"activation": "rrelu"', '"n_layers": 2'),
    "scratchpad": ("scratchpad_training", '"scratchpad": "inductive"', '"architecture": "entp"'),
    "masked": ("objectives", '"objective": "masked"'),
    "pretrained, ENTP": ("pretrained_encoder", '"start": "random"', '"architecture": "entp"'),
    "pretrained, lifted": ("pretrained_lifted", '"architecture": "entp"'),
    "prompts": ("pretrained_prompts", '"with_code": false', '"train_config"'),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_cut_study_goes_on_bit_for_bit(name, store, apart):
    study = planned(*ASKED[name])
    made = []
    whole = computed(study, apart, on_step=lambda *step: made.append(step))
    last = len(made)
    assert last >= 2
    assert made == [(step, last) for step in range(1, last + 1)]
    state = checkpoint_state(checkpoint := cut_at(study, last - 1, store))
    assert state["step"] == last - 1
    spent = state["cpu_seconds"]
    rest = computed(study, store)
    assert timeless(rest) == timeless(whole)
    assert not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0]
    assert rest.provenance["steps"] == last
    assert rest.provenance["cpu_seconds"] > spent > 0


@pytest.fixture(params=["run", "study"])
def config(request, small_run):
    """A training run of twelve steps, and a study of as many with a loop of its own."""
    if request.param == "run":
        return small_run("entp")
    found = planned("compact_lengths", '"positions": "learned"', '"architecture": "decoder"')
    return dataclasses.replace(found, params={**found.params, "steps": 12})


@pytest.fixture
def whole(config, apart):
    """The record of the run that nobody cuts."""
    return computed(config, apart)


def test_every_step_can_be_the_last_before_a_cut(config, whole, store):
    for step in (1, 2, 5, 11):
        cut_at(config, step, store)
    rest = computed(config, store)
    assert timeless(rest) == timeless(whole)
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0, 1, 2, 5]


def test_sigterm_ends_the_step_and_leaves_the_checkpoint(config, whole, store):
    """Several signals at once are one request: every process of a job may get them from several
    sides.
    """

    def on_step(step, last):
        for _ in range(3 * (step == 7)):
            signal.raise_signal(signal.SIGTERM)

    with stopping.handled(), pytest.raises(stopping.Terminated):
        computed(config, store, on_step=on_step)
    assert stopping.REQUEST.deferred == 0
    assert store.find(config, 1) is None
    assert checkpoint_step(store.checkpoint_path(whole.name)) == 7
    assert timeless(computed(config, store)) == timeless(whole)


def test_a_killed_run_goes_on_from_the_last_minute(config, whole, store, monkeypatch):
    monkeypatch.setattr(resuming, "CHECKPOINT_SECONDS", 0.0)

    def on_step(step, last):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        computed(config, store, on_step=on_step)
    assert stopping.REQUEST.deferred == 0
    assert resuming.CURRENT.get() is None
    assert checkpoint_step(store.checkpoint_path(whole.name)) == 8
    assert timeless(computed(config, store)) == timeless(whole)


def test_what_is_no_training_ends_at_once(store, monkeypatch):
    def study(**_):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(5)
        pytest.fail("it went on")

    monkeypatch.setattr(
        "entp_lab.runs.STUDIES", SimpleNamespace(named=lambda name: study, places={})
    )
    with stopping.handled(), pytest.raises(stopping.Terminated):
        computed(StudyConfig("test", "smoke", "costs", {}), store)
    assert store.all("test") == []


@pytest.mark.parametrize("curves", [{"error": [0.0, math.nan]}, {"error": [{"of x": math.nan}]}])
def test_a_study_that_gives_nan_has_no_record(store, monkeypatch, curves):
    fake = SimpleNamespace(named=lambda name: lambda: ({}, curves), places={})
    monkeypatch.setattr("entp_lab.runs.STUDIES", fake)
    with pytest.raises(ArithmeticError, match="costs: error has a value that is not"):
        computed(StudyConfig("test", "smoke", "costs", {}), store)
    assert store.all("test") == []


class PowerCut(BaseException):
    """The power goes."""


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("cut_at_file", [1, 2, 3])
def test_a_cut_at_any_written_file_loses_nothing(
    small_run, store, apart, monkeypatch, after, cut_at_file
):
    """Before and after checkpoint, weights and record take their places; the next run ends alike,
    with all of them.
    """
    config = small_run("entp")
    whole = computed(config, apart)
    written = []

    def replace(source, target, real=os.replace):
        written.append(target)
        if len(written) < cut_at_file or after:
            real(source, target)
        if len(written) == cut_at_file:
            raise PowerCut

    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(files.os, "replace", replace)
        computed(config, store)
    found = swept([config], store).complete[0]
    assert timeless(found) == timeless(whole)
    assert [path.suffixes for path in store.root.glob("checkpoints/*/*")] == [
        [".weights", ".safetensors"]
    ]
    trained_model(weights_of(store, found.name), found.name)


# With a checksum that fits: what is changed in header and state, which no run leaves so. None:
# without one.
FORGED = {
    "a turned bit": None,
    "another run": lambda header, state: header.update(
        config=header["config"].replace('seed":0', 'seed":1')
    ),
    "a list": lambda header, state: header.update(state="[]"),
    "no JSON": lambda header, state: header.update(state="{"),
    "no processes": lambda header, state: state.update(processes={"from_step": 0}),
}


def test_a_checkpoint_that_cannot_be_its_own_is_set_aside_in_one_line(config, whole, store, caplog):
    for how, change in FORGED.items():
        caplog.clear()
        path = cut_at(config, 4, store)
        if change is None:
            turn_bit(path)
        else:
            rewritten(path, change)
        rest = computed(config, store)
        (line,) = caplog.messages
        assert f"checkpoint {path} " in line, how
        assert "\n" not in line, how
        assert timeless(rest) == timeless(whole), how
        assert "earlier_processes" not in rest.provenance, how
        (store.root / f"set_aside/{config.experiment}-{path.name}").unlink()
        store.path(rest.name).unlink()


def test_a_run_keeps_its_kernels_and_says_which(small_run, store, monkeypatch):
    """Up to the step that was made with others."""
    config = small_run("entp", precision="bf16")
    cut_at(config, 3, store)
    with (
        monkeypatch.context() as patch,
        refused("kernels = 'bf16-9': the first 3"),
    ):
        patch.setattr(kernels, "kernel_names", lambda: "bf16-9")
        computed(config, store)
    cut_at(config, 5, store)
    record = computed(config, store)
    processes = [*record.provenance["earlier_processes"], record.provenance]
    assert [(p["from_step"], p["kernels"]) for p in processes] == [
        (s, kernels.kernel_names()) for s in (0, 3, 5)
    ]


def test_a_run_that_goes_on_with_other_instructions_or_code_says_so(small_run, store, caplog):
    config = small_run()
    rewritten(
        cut_at(config, 3, store),
        lambda header, state: state["processes"][0].update(cpu_capability="VSX", sources="0"),
    )
    caplog.clear()
    record = computed(config, store)
    assert "3 steps were computed with VSX; it goes on with" in caplog.text
    assert "3 steps were computed by other code" in caplog.text
    assert record.provenance["earlier_processes"][0]["cpu_capability"] == "VSX"


def test_a_checkpoint_that_names_no_kernels_has_those_of_before_there_were_names(small_run, store):
    config = small_run("entp", precision="bf16")
    rewritten(cut_at(config, 3, store), lambda header, state: state["processes"][0].pop("kernels"))
    with refused(f"computed with '{kernels.UNNAMED}'"):
        computed(config, store)


# An interrupt of a sweep is one line, leaves no worker with a traceback, and costs no more than a
# step.


SCRIPT = """
import json, sys
from entp_lab.configs import config_from
from entp_lab.runs import sweep
from entp_lab.store import Store
from entp_lab import resume as loop

loop.CHECKPOINT_SECONDS = 0.1  # workers load this file too
if __name__ == "__main__":
    sweep([config_from(c) for c in json.loads(sys.argv[1])], 1, store=Store(), jobs=2)
"""


@pytest.fixture
def started(small_run, results):
    """Start a script that sweeps two long runs in two processes; it, the runs and their store."""
    configs = [small_run("entp", seed, steps=50_000, eval_every=10_000) for seed in (0, 1)]
    (results / "sweep.py").write_text(SCRIPT)
    process = start_process(
        sys.executable,
        "sweep.py",
        json.dumps([to_dict(config) for config in configs]),
        cwd=results,
        env=os.environ
        | {"PYTHONPATH": str(paths.root()), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"},
    )
    try:
        wait_for(lambda: len(list(results.glob("checkpoints/test/*.safetensors"))) == 2)
        yield process, configs, Store()
    finally:
        if process.poll() is None:  # cut or failed: its workers too
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def steps_of(configs, store):
    return [checkpoint_step(store.checkpoint_path(record_name(config, 1))) for config in configs]


def test_an_interrupted_sweep_leaves_checkpoints_and_one_message(started):
    process, configs, store = started
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    assert said.count("Traceback") == 1
    last = said.strip().splitlines()[-1]
    assert last.startswith(
        "entp_lab.stopping.Stopped: 0 of 2 runs are complete and kept; run it again"
    )
    assert min(steps_of(configs, store)) > 0
    cut = swept(configs, store, time_limit=1e-6).cut
    assert list(cut.values()) == steps_of(configs, store)  # they go on from where they were


def test_workers_do_not_outlive_the_sweep_that_started_them(started):
    process, configs, store = started
    group = ("-g", str(process.pid))
    assert running(*group) >= 3
    process.kill()
    process.communicate()
    wait_for(lambda: not running(*group), seconds=60)
    assert min(steps_of(configs, store)) > 0  # what a kill leaves is whole
