"""Progress: it shows what there is, and where it cannot be shown the work goes on."""

import errno
import functools
import os
import tempfile
from pathlib import Path

import pytest
from tqdm import tqdm

from entp_lib.runs import progress
from entp_lib.runs.progress import Heartbeat, Meter, event, progress_folder, read_events
from entp_lib.runs.records import Store
from entp_lib.runs.sweeps import sweep


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device", "x")


def test_events_are_read_as_they_were_told(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.EVENTS_VARIABLE, str(tmp_path / "events"))
    event("records", reused=1)
    event("figure", name="a")
    assert read_events(tmp_path / "events") == [{"event": "records", "reused": 1}, {"event": "figure", "name": "a"}]
    assert read_events(tmp_path / "none") == []


def test_lines_that_a_full_disk_cut_are_left_out(tmp_path):
    (tmp_path / "events").write_bytes(b'{"event": "a"}\n{"eve\n5\nnull\n\xff\n{"event": "b"}\n{"event": "c"')
    assert [e["event"] for e in read_events(tmp_path / "events")] == ["a", "b"]


@pytest.mark.parametrize("place", ["/dev/full", "/nowhere/at/all"])
def test_events_that_cannot_be_written_cost_nothing(monkeypatch, place):
    monkeypatch.setenv(progress.EVENTS_VARIABLE, place)
    event("records", reused=1)


def test_a_step_that_cannot_be_noted_costs_nothing(tmp_path, monkeypatch):
    beat = Heartbeat(tmp_path / "run")
    monkeypatch.setattr(Path, "write_text", full)
    beat(1)
    assert beat.last > 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_trains_where_no_progress_can_be_kept(small_run, tmp_path, monkeypatch, caplog, jobs):
    """The system's folder for temporary files is full, and so is the store's for progress."""
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setenv(progress.EVENTS_VARIABLE, "/dev/full")
    store = Store(tmp_path, read_only=False)
    (tmp_path / "progress").write_text("a file where a folder should be")
    assert sweep([small_run(seed=s) for s in range(jobs)], 1, store=store, jobs=jobs).computed == jobs
    assert caplog.text.count("progress cannot be shown") == 1


def test_progress_leaves_nothing_and_takes_away_what_the_killed_left(tmp_path):
    old = tmp_path / "progress" / "steps-pid99999999-x"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    with progress_folder(tmp_path / "progress") as folder:
        assert list((tmp_path / "progress").iterdir()) == [folder]
        (folder / "run").write_text("7")
        meter = Meter(folder, {"run": 10, "other": 10}, "x")
        assert (meter.read("run"), meter.read("other")) == (7, 0)
        (folder / "run").write_text("")
        assert meter.read("run") == 0
        meter.close()
    assert list((tmp_path / "progress").iterdir()) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_a_log_has_a_line_a_minute_and_a_terminal_one_that_moves(tmp_path, monkeypatch, capsys, in_place):
    monkeypatch.setattr(progress, "drawn_in_place", lambda: in_place)
    monkeypatch.setattr(progress, "tqdm", functools.partial(tqdm, disable=False))  # whatever TQDM_DISABLE says
    meter = Meter(tmp_path, {"run": 330}, "x")
    for step in range(330):
        (tmp_path / "run").write_text(str(step))
        meter.update()
        meter.bar.last_print_t -= 1  # a second goes by
    meter.close()
    shown = capsys.readouterr().err
    assert (shown.count("\n"), shown.count("x:") > 200) == ((0, True) if in_place else (1 + 329 // 60, False))
