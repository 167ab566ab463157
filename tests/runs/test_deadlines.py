"""Deadlines: no clock that somebody sets moves them on one machine."""

import time

import pytest

from entp_lib.runs import deadlines
from entp_lib.runs.deadlines import deadline_after, local_deadline


def test_no_limit_is_no_deadline():
    assert deadline_after(0.0) is None and local_deadline(None) is None


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_a_clock_that_is_set_moves_no_deadline(monkeypatch, jump):
    deadline, now = deadline_after(60.0), time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    assert local_deadline(deadline) == pytest.approx(time.monotonic() + 60, abs=5)


def test_another_machine_goes_by_the_time_of_day(monkeypatch):
    deadline = deadline_after(60.0)
    monkeypatch.setattr(deadlines, "boot", lambda: "another")
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    assert local_deadline(deadline) == pytest.approx(65, abs=5)
