"""Whatever moment a run is cut at: it goes on bit for bit, and no damaged, forged or strange checkpoint is used."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from made_up import checkpoint_step, cut_at, rewritten, timeless, turn_bit, wait_for

from entp_lab import paths, stopping
from entp_lab import resume as resuming
from entp_lab.configs import StudyConfig, config_id, to_dict
from entp_lab.registry import EXPERIMENTS, STUDIES, papers
from entp_lab.runs import run, sweep
from entp_lab.store import Store
from entp_lab.weights import trained_model, weights_of
from entp_lib import files, kernels
from entp_lib.validation import ConfigError


def planned(experiment, **wanted):
    """The first study of the smoke plan with these parameters; ``setting__name`` is looked for one level down."""
    for found in EXPERIMENTS[experiment].plan("smoke"):
        flat = dict(found.config.params)
        for outer, held in found.config.params.items():
            if isinstance(held, dict):
                flat |= {f"{outer}__{name}": value for name, value in held.items()}
        if wanted.items() <= flat.items():
            return found.config
    raise LookupError(f"{experiment} has no study with {wanted}")


ASKED = {
    "abstraction, ENTP": ("compact_abstraction", dict(architecture="entp")),
    "sums, randomised": ("compact_lengths", dict(positions="randomised", architecture="decoder")),
    "triplets": ("compact_graph", dict(model__wiring="described")),
    "walks, random slopes": ("compact_walk_activations", dict(activation="rrelu", n_layers=2)),
    "scratchpad": ("scratchpad_training", dict(setting__scratchpad="inductive", setting__architecture="entp")),
    "masked": ("objectives", dict(setting__objective="masked")),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_cut_study_goes_on_bit_for_bit(name, store, tmp_path):
    experiment, parameters = ASKED[name]
    study = planned(experiment, **parameters)
    made = []
    whole = run(study, 1, store=Store(tmp_path / "whole", read_only=False), on_step=made.append)
    assert made == list(range(1, study.steps + 1))
    assert len(made) >= 2
    checkpoint = cut_at(study, study.steps - 1, store)
    spent = checkpoint_step(checkpoint, "spent")["cpu_seconds"]
    assert checkpoint_step(checkpoint) == study.steps - 1
    rest = run(study, 1, store=store)
    assert timeless([rest]) == timeless([whole])
    assert not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0]
    assert rest.provenance["steps"] == study.steps
    assert rest.provenance["cpu_seconds"] > spent > 0


@pytest.fixture(params=["run", "study"])
def config(request, small_run):
    """A training run of twelve steps, and a study of as many with a loop of its own."""
    if request.param == "run":
        return small_run("entp")
    found = planned("compact_lengths", positions="learned", architecture="decoder")
    return dataclasses.replace(found, params={**found.params, "steps": 12})


@pytest.fixture
def whole(config, tmp_path):
    """The record of the run that nobody cuts."""
    return run(config, 1, store=Store(tmp_path / "whole", read_only=False))


def terminate_at(step, times=1):
    def on_step(now):
        for _ in range(times if now == step else 0):
            os.kill(os.getpid(), signal.SIGTERM)

    return on_step


def test_every_step_can_be_the_last_before_a_cut(config, whole, store):
    for step in (1, 2, 5, 11):
        cut_at(config, step, store)
    rest = run(config, 1, store=store)
    assert timeless([rest]) == timeless([whole])
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0, 1, 2, 5]


def test_sigterm_ends_the_step_and_leaves_the_checkpoint(config, whole, store):
    """Several signals at once are one request: every process of a job may get them from several sides."""
    with stopping.handled(), pytest.raises(stopping.Terminated):
        run(config, 1, store=store, on_step=terminate_at(7, times=3))
    assert stopping.REQUEST.deferred == 0
    assert store.find(config, 1) is None
    assert checkpoint_step(store.checkpoint_path(config.experiment, whole.id)) == 7
    assert timeless([run(config, 1, store=store)]) == timeless([whole])


def test_a_killed_run_goes_on_from_the_last_minute(config, whole, store, monkeypatch):
    monkeypatch.setattr(resuming, "CHECKPOINT_SECONDS", 0.0)

    def on_step(step):
        if step == 9:
            raise MemoryError

    with pytest.raises(MemoryError):
        run(config, 1, store=store, on_step=on_step)
    assert stopping.REQUEST.deferred == 0
    assert resuming.CURRENT.get() is None
    assert checkpoint_step(store.checkpoint_path(config.experiment, whole.id)) == 8
    assert timeless([run(config, 1, store=store)]) == timeless([whole])


def test_what_is_no_training_ends_at_once(store, monkeypatch):
    def study(**_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        pytest.fail("it went on")

    monkeypatch.setattr("entp_lab.runs.STUDIES", SimpleNamespace(named=lambda name: study, places={}))
    with stopping.handled(), pytest.raises(stopping.Terminated):
        run(StudyConfig("test", "smoke", "costs", {}), 1, store=store)
    assert store.all("test") == []


def test_a_study_without_a_loop_is_one_step():
    assert StudyConfig("test", "smoke", "looped_drift", {"steps": 100_000}).steps == 1
    assert {name for paper in papers().values() for name in getattr(paper, "RESUMABLE", ())} <= set(STUDIES)


class PowerCut(BaseException):
    """The power goes."""


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_cut_at_any_written_file_loses_nothing(small_run, tmp_path, monkeypatch, after):
    """Before and after each file takes its place; the next run ends alike, with record and weights."""
    config = small_run("entp")
    real = os.replace
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    for cut_at_file in range(1, 9):
        store = Store(tmp_path / f"{cut_at_file}", read_only=False)
        written = []

        def replace(source, target, written=written, last=cut_at_file):
            written.append(target)
            if len(written) < last or after:
                real(source, target)
            if len(written) == last:
                raise PowerCut

        monkeypatch.setattr(files.os, "replace", replace)
        try:
            run(config, 1, store=store)
            break
        except PowerCut:
            monkeypatch.setattr(files.os, "replace", real)
        found = sweep([config], 1, store=store, jobs=1).records[0]
        assert timeless([found]) == timeless([whole])
        assert [path.suffixes for path in store.root.glob("checkpoints/*/*")] == [[".weights", ".safetensors"]]
        name = f"test/{found.id}"
        trained_model(weights_of(store, name), name)
    assert cut_at_file > 3  # checkpoint, weights, record


# With a checksum that fits: what is changed in header and state, which no run leaves so.
FORGED = {
    "another run": lambda header, state: header.update(config=header["config"].replace('seed":0', 'seed":1')),
    "a list": lambda header, state: header.update(state="[]"),
    "no JSON": lambda header, state: header.update(state="{"),
    "a later step": lambda header, state: state.update(step=13),
    "a text as step": lambda header, state: state.update(step="7"),
    "no processes": lambda header, state: state.update(processes={"from_step": 0}),
    "texts as processes": lambda header, state: state.update(processes=["one"]),
    "a process of other types": lambda header, state: state["processes"][0].update(threads="one"),
    "a list as curves": lambda header, state: state.update(curves=[]),
    "a text as curve": lambda header, state: state["curves"].update({min(state["curves"]): "a"}),
    "texts in a curve": lambda header, state: state["curves"].update({min(state["curves"]): ["a"]}),
    "a curve more": lambda header, state: state["curves"].update(others=[0.0, 0.0, 0.0]),
}
OF_A_RUN = {
    "lists as seconds": lambda header, state: state.update(wall_seconds=[]),
    "a number as kept": lambda header, state: state.update(kept={"lowest_loss": 1.0}),
}
OF_A_STUDY = {
    "other sums": lambda header, state: state.update(sums={"others": 0.0}),
    "texts as seconds": lambda header, state: state["spent"].update(cpu_seconds="1"),
    "no generator": lambda header, state: state.update(generator={"bit_generator": "none"}),
}


def test_a_checkpoint_that_cannot_be_its_own_is_set_aside_in_one_line(config, whole, store, caplog):
    own = OF_A_STUDY if isinstance(config, StudyConfig) else OF_A_RUN
    for how, change in {"a turned bit": None, **FORGED, **own}.items():
        caplog.clear()
        path = cut_at(config, 4, store)
        if change is None:
            turn_bit(path)
        else:
            rewritten(path, change)
        rest = run(config, 1, store=store)
        (line,) = [record.getMessage() for record in caplog.records]
        assert f"checkpoint {path} " in line, how
        assert "\n" not in line, how
        assert timeless([rest]) == timeless([whole]), how
        assert "earlier_processes" not in rest.provenance, how
        assert len(list((store.root / "set_aside").iterdir())) == 1, how
        (store.root / "set_aside" / f"{config.experiment}-{path.name}").unlink()
        store.path(config.experiment, rest.id).unlink()


def test_a_run_keeps_its_kernels_and_says_which(small_run, store, monkeypatch):
    """Up to the step that was made with others; a checkpoint that names none has those of before there were names."""
    config = small_run("entp", precision="bf16")
    path = cut_at(config, 3, store)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "kernel_names", lambda: "bf16-9")
        with pytest.raises(
            ConfigError, match="kernels = 'bf16-9': the first 3 steps .* computed with 'bf16-2, "
        ) as error:
            run(config, 1, store=store)
    assert "\n" not in str(error.value)
    assert path.exists()
    cut_at(config, 5, store)
    record = run(config, 1, store=store)
    processes = [*record.provenance["earlier_processes"], record.provenance]
    assert [(p["from_step"], p["kernels"]) for p in processes] == [(s, kernels.kernel_names()) for s in (0, 3, 5)]
    store.path("test", record.id).unlink()
    cut_at(config, 3, store)
    rewritten(path, lambda header, state: state["processes"][0].pop("kernels"))
    with pytest.raises(ConfigError, match=f"computed with '{kernels.UNNAMED}'"):
        run(config, 1, store=store)


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
def started(small_run, tmp_path):
    """Start a script that sweeps two long runs in two processes; it, the runs and their store."""
    configs = [small_run("entp", seed, steps=50_000, eval_every=10_000) for seed in (0, 1)]
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(paths.root()), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    environment |= {"ENTP_RESULTS": str(tmp_path / "results"), "ENTP_RECORDS": ""}
    process = subprocess.Popen(
        [sys.executable, str(script), json.dumps([to_dict(c) for c in configs])],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("results/checkpoints/test/*.safetensors"))) == 2)
        yield process, configs, Store(tmp_path / "results", read_only=False)
    finally:
        if process.poll() is None:  # cut or failed: its workers too
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_an_interrupted_sweep_leaves_checkpoints_and_one_message(started):
    process, configs, store = started
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    assert said.count("Traceback") == 1
    assert said.strip().splitlines()[-1].startswith("entp_lab.stopping.Stopped:")
    assert "Stopped: 0 of 2 runs are complete and kept; run it again" in said
    for config in configs:
        assert checkpoint_step(store.checkpoint_path("test", config_id(config, 1))) > 0
    cut = sweep(configs, 1, store=store, jobs=1, time_limit=1e-6).cut
    assert all(0 < step < 50_000 for step in cut.values())
    assert len(cut) == 2  # they go on from where they were


def members(group):
    """The processes of a group that are no zombies."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return sum(int(found) == group and not state.startswith("Z") for found, state in rows)


def test_workers_do_not_outlive_the_sweep_that_started_them(started):
    process, configs, store = started
    assert members(process.pid) >= 3
    process.kill()
    process.communicate()
    wait_for(lambda: not members(process.pid), seconds=60)
    rest = [checkpoint_step(store.checkpoint_path("test", config_id(config, 1))) for config in configs]
    assert min(rest) > 0  # what a kill leaves is whole
