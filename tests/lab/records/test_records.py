"""The store: nothing damaged is used, nothing good is lost."""

import dataclasses
import errno
import os
import re
import threading
from pathlib import Path

import pytest
from made_up import computed, forge_record, sound, swept, unchanged
from mistakes import refused

from entp_lab import paths
from entp_lab.experiment import Experiment, close, planned
from entp_lab.store import Record, RecordError, Store
from entp_lib.files import write_atomically


@pytest.fixture
def record(small_run):
    metrics = {"token_accuracy": 1 / 3, "baseline": {"loss": float("nan"), "counts": [1, 2]}}
    return sound(
        Record(
            "test", 1, small_run(), metrics, {"step": [1, 2], "loss": [2.0, 1.5]}, {"commit": "abc"}
        )
    )


@pytest.fixture
def path(store, record):
    """The file of the record in its store."""
    return store.save(record)


def test_a_record_survives_its_file(store, record, path):
    found = store.load(record.name)
    assert found.config == record.config
    assert found.curves == record.curves
    assert path.stem == record.id
    assert found.metrics["token_accuracy"] == 0.333333
    assert found.metrics["baseline"]["loss"] is None
    assert Record.from_json(found.to_json()) == found
    assert store.find(record.config, 1) == store.all("test")[0] == found
    assert store.find(record.config, 2) is None
    assert store.all("other") == []


def test_a_curve_that_a_record_lacks_is_named_with_the_record(store, record, path):
    with pytest.raises(
        RecordError,
        match=rf"test/{record.id} has no 'los' in its curves \(did you mean 'loss'\?\)",
    ):
        store.load(record.name).curves["los"]


UNSAFE = re.compile(
    r"^\s*(?:import|from) (?:pickle|cPickle|_pickle|dill|joblib|cloudpickle|shelve|marshal)\b"
    r"|read_pickle|allow_pickle=(?!False)|torch\.load\((?!.*weights_only=True)",
    re.MULTILINE,
)


@pytest.mark.parametrize("folder", ["entp_lib", "entp_lab", "entp_papers", "benchmarks"])
def test_nothing_is_unpickled(folder):
    """Whoever may write a file in a results folder must not run code by it."""
    files = list((paths.root() / folder).rglob("*.py"))
    assert files
    assert [file for file in files if UNSAFE.search(file.read_text())] == []


def rewrite(change):
    return lambda path: path.write_text(change(path.read_text()))


def replaced_by(make):
    def change(path):
        path.unlink()
        make(path)

    return change


