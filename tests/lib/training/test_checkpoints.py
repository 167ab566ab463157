"""Checkpoints and weights: what is not exactly what was written, or another run's, is never used."""

import dataclasses
import json
import math
import os
import pickle
from dataclasses import replace

import pytest
import torch
from made_up import train_until

from entp_lab import weights as weights_module
from entp_lab.configs import canonical_json, config_id, to_dict
from entp_lab.resume import Checkpoint, Costs, train_run
from entp_lab.runs import SweepError, run, sweep
from entp_lab.weights import save_weights, trained_model, weights_of
from entp_lib.checkpoint import DamagedFileError, load_checkpoint, read_tensors, save_tensors
from entp_lib.model import build_model
from entp_lib.training import TrainingState, make_optimizer
from entp_lib.validation import ConfigError


def name_of(config):
    return f"test/{config_id(config, 1)}"


@pytest.fixture
def config(small_run):
    return small_run(steps=6, eval_every=2)


@pytest.fixture
def checkpoint(config, tmp_path):
    """The checkpoint of a run's end."""
    train_run(config, checkpoint=Checkpoint(tmp_path / "run.safetensors"))
    return tmp_path / "run.safetensors"


@pytest.fixture
def weights(config, tmp_path):
    path = tmp_path / "run.weights.safetensors"
    save_weights(path, config, build_model(config.model), name_of(config))
    return path


def loaded(path, config):
    """What loading leaves: the model and its optimiser, seeded apart from any training."""
    model = build_model(config.model, 99)
    load_checkpoint(path, fresh_state(model, config), canonical_json(to_dict(config)), Costs)
    return model


def fresh_state(model, config):
    """The state of a run before its first step."""
    loss_sum = torch.zeros((), dtype=torch.float64)
    return TrainingState(model, make_optimizer(model, config.train), config.train, loss_sum)


def flips(data, count):
    """``data`` with one bit turned, ``count`` times, all over the file and all in its header."""
    ends = [len(data) - 1] * count + [int.from_bytes(data[:8], "little") + 7] * count
    for i, end in enumerate(ends):
        place = end * (i % count) // (count - 1)
        yield place, data[:place] + bytes([data[place] ^ 1 << i % 8]) + data[place + 1 :]


def test_no_turned_bit_of_checkpoint_or_weights_goes_unnoticed(config, checkpoint, weights):
    for path, read in ((checkpoint, lambda: loaded(checkpoint, config)), (weights, lambda: trained_model(weights))):
        data = path.read_bytes()
        for place, damaged in flips(data, 25):
            path.write_bytes(damaged)
            with pytest.raises(DamagedFileError, match=path.name):
                read()
                pytest.fail(f"a bit of byte {place} of {len(data)} was turned and nobody saw")


def rewritten(path, change):
    """The file with its tensors and state changed and a checksum that fits, as a faulty program might write it."""
    tensors, header = read_tensors(path, {"config", "state"})
    state = json.loads(header["state"])
    change(tensors, state)
    save_tensors(path, tensors, header | {"state": json.dumps(state)})


def some(tensors, prefix):
    """The first tensor of two dimensions whose name begins so."""
    return next(n for n in sorted(tensors) if n.startswith(prefix) and tensors[n].dim() == 2)


