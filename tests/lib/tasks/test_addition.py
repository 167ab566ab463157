"""Addition and its length generalisation: splits, text, windows and answers, and what stops a run.

The text can be read back, the test set has the authors' cells, and no pair is in two parts.
"""

import itertools
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.tasks import Addition, LongAddition, addition, generator_for

SMALL = dict(n_train=3000, n_validation=500, n_test=2000, trained_digits=4, tested_digits=6)
LONG = LongAddition(n_train=40_000, n_validation=2000, n_test=20_000)


def read(text, reversed_answer):
    """The operands and the answer of an example."""
    a, b, c = re.split(r"[+=]", text.strip("$\n"))
    return int(a), int(b), int(c[::-1] if reversed_answer else c)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_text_is_read_back(a, b, reversed_answer):
    assert read(addition.text(a, b, reversed_answer), reversed_answer) == (a, b, a + b)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_carries_are_those_of_the_school_method(a, b):
    carry = 0
    count = 0
    for place in range(10):
        carry = (a // 10**place % 10 + b // 10**place % 10 + carry) // 10
        count += carry
    pair = np.array([[a], [b]])
    assert addition.carries(*pair).tolist() == [count]
    assert addition.digits(*pair).tolist() == [len(str(max(a, b)))]


def cells(pairs):
    a, b = pairs.T
    return Counter((10 * addition.digits(a, b) + addition.carries(a, b)).tolist())


def keys(pairs):
    return set(map(tuple, pairs.tolist()))


def test_the_split_is_the_authors():
    """1,909 to 22,779 test sums by digits and carries, as in their logged runs; the same
    proportions everywhere.
    """
    split = addition.split(2500, 0)
    whole = cells(split["test"])
    assert whole == {20: 1909, 21: 2864, 22: 1591, 30: 10500, 31: 22779, 32: 21607, 33: 8750}
    for part, size in (("train", 2400), ("validation", 10_000)):
        found = cells(split[part])
        for cell, count in whole.items():
            assert found[cell] == pytest.approx(size * count / 70_000, rel=0.05, abs=1)
    assert keys(split["train"]) >= set(itertools.product(range(10), repeat=2))
    other = addition.split(2500, 1)
    assert not np.array_equal(other["train"], split["train"])
    assert cells(other["test"]) == whole


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        (addition.split(2500, 0), [2500, 10_000, 70_000]),
        (addition.split(5000, 0, largest=99), [5000, 1000, 4000]),  # nothing is left out
        (LONG.split(), [40_000, 2000, 20_000]),
    ],
    ids=["999", "99", "long"],
)
def test_no_pair_occurs_twice_anywhere(split, sizes):
    everything = np.concatenate(list(split.values()))
    assert [len(pairs) for pairs in split.values()] == sizes
    assert len(np.unique(everything, axis=0)) == sum(sizes)


def test_long_splits_have_the_lengths_that_are_stated():
    """Training: 1 to 10 digits each, independently. Test: one has 11 to 15, the other 1 to 15, in
    random order.
    """
    split = LONG.split()
    first, second = (addition.digits(x, x) for x in split["train"].T)
    for lengths in (first, second):
        shares = np.bincount(lengths) / len(lengths)
        # of the shorter ones some are used up
        assert shares[5:].tolist() == pytest.approx([0.1] * 6, abs=0.01)
        assert shares[1] > 0
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    first, second = (addition.digits(x, x) for x in split["test"].T)
    longer = np.maximum(first, second)
    assert (longer.min(), longer.max(), np.minimum(first, second).min()) == (11, 15, 1)
    assert 0.48 < np.mean(first[first != second] > second[first != second]) < 0.52
    pairs = [max(u, v) for u in range(11, 16) for v in range(1, 16)]
    for d in range(11, 16):
        assert np.mean(longer == d) == pytest.approx(pairs.count(d) / len(pairs), abs=0.015)
    other = replace(LONG, split_seed=1).split()
    assert all(not np.array_equal(split[part], other[part]) for part in split)


def test_the_largest_and_the_shortest_sums():
    """Operands of 18 digits are added without overflow; half of the 100 pairs of one digit can be
    used.
    """
    task = LongAddition(
        n_train=50, n_validation=20, n_test=200, trained_digits=17, tested_digits=18, part="test"
    )
    a, b = task.split()["test"].T
    assert [x + y for x, y in zip(a.tolist(), b.tolist(), strict=True)] == (a + b).tolist()
    parts = LongAddition(
        n_train=30, n_validation=20, n_test=4950, trained_digits=1, tested_digits=2
    ).split()
    assert len(np.unique(np.concatenate([parts["train"], parts["validation"]]), axis=0)) == 50


@pytest.mark.parametrize(
    "task",
    [
        Addition(True, largest=99, n_train=1000),
        Addition(False, largest=99, n_train=1000, part="test"),
        Addition(True, n_train=2500, part="seen"),
        LongAddition(False, **SMALL),
        LongAddition(True, view="windows", part="test", **SMALL),
    ],
    ids=str,
)
def test_the_answer_is_scored_to_its_end_and_groups_name_its_operands(task):
    batch = task.batch(generator_for("cpu", "a"), 50, evaluating=True)
    own = keys(task.split()[task.part_of(evaluating=True)])
    rows = zip(
        batch.inputs_BT,
        batch.targets_BT,
        batch.scored_BT,
        batch.prompt_lengths_B,
        task.groups(batch),
        strict=True,
    )
    for x, y, scored, prompt, name in rows:
        text = addition.decode(x[:prompt].tolist()) + addition.decode(y[scored].tolist())
        a, b, _ = read(text, task.reversed_answer)
        assert (a, b) in own
        assert text == addition.text(a, b, task.reversed_answer)
        assert name.startswith(f"{len(str(max(a, b)))} digits")


@pytest.mark.parametrize(("part", "size"), [("train", 300), ("validation", 1000)])
def test_windows_are_the_running_text(part, size):
    """Cut at line ends they are the examples of a part, each of which occurs once in its text."""
    task = Addition(view="windows", n_train=300, largest=99)
    whole = addition.decode(addition.running_text(task, part).tolist())
    lines = whole.split("\n")[:-1]
    assert len(set(lines)) == size
    assert {read(line, True)[:2] for line in lines} == keys(task.split()[part])
    source = task if part == "train" else task.extra_scorings()["text"]
    batch = source.batch(generator_for("cpu", "w"), 20, evaluating=part != "train")
    assert batch.scored_BT.all()
    assert batch.inputs_BT.shape == (20, 64)
    for x, y in zip(batch.inputs_BT, batch.targets_BT, strict=True):
        assert addition.decode([*x.tolist(), int(y[-1])]) in whole
