"""SIGTERM, as a scheduler sends it: the step is ended, the checkpoint is left, the status says so, and it goes on."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from entp_lib.config import StudyConfig
from entp_lib.records import stopping
from entp_lib.records.execution import run
from entp_lib.records.store import Store
from entp_lib.reports.command_line import exit_status


def timeless(record):
    return record.metrics, {name: curve for name, curve in record.curves.items() if name != "seconds"}


def terminate_at(step, times=1):
    def on_step(now):
        if now == step:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGTERM)

    return on_step


def test_a_run_ends_behind_its_step_and_goes_on_bit_for_bit(small_run, store, tmp_path, capsys):
    """Several signals at once are one request: every process of a job may get them from several sides."""
    config = small_run("entp")
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    status = exit_status(lambda: run(config, 1, store=store, on_step=terminate_at(5, times=3)))
    assert status == 143 and "continues from the last checkpoint" in capsys.readouterr().err
    cut = store.find(config, 1)
    assert cut.status == "partial" and cut.provenance["steps"] == 5
    assert store.checkpoint_path("test", cut.id).exists()
    rest = run(config, 1, store=store)
    assert rest.status == "complete" and timeless(rest) == timeless(whole)
    assert rest.provenance["earlier_processes"][0]["from_step"] == 0


def test_what_is_no_training_ends_at_once(store, monkeypatch):
    def study(**_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        pytest.fail("it went on")

    monkeypatch.setattr("entp_lib.records.execution.STUDIES", SimpleNamespace(named=lambda name: study))
    config = StudyConfig("test", "smoke", "costs", {})
    assert exit_status(lambda: run(config, 1, store=store)) == 143 and store.all("test") == []


def test_whoever_asks_again_after_a_while_is_heard(monkeypatch):
    request = stopping.Request()
    request.deferred = 1
    request.handle()
    request.handle()
    assert request.made()
    monkeypatch.setattr(stopping, "GRACE_SECONDS", -1.0)
    with pytest.raises(stopping.Terminated):
        request.handle()
    request = stopping.Request()
    with pytest.raises(stopping.Terminated):
        request.handle()
