"""Count3 by chain of thought: the traces are Algorithm 6's, the comparison is fair, depth is measured as said."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up import record_of

from entp_lib.experiments.experiment import name_of
from entp_lib.tasks import Chain, generator_for
from entp_lib.tasks.counting import count3
from entp_lib.validation import ConfigError
from entp_papers.entp.rasp.programs import EOS, generate_chain_of_thought
from entp_papers.entp.rasp.trained import CHAIN_OF_THOUGHT, DEPTH, SHALLOW, depth_tables


@given(longest=st.integers(2, 9), symbols=st.integers(4, 12), seed=st.integers(0, 99))
def test_a_trace_is_what_algorithm_6_writes(longest, symbols, seed):
    task = Chain(longest, symbols)
    batch = task.batch(generator_for("cpu", seed), 6)
    text_BT = torch.cat([batch.inputs_BT, batch.targets_BT[:, -1:]], 1)
    for text, n, wanted_T in zip(text_BT.tolist(), (batch.prompt_lengths_B - 1).tolist(), batch.wanted_BT, strict=True):
        tokens, answer = generate_chain_of_thought(text[:n])
        assert text[n] == task.eos
        assert text[n + 1 : 3 * n + 3] == [task.eos if token == EOS else token for token in tokens]
        assert wanted_T.nonzero()[:, 0].tolist() == list(range(n, 3 * n + 2))
        assert text[3 * n + 1] == answer == count3(text[:n])


@pytest.mark.parametrize(("scored", "place"), [("direct", lambda n: n), ("last", lambda n: 3 * n)])
def test_the_answer_alone_is_scored(scored, place):
    task = Chain(6, 8, scored)
    batch = task.batch(generator_for("cpu", 1), 30)
    n_B = batch.prompt_lengths_B - 1
    assert sorted(set(n_B.tolist())) == [2, 3, 4, 5, 6]
    for row, n in enumerate(n_B.tolist()):
        assert batch.wanted_BT[row].nonzero()[:, 0].tolist() == [place(n)]
        assert batch.targets_BT[row, place(n)] == count3(batch.inputs_BT[row, :n].tolist())


def test_no_prompt_is_both_trained_on_and_scored():
    task = Chain(4, 5)
    sides = []
    for evaluating in (False, True):
        batch = task.batch(generator_for("cpu", evaluating), 2000, evaluating)
        rows = zip(batch.inputs_BT.tolist(), (batch.prompt_lengths_B - 1).tolist(), strict=True)
        sides.append({tuple(row[:n]) for row, n in rows})
    assert all(len(side) > 50 for side in sides) and not sides[0] & sides[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"longest": 1}, "longest = "),
        ({"symbols": 1}, "symbols = "),
        ({"held_out": 0.0}, "held_out = "),
        ({"symbols": 2, "held_out": 0.01}, "one side has no prompt of length 2"),
        ({"scored": "some"}, "scored = "),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        Chain(**change)


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


def test_a_split_that_leaves_a_length_without_prompts_is_refused():
    """Drawing from it would never end."""
    with pytest.raises(ConfigError, match="one side has no prompt of length 4"):
        Chain(longest=4, symbols=2, held_out=0.8)
    for n in range(2, 6):
        for evaluating in (False, True):
            assert Chain(longest=5, symbols=4, held_out=0.8).prompts(torch.Generator(), 9, n, evaluating).shape == (
                9,
                n,
            )


def test_a_share_that_keeps_nothing_apart_is_refused():
    """With so many symbols the sides are not listed, and an evaluation would draw prompts for ever."""
    with pytest.raises(ConfigError, match="must be a thousandth at least"):
        Chain(longest=3, symbols=100, held_out=0.0004)
    assert Chain(longest=3, symbols=100, held_out=0.001)
