"""Checkpoints and weights: what is not exactly what was written, or another run's, is not used."""

import json
import math
import os
import pickle
from dataclasses import replace

import pytest
import torch
from made_up import train_until
from mistakes import one_line, refused

from entp_lab.configs import canonical_json, record_name, to_dict
from entp_lab.resume import Checkpoint, Costs, train_run
from entp_lab.runs import SweepError, run, sweep
from entp_lab.weights import save_weights, trained_model, weights_of
from entp_lib.checkpoint import DamagedFileError, load_checkpoint, read_tensors, save_tensors
from entp_lib.model import build_model
from entp_lib.training import TrainingState, make_optimizer
from entp_lib.validation import ConfigError


@pytest.fixture
def config(small_run):
    return small_run(steps=6, eval_every=2)


@pytest.fixture
def checkpoint(config, tmp_path):
    """The checkpoint of a run's end."""
    path = tmp_path / "run.safetensors"
    train_run(config, checkpoint=Checkpoint(path))
    return path


@pytest.fixture
def weights(config, tmp_path):
    path = tmp_path / "run.weights.safetensors"
    save_weights(path, config, build_model(config.model), record_name(config, 1))
    return path


def load(path, model, config):
    """Fill a model, and the optimiser of a run before its first step, from a checkpoint."""
    state = TrainingState(model, make_optimizer(model, config.train), config.train, torch.zeros(()))
    load_checkpoint(path, state, canonical_json(to_dict(config)), Costs)


def same_weights(one, other):
    return all(map(torch.equal, one.parameters(), other.parameters()))


def flips(data, count):
    """``data`` with one bit turned, ``count`` times, all over the file and all in its header."""
    for end in (len(data) - 1, int.from_bytes(data[:8], "little") + 7):
        for i in range(count):
            place = end * i // (count - 1)
            yield data[:place] + bytes([data[place] ^ 1 << i % 8]) + data[place + 1 :]


def test_no_turned_bit_of_checkpoint_or_weights_goes_unnoticed(config, checkpoint, weights):
    for path, read in (
        (checkpoint, lambda: load(checkpoint, build_model(config.model), config)),
        (weights, lambda: trained_model(weights)),
    ):
        read()
        for damaged in flips(path.read_bytes(), 25):
            path.write_bytes(damaged)
            with pytest.raises(DamagedFileError, match=path.name):
                read()


MATRIX = "blocks.1.fc_in.weight"
WRONG_TENSORS = {  # of a checkpoint; None where it is missing
    "lacks optimizer.exp_avg": {f"optimizer.exp_avg.{MATRIX}": None},
    "lacks model": {f"model.{MATRIX}": None},
    "of float16 where .* float32": {f"model.{MATRIX}": torch.zeros(64, 16).half()},
    "as .1, .* where the model has": {f"model.{MATRIX}": torch.zeros(1, 16)},
    "has the unknown model.extra": {"model.extra": torch.zeros(1)},
}
WRONG_STATES = {
    "step = -5": {"step": -5},
    "evals_since_best": {"evals_since_best": "none"},
    "wall_seconds = inf": {"wall_seconds": math.inf},
    "seconds = -1.0": {"seconds": -1.0},
    "'curves' is missing": {"curves": None},
    "colour": {"colour": "red"},
}


def changed(values, changes):
    """The values with others in their place, or without them."""
    return {name: value for name, value in (values | changes).items() if value is not None}


@pytest.mark.parametrize("message", [*WRONG_TENSORS, *WRONG_STATES])
def test_a_checkpoint_that_no_run_leaves_is_refused_whole(config, checkpoint, message):
    """Though its checksum fits, as a faulty program might write it."""
    tensors, header = read_tensors(checkpoint, {"config", "state"})
    state = changed(json.loads(header["state"]), WRONG_STATES.get(message, {}))
    header["state"] = json.dumps(state)
    save_tensors(checkpoint, changed(tensors, WRONG_TENSORS.get(message, {})), header)
    model = build_model(config.model, 99)
    with pytest.raises(DamagedFileError, match=message):
        load(checkpoint, model, config)
    assert same_weights(model, build_model(config.model, 99))


# what the configuration says in place of the truth
HOSTILE = {
    "where the model has .32": {"width": 32},
    "where the model has .1048576": {"width": 2**20},
    "where the model has .4611686018427387904|no model has": {"vocab_size": 2**62},
    "n_layers = 1000000000": {"n_layers": 10**9},
    "lacks blocks.2": {"n_layers": 3},
}


