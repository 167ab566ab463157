"""Count3 by chain of thought and by depth: the comparison is fair, and claims pair runs by seed."""

import pytest
from made_up import record_of

from entp_lib.experiments.measurements import name_of
from entp_lib.tasks import Chain
from entp_papers.entp.rasp.trained import CHAIN_OF_THOUGHT, DEPTH, SHALLOW, depth_tables


@pytest.mark.parametrize("tier", ["quick", "gpu"])
def test_both_ways_process_as_many_tokens(tier):
    """Within a tenth: rows of 3n + 2 against three times as many of n + 1."""
    work = {}
    for run in CHAIN_OF_THOUGHT.plan(tier, 1):
        c = run.config
        task = Chain(**c.task_params)
        work[run.labels["arm"]] = c.train.steps * c.train.batch_size * task.length
    assert work["direct"] == pytest.approx(work["trace"], rel=0.1)


def scored(run, accuracy):
    """The record of a planned run with a made-up final accuracy."""
    scores = {"token_accuracy": accuracy, "sequence_accuracy": accuracy, "loss": 1.0}
    return record_of(run, **scores, baseline={**scores, "token_accuracy": 0.1})


def test_the_claim_pairs_the_two_ways_by_seed():
    runs = CHAIN_OF_THOUGHT.plan("quick", 0)
    records = [scored(r, 0.5 + 0.1 * r.labels["seed"] * (r.labels["arm"] == "trace")) for r in runs]
    (found,) = CHAIN_OF_THOUGHT.measure(records)
    assert found.claim == "6.4-trained"
    assert list(found.values) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert len(found.records) == 10


def test_depth_compares_the_deepest_with_two_layers():
    runs = DEPTH.plan("quick", 0)
    layers = {r.labels["layers"] for r in runs if r.labels["length"] == 10}
    assert layers == {1, 2, 4, 8, 12}
    records = [scored(r, 0.01 * r.labels["layers"] - 0.005 * r.labels["length"]) for r in runs]
    found = {m.claim: m for m in DEPTH.measure(records)}
    assert list(found["6.2-depth"].values) == pytest.approx([0.10] * 5)
    assert set(found) == {"6.2-depth"}
    shapes = {name_of(r): (r.labels["length"], r.labels["layers"]) for r in records}
    assert {shapes[name] for name in found["6.2-depth"].records} == {(10, 2), (10, 12)}
    assert [len(rows) for rows in depth_tables(records)] == [25, 20]
    shallow = [r for r in records if r.config.model.n_layers != SHALLOW]
    assert DEPTH.measure(shallow) == []  # a cut sweep may lack them
    one_way = [scored(run, 0.5) for run in CHAIN_OF_THOUGHT.plan("quick", 2) if run.labels["arm"] == "trace"]
    assert CHAIN_OF_THOUGHT.measure(one_way[:1])[0].values == []
