"""What each wiring can see."""

import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.compact import wirings
from entp_papers.compact.wirings import TripletConfig, TripletModel


def model(**changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TripletModel(TripletConfig(**{"width": 16, "n_heads": 2, **changes}), 20, 5).eval()


def pairs(count=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    concepts = torch.randint(20, (count, 1), generator=generator)
    return torch.cat([concepts, torch.randint(5, (count, 1), generator=generator)], 1)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_the_published_wiring_never_sees_the_relation_and_mixes_rows(n_layers):
    published = model(wiring="published", n_layers=n_layers)
    assert wirings.relation_gradient(published, pairs()) == 0.0
    assert wirings.change_by_batch_mates(published, pairs()) > 1e-3


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_the_described_wiring_sees_the_relation_and_keeps_rows_apart(architecture):
    described = model(wiring="described", architecture=architecture, n_layers=2)
    assert wirings.relation_gradient(described, pairs()) > 1e-3
    assert wirings.change_by_batch_mates(described, pairs()) < 1e-5


def test_concept_only_sees_neither():
    concept = model(wiring="concept")
    assert wirings.relation_gradient(concept, pairs()) == 0.0
    assert wirings.change_by_batch_mates(concept, pairs()) < 1e-5


def test_wirings_share_their_initial_weights():
    states = [model(wiring=wiring).state_dict() for wiring in ("described", "published", "concept")]
    assert all(torch.equal(states[0][name], other[name]) for other in states[1:] for name in states[0])


def test_decoder_and_entp_agree_with_one_layer_and_differ_with_two():
    def outputs(n_layers, architecture):
        return model(wiring="described", n_layers=n_layers, architecture=architecture)(pairs())

    torch.testing.assert_close(outputs(1, "decoder"), outputs(1, "entp"))
    assert (outputs(2, "decoder") - outputs(2, "entp")).abs().max() > 1e-3


@pytest.mark.parametrize("activation", wirings.ACTIVATIONS)
def test_activations(activation):
    x = torch.linspace(-2, 2, 9)[None]
    y = wirings.FeedForwardActivation(activation).eval()(x)
    if activation == "softmax":
        torch.testing.assert_close(y.sum(), torch.tensor(1.0))
    else:
        assert y[0, -1] == pytest.approx(2, abs=0.06) and (y[0, 1:] >= y[0, :-1] - 0.2).all()
    assert torch.isfinite(model(activation=activation)(pairs())).all()


@pytest.mark.parametrize(
    "values, named",
    [
        (dict(width=30, n_heads=4), "width = 30 is not divisible by n_heads = 4"),
        (dict(n_layers=0), "n_layers = 0"),
        (dict(wiring="as published"), "wiring"),
    ],
)
def test_bad_input(values, named):
    with pytest.raises(ConfigError, match=named):
        TripletConfig(**values)
