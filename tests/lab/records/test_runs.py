"""Sweeps: reuse, recompute exactly what is missing, survive failures, limits and kills."""

import concurrent.futures as cf
import contextlib
import dataclasses
import errno
import functools
import itertools
import multiprocessing
import os
import signal
import time
import types
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch
from made_up import computed, swept, timeless, unchanged, wait_for
from mistakes import refused

from entp_lab import progress, runs
from entp_lab.configs import StudyConfig, config_id, record_name
from entp_lab.runs import SweepError, device_for, sweep
from entp_lab.stopping import Cut
from entp_lab.store import RecordError, Store


@pytest.fixture
def configs(small_run):
    return [
        small_run(architecture, seed) for seed in (0, 1) for architecture in ("decoder", "entp")
    ]


@pytest.fixture
def clock(monkeypatch):
    """Time for training is up after a hundred looks at the clock."""
    looks = types.SimpleNamespace(time=itertools.count().__next__, monotonic=time.monotonic)
    monkeypatch.setattr("entp_lab.resume.time", looks)
    monkeypatch.setattr(runs, "deadline_of", lambda limit: 100 if limit > 1 else limit or None)


def test_a_sweep_computes_once_and_reuses_after(configs, store):
    first = swept(configs, store)
    second = swept(configs, store)
    assert (len(first.complete), first.reused) == (4, 0)
    assert (len(second.complete), second.reused) == (4, 4)
    assert first.complete == second.complete
    assert [record.config for record in second.complete] == configs
    # another version, another record
    assert sweep(configs[:1], 2, store=store, jobs=1).reused == 0


def test_fresh_computes_again_from_the_beginning(small_run, store, clock):
    config = small_run(steps=150, eval_every=50)
    assert swept([config], store, time_limit=9).cut  # looks at the clock
    first = swept([config], store, fresh=True)
    assert "earlier_processes" not in first.complete[0].provenance
    path = store.path(first.complete[0].name)
    before = path.read_text()
    assert swept([config], store, fresh=True).reused == 0
    assert path.read_text() != before


def test_what_a_fresh_run_is_only_compared_with_is_reused(configs, store):
    both = [configs[0], dataclasses.replace(configs[1], experiment="other")]
    swept(both, store)
    assert store.missing(both, 1, fresh=True) == both[:1]
    found = swept(both, store, fresh=True)
    assert (len(found.complete), found.reused) == (2, 1)


@pytest.mark.parametrize("error", [Cut, MemoryError, KeyboardInterrupt])
def test_a_fresh_run_that_does_not_end_leaves_the_old_record(configs, store, error):
    swept(configs[:1], store)
    steps = []

    def on_step(step, last):
        steps.append(step)
        if step == 5 and error is not Cut:
            raise error

    with unchanged(store.root / "records"), pytest.raises(error):
        computed(configs[0], store, fresh=True, on_step=on_step, stop=lambda: len(steps) == 5)
    assert len(steps) == 5
    assert swept(configs[:1], store).reused == 1
    assert not store.checkpoint_path(record_name(configs[0], 1)).exists()


def test_a_fresh_run_goes_on_where_its_worker_died(small_run, store):
    config, steps = small_run(), []

    def on_step(step, last):
        steps.append(step)

    with pytest.raises(Cut):
        computed(config, store, fresh=True, on_step=on_step, stop=lambda: len(steps) == 5)
    computed(config, store, fresh=True, on_step=on_step)
    assert steps == sorted(set(steps))


def test_a_process_that_made_no_step_is_not_named(small_run, store):
    config = small_run()
    assert swept([config], store, time_limit=1e-6).cut
    (record,) = swept([config], store).complete
    assert "earlier_processes" not in record.provenance


def test_a_failing_run_is_a_line_and_the_others_are_kept(configs, small_run, store):
    bad = small_run(max_lr=1e30, warmup_steps=0)
    with pytest.raises(SweepError) as error:
        swept([bad, *configs], store)
    assert str(error.value).startswith(
        "1 of 5 runs failed:\n  test decoder, seed 0: TrainingError: the training"
    )
    assert error.value.report == str(error.value)
    assert len(store.all("test")) == 4


def test_a_mistake_of_code_keeps_its_traceback(configs, store, monkeypatch):
    def batch(*_):
        return undefined  # noqa: F821

    monkeypatch.setattr("entp_lib.tasks.counting.Counting.batch", batch)
    with pytest.raises(SweepError) as error:
        swept(configs, store)
    for shown in (error.value.report, "\n".join(error.value._render_traceback_())):
        assert shown.count("return undefined") == 1
        assert shown.index("in batch") < shown.index("4 of 4 runs failed")


