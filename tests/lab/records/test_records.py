"""The store: nothing damaged is used, nothing good is lost."""

import dataclasses
import errno
import json
import logging
import os
import re
import threading
from pathlib import Path

import pytest
from made_up import sound

from entp_lab import paths
from entp_lab.configs import config_id
from entp_lab.runs import sweep
from entp_lab.store import Record, RecordError, Store, checksum
from entp_lib.files import write_atomically


@pytest.fixture
def record(small_run):
    metrics = {"token_accuracy": 1 / 3, "baseline": {"loss": float("nan"), "counts": [1, 2]}}
    return sound(Record("test", 1, small_run(), metrics, {"step": [1, 2], "loss": [2.0, 1.5]}, {"commit": "abc"}))


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


def test_a_partial_record_is_none_before_it_is_read_and_a_damaged_one_is_for_find_to_name(store, record):
    assert not store.has(record.config, 1)
    path = store.save(dataclasses.replace(record, status="partial"))
    assert not store.has(record.config, 1) and store.find(record.config, 1).status == "partial"
    store.save(record)
    assert store.has(record.config, 1) and not store.has(record.config, 2)
    path.write_text(path.read_text()[:50])
    assert store.has(record.config, 1) and Store(store.root, read_only=False).find(record.config, 1) is None


def test_nothing_is_unpickled():
    """Whoever may write a file in a results folder must not run code by it."""
    found, root = [], paths.root()
    modules = r"pickle|cPickle|_pickle|dill|joblib|cloudpickle|shelve|marshal"
    unsafe = (
        rf"^\s*(?:import|from) (?:{modules})\b|read_pickle|allow_pickle=(?!False)|torch\.load\((?!.*weights_only=True)"
    )
    for folder in ("entp_lib", "entp_lab", "entp_papers", "benchmarks"):
        for path in (root / folder).rglob("*.py"):
            found += [f"{path}: {line}" for line in path.read_text().splitlines() if re.search(unsafe, line)]
    assert found == []


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "edited": lambda text: text.replace("0.333333", "0.933333"),
    "reconfigured": lambda text: text.replace('"steps":12', '"steps":13'),
    "no json": lambda text: "token_accuracy = 0.99",
    "a list": lambda text: "[]",
    "empty": lambda text: "",
    "no checksum": lambda text: re.sub(r',\n"checksum.*', "\n}", text),
}


def huge_nesting(path):
    path.write_text("[" * 100_000 + "]" * 100_000)


def folder(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


def rewrite(change):
    return lambda path: path.write_text(change(path.read_text()))


def with_checksum_that_fits(part=None, **changes):
    """Other content of the whole record, or of one of its parts; None takes something out."""

    def change(path):
        body = json.loads(path.read_text())
        body.pop("checksum")
        held = body[part] if part else body
        held |= changes
        for name in [name for name, value in changes.items() if value is None]:
            del held[name]
        path.write_text(json.dumps(body | {"checksum": checksum(body)}))

    return change


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path):
    """A file of a terabyte, which takes no room."""
    with path.open("r+b") as file:
        file.truncate(2**40)


