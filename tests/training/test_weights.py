"""Weights of finished runs: what starts from them starts there, and what does not fit them is named."""

import dataclasses
import time

import pytest
import torch

from entp_lib.records.execution import run
from entp_lib.records.loading import weights_of
from entp_lib.records.sweeps import SweepError, sweep
from entp_lib.training.loop import train
from entp_lib.training.weights import trained_model
from entp_lib.validation import ConfigError

NAME = "test/0123456789abcdef"


def continued(config, record, **changes):
    """The configuration that starts from a record."""
    return dataclasses.replace(config, experiment="later", start_from=f"test/{record.id}", **changes)


def unfinished(config, start):
    """The model as it is before the first step."""
    return train(config, start=start, deadline=time.monotonic()).model


def test_a_run_starts_from_the_weights_of_another(small_run, store):
    config = small_run("entp")
    record = run(config, 1, store=store)
    path = weights_of(store, f"test/{record.id}")
    _, model = trained_model(path)
    assert not model.training
    begun = unfinished(continued(config, record, model_seed=5), path)
    for p, q in zip(model.parameters(), begun.parameters(), strict=True):
        assert torch.equal(p, q)
    later = run(continued(config, record), 1, store=store)
    assert later.status == "complete" and later.metrics["loss"] != record.metrics["loss"]
    assert later.curves["train_loss"][0] < record.curves["train_loss"][0]


def test_a_continued_run_that_is_cut_ends_like_an_uninterrupted_one(small_run, store, tmp_path):
    record = run(small_run("entp"), 1, store=store)
    config, path = continued(small_run("entp"), record), weights_of(store, f"test/{record.id}")
    whole, checkpoint, now = train(config, start=path), tmp_path / "cut.safetensors", [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("entp_lib.training.loop.time.monotonic", lambda: now[0])
        part = train(
            config, start=path, checkpoint=checkpoint, deadline=5.0, on_step=lambda step: now.__setitem__(0, step)
        )
    assert not part.complete and part.state.step == 5
    rest = train(config, checkpoint=checkpoint)  # the weights it started from are no longer needed
    assert rest.metrics == whole.metrics
    for p, q in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (dict(width=32), {}, "width = "),
        (dict(n_layers=3), {}, "n_layers = "),
        (dict(positions="none"), {}, "positions = "),
        (dict(vocab_size=9), dict(symbols=9), "ids up to 8 should be those of test/.*, whose vocabulary has 8"),
    ],
)
def test_weights_that_do_not_fit_are_named(small_run, store, model, task, message):
    record = run(small_run(), 1, store=store)
    config = continued(small_run(model=model, task=task), record)
    with pytest.raises(ConfigError, match=message):
        unfinished(config, weights_of(store, config.start_from))


def test_missing_weights_name_the_command_that_makes_them(small_run, store):
    config = dataclasses.replace(small_run(), start_from=NAME)
    with pytest.raises(
        SweepError, match="the weights of test/0123.* are missing .*: \\S*python -m entp_lib train test --tier smoke"
    ):
        sweep([config], 1, store=store, jobs=1)
    record = run(small_run("entp"), 1, store=store)
    store.weights_path("test", record.id).unlink()
    with pytest.raises(ConfigError, match="train test --tier smoke --seeds 1 --run [0-9a-f]{16} --fresh"):
        weights_of(store, f"test/{record.id}")
    with pytest.raises(ConfigError, match=f"start_from = '{NAME}': its file of weights was not given"):
        train(config)
