"""Sweeps: reuse, recompute exactly what is missing, survive failures, limits and kills."""

import concurrent.futures as cf
import contextlib
import dataclasses
import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import weakref
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from made_up import timeless, wait_for

from entp_lab import progress, runs
from entp_lab import resume as loop
from entp_lab.configs import config_id
from entp_lab.runs import SweepError, device_for, run, sweep
from entp_lab.store import RecordError, Store
from entp_lib.validation import ConfigError


@pytest.fixture
def configs(small_run):
    return [small_run(architecture, seed) for seed in (0, 1) for architecture in ("decoder", "entp")]


def test_a_sweep_computes_once_and_reuses_after(configs, store):
    first = sweep(configs, 1, store=store, jobs=1)
    second = sweep(configs, 1, store=store, jobs=1)
    assert (first.computed, first.reused, second.computed, second.reused) == (4, 0, 0, 4)
    assert first.records == second.records
    assert [r.config for r in second.records] == configs
    assert sweep(configs[:1], 2, store=store, jobs=1).computed == 1  # another version, another record


def contents(store):
    return {p.name: p.read_text() for p in sorted((store.root / "records").glob("*/*.json"))}


def test_fresh_computes_again_from_the_beginning(configs, small_run, store):
    sweep(configs[:1], 1, store=store, jobs=1)
    cut = small_run(steps=400, eval_every=50)
    sweep([cut], 1, store=store, jobs=1, time_limit=0.2)
    before = contents(store)
    assert sweep([cut], 1, store=store, jobs=1, fresh=True).records[0].provenance.get("earlier_processes") is None
    assert sweep(configs[:2], 1, store=store, jobs=1, fresh=True).computed == 2
    assert all(text != before.get(name) for name, text in contents(store).items())
    elsewhere = dataclasses.replace(configs[1], experiment="other")  # what a fresh run is only compared with
    sweep([elsewhere], 1, store=store, jobs=1)
    found = sweep([configs[0], elsewhere], 1, store=store, jobs=1, fresh=True)
    assert (found.computed, found.reused) == (1, 1)


@pytest.mark.parametrize("how", ["cut", "failed", "killed"])
def test_a_fresh_run_that_does_not_end_leaves_the_old_record(configs, store, monkeypatch, how):
    sweep(configs[:1], 1, store=store, jobs=1)
    before, steps = contents(store), []

    def on_step(step):
        steps.append(step)
        if step == 5 and how != "cut":
            raise MemoryError if how == "failed" else KeyboardInterrupt

    with contextlib.suppress(MemoryError, KeyboardInterrupt):
        found = run(configs[0], 1, store=store, fresh=True, on_step=on_step, stop=lambda: len(steps) == 5)
        assert (found.status, found.provenance["steps"]) == ("partial", 5)
    assert len(steps) == 5 and contents(store) == before
    assert sweep(configs[:1], 1, store=store, jobs=1).reused == 1
    assert not store.checkpoint_path("test", config_id(configs[0], 1)).exists()


def test_a_failing_run_is_reported_and_the_others_are_kept(configs, small_run, store):
    bad = small_run(max_lr=1e30, warmup_steps=0)
    with pytest.raises(SweepError, match=r"1 of 5 runs failed:\n  test decoder, seed 0: TrainingError: the training"):
        sweep([bad, *configs], 1, store=store, jobs=1)
    assert len(store.all("test")) == 4


def test_a_mistake_of_code_keeps_its_traceback_and_one_of_input_does_not_need_it(
    configs, small_run, store, monkeypatch
):
    def batch(*_):
        return undefined  # noqa: F821

    with pytest.raises(SweepError) as of_input:
        sweep([small_run(max_lr=1e30, warmup_steps=0)], 1, store=store, jobs=1)
    assert of_input.value.report == str(of_input.value)
    monkeypatch.setattr("entp_lib.tasks.counting.Counting.batch", batch)
    with pytest.raises(SweepError) as of_code:
        sweep(configs, 1, store=store, jobs=1)
    for shown in (of_code.value.report, "\n".join(of_code.value._render_traceback_())):
        assert shown.count("return undefined") == 1 and shown.index("in batch") < shown.index("4 of 4 runs failed")


