"""One run: whatever moment it is cut at, no record lacks its weights and no damaged file is used."""

import dataclasses
import logging
import os
import re
import textwrap

import pytest
import torch
from made_up import timeless

from entp_lab import paths
from entp_lab.configs import config_id
from entp_lab.resume import Checkpoint, train_run
from entp_lab.runs import run, sweep
from entp_lab.store import OWN, Store
from entp_lab.weights import load_model, trained_model, weights_of
from entp_lib import files
from entp_lib.validation import ConfigError


class Cut(BaseException):
    """The power goes."""


def name_of(config):
    return f"{config.experiment}/{config_id(config, 1)}"


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
        assert timeless([found]) == timeless([whole]) and left(store) == ["weights.safetensors"]
        trained_model(weights_of(store, name_of(config)), name_of(config))
    assert cut_at > 3  # checkpoint, weights, record


@pytest.mark.parametrize("how", ["turned bit", "another run's"])
def test_a_damaged_checkpoint_is_set_aside_and_the_run_begins_again(small_run, store, tmp_path, caplog, how):
    config, other = small_run("entp"), small_run("decoder")
    whole = run(config, 1, store=Store(tmp_path / "whole", read_only=False))
    path = store.checkpoint_path("test", config_id(config, 1))
    train_run(config if how == "turned bit" else other, checkpoint=Checkpoint(path))
    if how == "turned bit":
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = run(config, 1, store=store)
    assert timeless([found]) == timeless([whole])
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


# Trained models by the name of their run, and what goes on from them.


@pytest.fixture
def trained(small_run, store):
    """A store with a finished Count3 run, and the run's record."""
    short = dict(steps=2, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8)
    return store, run(small_run("entp", experiment="count3", **short), 1, store=store)


def test_a_run_is_loaded_by_its_name_its_beginning_and_its_file(trained):
    store, record = trained
    models = [load_model(f"count3/{record.id}", store), load_model(f"count3/{record.id[:4]}", store)]
    path = store.weights_path("count3", record.id)
    models += [load_model(str(path)), load_model(path)]
    for model in models:
        assert not model.training and model.cfg == record.config.model
        for p, q in zip(model.parameters(), models[0].parameters(), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("name", "said"),
    [("count3", "write experiment/id"), ("count3/ffff", "no run count3/ffff"), ("x/ffff", "runs of x here: none")],
)
def test_a_run_that_is_not_there_is_named(trained, name, said):
    with pytest.raises(ConfigError, match=said):
        load_model(name, trained[0])


def test_the_first_example_of_the_docs_runs_in_a_fresh_clone(monkeypatch, tmp_path, capsys):
    """With the records and weights that git keeps, and nothing else."""
    kept = paths.root() / "results" / "weights" / "checkpoints"
    assert 0 < sum(path.stat().st_size for path in kept.rglob("*") if path.is_file()) < 10**6
    for name in ("records", "weights"):
        (tmp_path / name).symlink_to(paths.root() / "results" / name)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    text = (paths.root() / "docs" / "starting.md").read_text(encoding="utf-8")
    section = text.split("## A model of a finished run")[1]
    example = re.search(r"^    .*\n(?:(?:    .*)?\n)*", section, re.M)[0]
    exec(textwrap.dedent(example), {})
    (entp, high), (decoder, low) = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (entp, decoder) == ("entp", "decoder") and float(high) > 0.95 and float(low) < 0.85
