"""Progress: steps of every run, wherever it is computed, as a bar and as events."""

import pytest

from entp_lib.records import progress
from entp_lib.records.progress import event, read_events
from entp_lib.records.sweeps import sweep


def test_events_are_read_as_they_were_told(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.EVENTS_VARIABLE, str(tmp_path / "events"))
    event("records", reused=1)
    event("figure", name="a")
    assert read_events(tmp_path / "events") == [{"event": "records", "reused": 1}, {"event": "figure", "name": "a"}]
    assert read_events(tmp_path / "none") == []


def test_lines_that_a_full_disk_cut_are_left_out(tmp_path):
    (tmp_path / "events").write_bytes(b'{"event": "a"}\n{"eve\n5\nnull\n\xff\n{"event": "b"}\n{"event": "c"')
    assert [e["event"] for e in read_events(tmp_path / "events")] == ["a", "b"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_steps_of_runs_are_seen_while_they_are_made(small_run, store, tmp_path, monkeypatch, jobs):
    """In this process and in worker processes."""
    monkeypatch.setenv(progress.EVENTS_VARIABLE, str(tmp_path / "events"))
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr("entp_lib.records.sweeps.POLL_SECONDS", 0.01)
    configs = [small_run(seed=seed, steps=400, eval_every=400) for seed in range(2)]
    sweep(configs, 1, store=store, jobs=jobs, label="x")
    told = [e for e in read_events(tmp_path / "events") if e["event"] == "progress"]
    assert {(e["label"], e["total"], e["runs"]) for e in told} == {("x", 800, 2)}
    assert any(0 < e["done"] < 800 and e["done"] % 400 for e in told) and told[-1]["done"] == 800
    assert [e["done"] for e in told] == sorted(e["done"] for e in told) and told[-1]["finished"] == 2
    assert not progress.LISTENERS