def test_a_full_disk_is_a_failure_in_words_and_loses_nothing(configs, store, monkeypatch):
    real, victim = Store.save, config_id(configs[1], 1)

    def save(self, record):
        if record.id == victim:
            raise OSError(errno.ENOSPC, "No space left on device", "results/records/x.json")
        return real(self, record)

    monkeypatch.setattr(Store, "save", save)
    with pytest.raises(SweepError, match=r"No space left on device: .results/records/x.json.; what was saved"):
        sweep(configs, 1, store=store, jobs=1)
    assert len(store.all("test")) == 3 and store.checkpoint_path("test", victim).exists()
    monkeypatch.setattr(Store, "save", real)
    assert sweep(configs, 1, store=store, jobs=1).computed == 1


def test_a_time_limit_leaves_partial_records_that_the_next_call_completes(small_run, store, tmp_path):
    configs = [small_run("entp", steps=300, eval_every=50)]
    whole = sweep(configs, 1, store=Store(tmp_path / "whole", read_only=False), jobs=1)
    cut = sweep(configs, 1, store=store, jobs=1, time_limit=0.4)
    assert [r.status for r in cut.records] == ["partial"] and cut.complete == []
    assert 0 < cut.records[0].provenance["steps"] < 300 and cut.records[0].metrics == {}
    rest = sweep(configs, 1, store=store, jobs=1)
    assert timeless(rest.complete) == timeless(whole.complete)
    assert not store.checkpoint_path("test", rest.records[0].id).exists()
    assert store.weights_path("test", rest.records[0].id).exists()


