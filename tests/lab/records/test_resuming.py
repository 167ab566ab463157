"""Studies that train go on from their checkpoint, bit for bit, whoever cuts them."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from made_up import checkpoint_step, timeless

from entp_lab import paths, stopping
from entp_lab import resume as resuming
from entp_lab.configs import StudyConfig, config_id, to_dict
from entp_lab.registry import EXPERIMENTS, STUDIES, papers
from entp_lab.runs import run, sweep
from entp_lab.store import Store
from entp_lib.checkpoint import read_tensors, save_tensors


def planned(experiment, **scored):
    """The first study of the smoke plan with these parameters; ``setting__name`` is looked for one level down."""
    for found in EXPERIMENTS[experiment].plan("smoke"):
        params = found.config.params
        flat = params | {
            f"{o}__{n}": v for o, held in params.items() if isinstance(held, dict) for n, v in held.items()
        }
        if scored.items() <= flat.items():
            return found.config
    raise LookupError(f"{experiment} has no study with {scored}")


ASKED = {
    "abstraction, ENTP": ("compact_abstraction", dict(architecture="entp")),
    "sums, randomised": ("compact_lengths", dict(positions="randomised", architecture="decoder")),
    "triplets": ("compact_graph", dict(model__wiring="described")),
    "walks, random slopes": ("compact_walk_activations", dict(activation="rrelu", n_layers=2)),
    "scratchpad": ("scratchpad_training", dict(setting__scratchpad="inductive", setting__architecture="entp")),
    "masked": ("objectives", dict(setting__objective="masked")),
}


@pytest.fixture(params=ASKED)
def study(request):
    experiment, scored = ASKED[request.param]
    return planned(experiment, **scored)


def stop_behind(step):
    """(on_step, stop): asked to end behind the step."""
    reached = []
    return reached.append, lambda: bool(reached) and reached[-1] >= step


def test_a_cut_study_goes_on_bit_for_bit(study, store, tmp_path):
    told = []
    whole = run(study, 1, store=Store(tmp_path / "whole", read_only=False), on_step=told.append)
    assert told[-1] == study.steps == len(told) >= 2
    assert whole.provenance["steps"] == study.steps
    on_step, stop = stop_behind(study.steps - 1)
    cut = run(study, 1, store=store, on_step=on_step, stop=stop)
    assert (cut.status, cut.metrics, cut.provenance["steps"]) == ("partial", {}, study.steps - 1)
    checkpoint = store.checkpoint_path(study.experiment, cut.id)
    assert checkpoint_step(checkpoint) == study.steps - 1
    spent = checkpoint_step(checkpoint, "spent")["cpu_seconds"]
    rest = run(study, 1, store=store)
    assert rest.status == "complete" and timeless([rest]) == timeless([whole]) and not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0]
    assert rest.provenance["cpu_seconds"] > spent > 0


@pytest.fixture
def plain():
    """A study of a few milliseconds a step."""
    found = planned("compact_lengths", positions="learned", architecture="decoder")
    return dataclasses.replace(found, params={**found.params, "steps": 40})


def test_every_step_can_be_the_last_before_a_cut(plain, store, tmp_path):
    config = dataclasses.replace(plain, params={**plain.params, "steps": 5})
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    for step in range(1, 5):
        on_step, stop = stop_behind(step)
        assert run(config, 1, store=store, on_step=on_step, stop=stop).provenance["steps"] == step
    rest = run(config, 1, store=store)
    assert timeless([rest]) == timeless([whole])
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0, 1, 2, 3]


def test_sigterm_ends_the_step_and_leaves_the_checkpoint(plain, store, tmp_path):
    whole = run(plain, 1, store=Store(tmp_path / "whole", read_only=False))
    with stopping.handled(), pytest.raises(stopping.Terminated):
        run(plain, 1, store=store, on_step=terminate_at(7))
    cut = store.find(plain, 1)
    assert (cut.status, cut.provenance["steps"]) == ("partial", 7)
    assert stopping.REQUEST.deferred == 0
    assert timeless([run(plain, 1, store=store)]) == timeless([whole])


def test_a_killed_study_goes_on_from_the_last_minute(plain, store, tmp_path, monkeypatch):
    whole = run(plain, 1, store=Store(tmp_path / "whole", read_only=False))
    monkeypatch.setattr(resuming, "CHECKPOINT_SECONDS", 0.0)

    def on_step(step):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        run(plain, 1, store=store, on_step=on_step)
    assert stopping.REQUEST.deferred == 0 and resuming.CURRENT.get() is None
    assert checkpoint_step(store.checkpoint_path(plain.experiment, whole.id)) == 8
    rest = run(plain, 1, store=store)
    assert timeless([rest]) == timeless([whole]) and rest.provenance["earlier_processes"][0]["from_step"] == 0


def test_a_time_limit_cuts_a_study_and_the_sweep_says_so(plain, store):
    late = dataclasses.replace(plain, params={**plain.params, "steps": 1_000_000})
    found = sweep([late], 1, store=store, jobs=1, time_limit=1.0)
    assert found.complete == [] and [r.status for r in found.records] == ["partial"]
    further = sweep([late], 1, store=store, jobs=1, time_limit=1.0).records[0]
    assert further.provenance["steps"] > found.records[0].provenance["steps"] > 0


@pytest.mark.parametrize("harm", ["another study", "a later step", "other sums", "not the generator"])
def test_a_checkpoint_that_cannot_be_its_own_is_set_aside(plain, store, tmp_path, harm, caplog):
    whole = run(plain, 1, store=Store(tmp_path / "whole", read_only=False))
    on_step, stop = stop_behind(5)
    run(plain, 1, store=store, on_step=on_step, stop=stop)
    path = store.checkpoint_path(plain.experiment, whole.id)
    tensors, header = read_tensors(path, {"config", "state"})
    state = json.loads(header["state"])
    if harm == "another study":
        header["config"] = header["config"].replace('"data_seed":0', '"data_seed":1')
    state |= {"a later step": {"step": 41}, "other sums": {"sums": {"others": 0.0}}}.get(harm, {})
    if harm == "not the generator":
        state["generator"] = {"bit_generator": "none"}
    save_tensors(path, tensors, header | {"state": json.dumps(state)})
    rest = run(plain, 1, store=store)
    assert timeless([rest]) == timeless([whole]) and "earlier_processes" not in rest.provenance
    assert "checkpoint" in caplog.text and len(list((store.root / "set_aside").iterdir())) == 1


def test_a_study_without_a_loop_is_one_step(plain):
    assert plain.steps == 40 and StudyConfig("test", "smoke", "looped_drift", {"steps": 100_000}).steps == 1
    assert {name for paper in papers().values() for name in getattr(paper, "RESUMABLE", ())} <= set(STUDIES)


# SIGTERM, as a scheduler sends it: the step is ended, the checkpoint is left, the status says so, and it goes on.


def terminate_at(step, times=1):
    def on_step(now):
        if now == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGTERM)

    return on_step


def test_a_run_ends_behind_its_step_and_goes_on_bit_for_bit(small_run, store, tmp_path):
    """Several signals at once are one request: every process of a job may get them from several sides."""
    config = small_run("entp")
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    with stopping.handled(), pytest.raises(stopping.Terminated):
        run(config, 1, store=store, on_step=terminate_at(5, times=3))
    cut = store.find(config, 1)
    assert cut.status == "partial" and cut.provenance["steps"] == 5
    assert store.checkpoint_path("test", cut.id).exists()
    rest = run(config, 1, store=store)
    assert rest.status == "complete" and timeless([rest]) == timeless([whole])
    assert rest.provenance["earlier_processes"][0]["from_step"] == 0


def test_what_is_no_training_ends_at_once(store, monkeypatch):
    def study(**_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        pytest.fail("it went on")

    monkeypatch.setattr("entp_lab.runs.STUDIES", SimpleNamespace(named=lambda name: study, places={}))
    config = StudyConfig("test", "smoke", "costs", {})
    with stopping.handled(), pytest.raises(stopping.Terminated):
        run(config, 1, store=store)
    assert store.all("test") == []


# An interrupt of a sweep is one line, leaves no worker with a traceback, and costs no more than a step.


SCRIPT = """
import json, sys
from entp_lab.configs import config_from
from entp_lab.runs import sweep
from entp_lab import resume as loop