WAYS = {
    "truncated": rewrite(lambda text: text[: len(text) // 2]),
    "edited": rewrite(lambda text: text.replace("0.333333", "0.933333")),
    "a list": rewrite(lambda text: "[]"),
    "no checksum": rewrite(lambda text: re.sub(r',\n"checksum.*', "\n}", text)),
    "nested": rewrite(lambda text: "[" * 100_000 + "]" * 100_000),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "a folder": replaced_by(lambda path: (path / "inside").mkdir(parents=True)),
    "a link to itself": replaced_by(lambda path: path.symlink_to(path)),
    "a pipe": replaced_by(os.mkfifo),
    "a device": replaced_by(lambda path: path.symlink_to("/dev/zero")),
    "another version": lambda path: forge_record(path, version=2),
}


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_record_is_named_and_left_alone_by_looking(store, record, path, caplog, how):
    WAYS[how](path)
    with unchanged(store.root):
        assert store.load(record.name) is None
        assert store.all("test") == []
        assert store.find(record.config, 1) is None
        (said,) = caplog.messages  # once
        assert path.name in said
        with pytest.raises(RecordError, match=path.name):
            Store(store.root, read_only=True).load(record.name)


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_record_is_set_aside_by_saving_another(store, record, path, caplog, how):
    for count in ("", ".2"):
        WAYS[how](path)
        store.save(record)
        assert store.find(record.config, 1).metrics["token_accuracy"] == 0.333333
        kept = store.root / f"set_aside/test-{path.name}{count}"
        assert os.path.lexists(kept)
        assert f"kept as {kept}" in caplog.text


# What of a record, with a checksum that fits, is said to be wrong: its part, its name, and values
# that no run writes.
CONTENT = [
    ("", "status", ["finished"]),
    ("", "metrics", ["text", None]),
    ("", "curves", [{}, "text", None]),
    ("", "provenance", [[1]]),
    ("curves", "loss", [[1.0], [1.0] * 3]),
    ("curves", "step", [[1, 10**400]]),
    ("metrics", "token_accuracy", [7.5, -0.1, [0.5, 2], {"4": 9}]),
    ("metrics", "loss", [10**400, -1e40]),
    ("metrics", "test", [{"last": [{"loss": 1e300}]}]),
    ("provenance", "wall_seconds", [10**400]),
]


@pytest.mark.parametrize(
    ("part", "name", "value"), [(part, name, v) for part, name, vs in CONTENT for v in vs]
)
def test_content_that_no_run_writes_is_named_with_the_record(
    store, record, path, part, name, value
):
    forge_record(path, part, **{name: value})
    with pytest.raises(RecordError, match=rf"(?s){path.name}.*{name}") as raised:
        store.load(record.name, strict=True)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("name", ["other/{id}", "test/0123456789abcdef"])
def test_a_moved_or_renamed_record_is_damage_too(store, record, path, name):
    name = name.format(id=record.id)
    other = store.path(name)
    other.parent.mkdir(exist_ok=True)
    path.rename(other)
    with pytest.raises(RecordError, match=f"{name}.json: it is the record test/{record.id}"):
        store.load(name, strict=True)


def test_a_record_that_did_not_change_is_read_once(store, record, path, monkeypatch):
    parsed = []
    real = Record.from_json
    monkeypatch.setattr(Record, "from_json", lambda text: parsed.append(text) or real(text))
    assert store.find(record.config, 1) == Store(store.root).load(record.name)
    assert len(parsed) == 1
    store.save(dataclasses.replace(record, metrics=record.metrics | {"loss": 2.0}))
    assert store.find(record.config, 1).metrics["loss"] == 2.0
    assert len(parsed) == 2


def test_a_link_that_leads_nowhere_is_no_record_and_gives_way_to_one(store, record):
    path = store.path(record.name)
    path.parent.mkdir(parents=True)
    path.symlink_to("nowhere")
    assert store.find(record.config, 1) is None
    assert store.all("test") == []
    store.save(record)
    assert store.find(record.config, 1)
    assert not path.is_symlink()


def test_records_that_are_there_are_read_where_nothing_can_be_removed(
    store, record, path, monkeypatch
):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert swept([record.config], store).reused == 1


def test_reading_only_refuses_to_save(store, record, monkeypatch):
    monkeypatch.setenv("ENTP_RECORDS", "read-only")
    with pytest.raises(RecordError, match=f"read-only: test/{record.id}"):
        Store(store.root).save(record)
    assert not store.path(record.name).exists()


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, fails):
    path = tmp_path / "record.json"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left on device: .*record.json"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_writers_at_once_never_show_half_a_file(tmp_path):
    path = tmp_path / "file"
    texts = [str(i) * 50_000 for i in range(4)]

    def write(text):
        for _ in range(20):
            write_atomically(path, text.encode())

    writers = [threading.Thread(target=write, args=[text]) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert path.read_text() in texts
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_lets_one_in_at_a_time(store):
    order = []

    def second():
        with store.lock("test/x"):
            order.append("second")

    with store.lock("test/x"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_an_own_record_goes_before_a_committed_one(small_run, store):
    record = computed(small_run(), store)
    store.own().save(dataclasses.replace(record, metrics=record.metrics | {"loss": 7.0}))
    assert store.own().find(record.config, 1).metrics["loss"] == 7.0


def test_an_experiment_of_which_runs_are_missing_is_not_closed(small_run, results):
    configs = [small_run(seed=seed) for seed in range(2)]
    computed(configs[0], Store())
    experiment = Experiment("test", 1, "", "", lambda tier, seeds: [*map(planned, configs)])
    with refused("1 of 2 runs of test"):
        close(experiment)
