"""Studies that train go on from their checkpoint, bit for bit, whoever cuts them."""

import dataclasses
import json
import os
import signal

import pytest
from made_up import checkpoint_step

from entp_lib.config import StudyConfig
from entp_lib.records import resuming, stopping, sweeps
from entp_lib.records.execution import progress_steps, run
from entp_lib.records.store import Store
from entp_lib.registry import EXPERIMENTS, STUDIES, in_all
from entp_lib.reports.command_line import exit_status


def planned(experiment, **wanted):
    """The first study of the smoke plan with these parameters; ``setting__name`` is looked for one level down."""
    for found in EXPERIMENTS[experiment].plan("smoke"):
        params = found.config.params
        flat = params | {
            f"{o}__{n}": v for o, held in params.items() if isinstance(held, dict) for n, v in held.items()
        }
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


@pytest.fixture(params=ASKED)
def study(request):
    experiment, wanted = ASKED[request.param]
    return planned(experiment, **wanted)


def timeless(record):
    return {k: v for k, v in record.metrics.items() if not k.endswith("seconds")}, record.curves


def stop_behind(step):
    """(on_step, stop): asked to end behind the step."""
    reached = []
    return reached.append, lambda: bool(reached) and reached[-1] >= step


def test_a_cut_study_goes_on_bit_for_bit(study, store, tmp_path):
    told = []
    whole = run(study, 1, store=Store(tmp_path / "whole", read_only=False), on_step=told.append)
    assert told[-1] == progress_steps(study) == len(told) >= 2
    assert study.steps >= 2 and whole.provenance["steps"] == study.steps
    on_step, stop = stop_behind(study.steps - 1)
    cut = run(study, 1, store=store, on_step=on_step, stop=stop)
    assert (cut.status, cut.metrics, cut.provenance["steps"]) == ("partial", {}, study.steps - 1)
    checkpoint = store.checkpoint_path(study.experiment, cut.id)
    assert checkpoint_step(checkpoint) == study.steps - 1
    rest = run(study, 1, store=store)
    assert rest.status == "complete" and timeless(rest) == timeless(whole) and not checkpoint.exists()
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0]
    assert rest.provenance["cpu_seconds"] > cut.provenance["cpu_seconds"]


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
    assert timeless(rest) == timeless(whole)
    assert [p["from_step"] for p in rest.provenance["earlier_processes"]] == [0, 1, 2, 3]


def test_sigterm_ends_the_step_and_leaves_the_checkpoint(plain, store, tmp_path):
    whole = run(plain, 1, store=Store(tmp_path / "whole", read_only=False))

    def on_step(step):
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    assert exit_status(lambda: run(plain, 1, store=store, on_step=on_step)) == 143
    cut = store.find(plain, 1)
    assert (cut.status, cut.provenance["steps"]) == ("partial", 7)
    assert stopping.REQUEST.deferred == 0
    assert timeless(run(plain, 1, store=store)) == timeless(whole)


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
    assert timeless(rest) == timeless(whole) and rest.provenance["earlier_processes"][0]["from_step"] == 0


def test_a_time_limit_cuts_a_study_and_the_sweep_says_so(plain, store):
    late = dataclasses.replace(plain, params={**plain.params, "steps": 1_000_000})
    found = sweeps.sweep([late], 1, store=store, jobs=1, time_limit=1.0)
    assert found.complete == [] and [r.status for r in found.records] == ["partial"]
    further = sweeps.sweep([late], 1, store=store, jobs=1, time_limit=1.0).records[0]
    assert further.provenance["steps"] > found.records[0].provenance["steps"] > 0


@pytest.mark.parametrize("harm", ["another study", "a later step", "other sums", "not the generator"])
def test_a_checkpoint_that_cannot_be_its_own_is_set_aside(plain, store, tmp_path, harm, caplog):
    whole = run(plain, 1, store=Store(tmp_path / "whole", read_only=False))
    on_step, stop = stop_behind(5)
    run(plain, 1, store=store, on_step=on_step, stop=stop)
    path = store.checkpoint_path(plain.experiment, whole.id)
    tensors, header = resuming.read_tensors(path, {"config", "state"})
    state = json.loads(header["state"])
    if harm == "another study":
        header["config"] = header["config"].replace('"data_seed":0', '"data_seed":1')
    state |= {"a later step": {"step": 41}, "other sums": {"sums": {"others": 0.0}}}.get(harm, {})
    if harm == "not the generator":
        state["generator"] = {"bit_generator": "none"}
    resuming.save_tensors(path, tensors, header | {"state": json.dumps(state)})
    rest = run(plain, 1, store=store)
    assert timeless(rest) == timeless(whole) and "earlier_processes" not in rest.provenance
    assert "checkpoint" in caplog.text and len(list((store.root / "set_aside").iterdir())) == 1


def test_a_study_without_a_loop_is_one_step(plain):
    assert progress_steps(plain) == 40
    assert progress_steps(StudyConfig("test", "smoke", "looped_drift", {"steps": 100_000})) == 1
    assert set(in_all("RESUMABLE")) <= set(STUDIES)
