"""Checkpoints and weights: what is not exactly what was written, or another run's, is never used."""

import json
import math
import pickle

import pytest
import torch

from entp_lib.models import build_model
from entp_lib.training.checkpoints import load_checkpoint, read_checkpoint, state_from, weights_from_checkpoint
from entp_lib.training.loop import make_optimizer, train
from entp_lib.training.tensors import DamagedFileError, read_tensors, save_tensors
from entp_lib.training.weights import save_weights, trained_model

NAME = "test/0123456789abcdef"


@pytest.fixture
def config(small_run):
    return small_run(steps=6, eval_every=2)


@pytest.fixture
def checkpoint(config, tmp_path):
    """The checkpoint of a run's end."""
    train(config, checkpoint=tmp_path / "run.safetensors")
    return tmp_path / "run.safetensors"


@pytest.fixture
def weights(config, tmp_path):
    path = tmp_path / "run.weights.safetensors"
    save_weights(path, config, build_model(config.model), NAME)
    return path


def loaded(path, config):
    """What loading leaves: the model and its optimiser, seeded apart from any training."""
    model = build_model(config.model, 99)
    optimizer = make_optimizer(model, config.train)
    load_checkpoint(path, config, model, optimizer, torch.zeros((), dtype=torch.float64), {})
    return model


def flips(data, count):
    """``data`` with one bit turned, ``count`` times, all over the file and all in its header."""
    ends = [len(data) - 1] * count + [int.from_bytes(data[:8], "little") + 7] * count
    for i, end in enumerate(ends):
        place = end * (i % count) // (count - 1)
        yield place, data[:place] + bytes([data[place] ^ 1 << i % 8]) + data[place + 1 :]


def test_no_turned_bit_of_a_checkpoint_goes_unnoticed(config, checkpoint):
    data = checkpoint.read_bytes()
    for place, damaged in flips(data, 60):
        checkpoint.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="checkpoint .*run.safetensors"):
            loaded(checkpoint, config)
            pytest.fail(f"a bit of byte {place} of {len(data)} was turned and nobody saw")


def test_no_turned_bit_of_weights_goes_unnoticed(weights):
    data = weights.read_bytes()
    for place, damaged in flips(data, 60):
        weights.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="weights .*run.weights.safetensors"):
            trained_model(weights, NAME)
            pytest.fail(f"a bit of byte {place} of {len(data)} was turned and nobody saw")


def rewritten(path, change):
    """The file with its tensors and state changed and a checksum that fits, as a faulty program might write it."""
    tensors, header = read_tensors(path, {"config", "state"})
    state = json.loads(header["state"])
    change(tensors, state)
    save_tensors(path, tensors, header | {"state": json.dumps(state)})


SLOT = "optimizer.exp_avg.blocks.0"  # the beginning of names, whatever the model calls its parts


def some(tensors, prefix):
    """The first tensor of two dimensions whose name begins so."""
    return next(n for n in sorted(tensors) if n.startswith(prefix) and tensors[n].dim() == 2)


WRONG = {
    "before the beginning": (lambda t, s: s.update(step=-5), "step = -5"),
    "past the end": (lambda t, s: s.update(step=10**9), "step = 1000000000 of 6"),
    "half a step": (lambda t, s: s.update(step=2.5), "step = 2.5"),
    "no moments": (lambda t, s: t.pop(some(t, "optimizer.exp_avg.")), "lacks optimizer.exp_avg"),
    "no weights": (lambda t, s: t.pop(some(t, "model.")), "lacks model"),
    "half precision": (lambda t, s: t.update({(n := some(t, "model.")): t[n].half()}), "as float16 where .* float32"),
    "another shape": (lambda t, s: t.update({(n := some(t, "model.")): t[n][:1]}), "as .1, .* where the model has"),
    "one more": (lambda t, s: t.update({"model.extra": torch.zeros(1)}), "has the unknown model.extra"),
    "another count": (lambda t, s: s["curves"]["loss"].pop(), "curves of .* points"),
    "no curves": (lambda t, s: s.update(curves={}), "curves of"),
    "nothing known": (lambda t, s: s.clear(), "is missing"),
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
        load_checkpoint(checkpoint, config, model, make_optimizer(model, config.train), torch.zeros(()), {})
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_a_checkpoint_of_every_step_is_a_state_a_run_can_be_in(small_run, tmp_path):
    config, path = small_run(steps=7, eval_every=3), tmp_path / "run.safetensors"
    for step in range(8):
        with pytest.MonkeyPatch.context() as patch:
            left = [step]
            patch.setattr("entp_lib.training.loop.time.monotonic", lambda left=left: 0.0 if left[0] > 0 else 2.0)
            train(config, checkpoint=path, deadline=1.0, on_step=lambda _, left=left: left.__setitem__(0, left[0] - 1))
        assert read_checkpoint(path, config, build_model(config.model))[0].step == step
        path.unlink()


def test_a_state_needs_finite_times(config, checkpoint):
    state, _ = read_checkpoint(checkpoint, config, build_model(config.model))
    assert state_from(vars(state), config) == state
    with pytest.raises(ValueError, match="wall_seconds = inf"):
        state_from(vars(state) | {"wall_seconds": math.inf}, config)


def test_weights_of_another_run_are_refused_by_name(small_run, weights):
    assert trained_model(weights)[0] == trained_model(weights, NAME)[0]
    with pytest.raises(DamagedFileError, match="holds the weights of test/0123.*, not those of test/f"):
        trained_model(weights, "test/fedcba9876543210")


def test_weights_of_another_shape_than_their_configuration_are_refused(small_run, tmp_path):
    path = tmp_path / "run.weights.safetensors"
    save_weights(path, small_run(), build_model(small_run(model=dict(width=32)).model), NAME)
    with pytest.raises(DamagedFileError, match=r"as .* where the model has"):
        trained_model(path, NAME)


def test_the_end_of_a_run_yields_its_weights_and_its_middle_does_not(config, checkpoint, tmp_path):
    path = tmp_path / "run.weights.safetensors"
    assert weights_from_checkpoint(checkpoint, path, config, NAME)
    _, model = trained_model(path, NAME)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), train(config).model.parameters(), strict=True))
    path.unlink()
    checkpoint.unlink()
    train(config, checkpoint=checkpoint, deadline=0.0)
    assert not weights_from_checkpoint(checkpoint, path, config, NAME) and not path.exists()


def test_a_worker_can_send_the_error_of_a_damaged_file(tmp_path):
    """One that cannot be unpickled would break the whole pool of workers."""
    with pytest.raises(DamagedFileError) as caught:
        read_tensors(tmp_path / "run.safetensors", set())
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), sent.path, sent.why) == (str(caught.value), caught.value.path, caught.value.why)
