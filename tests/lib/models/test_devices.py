"""Models, training and evaluation on a device that is not the processor's."""

import functools

import pytest
import torch
from conftest import BRIEF, everywhere, seeded
from elsewhere import DEVICE, second_device

from entp_lab import runs
from entp_lib import TrainConfig, evaluate, generate, tasks, train
from entp_lib.architectures import ARCHITECTURES, POSITIONS


@pytest.fixture
def there(monkeypatch):
    with second_device(monkeypatch):
        yield


@pytest.fixture
def build(small_model):
    """Return a function that makes a model in single precision."""
    return functools.partial(small_model, dtype=torch.float32)


def gradients(model):
    found = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_and_gradients_are_those_of_the_processor(there, build, architecture, positions):
    model = build(architecture, positions=positions, n_layers=3)
    inputs_BT = torch.randint(11, (3, 6), generator=seeded(0))
    given = {"inputs": inputs_BT, "scored": everywhere(inputs_BT)}
    if architecture == "prefix_decoder":
        given["scored"][:, :3] = False
        given["prompt_lengths_B"] = torch.tensor([1, 2, 3])
    if positions == "none":
        given["mask_BTT"] = torch.ones(3, 6, 6, dtype=torch.bool)
    here = model(**given)
    here.sum().backward()
    expected = gradients(model)
    model.to(DEVICE)
    logits = model(**{name: x.to(DEVICE) for name, x in given.items()})
    logits.sum().backward()
    assert logits.device.type == DEVICE
    torch.testing.assert_close(logits.cpu(), here)
    torch.testing.assert_close(gradients(model), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_a_model_is_trained_evaluated_and_asked_where_it_is(there, build, architecture, precision):
    task = tasks.Counting(length=8, symbols=8, seed_length=4)
    model = build(architecture, vocab_size=8).to(DEVICE)
    train(model, task, TrainConfig(steps=3, batch_size=4, precision=precision, **BRIEF))
    scores = evaluate(model, task, 8, precision=precision, detailed=True, grouped=True)
    assert 0 < scores["loss"] < 10
    text = generate(model, torch.tensor([[1, 2]]).to(DEVICE), 3, temperature=1.0, top_p=0.9)
    assert text.device.type == DEVICE


def test_tensors_of_two_devices_are_refused(there, build):
    with pytest.raises(AssertionError, match="another device"):
        build("entp").to(DEVICE)(torch.tensor([[1, 2]]))


def test_a_stored_run_is_one_of_the_processor(there, small_run, store, monkeypatch):
    """Batches are those of the processor too, since its generator draws them."""
    config = small_run("entp", steps=4)
    here = runs.run(config, 1, store=store)
    monkeypatch.setattr(runs, "device_for", lambda tier: DEVICE)
    again = runs.run(config, 1, store=store, fresh=True)
    assert again.curves["loss"] == pytest.approx(here.curves["loss"], abs=1e-3)
    assert again.metrics["loss"] == pytest.approx(here.metrics["loss"], abs=1e-3)


def test_weights_are_drawn_again_where_they_are(there, build):
    model = build("entp").to(DEVICE)
    model.init_weights(7)
    again = build("decoder")
    again.init_weights(7)
    assert torch.equal(model.embedding.weight.cpu(), again.embedding.weight)
