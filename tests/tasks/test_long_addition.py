"""Length generalisation: lengths are drawn as stated, no pair occurs twice, reduced versions are the same code."""

import numpy as np
import pytest
import torch

from entp_lib.tasks import LongAddition, build_task, generator_for
from entp_lib.tasks import addition as text_of
from entp_lib.tasks import long_addition as module
from entp_lib.validation import ConfigError

SMALL = dict(n_train=3000, n_validation=500, n_test=2000, trained_digits=4, tested_digits=6)


@pytest.fixture(scope="module")
def paper():
    """The paper's split: 100,000 pairs of up to 10 digits, tested on up to 15."""
    return LongAddition().split()


def lengths(x):
    return module.digits(x, x)


def test_no_pair_occurs_twice_anywhere(paper):
    assert {name: len(pairs) for name, pairs in paper.items()} == {"train": 100_000, "validation": 5000, "test": 25_000}
    everything = np.concatenate(list(paper.values()))
    assert len(np.unique(everything, axis=0)) == len(everything)


@pytest.mark.parametrize("part", ["train", "validation"])
def test_trained_lengths_are_uniform_and_independent(paper, part):
    """But for one or two digits, whose pairs are few: a tenth of the draws each, all combinations alike."""
    a, b = (lengths(x) for x in paper[part].T)
    assert a.min() == b.min() == 1 and a.max() == b.max() == 10
    counts = np.histogram2d(a, b, bins=np.arange(0.5, 11))[0] / len(a)
    enough = np.add.outer(np.arange(1, 11), np.arange(1, 11)) >= 5  # 10^5 pairs and more
    assert np.allclose(counts[enough], 0.01, atol=6 * np.sqrt(0.01 / len(a)) + 1e-3)
    assert (counts[0, 0] > 0) and counts[0, 0] < 0.004


def test_tested_lengths(paper):
    """One operand has 11 to 15 digits, the other 1 to 15, either may come first."""
    a, b = (lengths(x) for x in paper["test"].T)
    longest, shortest = np.maximum(a, b), np.minimum(a, b)
    assert longest.min() == 11 and longest.max() == 15 and shortest.min() == 1
    first_is_longer = np.mean(a[a != b] > b[a != b])
    assert 0.48 < first_is_longer < 0.52
    # P(longer = d) from the two lengths: u uniform in 11..15, v uniform in 1..15
    pairs = [max(u, v) for u in range(11, 16) for v in range(1, 16)]
    for d in range(11, 16):
        assert abs(np.mean(longest == d) - pairs.count(d) / len(pairs)) < 0.015


def test_numbers_have_the_digits_asked_for():
    wanted = np.arange(1, 19).repeat(200)
    found = module.numbers(wanted, np.random.default_rng(0))
    assert [len(str(x)) for x in found.tolist()] == wanted.tolist()
    assert set(found[wanted == 1].tolist()) == set(range(10))


@pytest.mark.parametrize("view", ["answer", "windows"])
@pytest.mark.parametrize("reversed_answer", [True, False])
@pytest.mark.parametrize("part", ["train", "test"])
def test_the_answer_is_scored_to_its_end(view, reversed_answer, part):
    task = LongAddition(view=view, reversed_answer=reversed_answer, part=part, **SMALL)
    batch = task.batch(generator_for("cpu", "a"), 100, evaluating=True)
    own = set(map(tuple, task.split()["test" if part == "test" else "validation"].tolist()))
    names = task.groups(batch)
    for x, y, wanted, prompt, name in zip(
        batch.inputs_BT, batch.targets_BT, batch.wanted_BT, batch.prompt_lengths_B, names, strict=True
    ):
        text = text_of.decode(x[:prompt].tolist()) + text_of.decode(y[wanted].tolist())
        a, b, c = text_of.parse(text, reversed_answer)
        assert c == a + b and (a, b) in own
        assert name == f"{max(len(str(a)), len(str(b)))} digits"


def test_rows_are_as_long_as_their_part_needs():
    task, generator = LongAddition(**SMALL), generator_for("cpu", 0)
    assert task.batch(generator, 5).inputs_BT.shape == (5, len("$9999+9999=89991"))
    assert task.test().batch(generator, 5).inputs_BT.shape == (5, task.length) == (5, len("$999999+999999=8999991"))
    for size in (64, 22):
        windows = LongAddition(view="windows", window=size, **SMALL)
        assert windows.batch(generator, 5).inputs_BT.shape == (5, size) and windows.length == size
        text = windows.watched()["text"].batch(generator, 5, evaluating=True)
        assert text.inputs_BT.shape == (5, size) and text.wanted_BT.all()


def test_the_largest_sums_fit():
    """Operands of 18 digits are added without overflow."""
    task = LongAddition(n_train=50, n_validation=20, n_test=200, trained_digits=17, tested_digits=18, part="test")
    a, b = task.split()["test"].T
    assert [x + y for x, y in zip(a.tolist(), b.tolist(), strict=True)] == (a + b).tolist()
    assert task.batch(generator_for("cpu", 0), 3).inputs_BT.shape[1] <= 64


def test_the_seed_of_a_split_decides_it():
    first, again, other = (LongAddition(split_seed=s, **SMALL).split() for s in (0, 0, 1))
    for part in first:
        assert np.array_equal(first[part], again[part]) and not np.array_equal(first[part], other[part])


def test_few_digits_can_be_used_up_to_a_half():
    """50 of the 100 pairs of one digit, all different."""
    task = LongAddition(n_train=30, n_validation=20, n_test=4950, trained_digits=1, tested_digits=2)
    parts = task.split()
    assert len(np.unique(np.concatenate([parts["train"], parts["validation"]]), axis=0)) == 50
    assert torch.equal(
        task.test().batch(generator_for("cpu", 1), 9).inputs_BT, task.test().batch(generator_for("cpu", 1), 9).inputs_BT
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tested_digits": 4}, "tested_digits = "),
        ({"tested_digits": 19}, "tested_digits = "),
        ({"trained_digits": 0}, "trained_digits = "),
        ({"n_validation": 3}, "n_validation = "),
        ({"trained_digits": 1}, r"n_train \+ n_validation = 3500: must be at most 50, half of the different pairs"),
        ({"trained_digits": 1, "tested_digits": 2, "n_train": 20, "n_validation": 20, "n_test": 5000}, "at most 4950"),
        ({"n_train": 1.5}, "n_train = "),
        ({"window": 21}, "window = "),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        build_task("long_addition", SMALL | change)