def test_a_full_disk_is_a_failure_in_words_and_loses_nothing(configs, store, monkeypatch):
    victim = config_id(configs[1], 1)

    def save(self, record, real=Store.save):
        if record.id == victim:
            raise OSError(errno.ENOSPC, "No space left on device", "results/records/x.json")
        return real(self, record)

    with (
        monkeypatch.context() as patch,
        pytest.raises(SweepError, match="No space left on device: .*; what was saved"),
    ):
        patch.setattr(Store, "save", save)
        swept(configs, store)
    assert len(store.all("test")) == 3
    assert store.checkpoint_path(f"test/{victim}").exists()
    assert swept(configs, store).reused == 3


def test_a_time_limit_cuts_a_run_that_the_next_call_completes(small_run, store, apart, clock):
    configs = [small_run("entp", steps=150, eval_every=50)]
    whole = swept(configs, apart)
    cut = swept(configs, store, time_limit=9)
    assert cut.complete == []
    assert 0 < cut.cut[whole.complete[0].name] < 150
    assert timeless(*swept(configs, store).complete) == timeless(*whole.complete)
    study = StudyConfig("test", "smoke", "costs", {})
    assert list(swept([study], store, time_limit=1e-6).cut.values()) == [0]


def test_a_missing_record_is_an_error_where_nothing_may_be_computed(configs, store, monkeypatch):
    swept(configs[:1], store)
    reading = Store(store.root, read_only=True)
    assert swept(configs[:1], reading).reused == 1
    monkeypatch.setattr("entp_lab.runs.train_run", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(
        RecordError, match=f"missing: record test/{config_id(configs[1], 1)}.*run_all.sh"
    ):
        swept(configs[:2], reading)
    with pytest.raises(RecordError, match="missing"):
        computed(configs[1], reading)


def test_tiers_choose_their_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("smoke") == device_for("quick") == device_for("paper") == "cpu"
    with refused("tier gpu needs a CUDA GPU"):
        device_for("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for("quick") == "cpu"
    assert device_for("gpu") == device_for("paper") == "cuda"


def test_any_executor_computes_the_same(configs, store, apart):
    with cf.ThreadPoolExecutor(1) as executor:
        done = swept(configs, store, jobs=0, executor=executor)
    assert (len(done.complete), done.reused) == (4, 0)
    assert timeless(*done.complete) == timeless(*swept(configs, apart).complete)


def test_a_killed_worker_costs_no_run(small_run, store, apart, caplog):
    configs = [small_run(seed=seed, steps=150, eval_every=50) for seed in range(3)]
    with cf.ThreadPoolExecutor(1) as pool:
        going = pool.submit(sweep, configs, 1, store=store, jobs=2)
        wait_for(lambda: len(list(store.root.glob("locks/*"))) >= 2)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        found = going.result()
    assert timeless(*found.complete) == timeless(*swept(configs, apart).complete)
    assert caplog.text.count("a worker process was killed") == 1


class Workers(cf.Executor):
    """Stand-ins for worker processes, all of which die of run 1."""

    broken = False

    def submit(self, function, place):
        future = cf.Future()
        self.broken |= place == 1
        if self.broken:
            future.set_exception(BrokenProcessPool("terminated abruptly"))
        else:
            future.set_result(place)
        return future


@pytest.mark.parametrize("jobs", [2, 4])
def test_only_the_run_that_kills_its_worker_alone_fails(jobs, monkeypatch):
    started = []

    @contextlib.contextmanager
    def worker_processes(count, _):
        started.append(count)
        yield Workers()

    monkeypatch.setattr(runs, "worker_processes", worker_processes)
    calls = {f"run {place}": (place,) for place in range(4)}
    with contextlib.closing(progress.Meter(4, "")) as meter:
        found = dict(runs.outcomes(calls, jobs, None, meter))
    with pytest.raises(BrokenProcessPool):
        found.pop("run 1")()
    assert {name: outcome() for name, outcome in found.items()} == {
        "run 0": 0,
        "run 2": 2,
        "run 3": 3,
    }
    assert started == [*range(jobs, 0, -1), 1]


# Progress: how much of every run is done, wherever it is computed, as a bar.


def test_worker_processes_compute_the_same_and_their_steps_are_seen(
    small_run, store, apart, monkeypatch
):
    done = []
    update = progress.Meter.update

    def noted(meter, **options):
        update(meter, **options)
        done.append(meter.bar.n)

    monkeypatch.setattr(progress.Meter, "update", noted)
    monkeypatch.setattr(progress, "tqdm", functools.partial(progress.tqdm, disable=False))
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)
    steps = 200  # long enough to be seen on a busy machine
    configs = [small_run(seed=seed, steps=steps, eval_every=steps) for seed in range(2)]
    spawned = swept(configs, store, jobs=2, label="x")
    assert any(count % 1 for count in done)
    assert done == sorted(done)
    assert done[-1] == pytest.approx(2)
    assert not progress.ON_STEP
    assert timeless(*spawned.complete) == timeless(*swept(configs, apart).complete)