WAYS = {name: rewrite(change) for name, change in DAMAGE.items()} | {
    "nested": huge_nesting,
    "a folder": folder,
    "a link to itself": link_to_itself,
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "a mark of byte order": lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()),
    "metrics that are a list": with_checksum_that_fits(metrics=[]),
    "a status nobody knows": with_checksum_that_fits(status="finished"),
    "another version": with_checksum_that_fits(version=2),
    "no file": fifo,
    "a device": device,
    "a terabyte": sparse,
}
# With a checksum that fits: what of the record is said to be wrong.
CONTENT = {
    "metrics": [with_checksum_that_fits(metrics=value) for value in ({}, "text", [1], None, 7)],
    "curves": [
        *(with_checksum_that_fits(curves=value) for value in ({}, "text", [1], None)),
        *(with_checksum_that_fits("curves", loss=value) for value in ([1.0], [1.0] * 3)),
    ],
    "provenance": [with_checksum_that_fits(provenance=value) for value in ({}, "text", [1], None)],
    "metrics.token_accuracy": [
        with_checksum_that_fits("metrics", token_accuracy=value)
        for value in (7.5, -0.1, "high", True, [0.5, 2], {"4": 9})
    ],
    "metrics.loss": [with_checksum_that_fits("metrics", loss=value) for value in (10**400, -1e40, "low", [1.0], {})],
    "metrics.baseline": [with_checksum_that_fits("metrics", baseline=value) for value in ([], 1, None, "x")],
    "metrics.test": [
        with_checksum_that_fits("metrics", test={"last": [{"loss": value}]}) for value in (10**400, 1e300)
    ],
    "curves.step": [with_checksum_that_fits("curves", step=value) for value in ({}, "1 2", None, [1, 10**400])],
    "provenance.wall_seconds": [
        with_checksum_that_fits("provenance", wall_seconds=value) for value in ("1", {}, [1], None, 10**400)
    ],
    "provenance.versions": [with_checksum_that_fits("provenance", versions=value) for value in ("torch", [], None, 1)],
    "provenance.earlier_processes": [
        with_checksum_that_fits("provenance", earlier_processes=value) for value in ({}, [1], [{"threads": "one"}])
    ],
}


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_record_is_named_left_alone_by_looking_and_set_aside_by_saving(store, record, caplog, how):
    path = store.save(record)
    WAYS[how](path)
    before = os.lstat(path)
    with caplog.at_level(logging.WARNING):
        assert store.load("test", record.id) is None and store.all("test") == []
        assert store.find(record.config, 1) is None
        store.has(record.config, 1)  # waits for no pipe
    assert len(caplog.records) == 1 and path.name in caplog.text and "is not used" in caplog.text  # said once
    with pytest.raises(RecordError, match=path.name):
        Store(store.root, read_only=True).load("test", record.id)
    after = os.lstat(path)
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert not (store.root / "set_aside").exists()
    for count in ("", ".2"):  # another takes its place
        with caplog.at_level(logging.WARNING):
            store.save(record)
        assert store.find(record.config, 1).metrics["token_accuracy"] == 0.333333
        kept = store.root / "set_aside" / f"test-{path.name}{count}"
        assert os.path.lexists(kept) and f"kept as {kept}" in caplog.text
        WAYS[how](path)


@pytest.mark.parametrize("named", CONTENT)
def test_content_that_no_run_writes_is_named_with_the_record(store, record, named):
    for change in CONTENT[named]:
        path = store.save(record)
        change(path)
        with pytest.raises(RecordError) as raised:
            store.load("test", record.id, strict=True)
        assert path.name in str(raised.value) and named in str(raised.value) and len(str(raised.value)) < 400


@pytest.mark.parametrize("name", ["other/{id}", "test/0123456789abcdef"])
def test_a_moved_or_renamed_record_is_damage_too(store, record, name):
    path, name = store.save(record), name.format(id=record.id)
    other = store.path(*name.split("/"))
    other.parent.mkdir(exist_ok=True)
    path.rename(other)
    with pytest.raises(RecordError, match=f"{name}.json: it is the record test/{record.id}"):
        store.load(*name.split("/"), strict=True)


def test_a_record_that_did_not_change_is_read_once(store, record, monkeypatch):
    store.save(record)
    parsed, real = [], Record.from_json
    monkeypatch.setattr(Record, "from_json", lambda *given: (parsed.append(given), real(*given))[1])
    assert store.find(record.config, 1) == store.load("test", record.id) == store.all("test")[0]
    assert len(parsed) == 1
    store.save(dataclasses.replace(record, status="partial"))  # refused: the complete one stays
    assert store.find(record.config, 1).status == "complete" and len(parsed) == 1
    assert Store(store.root).find(record.config, 1).status == "complete" and len(parsed) == 1
    store.save(dataclasses.replace(record, metrics=record.metrics | {"loss": 2.0}))
    assert store.find(record.config, 1).metrics["loss"] == 2.0 and len(parsed) == 2


def test_an_id_follows_parameters_that_change(small_run):
    config, other = small_run(), small_run(task={"symbols": 7})
    before = config_id(config, 1)
    config.task_params["symbols"] = 7
    assert config_id(config, 1) == config_id(other, 1) != before


def test_a_link_that_leads_nowhere_is_no_record_and_gives_way_to_one(store, record):
    path = store.path("test", record.id)
    path.parent.mkdir(parents=True)
    path.symlink_to("nowhere")
    assert not store.has(record.config, 1) and store.find(record.config, 1) is None and store.all("test") == []
    store.save(record)
    assert store.find(record.config, 1).status == "complete" and not path.is_symlink()


def test_records_that_are_there_are_read_where_nothing_can_be_removed(store, record, monkeypatch):
    store.save(record)

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert sweep([record.config], 1, store=store).reused == 1


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