WRONG = {
    "before the beginning": (lambda t, s: s.update(step=-5), "step = -5"),
    "past the end": (lambda t, s: s.update(step=10**9), "step = 1000000000 of 6"),
    "no moments": (lambda t, s: t.pop(some(t, "optimizer.exp_avg.")), "lacks optimizer.exp_avg"),
    "no weights": (lambda t, s: t.pop(some(t, "model.")), "lacks model"),
    "half precision": (lambda t, s: t.update({(n := some(t, "model.")): t[n].half()}), "of float16 where .* float32"),
    "another shape": (lambda t, s: t.update({(n := some(t, "model.")): t[n][:1]}), "as .1, .* where the model has"),
    "one more": (lambda t, s: t.update({"model.extra": torch.zeros(1)}), "has the unknown model.extra"),
    "another count": (lambda t, s: s["curves"]["loss"].pop(), "curves of .* points"),
    "another type": (lambda t, s: s.update(evals_since_best="none"), "evals_since_best"),
    "words in a curve": (lambda t, s: s["curves"]["loss"].__setitem__(0, "low"), "no number"),
    "endless seconds": (lambda t, s: s.update(wall_seconds=math.inf), "wall_seconds = inf"),
    "processes of another type": (lambda t, s: s.update(processes=["one"]), "processes = "),
    "no curves": (lambda t, s: s.pop("curves"), "'curves' is missing"),
    "something unknown": (lambda t, s: s.update(colour="red"), "colour"),
    "time runs backwards": (lambda t, s: s.update(seconds=-1.0), "seconds = -1.0"),
    "optimiser elsewhere": (
        lambda t, s: t.update({n: t[n] - 1 for n in t if n.startswith("optimizer.step.")}),
        "has an optimiser at another step than 6",
    ),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_checkpoint_that_no_run_leaves_is_refused_whole(config, checkpoint, how):
    change, message = WRONG[how]
    rewritten(checkpoint, change)
    model = build_model(config.model, 99)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(DamagedFileError, match=message):
        load_checkpoint(checkpoint, fresh_state(model, config), canonical_json(to_dict(config)), Costs)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_weights_of_another_run_are_refused_by_name(config, weights):
    assert trained_model(weights)[0] == trained_model(weights, name_of(config))[0]
    with pytest.raises(DamagedFileError, match="holds the weights of test/.*, not those of test/fedc"):
        trained_model(weights, "test/fedcba9876543210")


def another_seed(config, tensors):
    return replace(config, model_seed=7), tensors


def another_experiment(config, tensors):
    return replace(config, experiment="other"), tensors


def one_value(value):
    def change(config, tensors):
        tensors["blocks.1.fc_in.weight"][3, 2] = value
        return config, tensors

    return change


def shape(**fields):
    return lambda config, tensors: (replace(config, model=replace(config.model, **fields)), tensors)


HOSTILE = {
    "another seed": (another_seed, "names the run test/"),
    "another experiment": (another_experiment, "names the run test/"),
    "NaN": (one_value(math.nan), "blocks.1.fc_in.weight that are not finite"),
    "infinity": (one_value(math.inf), "blocks.1.fc_in.weight that are not finite"),
    "another width": (shape(width=32), "width = 32"),
    "huge width": (shape(width=2**20), "width = 1048576"),
    "huge vocabulary": (shape(vocab_size=2**62), "vocab_size = 4611686018427387904|4611686018427387904, 16"),
    "many layers": (shape(n_layers=10**9), "n_layers = 1000000000"),
    "more layers": (shape(n_layers=3), "lacks blocks.2"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_weights_that_are_not_those_of_their_run_are_refused_before_a_model_is_built(
    config, weights, tmp_path, monkeypatch, how
):
    change, why = HOSTILE[how]
    found, tensors = change(config, read_tensors(weights, {"config", "run"})[0])
    name = name_of(config if why.startswith("names") else found)
    save_tensors(weights, tensors, {"config": canonical_json(to_dict(found)), "run": name})
    real = weights_module.build_model
    monkeypatch.setattr(
        weights_module,
        "build_model",
        lambda cfg, device="": real(cfg, device=device) if device else pytest.fail("built"),
    )
    for given in ("", name):
        with pytest.raises(DamagedFileError, match=why) as raised:
            trained_model(weights, given)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_read(tmp_path, kind):
    path = tmp_path / "run.weights.safetensors"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(DamagedFileError, match="no regular file"):
        trained_model(path)


def test_a_worker_can_send_the_error_of_a_damaged_file(tmp_path):
    """One that cannot be unpickled would break the whole pool of workers."""
    with pytest.raises(DamagedFileError) as caught:
        read_tensors(tmp_path / "run.safetensors", set())
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), sent.path, sent.why) == (str(caught.value), caught.value.path, caught.value.why)


# Weights of finished runs: what starts from them starts there, and what does not fit them is named.


NAME = "test/0123456789abcdef"


def continued(config, record, **changes):
    """The configuration that starts from a record."""
    return dataclasses.replace(config, experiment="later", start_from=f"test/{record.id}", **changes)


def unfinished(config, start):
    """The model as it is before the first step."""
    return train_until(config, 0, start=lambda: start)[1].model


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
    assert later.status == "complete"
    assert later.metrics["loss"] != record.metrics["loss"]
    assert later.curves["train_loss"][0] < record.curves["train_loss"][0]


def test_a_continued_run_that_is_cut_ends_like_an_uninterrupted_one(small_run, store, tmp_path):
    record = run(small_run("entp"), 1, store=store)
    config = continued(small_run("entp"), record)
    path = weights_of(store, f"test/{record.id}")
    whole = train_run(config, start=lambda: path)
    checkpoint = tmp_path / "cut.safetensors"
    assert train_until(config, 5, checkpoint, start=lambda: path)[0] is None
    rest = train_run(config, checkpoint=Checkpoint(checkpoint))  # the weights it started from are no longer needed
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
        SweepError, match="the weights of test/0123.* are missing .*: \\S*python -m entp_lab train test --tier smoke"
    ):
        sweep([config], 1, store=store, jobs=1)
    record = run(small_run("entp"), 1, store=store)
    store.weights_path("test", record.id).unlink()
    with pytest.raises(ConfigError, match="train test --tier smoke --seeds 1 --run [0-9a-f]{16} --fresh"):
        weights_of(store, f"test/{record.id}")
    with pytest.raises(ConfigError, match=f"start_from = '{NAME}': its file of weights was not given"):
        train_run(config)
