"""Which tokens each wiring can see, activations of the shared model, and both studies against their
ceilings.
"""

import numpy as np
import pytest
import torch
from conftest import seeded
from mistakes import named

from entp_lib.config import ModelConfig
from entp_papers.compact import graph, graph_studies

TRAITS = dict(concepts=40, relations=6, relations_per_concept=3.0)
MODEL = dict(width=16, n_heads=2)


@pytest.mark.parametrize(
    ("wiring", "n_layers", "relation", "mates"),
    [
        ("published", 1, False, True),
        ("published", 2, False, True),
        ("described", 2, True, False),
        ("concept", 1, False, False),
    ],
)
def test_wirings_see_the_relation_or_the_other_rows(wiring, n_layers, relation, mates):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = graph_studies.TripletModel(20, 5, wiring=wiring, n_layers=n_layers, **MODEL).eval()
        pairs = torch.randint(5, (12, 2))
    gradient = graph_studies.relation_gradient(model, pairs)
    assert gradient > 1e-3 if relation else gradient == 0.0
    change = graph_studies.change_by_batch_mates(model, pairs)
    assert change > 1e-3 if mates else change < 1e-5


test_mistakes_are_named = named(
    (lambda: graph_studies.TripletModel(5, 2, wiring="Published"), "wiring = 'Published'"),
    (lambda: graph.pairs(graph.Graph(np.zeros((3, 3), int), 5, 2), 2), "the graph has 1 pairs"),
)


def test_walk_models_differ_in_the_activation_alone():
    cfg = ModelConfig("entp", 2, 2, 16, vocab_size=11, max_length=6)
    softmax = graph_studies.walk_model(cfg, "softmax", 3)
    gelu = graph_studies.walk_model(cfg, "gelu", 3)
    torch.testing.assert_close(softmax.state_dict(), gelu.state_dict(), rtol=0, atol=0)
    block = softmax.blocks[0]
    x_TD = torch.randn(4, 16, generator=seeded(1))
    hidden = torch.softmax(block.fc_in(block.ln_2(x_TD)), dim=-1)
    expected = x_TD + block.fc_out(hidden)
    torch.testing.assert_close(block.residual(x_TD, torch.zeros_like(x_TD)), expected)


def triplets(wiring):
    model = MODEL | {"wiring": wiring}
    return graph_studies.triplets_study("synthetic", 60, model, 80, 16, TRAITS, 0)[0]


def test_ceilings_hold():
    described = triplets("described")
    concept = triplets("concept")
    assert described["best"] > 0.9 > concept["concept_ceiling"] + 0.1
    assert concept["best"] <= concept["concept_ceiling"]
    assert described["relation_gradient"] > 0 == concept["relation_gradient"]


def test_walks_are_learned_up_to_their_ceiling():
    metrics, _ = graph_studies.walks_study(
        "synthetic",
        30,
        "entp",
        n_layers=2,
        width=32,
        n_heads=2,
        epochs=60,
        batch_size=8,
        traits=TRAITS,
        seed=0,
    )
    assert 0.8 < metrics["best"] <= metrics["ceiling"] <= 1


# Graphs, pairs and walks against their definitions; ceilings; files.


def small_graph(seed):
    return graph.synthetic(seed, concepts=300, relations=12, relations_per_concept=2.5)


@pytest.fixture(scope="module")
def small():
    return small_graph(1)


def test_synthetic_has_the_traits_asked_for():
    found = graph.synthetic(concepts=2000, relations_per_concept=3.0, several=0.3)
    pairs, targets = np.unique(found.triplets[:, :2], axis=0, return_counts=True)
    assert len(pairs) / 2000 == pytest.approx(3.0, rel=0.1)
    assert 0.15 < (targets > 1).mean() < 0.35  # one in 0.3 has a second target, sometimes the same
    per_concept = np.bincount(pairs[:, 0], minlength=2000)
    assert 1 <= np.median(per_concept) < per_concept.mean()  # few for most, many for some


def test_a_graph_depends_on_its_seed_alone(small):
    assert small_graph(1).facts == small.facts
    assert small_graph(2).facts != small.facts


def test_pairs_are_different_triplets_of_the_graph_and_grow_without_changing(small):
    items = graph.pairs(small, 200, seed=1)
    assert len(np.unique(items[:, :2], axis=0)) == 200
    assert set(map(tuple, items)) <= set(map(tuple, small.triplets))
    assert (graph.pairs(small, 50, seed=1) == items[:50]).all()


def test_walks_follow_edges_both_ways_and_visit_no_node_twice(small):
    forward = {(1 + a, 301 + r, 1 + b) for a, r, b in small.triplets}
    backward = {(b, r + 12, a) for a, r, b in forward}
    seen = set()
    for row in graph.walks(small, 200):
        walk = row[row > 0].tolist()
        nodes = walk[::2]
        relations = walk[1::2]
        assert not row[len(walk) :].any()
        assert len(set(nodes)) == len(nodes) <= 6
        seen.update(zip(nodes, relations, nodes[1:], strict=False))
    assert seen <= forward | backward
    assert len(seen & backward) > 50


def test_walks_end_where_no_new_node_is_left():
    path = graph.Graph(np.array([[0, 0, 1]]), 2, 1)
    walks = np.unique(graph.walks(path, 50), axis=0)
    assert walks[:, :3].tolist() == [[1, 3, 2], [2, 4, 1]]
    assert not walks[:, 3:].any()


def test_ceilings_are_those_of_the_most_frequent_answer():
    assert graph.ceiling("aabbbcc", [0, 1, 1, 1, 0, 2, 2]) == 5 / 7
    assert graph.ceiling("abc", "xyx") == 1
    walks = np.array([[1, 9, 2], [1, 9, 4], [5, 9, 2]])
    assert graph.walk_ceiling(walks) == 2 / 3  # the second node after (1, 9) is in doubt
