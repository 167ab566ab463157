"""The studies of graphs: deterministic, and each wiring where its ceiling says."""

import json

import pytest

from entp_lib.validation import ConfigError
from entp_papers.compact import graph_studies

TRAITS = dict(concepts=40, relations=6, relations_per_concept=3.0)
MODEL = dict(width=16, n_heads=2)


def triplets(wiring, epochs=40, size=60, seed=0):
    return graph_studies.triplets_study("synthetic", size, {**MODEL, "wiring": wiring}, epochs, 16, TRAITS, seed)


def test_deterministic_whatever_the_global_generator():
    first = triplets("described", epochs=3)
    assert first == triplets("described", epochs=3) != triplets("described", epochs=3, seed=1)
    assert json.loads(json.dumps(first[1]))["epoch"] == [2, 3]


def test_ceilings_hold():
    described, concept = triplets("described", 80)[0], triplets("concept", 80)[0]
    assert described["best"] > 0.9 > concept["concept_ceiling"] + 0.1
    assert concept["best"] <= concept["concept_ceiling"]
    assert described["relation_gradient"] > 0 == concept["relation_gradient"]


def test_size_0_is_all_pairs():
    metrics, _ = triplets("described", 1, size=0)
    assert metrics["triplets"] == metrics["graph"]["pairs"]


@pytest.mark.parametrize("architecture", ["decoder", "entp"])
def test_walks_are_learned_up_to_their_ceiling(architecture):
    metrics, curves = graph_studies.walks_study(
        "synthetic", 30, architecture, n_layers=2, width=32, n_heads=2, epochs=60, batch_size=8, traits=TRAITS
    )
    assert 0.8 < metrics["best"] <= metrics["ceiling"] <= 1
    assert metrics["per_walk"] == metrics["predictions"] / 30 and curves["epoch"][-1] == 60


@pytest.mark.parametrize(
    "arguments, named",
    [
        (("synthetic", 60, {**MODEL, "n_heads": 3}), "not divisible by n_heads = 3"),
        (("synthetic", 10**6, MODEL, 1, 16, TRAITS), "size = 1000000"),
        (("synthetic", 60, MODEL, 0), "epochs = 0"),
        (("synthetic", 3, MODEL, 1, 16, TRAITS), "size = 3: must be at least 4 triplets"),
        (("nations", 60, MODEL, 1, 16, TRAITS), "only the synthetic graph has traits"),
    ],
)
def test_bad_input(arguments, named):
    with pytest.raises(ConfigError, match=named):
        graph_studies.triplets_study(*arguments)
