"""Which tokens each wiring can see, activations of the shared model, and both studies against their
ceilings.
"""

import itertools

import numpy as np
import pytest
import torch

from entp_lib.config import ModelConfig
from entp_papers.compact import graph, graph_studies
from entp_papers.compact.graph import Graph
from entp_papers.compact.graph_studies import TripletModel, walk_model

TRAITS = dict(concepts=40, relations=6, relations_per_concept=3.0)
MODEL = dict(width=16, n_heads=2)


def model(**changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TripletModel(20, 5, **{**MODEL, **changes}).eval()


def pairs():
    draw = {"generator": torch.Generator().manual_seed(0)}
    return torch.cat([torch.randint(20, (12, 1), **draw), torch.randint(5, (12, 1), **draw)], 1)


@pytest.mark.parametrize(
    "shape, relation, mates",
    [
        (dict(wiring="published"), False, True),
        (dict(wiring="published", n_layers=2), False, True),
        (dict(wiring="described", n_layers=2), True, False),
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
    shared = walk_model(cfg, "gelu", 3).state_dict()
    softmax = walk_model(cfg, "softmax", 3)
    assert all(torch.equal(p, shared[name]) for name, p in softmax.state_dict().items())
    block = softmax.blocks[0]
    x_TD = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    hidden = torch.softmax(block.fc_in(block.ln_2(x_TD)), dim=-1)
    expected = x_TD + block.fc_out(hidden)
    torch.testing.assert_close(block.residual(x_TD, torch.zeros_like(x_TD)), expected)


def triplets(wiring, epochs=40, size=60, seed=0):
    return graph_studies.triplets_study(
        "synthetic", size, {**MODEL, "wiring": wiring}, epochs, 16, TRAITS, seed
    )


def test_ceilings_hold():
    described = triplets("described", 80)[0]
    concept = triplets("concept", 80)[0]
    assert described["best"] > 0.9 > concept["concept_ceiling"] + 0.1
    assert concept["best"] <= concept["concept_ceiling"]
    assert described["relation_gradient"] > 0 == concept["relation_gradient"]


def test_walks_are_learned_up_to_their_ceiling():
    shape = dict(n_layers=2, width=32, n_heads=2, epochs=60, batch_size=8, traits=TRAITS)
    metrics, _ = graph_studies.walks_study("synthetic", 30, "entp", **shape)
    assert 0.8 < metrics["best"] <= metrics["ceiling"] <= 1


# Graphs, pairs and walks against their definitions; ceilings against every function there is;
# files.


SMALL = dict(concepts=300, relations=12, relations_per_concept=2.5)


def test_synthetic_has_the_traits_asked_for_and_depends_on_its_seed_alone():
    found = graph.synthetic(concepts=2000, relations_per_concept=3.0, several=0.3)
    pairs, targets = np.unique(found.triplets[:, :2], axis=0, return_counts=True)
    assert len(pairs) / 2000 == pytest.approx(3.0, rel=0.1)
    assert 0.15 < (targets > 1).mean() < 0.35  # one in 0.3 has a second target, sometimes the same
    per_concept = np.bincount(pairs[:, 0], minlength=2000)
    assert 1 <= np.median(per_concept) < per_concept.mean()  # few for most, many for some
    first, again, other = (graph.synthetic(seed, **SMALL).facts["checksum"] for seed in (1, 1, 2))
    assert first == again != other


def test_pairs_are_different_triplets_of_the_graph_and_grow_without_changing():
    found = graph.synthetic(**SMALL)
    items = graph.pairs(found, 200, seed=1)
    assert len(np.unique(items[:, :2], axis=0)) == 200
    assert set(map(tuple, items.tolist())) <= set(map(tuple, found.triplets.tolist()))
    assert (graph.pairs(found, 50, seed=1) == items[:50]).all()


def test_walks_follow_edges_both_ways_and_visit_no_node_twice():
    found = graph.synthetic(**SMALL)
    edges = {(a, r, b) for a, r, b in found.triplets.tolist()}
    backwards = 0
    for row in graph.walks(found, 200).tolist():
        tokens = row[: row.index(0)] if 0 in row else row
        nodes = tokens[::2]
        assert len(tokens) % 2 == 1
        assert len(set(nodes)) == len(nodes) <= 6
        for a, edge, b in zip(tokens[::2], tokens[1::2], tokens[2::2], strict=False):
            relation = edge - 1 - 300
            backwards += relation >= 12
            assert (
                (b - 1, relation - 12, a - 1) if relation >= 12 else (a - 1, relation, b - 1)
            ) in edges
    assert backwards > 50


def test_walks_end_where_no_new_node_is_left():
    path = Graph(np.array([[0, 0, 1]]), 2, 1)
    ends = [[1, 3, 2, *[0] * 8], [2, 4, 1, *[0] * 8]]
    assert sorted(np.unique(graph.walks(path, 50), axis=0).tolist()) == ends


def test_no_function_of_the_key_is_above_the_ceiling():
    keys = list("aabbbcc")
    answers = [0, 1, 1, 1, 0, 2, 2]
    best = max(
        sum(
            dict(zip("abc", values, strict=True))[k] == a
            for k, a in zip(keys, answers, strict=True)
        )
        / 7
        for values in itertools.product(range(3), repeat=3)
    )
    assert graph.ceiling(keys, answers) == best
    assert graph.ceiling("abc", "xyx") == 1
    walks = np.array([[1, 9, 2, 9, 3], [1, 9, 4, 0, 0], [5, 9, 2, 9, 4]])
    assert graph.walk_ceiling(walks) == 4 / 5  # only the second node after (1, 9) is in doubt


@pytest.mark.parametrize(
    "name, numbers",
    [("umls", (135, 46, 6529)), ("kinships", (104, 25, 10_686)), ("nations", (14, 55, 1992))],
)
def test_real_graphs_have_their_published_sizes(name, numbers):
    pytest.importorskip("pykeen")
    found = graph.real(name)
    assert (found.n_concepts, found.n_relations, len(found.triplets)) == numbers
