"""One run: whatever moment it is cut at, no record lacks its weights and no damaged file is used."""

import dataclasses
import logging
import os

import pytest
import torch

from entp_lib import files
from entp_lib.config import config_id
from entp_lib.records.execution import run
from entp_lib.records.loading import weights_of
from entp_lib.records.store import OWN, Store
from entp_lib.records.sweeps import sweep
from entp_lib.training.loop import train
from entp_lib.training.weights import trained_model
from entp_lib.validation import ConfigError


class Cut(BaseException):
    """The power goes."""


def name_of(config):
    return f"{config.experiment}/{config_id(config, 1)}"


def same(record, other):
    """Whether two records found the same, times aside."""
    curves = [{k: v for k, v in r.curves.items() if k != "seconds"} for r in (record, other)]
    return record.metrics == other.metrics and curves[0] == curves[1]


def left(store):
    """The files in a store's folder of checkpoints, by how they end."""
    return sorted(p.name.split(".", 1)[1] for p in store.root.glob("checkpoints/*/*"))


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_cut_at_any_written_file_loses_nothing(small_run, tmp_path, monkeypatch, after):
    """Before and after each file takes its place; the next run ends alike, with record and weights."""
    config, real = small_run("entp"), os.replace
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    for cut_at in range(1, 9):
        store, count = Store(tmp_path / f"{cut_at}", read_only=False), iter(range(1, 99))

        def replace(source, target, count=count, cut_at=cut_at):
            now = next(count)
            if now < cut_at or after:
                real(source, target)
            if now == cut_at:
                raise Cut

        monkeypatch.setattr(files.os, "replace", replace)
        try:
            run(config, 1, store=store)
            break
        except Cut:
            monkeypatch.setattr(files.os, "replace", real)
        found = sweep([config], 1, store=store, jobs=1).records[0]
        assert same(found, whole) and left(store) == ["weights.safetensors"]
        trained_model(weights_of(store, name_of(config)), name_of(config))
    assert cut_at > 3  # checkpoint, weights, record


@pytest.fixture
def orphan(small_run, store):
    """A complete record whose weights are gone, the checkpoint of its end still there."""
    config = small_run()
    record = run(config, 1, store=store)
    store.weights_path("test", record.id).unlink()
    train(config, checkpoint=store.checkpoint_path("test", record.id))
    return config


@pytest.mark.parametrize("how", ["asked for", "found by a sweep"])
def test_weights_that_are_missing_are_taken_from_the_checkpoint(orphan, store, how):
    if how == "found by a sweep":
        assert sweep([orphan], 1, store=store, jobs=1).reused == 1
        assert store.weights_path(*name_of(orphan).split("/")).exists()
    _, model = trained_model(weights_of(store, name_of(orphan)))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), train(orphan).model.parameters(), strict=True))
    assert left(store) == ["weights.safetensors"]


@pytest.mark.parametrize("how", ["turned bit", "another run's"])
def test_a_damaged_checkpoint_is_set_aside_and_the_run_begins_again(small_run, store, tmp_path, caplog, how):
    config, other = small_run("entp"), small_run("decoder")
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    path = store.checkpoint_path("test", config_id(config, 1))
    train(config if how == "turned bit" else other, checkpoint=path)
    if how == "turned bit":
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = run(config, 1, store=store)
    assert same(found, whole)
    why = "its checksum does not match" if how == "turned bit" else "belongs to another configuration"
    kept = store.root / "set_aside" / f"test-{path.name}"
    assert f"checkpoint {path} " in caplog.text and why in caplog.text and f"It is kept as {kept}" in caplog.text
    assert kept.exists()


@pytest.mark.parametrize("how", ["turned bit", "another run's"])
def test_damaged_weights_are_set_aside_and_the_command_that_makes_them_named(small_run, store, caplog, how):
    one, other = (run(small_run(kind), 1, store=store) for kind in ("decoder", "entp"))
    path = store.weights_path("test", one.id)
    if how == "turned bit":
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    else:
        os.replace(store.weights_path("test", other.id), path)
    config = dataclasses.replace(small_run(), experiment="later", start_from=f"test/{one.id}")
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match=f"the weights of test/{one.id} are miss"):
        run(config, 1, store=store)
    kept = store.root / "set_aside" / f"test-{path.name}"
    assert f"weights {path} " in caplog.text and f"It is kept as {kept}" in caplog.text
    assert kept.exists() and not path.exists()


def test_a_run_of_ones_own_starts_from_the_projects_weights(small_run, store):
    one = run(small_run(), 1, store=store)
    own = Store(store.root / OWN, read_only=False)
    config = dataclasses.replace(small_run(seed=7), experiment="later", start_from=f"test/{one.id}")
    assert run(config, 1, store=own).status == "complete"
    assert weights_of(own, f"test/{one.id}") == store.weights_path("test", one.id)


def test_a_store_that_is_only_read_keeps_damaged_weights_where_they_are(small_run, store):
    record = run(small_run(), 1, store=store)
    path = store.weights_path("test", record.id)
    path.write_bytes(path.read_bytes()[:-1])
    before = sorted(store.root.rglob("*"))
    with pytest.raises(ConfigError, match="weights .* cannot be read"):
        weights_of(Store(store.root, read_only=True), f"test/{record.id}")
    assert sorted(store.root.rglob("*")) == before