loop.CHECKPOINT_SECONDS = 0.1  # workers load this file too
if __name__ == "__main__":
    sweep([config_from(c) for c in json.loads(sys.argv[1])], 1, jobs=2)
"""


@pytest.fixture
def interrupted(small_run, tmp_path):
    """What a script wrote whose sweep of two long runs got SIGINT with all its processes, and the runs."""
    configs = [small_run("entp", seed, steps=50_000, eval_every=10_000) for seed in (0, 1)]
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(paths.root()), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    environment |= {"ENTP_RESULTS": str(tmp_path / "results"), "ENTP_RECORDS": ""}
    command = [sys.executable, str(script), json.dumps([to_dict(c) for c in configs])]
    process = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )
    try:
        begun = time.monotonic()
        while len(list(tmp_path.glob("results/checkpoints/test/*.safetensors"))) < 2:
            assert process.poll() is None and time.monotonic() - begun < 300
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        return configs, process.communicate(timeout=300)[1], Store(tmp_path / "results", read_only=False)
    finally:
        if process.poll() is None:  # cut or failed: its workers too
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_an_interrupted_sweep_leaves_checkpoints_and_one_message(interrupted):
    configs, said, store = interrupted
    assert said.count("Traceback") == 1 and said.strip().splitlines()[-1].startswith("entp_lab.stopping.Stopped:")
    assert "Stopped: 0 of 2 runs are complete and kept; run it again" in said
    for config in configs:
        assert store.checkpoint_path("test", config_id(config, 1)).exists()
    steps = [r.provenance["steps"] for r in sweep(configs, 1, store=store, jobs=1, time_limit=1e-6).records]
    assert all(0 < step < 50_000 for step in steps)  # they go on from where they were
