"""Sequences of one's own: rows become batches, parts stay apart, and mistakes are named by their
row.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import refused

from entp_lib.evaluation import constant_baseline
from entp_lib.tasks import Table
from entp_lib.tasks.base import PARTS

SUMS = [[str(a), "+", str(b), "=", *str(a + b)] for a in range(8) for b in range(8)]
SCORED = [[False] * 4 + [True] * (len(row) - 4) for row in SUMS]


def everything(task):
    """All examples of all parts, as one batch each."""
    return [task.rows_of(part, torch.arange(task.count(part))) for part in PARTS]


def test_words_become_symbols_and_scored_tokens_targets():
    task = Table.from_arrays(SUMS, SCORED)
    assert task.vocab_size == 12  # ten digits, + and =
    assert task.length == 5
    assert not task.continuous
    for batch in everything(task):
        assert batch.prompt_lengths_B.eq(4).all()
        for inputs, targets, scored in zip(
            batch.inputs_BT, batch.targets_BT, batch.scored_BT, strict=True
        ):
            first, _, second, _ = (task.words[i] for i in inputs[:4])
            answer = "".join(task.words[i] for i in targets[scored])
            assert int(first) + int(second) == int(answer)
            assert not scored[:3].any()


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_targets_of_their_own_are_asked_after_each_scored_position(kind):
    rows = [[i % 5, (3 * i) % 5, (7 * i + 1) % 5] for i in range(60)]
    sums = [[0, a + b, a + b + c] for a, b, c in rows]
    behind_two = [False, True, True]
    task = Table.from_arrays(kind(rows), [behind_two] * 60, kind(sums))
    assert task.vocab_size == 1 + max(map(max, sums))
    assert task.length == 3
    assert not task.continues
    for batch in everything(task):
        assert batch.scored_BT.eq(torch.tensor(behind_two)).all()
        assert torch.equal(batch.inputs_BT.cumsum(1)[batch.scored_BT], batch.targets_N)
        assert batch.prompt_lengths_B.eq(2).all()


def test_rows_of_any_length_are_scored_to_their_end():
    task = Table.from_arrays([[i % 7] * (2 + i % 4) for i in range(40)], seed=3)
    lengths = sorted(int(row.sum()) for batch in everything(task) for row in batch.scored_BT)
    assert lengths == sorted(1 + i % 4 for i in range(40))


@given(st.integers(6, 80), st.floats(0.02, 0.45), st.integers(0, 5))
@settings(max_examples=25)
def test_parts_are_disjoint_whole_and_share_no_input(count, held_out, seed):
    # every sequence twice: both copies must be in one part, or the model would have seen what it is
    # tested on
    task = Table.from_arrays([[i, 1] for i in range(count)] * 2, held_out=held_out, seed=seed)
    parts = [set(batch.inputs_BT[:, 0].tolist()) for batch in everything(task)]
    assert sum(task.count(part) for part in PARTS) == 2 * count
    assert sum(map(len, parts)) == len(set.union(*parts)) == count


TAILS = ([7], [8], [7, 5], [7, 6, 6])


@pytest.mark.parametrize("answered", [False, True])
def test_what_no_prediction_sees_tells_no_two_inputs_apart(answered):
    """The same prompt with two answers is one input, and so is one with two tails behind its last
    answer.
    """
    rows = [[i, i % 3, *tail] for i in range(30) for tail in TAILS]
    place = 1 if answered else 2
    scored = [[j == place for j in range(len(row))] for row in rows]
    targets = rows if answered else None
    task = Table.from_arrays(rows, scored, targets, held_out=0.3)
    prompts = [set(map(tuple, batch.inputs_BT[:, :2].tolist())) for batch in everything(task)]
    assert sorted(map(len, prompts)) == [9, 9, 12]
    assert len(set.union(*prompts)) == 30
    assert [task.count(part) for part in PARTS] == [4 * len(found) for found in prompts]


def test_real_numbers_are_a_task_of_squared_errors():
    """And their constant guess is the mean of each position."""
    x = np.random.default_rng(0).normal(size=(400, 5, 2)) + np.arange(5)[:, None] * 50
    scored = [[True, True, True, True, False]] * 400
    task = Table.from_arrays(x, scored, x.sum(axis=2))
    assert task.continuous
    assert task.input_dim == 2
    assert task.length == 5
    assert task.losses(torch.zeros(3, 1), torch.ones(3)).tolist() == [1] * 3
    for batch in everything(task):
        torch.testing.assert_close(batch.inputs_BT.sum(2)[:, :4], batch.targets_BT[:, :4])
    assert constant_baseline(task, 100, 0)["loss_by_position"] == pytest.approx([2] * 4, abs=1)


ONES = [[[1.0]], [[1.0]]]

MISTAKES = {  # of two rows of 1 and 2, where nothing else is said
    "no sequences": {"sequences": []},
    "is empty or a single value": {"sequences": [[1, 2], []]},
    "its targets, is empty or": {"sequences": [1, 2, 3]},
    "part has 1 names": {"part": "train"},
    "scored needs an entry": {"scored": [True, False]},
    "the symbol": {"sequences": [[1, "a"]]},
    "the symbol True": {"sequences": [[2, True]]},
    "the symbol 1048576": {"sequences": [[1, 2**20]]},
    "single symbol": {"sequences": [[0, 0]] * 3},
    "scored has 1 rows": {"scored": [[0, 1]]},
    "sequence 2: scored": {"scored": [[0, 1], [1]]},
    "scored must be True or False": {"scored": [[0, 1], [0, 0.9]]},
    "sequence 2: its first token": {"scored": [[0, 1], [1, 1]]},
    "sequence 2: has no scored": {"sequences": [[1, 2], [3]]},
    "sequence 1: targets": {"targets": [[1], [1]]},
    "'test'": {"part": ["tests"] * 2},
    "part has 3": {"part": ["test"] * 3},
    "held_out": {"held_out": 0.5},
    "real targets": {"sequences": ONES},
    "targets has shape": {
        "sequences": ONES,
        "targets": [[1.0, 2.0]],
    },
    "sequence 2: has not the shape": {"sequences": [[[1.0]], [[1.0]] * 2], "targets": ONES},
    "sequence 2: has an input": {
        "sequences": [[[1.0]], [[1e39]]],
        "targets": [[1.0]] * 2,
    },
    "sequence 2: has a scored target": {
        "sequences": ONES,
        "targets": [[1.0], [float("nan")]],
    },
    "left for train.*different inputs": {"sequences": [[1, 2], [1, 3]] * 9},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    arguments = dict(sequences=[[1, 2]] * 2) | MISTAKES[message]
    with refused(message), np.errstate(over="ignore"):
        Table.from_arrays(**arguments).facts()
