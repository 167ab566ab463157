"""Which tokens each wiring can see, activations of the shared model, and both studies against their ceilings."""

import json

import pytest
import torch
from mistakes import named

from entp_lib.config import ModelConfig
from entp_papers.compact import graph_studies
from entp_papers.compact.graph_studies import TripletConfig, TripletModel, walk_model

TRAITS = dict(concepts=40, relations=6, relations_per_concept=3.0)
MODEL = dict(width=16, n_heads=2)


def model(**changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TripletModel(TripletConfig(**{**MODEL, **changes}), 20, 5).eval()


def pairs():
    draw = {"generator": torch.Generator().manual_seed(0)}
    return torch.cat([torch.randint(20, (12, 1), **draw), torch.randint(5, (12, 1), **draw)], 1)


@pytest.mark.parametrize(
    "shape, relation, mates",
    [
        (dict(wiring="published"), False, True),
        (dict(wiring="published", n_layers=2), False, True),
        (dict(wiring="described", n_layers=2), True, False),
        (dict(wiring="described", n_layers=2, architecture="entp"), True, False),
        (dict(wiring="concept"), False, False),
    ],
)
def test_wirings_see_the_relation_or_the_other_rows(shape, relation, mates):
    gradient = graph_studies.relation_gradient(model(**shape), pairs())
    assert gradient > 1e-3 if relation else gradient == 0.0
    change = graph_studies.change_by_batch_mates(model(**shape), pairs())
    assert change > 1e-3 if mates else change < 1e-5


def test_walk_models_differ_in_the_activation_alone():
    cfg = ModelConfig("entp", 2, 2, 16, vocab_size=11, max_length=6)
    shared, softmax = walk_model(cfg, "gelu", 3), walk_model(cfg, "softmax", 3)
    for (name, p), (other, q) in zip(shared.named_parameters(), softmax.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q)
    tokens_BT = torch.randint(0, 11, (3, 6), generator=torch.Generator().manual_seed(0))
    fast = softmax(tokens_BT)
    assert not torch.allclose(fast, shared(tokens_BT), atol=1e-6)
    softmax.entp_method = "reference"
    assert torch.allclose(fast, softmax(tokens_BT), atol=1e-5)
    block, x_TD = softmax.blocks[0], torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    hidden = torch.softmax(block.fc_in(block.ln_2(x_TD)), dim=-1)
    assert torch.allclose(block.residual(x_TD, torch.zeros_like(x_TD)), x_TD + block.fc_out(hidden), atol=1e-6)
    randomised = walk_model(cfg, "rrelu", 3)
    assert not torch.equal(randomised(tokens_BT), randomised(tokens_BT))
    randomised.eval()
    assert torch.equal(randomised(tokens_BT), randomised(tokens_BT))


def triplets(wiring, epochs=40, size=60, seed=0):
    return graph_studies.triplets_study("synthetic", size, {**MODEL, "wiring": wiring}, epochs, 16, TRAITS, seed)


def test_deterministic_whatever_the_global_generator():
    first = triplets("described", epochs=3)
    assert first == triplets("described", epochs=3) != triplets("described", epochs=3, seed=1)
    assert json.loads(json.dumps(first[1]))["epoch"] == [2, 3]
    everything, _ = triplets("described", 1, size=0)
    assert everything["triplets"] == everything["graph"]["pairs"]


def test_ceilings_hold():
    described, concept = triplets("described", 80)[0], triplets("concept", 80)[0]
    assert described["best"] > 0.9 > concept["concept_ceiling"] + 0.1
    assert concept["best"] <= concept["concept_ceiling"]
    assert described["relation_gradient"] > 0 == concept["relation_gradient"]


def test_walks_are_learned_up_to_their_ceiling(architecture="entp"):
    shape = dict(n_layers=2, width=32, n_heads=2, epochs=60, batch_size=8, traits=TRAITS)
    metrics, curves = graph_studies.walks_study("synthetic", 30, architecture, **shape)
    assert 0.8 < metrics["best"] <= metrics["ceiling"] <= 1
    assert metrics["per_walk"] == metrics["predictions"] / 30 and curves["epoch"][-1] == 60


test_mistakes_are_named = named(
    (lambda: TripletConfig(width=30, n_heads=4), "n_heads"),
    (lambda: walk_model(ModelConfig("entp", 1, 2, 16, 7, 6), "rrely", 3), "activation"),
    (lambda: triplets("described", size=10**6), "size"),
    (lambda: graph_studies.triplets_study("nations", 60, MODEL, 1, 16, TRAITS), "traits"),
)