@pytest.fixture
def unbuilt(monkeypatch):
    """No model may be built in memory."""

    def build(cfg, device=""):
        assert device, "built"
        return build_model(cfg, device=device)

    monkeypatch.setattr("entp_lab.weights.build_model", build)


@pytest.mark.parametrize("message", HOSTILE)
def test_weights_that_are_not_those_of_their_run_are_refused_before_a_model_is_built(
    config, weights, unbuilt, message
):
    found = replace(config, model=replace(config.model, **HOSTILE[message]))
    name = record_name(found, 1)
    tensors, _ = read_tensors(weights, {"config", "run"})
    save_tensors(weights, tensors, {"config": canonical_json(to_dict(found)), "run": name})
    for asked in ("", name):  # whatever the name that they are asked for by, in one line
        with one_line(DamagedFileError, match=message):
            trained_model(weights, asked)


def test_weights_of_another_run_are_refused_by_name(config, weights):
    assert trained_model(weights)[0] == trained_model(weights, record_name(config, 1))[0]
    message = "holds the weights of test/.*, not those of test/fedc"
    with one_line(DamagedFileError, match=message):
        trained_model(weights, "test/fedcba9876543210")


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
def test_what_is_no_file_is_not_read(tmp_path, make):
    path = tmp_path / "run.weights.safetensors"
    make(path)
    with pytest.raises(DamagedFileError, match="no regular file"):
        trained_model(path)


def test_a_worker_can_send_the_error_of_a_damaged_file(tmp_path):
    """One that cannot be unpickled would break the whole pool of workers."""
    with pytest.raises(DamagedFileError) as caught:
        read_tensors(tmp_path / "run.safetensors", set())
    sent = pickle.loads(pickle.dumps(caught.value))
    assert str(sent) == str(caught.value)
    assert vars(sent) == vars(caught.value)


# Weights of finished runs: what starts from them starts there, and what does not fit them is named.


def continued(config, record, **changes):
    """The configuration that starts from a record."""
    return replace(config, experiment="later", start_from=record.name, **changes)


def unfinished(config, store):
    """The model as it is before the first step."""
    return train_until(config, 0, store=store)[1].model


def test_a_run_starts_from_the_weights_of_another(small_run, store):
    config = small_run("entp")
    record = run(config, 1, store=store)
    path = weights_of(store, record.name)
    _, model = trained_model(path)
    assert not model.training
    assert same_weights(model, unfinished(continued(config, record, model_seed=5), store))
    later = run(continued(config, record), 1, store=store)
    assert later.curves["train_loss"][0] < record.curves["train_loss"][0]


def test_a_continued_run_that_is_cut_ends_like_an_uninterrupted_one(small_run, store, tmp_path):
    record = run(small_run("entp"), 1, store=store)
    config = continued(small_run("entp"), record)
    whole = train_run(config, store=store)
    assert train_until(config, 5, tmp_path / "cut", store=store)[0] is None
    # what it started from is no longer needed
    rest = train_run(config, checkpoint=Checkpoint(tmp_path / "cut"))
    assert rest.metrics == whole.metrics
    assert same_weights(rest.model, whole.model)


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (dict(width=32), {}, "width = "),
        (dict(n_layers=3), {}, "n_layers = "),
        (dict(positions="none"), {}, "positions = "),
        (
            dict(vocab_size=9),
            dict(symbols=9),
            "ids up to 8 should be those of test/.*, whose vocabulary has 8",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(small_run, store, model, task, message):
    record = run(small_run(), 1, store=store)
    config = continued(small_run(model=model, task=task), record)
    with refused(message):
        unfinished(config, store)


def test_missing_weights_name_the_command_that_makes_them(small_run, store):
    config = replace(small_run(), start_from="test/0123456789abcdef")
    with pytest.raises(
        SweepError, match="the weights of test/0123.* are missing .* train test --tier smoke"
    ):
        sweep([config], 1, store=store, jobs=1)
    record = run(small_run("entp"), 1, store=store)
    store.weights_path(record.name).unlink()
    with pytest.raises(
        ConfigError, match="train test --tier smoke --seeds 1 --run [0-9a-f]{16} --fresh"
    ):
        weights_of(store, record.name)
    with pytest.raises(
        ConfigError, match=f"start_from = '{config.start_from}': its file of weights was not given"
    ):
        train_run(config)


def test_a_checkpoint_is_read_under_another_default_type(config, checkpoint):
    torch.set_default_dtype(torch.float64)
    try:
        load(checkpoint, build_model(config.model).float(), config)
    finally:
        torch.set_default_dtype(torch.float32)
