"""The store: nothing damaged is used, nothing good is lost."""

import errno
import json
import logging
import os
import re
import threading

import pytest

from entp_lib.files import write_atomically
from entp_lib.runs.records import Record, RecordError, Store


@pytest.fixture
def record(small_run):
    metrics = {"token_accuracy": 1 / 3, "baseline": {"loss": float("nan"), "counts": [1, 2]}}
    return Record("test", 1, small_run(), metrics, {"step": [1, 2], "loss": [2.0, 1.5]}, {"commit": "abc"})


def test_a_record_survives_its_file(store, record):
    path = store.save(record)
    found = store.load("test", record.id)
    assert found.config == record.config and found.curves == record.curves and path.stem == record.id
    assert found.metrics["token_accuracy"] == 0.333333 and found.metrics["baseline"]["loss"] is None
    assert Record.from_json(found.to_json()) == found
    assert set(json.loads(path.read_text())) == {
        *("experiment", "version", "config", "metrics", "curves", "provenance", "status", "checksum")
    }
    assert store.find(record.config, 1) == found and store.find(record.config, 2) is None
    assert store.all("test") == [found] and store.all("other") == []


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "edited": lambda text: text.replace("0.333333", "0.933333"),
    "reconfigured": lambda text: text.replace('"steps":12', '"steps":13'),
    "no json": lambda text: "token_accuracy = 0.99",
    "a list": lambda text: "[]",
    "empty": lambda text: "",
    "no checksum": lambda text: re.sub(r',\n"checksum.*', "\n}", text),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_is_named_set_aside_and_not_used(store, record, caplog, how):
    path = store.save(record)
    damaged = DAMAGE[how](path.read_text())
    path.write_text(damaged)
    with caplog.at_level(logging.WARNING):
        assert store.load("test", record.id) is None
    assert path.name in caplog.text and "set aside" in caplog.text
    kept = store.root / "set_aside" / f"test-{path.name}"
    assert kept.read_text() == damaged and not path.exists()


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_is_an_error_where_nothing_may_be_written(store, record, how):
    path = store.save(record)
    path.write_text(DAMAGE[how](path.read_text()))
    with pytest.raises(RecordError, match=path.name):
        Store(store.root, read_only=True).load("test", record.id)
    assert path.exists()


def test_binary_rubbish_and_a_renamed_file_are_damage_too(store, record, caplog):
    path = store.save(record)
    path.rename(path.with_name("0123456789abcdef.json"))
    assert store.load("test", "0123456789abcdef") is None and "belongs to the id" in caplog.text
    path.write_bytes(bytes(range(256)))
    assert store.load("test", record.id) is None


def test_reading_only_refuses_to_save(store, record, monkeypatch):
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    with pytest.raises(RecordError, match=f"read-only: test/{record.id}"):
        Store(store.root).save(record)
    assert not store.path("test", record.id).exists()


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, fails):
    path = tmp_path / "record.json"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left on device: .*record.json"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["record.json"]


def test_a_place_that_cannot_be_written_is_named_before_any_compute(tmp_path):
    (tmp_path / "results").write_text("a file where a folder should be")
    with pytest.raises(RecordError, match="results cannot be written to .*results"):
        Store(tmp_path / "results", read_only=False).check_writable()


def test_writers_at_once_never_show_half_a_file(tmp_path):
    path, texts = tmp_path / "file", [str(i) * 50_000 for i in range(4)]
    writers = [
        threading.Thread(target=lambda t=t: [write_atomically(path, t.encode()) for _ in range(20)]) for t in texts
    ]
    for writer in writers:
        writer.start()
    while any(w.is_alive() for w in writers):
        if path.exists():
            assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_lets_one_in_at_a_time(store):
    order = []

    def second():
        with store.lock("test", "x"):
            order.append("second")

    with store.lock("test", "x"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