def test_a_missing_record_is_an_error_where_nothing_may_be_computed(configs, store, monkeypatch):
    sweep(configs[:1], 1, store=store, jobs=1)
    reading = Store(store.root, read_only=True)
    assert sweep(configs[:1], 1, store=reading).reused == 1
    monkeypatch.setattr("entp_lab.runs.train_run", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(RecordError, match=f"missing or partial: record test/{config_id(configs[1], 1)}.*run_all.sh"):
        sweep(configs[:2], 1, store=reading)
    with pytest.raises(RecordError, match="missing or partial"):
        run(configs[1], 1, store=reading)


def test_tiers_choose_their_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("smoke") == device_for("quick") == device_for("paper") == "cpu"
    with pytest.raises(ConfigError, match="tier gpu needs a CUDA GPU"):
        device_for("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for("quick") == "cpu" and device_for("gpu") == device_for("paper") == "cuda"


SWEEP = """\
import sys
from entp_lab import resume as loop
from entp_lib.config import ModelConfig, TrainConfig
from entp_lab.configs import RunConfig
from entp_lab.store import Store
from entp_lab.runs import sweep

loop.CHECKPOINT_SECONDS = 0.1
def config(seed):
    model = ModelConfig("entp", 2, 2, 16, 8, 8)
    schedule = TrainConfig(steps=120, batch_size=8, warmup_steps=3, eval_every=60, eval_sequences=32,
                           final_eval_sequences=64)
    return RunConfig("test", "smoke", "counting", dict(length=8, seed_length=3, symbols=8), model, schedule, seed, seed)

if __name__ == "__main__":
    store, jobs = Store(sys.argv[1], read_only=False), int(sys.argv[2])
    found = sweep([config(0), config(1), config(2)], 1, store=store, jobs=jobs)
    print(found.reused, found.computed)
"""


def start(script, folder, jobs):
    return subprocess.Popen([sys.executable, str(script), str(folder), str(jobs)], stdout=subprocess.PIPE, text=True)


def test_killing_a_sweep_and_running_it_again_ends_in_the_same_records(tmp_path, monkeypatch):
    """kill -9 after the first record and the second run's first checkpoint, with no chance to tidy up."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    killed = tmp_path / "killed"
    cut = start(tmp_path / "sweep.py", killed, 1)
    wait_for(lambda: list(killed.glob("records/*/*.json")) and list(killed.glob("checkpoints/*/*[0-9a-f].safe*")))
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    assert 1 <= len(list(killed.glob("records/test/*.json"))) < 3
    names: dict = {}
    with monkeypatch.context() as patch:  # which the script sets
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.1)
        exec(SWEEP, names)
    configs = [names["config"](seed) for seed in range(3)]
    found, whole = (
        sweep(configs, 1, store=Store(tmp_path / name, read_only=False), jobs=1) for name in ("killed", "whole")
    )
    assert found.reused > 0 and timeless(found.records) == timeless(whole.records)
    assert all(len(path.stem) == 16 for path in (killed / "records" / "test").glob("*.json"))


@pytest.mark.skipif(not os.path.exists("/proc"), reason="needs /proc to see processes")
def test_workers_do_not_outlive_the_sweep_that_started_them(tmp_path):
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP.replace("steps=120", "steps=15000"))
    process = start(script, tmp_path / "store", 2)

    def children():
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == process.pid and fields[0] != "Z":
                found.append(int(entry))
        return found

    wait_for(lambda: list((tmp_path / "store").glob("checkpoints/test/*.safetensors")))
    workers = children()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert workers
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), seconds=20)


def test_any_executor_computes_the_same_and_its_results_are_let_go(configs, store, tmp_path):
    results = []
    with cf.ThreadPoolExecutor(1) as executor:
        submit = executor.submit
        executor.submit = lambda *call: (future := submit(*call), results.append(weakref.ref(future)))[0]
        done = sweep(configs, 1, store=store, executor=executor)
    assert done.computed == len(results) == 4 and store.all("test") == sorted(done.records, key=lambda r: r.id)
    here = sweep(configs, 1, store=Store(tmp_path / "here", read_only=False), jobs=1)
    assert timeless(here.records) == timeless(done.records)
    gc.collect()
    assert not any(result() for result in results)


def test_a_killed_worker_costs_a_process_and_no_run(small_run, store, caplog):
    configs = [small_run(seed=seed, steps=400, eval_every=100) for seed in range(3)]
    with cf.ThreadPoolExecutor(1) as pool:
        going = pool.submit(sweep, configs, 1, store=store, jobs=2)
        wait_for(lambda: len(list(store.root.glob("locks/*"))) >= 2)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        assert going.result().computed == 3
    assert caplog.text.count("a worker process was killed") == 1


class Killed(cf.Executor):
    """A stand-in for a worker process, which dies of run 1."""

    started: ClassVar = []

    def __init__(self):
        self.started.append(self)

    def submit(self, function, place):
        future = cf.Future()
        if place == 1:
            future.set_exception(BrokenProcessPool("terminated abruptly"))
        else:
            future.set_result(place)
        return future


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_only_the_run_that_kills_its_worker_alone_fails(jobs, monkeypatch):
    monkeypatch.setattr(Killed, "started", [])
    calls = {f"run {place}": (place,) for place in range(4)}
    monkeypatch.setattr(runs, "PLACE", 0)
    with contextlib.closing(progress.Meter([1] * 4, "")) as meter:
        found = dict(runs.ended(calls, jobs, Killed, meter))
    assert isinstance(found.pop("run 1").exception(), BrokenProcessPool)
    assert {name: future.result() for name, future in found.items()} == {"run 0": 0, "run 2": 2, "run 3": 3}
    assert len(Killed.started) == jobs + 1


# Progress: steps of every run, wherever it is computed, as a bar.


def test_worker_processes_compute_the_same_and_their_steps_are_seen(small_run, store, tmp_path, monkeypatch):
    done = []
    update = progress.Meter.update
    monkeypatch.setattr(progress.Meter, "update", lambda meter, *a: (update(meter, *a), done.append(meter.bar.n)))
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr("entp_lab.runs.POLL_SECONDS", 0.01)
    configs = [small_run(seed=seed, steps=200, eval_every=200) for seed in range(2)]
    spawned = sweep(configs, 1, store=store, jobs=2, label="x")
    assert any(0 < n < 400 and n % 200 for n in done) and done[-1] == 400 and done == sorted(done)
    here = sweep(configs, 1, store=Store(tmp_path / "here", read_only=False), jobs=1)
    assert not progress.ON_STEP and timeless(spawned.records) == timeless(here.records)
