"""Tasks against brute force, the paper's printed sequences, and their own baselines."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from entp_lib.tasks import TASKS, Counting, Triplets, build_task, generator_for, seed_from
from entp_lib.tasks.counting import count2, count3, count3_pairs, count3_quadratic, next_symbols
from entp_lib.tasks.triplets import triplet_label
from entp_lib.training.evaluation import batches, mode_baseline
from entp_lib.validation import ConfigError

FIGURE_2 = [int(x) for x in (
    "4 41 1 40 44 26 38 34 44 0 58 46 10 10 24 49 6 3 8 10 0 18 12 2 6 1 12 18 4 20 13 2 6 18 1 16 22 33 30 6 2 21 22 "
    "1 24 35 42 12 16 27 40 15 34 48 16 40 15 16 17 14 20 58 60 8"
).split()]  # fmt: skip
TABLE_5 = [int(x) for x in (
    "52 14 22 48 28 37 3 28 14 1 12 20 38 48 51 41 0 13 14 17 12 20 17 2 10 0 6 25 26 1 28 29 22 20 19 3 22 8 4 21 24 "
    "4 39 41 36 38 40 44 16 34 7 0 5 10 1 46 5 51 8 1 32 15 44 54"
).split()]  # fmt: skip


@pytest.mark.parametrize("sequence", [FIGURE_2, TABLE_5])
def test_printed_sequences_obey_count3(sequence):
    assert len(sequence) == 64
    assert [count3(sequence[:n]) for n in range(16, 64)] == sequence[16:]
    assert [count3_quadratic(sequence[:n]) for n in range(16, 64)] == sequence[16:]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30))
def test_the_three_count3_agree(x):
    assert count3_quadratic(x) == count3(x) == int(next_symbols(torch.tensor([x]), 3)) == len(count3_pairs(x)) % len(x)


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.lists(st.integers(0, 40), min_size=n, max_size=n), min_size=2)))
def test_a_batch_is_counted_row_by_row(rows):
    x = torch.tensor(rows)
    assert next_symbols(x, 3).tolist() == [count3_quadratic(row) for row in rows]
    assert next_symbols(x, 2).tolist() == [count2(row) for row in rows]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_count3_pairs_are_those_of_equation_6(x):
    n, pairs = len(x), count3_pairs(x)
    assert len(set(pairs)) == len(pairs) and all(1 <= i <= n and 1 <= j <= n for i, j in pairs)
    assert all((x[i - 1] + x[j - 1] + x[n - 1]) % n == 0 for i, j in pairs)
    assert {(j, i) for i, j in pairs} == set(pairs)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30))
def test_count2_is_a_count_of_single_elements(x):
    n = len(x)
    expected = sum((x[i] + x[-1]) % n == 0 for i in range(n)) % n
    assert count2(x) == int(next_symbols(torch.tensor([x]), 2)) == expected


@pytest.mark.parametrize(("order", "function"), [(3, count3), (2, count2)])
def test_sequences_are_continued_by_the_function(order, function):
    task = Counting(order=order, length=20, seed_length=5, symbols=30)
    x = task.sequences(generator_for("cpu", 1), 40)
    assert x.shape == (40, 21)
    assert set(x[:, :5].flatten().tolist()) == set(range(30))  # every symbol, and no other
    for row in x.tolist():
        assert all(function(row[:n]) == row[n] for n in range(5, 21))


def test_count3_batches_score_the_prefixes_behind_the_published_curves():
    task = Counting()
    batch = task.batch(generator_for("cpu", 0), 4)
    assert batch.inputs_BT.shape == (4, 64) and task.vocab_size == 64
    assert (batch.wanted_BT[0].nonzero()[:, 0] + 1).tolist() == list(range(17, 65))
    assert batch.prompt_lengths_B.tolist() == [16] * 4
    assert batch.wanted_BT.shape == (4, 64) and batch.wanted_BT.eq(batch.wanted_BT[0]).all()
    assert torch.equal(batch.inputs_BT[:, 1:], batch.targets_BT[:, :-1])
    for row, targets in zip(batch.inputs_BT.tolist(), batch.targets_BT.tolist(), strict=True):
        assert all(count3(row[:n]) == targets[n - 1] for n in range(16, 65))
    apart = task.reported_apart()["first_generated"]
    first = apart.batch(generator_for("cpu", 0), 4)
    assert (first.wanted_BT[0].nonzero()[:, 0] + 1).tolist() == [16]
    assert first.targets_BT[0, 15] == count3(first.inputs_BT[0].tolist())


def test_the_first_generated_element_is_reported_apart_unless_it_is_scored():
    assert Counting(first_scored=16).reported_apart() == Counting(length=16).reported_apart() == {}
    apart = Counting(first_scored=30, symbols=50, order=2, held_out=0.2).reported_apart()["first_generated"]
    assert apart == Counting(length=16, first_scored=16, symbols=50, order=2, held_out=0.2)
    assert Counting(first_scored=30).batch(generator_for("cpu", 0), 2).wanted_BT.sum(1).tolist() == [35, 35]


@pytest.mark.parametrize("modulus", [7, 0])
@pytest.mark.parametrize("anchor", ["first", "last"])
@pytest.mark.parametrize("output", ["exists", "count"])
def test_triplet_labels_agree_with_brute_force(modulus, anchor, output):
    task = Triplets(length=9, symbols=12, modulus=modulus, anchor=anchor, output=output)
    batch = task.batch(generator_for("cpu", 2), 30)
    labels = batch.targets_BT - task.symbols
    assert set(batch.inputs_BT.flatten().tolist()) == set(range(12)) and batch.wanted_BT.all()
    assert batch.prompt_lengths_B.tolist() == [1] * 30 and batch.targets_BT.max() < task.vocab_size
    assert 0 <= labels.min() and labels.max() < task.n_labels
    for x, row in zip(batch.inputs_BT.tolist(), labels.tolist(), strict=True):
        assert row == [triplet_label(x[:t], modulus, anchor, output) for t in range(1, 10)]


def test_worked_example_of_triplets():
    task = Triplets(length=5, symbols=8, modulus=8)
    assert task.labels(torch.tensor([[3, 1, 4, 4, 6]])).tolist() == [[0, 0, 1, 1, 1]]


def test_match3_is_monotone_and_its_majority_baseline_is_high():
    """83.1 % of tokens and 3.2 % of sequences, which the paper does not report."""
    task = Triplets()
    labels = task.batch(generator_for("cpu", 3), 500).targets_BT - 64
    assert task.vocab_size == 66 and (labels.diff(dim=1) >= 0).all()
    baseline = mode_baseline(task, 4000, 5)
    assert baseline["token_accuracy"] == pytest.approx(0.831, abs=0.01)
    assert baseline["sequence_accuracy"] == pytest.approx(0.032, abs=0.012)


def test_count3_baseline_of_the_paper():
    """0.06 of tokens and 3.49 nats per position."""
    baseline = mode_baseline(Counting(), 4000, 5)
    assert baseline["token_accuracy"] == pytest.approx(0.06, abs=0.006)
    assert baseline["loss"] == pytest.approx(3.49, abs=0.06)


@settings(max_examples=20)
@example((1, 23), (12, 3))
@example((1, 2), (1, 3))
@example((2, 1), (3, 1))
@given(st.tuples(st.integers(0, 99), st.integers(0, 99)), st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_seeds_depend_on_every_part(a, b):
    assert (seed_from("train", *a) == seed_from("train", *b)) is (a == b)
    assert seed_from("train", *a) != seed_from("evaluate", *a)


@pytest.mark.parametrize("name", list(TASKS))
def test_same_seed_same_batch(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    (tmp_path / "own.csv").write_text("sequence\n" + "\n".join(f"{i} {i + 1} {i % 7}" for i in range(50)))
    quick = {"text": dict(corpus="README.md", split="tail", context=16)}  # the default corpus takes a minute to make
    quick["table"] = dict(file=str(tmp_path / "own.csv"))
    task = build_task(name, quick.get(name, {}))
    one, two, other = (task.batch(generator_for("cpu", "x", seed), 4).inputs_BT for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("counting", {"order": 4}, "order = "),
        ("counting", {"symbols": 1}, "symbols = "),
        ("counting", {"seed_length": 0}, "seed_length = "),
        ("counting", {"first_scored": 15}, "first_scored = "),
        ("counting", {"held_out": 1.0}, "held_out = "),
        ("counting", {"drawn": 49}, "drawn = "),
        ("counting", {"lenght": 3}, "did you mean 'length'"),
        ("counting", {"length": "64"}, "must be a whole number"),
        ("triplets", {"anchor": "frist"}, "did you mean 'first'"),
        ("triplets", {"modulus": 1}, "modulus = "),
        ("triplets", {"length": 0}, "length = "),
        ("triplets", {"output": "both"}, "output = "),
        ("counting3", {}, "did you mean 'counting'"),
    ],
)
def test_bad_parameters_are_named(name, params, message):
    with pytest.raises(ConfigError, match=message):
        build_task(name, params)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_held_out_seeds_are_never_trained_on(share):
    """All 3^5 seeds: those of training and of evaluation are disjoint, and together everything."""
    task = Counting(length=8, seed_length=5, symbols=3, held_out=share)
    train, test = (
        {tuple(x[:5]) for x in task.sequences(generator_for("cpu", 1), 4000, evaluating).tolist()}
        for evaluating in (False, True)
    )
    if share:
        assert not train & test and len(train | test) == 3**5
        assert len(test) / 3**5 == pytest.approx(share, abs=0.1)
    else:
        assert train == test


@pytest.mark.parametrize("params", [dict(symbols=2, seed_length=3, held_out=0.05), dict(held_out=0.0004)])
def test_a_split_with_an_empty_side_is_refused(params):
    """Drawing from it would never end."""
    with pytest.raises(ConfigError, match=f"held_out = {params['held_out']}"):
        Counting(**params)


def test_evaluation_draws_from_the_held_out_side():
    task = Counting(length=8, seed_length=5, symbols=3, held_out=0.3)
    for batch in batches(task, 50, "cpu", "x"):
        assert task.is_held_out(batch.inputs_BT[:, :5]).all()
    assert not task.is_held_out(task.batch(generator_for("cpu", 1), 50).inputs_BT[:, :5]).any()


def test_counting_is_the_same_in_every_type_and_names_what_it_cannot_count():
    rows = torch.tensor([[200, 100, 2], [1, 1, 1]])
    for order in (2, 3):
        wanted = next_symbols(rows, order)
        assert torch.equal(next_symbols(rows.to(torch.uint8), order), wanted)
        assert wanted.tolist() == [(count2 if order == 2 else count3)(row) for row in rows.tolist()]
    for bad, order, message in (
        (rows, 5, "order = 5"),
        (rows[:, :0], 3, "must have an element"),
        (rows.float(), 3, "must be whole numbers"),
    ):
        with pytest.raises(ConfigError, match=message):
            next_symbols(bad, order)
    task = Counting(length=8, seed_length=4, symbols=8, held_out=0.3)
    seeds = torch.randint(8, (200, 4), generator=torch.Generator().manual_seed(0))
    sides = task.is_held_out(seeds)
    assert 20 < sides.sum() < 100 and torch.equal(task.is_held_out(seeds.int()), sides)
