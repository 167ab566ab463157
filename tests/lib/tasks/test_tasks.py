"""Tasks against brute force, the printed sequences and their own baselines; parts and bad
parameters of all.
"""

from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mistakes import refused

from entp_lib.tasks import (
    TASKS,
    Batch,
    Chain,
    Counting,
    FixedData,
    Triplets,
    build_task,
    generator_for,
    seed_from,
)
from entp_lib.tasks.counting import count2, count3, count3_pairs, next_symbols
from entp_lib.tasks.triplets import triplet_label
from entp_papers.entp.rasp.programs import EOS, generate_chain_of_thought

FIGURE_2 = (
    "4 41 1 40 44 26 38 34 44 0 58 46 10 10 24 49 6 3 8 10 0 18 12 2 6 1 12 18 4 20 13 2 6 "
    "18 1 16 22 33 30 6 2 21 22 1 24 35 42 12 16 27 40 15 34 48 16 40 15 16 17 14 20 58 60 8"
)
TABLE_5 = (
    "52 14 22 48 28 37 3 28 14 1 12 20 38 48 51 41 0 13 14 17 12 20 17 2 10 0 6 25 26 1 28 "
    "29 22 20 19 3 22 8 4 21 24 4 39 41 36 38 40 44 16 34 7 0 5 10 1 46 5 51 8 1 32 15 44 54"
)


# Count3 and Count2


@pytest.mark.parametrize("printed", [FIGURE_2, TABLE_5])
def test_printed_sequences_obey_count3(printed):
    sequence = list(map(int, printed.split()))
    assert len(sequence) == 64
    assert [count3(sequence[:n]) for n in range(16, 64)] == sequence[16:]


rows_of_a_length = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 99), min_size=n, max_size=n), min_size=1)
)


@given(rows_of_a_length)
def test_every_way_of_counting_agrees_with_the_equations(rows):
    x_BT = torch.tensor(rows)
    for row in rows:
        n = len(row)
        pairs = [
            (i, j)
            for i, x in enumerate(row, 1)
            for j, y in enumerate(row, 1)
            if (x + y + row[-1]) % n == 0
        ]
        assert count3_pairs(row) == pairs
        assert count3(row) == len(pairs) % n
        assert count2(row) == sum((x + row[-1]) % n == 0 for x in row) % n
    assert next_symbols(x_BT, 3).tolist() == [count3(row) for row in rows]
    assert next_symbols(x_BT, 2).tolist() == [count2(row) for row in rows]
    # bytes do not wrap
    assert torch.equal(next_symbols(x_BT.to(torch.uint8), 3), next_symbols(x_BT, 3))


@pytest.mark.parametrize(("order", "function"), [(3, count3), (2, count2)])
def test_sequences_are_continued_by_the_function_and_scored_after_their_seed(order, function):
    task = Counting(order=order, length=20, seed_length=5, symbols=30)
    batch = task.batch(generator_for("cpu", 1), 40)
    prompts_BS = batch.inputs_BT[:, :5]
    assert set(prompts_BS.flatten().tolist()) == set(range(30))  # every symbol, and no other
    assert torch.equal(batch.inputs_BT[:, 1:], batch.targets_BT[:, :-1])
    assert batch.prompt_lengths_B.eq(5).all()
    for row, targets in zip(batch.inputs_BT.tolist(), batch.targets_BT.tolist(), strict=True):
        assert [function(row[:n]) for n in range(5, 21)] == targets[4:]
    assert batch.scored_BT.eq(torch.arange(20) >= 5).all()  # the first generated is left out
    apart = task.reported_apart()["first_generated"].batch(generator_for("cpu", 0), 4)
    assert apart.scored_BT[0].nonzero().tolist() == [[4]]


# Triplets and chains


@pytest.mark.parametrize(
    ("modulus", "anchor", "output"),
    [(7, "first", "exists"), (7, "last", "count"), (0, "first", "count"), (0, "last", "exists")],
)
def test_triplet_labels_agree_with_brute_force(modulus, anchor, output):
    task = Triplets(length=9, symbols=12, modulus=modulus, anchor=anchor, output=output)

    def drawn(**changes):
        return replace(task, **changes).batch(generator_for("cpu", 2), 30)

    batch = drawn()
    labels_BT = batch.targets_BT - 12
    assert set(batch.inputs_BT.flatten().tolist()) == set(range(12))
    assert batch.scored_BT.all()
    assert task.vocab_size == 12 + task.n_labels
    assert labels_BT.max() < task.n_labels
    for x, labels in zip(batch.inputs_BT.tolist(), labels_BT.tolist(), strict=True):
        assert labels == [triplet_label(x[:t], modulus, anchor, output) for t in range(1, 10)]
    ordered = drawn(ascending=True)
    firsts_B = batch.inputs_BT[:, :1]
    rest_BT = batch.inputs_BT[:, 1:].sort(1).values
    assert torch.equal(ordered.inputs_BT, torch.cat([firsts_B, rest_BT], 1))
    assert torch.equal(ordered.targets_BT, task.labels(ordered.inputs_BT) + 12)
    turned = drawn(ascending=True, either_way=True)
    is_turned_B = (turned.inputs_BT != ordered.inputs_BT).any(1)
    assert 5 < is_turned_B.sum() < 25
    falling_BT = turned.inputs_BT[is_turned_B, 1:]
    assert torch.equal(falling_BT, rest_BT.flip(1)[is_turned_B])
    with refused("needs ascending"):
        replace(task, either_way=True)
    assert torch.equal(turned.targets_BT, task.labels(turned.inputs_BT) + 12)


@settings(max_examples=25)
@given(longest=st.integers(2, 9), symbols=st.integers(4, 12), seed=st.integers(0, 99))
def test_a_trace_is_that_of_algorithm_6(longest, symbols, seed):
    task = Chain(longest, symbols)
    batch = task.batch(generator_for("cpu", seed), 6)
    text_BT = torch.cat([batch.inputs_BT, batch.targets_BT[:, -1:]], 1)
    for row, text in enumerate(text_BT.tolist()):
        n = int(batch.prompt_lengths_B[row]) - 1
        tokens, answer = generate_chain_of_thought(text[:n])
        assert text[n] == task.eos
        assert text[n + 1 : 3 * n + 3] == [task.eos if token == EOS else token for token in tokens]
        assert text[3 * n + 1] == answer == count3(text[:n])
        scored = batch.scored_BT[row].nonzero()[:, 0]
        assert scored.tolist() == list(range(n, 3 * n + 2))
        for kind in ("last", "direct"):
            other = replace(task, scored=kind).batch(generator_for("cpu", seed), 6)
            assert other.rows(slice(row, row + 1)).targets_N.tolist() == [answer]


# Sides of a split, seeds, baselines


SPLIT = dict(length=8, seed_length=5, symbols=3, held_out=0.3)


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (Counting(**SPLIT), tuple),
        (Counting(**SPLIT, held_out_by="multiset"), lambda prompt: tuple(sorted(prompt))),
        (Chain(4, 5), tuple),
    ],
    ids=["sequence", "multiset", "chain"],
)
def test_held_out_prompts_are_never_trained_on(task, kind):
    """Nor is another order of one, where a multiset is held out."""
    sides = []
    for evaluating in (False, True):
        batch = task.batch(generator_for("cpu", 1), 4000, evaluating)
        rows = zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B.tolist(), strict=True)
        sides.append({kind(row[:n]) for row, n in rows})
    train, test = sides
    assert not train & test
    assert len(test) / len(train | test) == pytest.approx(task.held_out, abs=0.15)


parts = st.tuples(st.integers(0, 99), st.integers(0, 99))


@settings(max_examples=20)
@example((1, 23), (12, 3))
@given(parts, parts)
def test_seeds_depend_on_every_part(a, b):
    assert (seed_from("train", *a) == seed_from("train", *b)) is (a == b)
    assert seed_from("train", *a) != seed_from("evaluate", *a)


SIZES = {
    "text": dict(
        corpus="README.md", split="tail", context=16
    ),  # the default corpus takes a minute to make
    "addition": dict(largest=99, n_train=300),
    "long_addition": dict(n_train=200, n_validation=20, n_test=20),
}


@pytest.mark.parametrize("name", list(TASKS))
def test_same_seed_same_batch(name, results):
    task = build_task(name, SIZES.get(name, {}))
    one, two, other = (
        task.batch(generator_for("cpu", "x", seed), 4).inputs_BT for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


# Data sets with parts


@dataclass(frozen=True)
class Numbers(FixedData):
    """Each example is its own number; 30, 12 and 7 of them."""

    part: Literal["train", "test", "seen"] = "train"
    vocab_size = 300
    length = 1

    def examples(self, part):
        first, count = {"train": (0, 30), "validation": (100, 12), "test": (200, 7)}[part]
        x_PT = torch.arange(first, first + count, dtype=torch.int32)[:, None]
        return Batch(x_PT, x_PT, torch.ones_like(x_PT, dtype=torch.bool))


@pytest.mark.parametrize(
    ("part", "trained", "evaluated"),
    [
        ("train", range(30), range(100, 112)),
        ("seen", range(30), range(30)),
        ("test", range(200, 207), range(200, 207)),
    ],
)
def test_each_part_is_evaluated_once_in_random_order(part, trained, evaluated):
    task = Numbers(part)

    def scored(sequences=1000, seed=0):
        batches = list(task.evaluation(generator_for("cpu", seed), sequences, 5))
        assert max(len(batch.inputs_BT) for batch in batches) <= 5
        return torch.cat([batch.inputs_BT[:, 0] for batch in batches]).tolist()

    assert sorted(scored()) == list(evaluated) != scored()
    assert scored(seed=1) != scored()
    assert len(set(scored(sequences=6))) == 6
    drawn = task.batch(generator_for("cpu", 1), 400).inputs_BT
    assert drawn.dtype == torch.long
    assert set(drawn[:, 0].tolist()) == set(trained)
    assert task.test() == (Numbers("test") if part == "train" else None)


def test_a_batch_is_cut_by_rows_with_all_it_brings():
    x_BT = torch.arange(6).view(3, 2)
    part = Batch(x_BT, x_BT, x_BT > 1, mask_BTT=torch.ones(3, 2, 2, dtype=torch.bool)).rows(
        slice(1, 3)
    )
    assert torch.equal(part.inputs_BT, x_BT[1:])
    assert torch.equal(part.targets_N, torch.tensor([2, 3, 4, 5]))
    assert part.mask_BTT.shape == (2, 2, 2)
    assert list(part.model_arguments()) == ["mask_BTT"]


# Bad parameters

LONG = dict(n_train=3000, n_validation=500, n_test=2000, trained_digits=4, tested_digits=6)


MISTAKES = {  # of each task, with the parameter that the message names last
    "counting": [
        {"order": 4},
        {"first_scored": 15},
        {"held_out": 1.0},
        {"symbols": 2, "seed_length": 3, "held_out": 0.05},  # drawing would never end
        {"drawn": 49},
    ],
    "triplets": [{"anchor": "frist"}, {"modulus": 1}],
    "chain": [{"held_out": 0.0}, {"longest": 4, "symbols": 2, "held_out": 0.8}],
    "addition": [
        {"split_seed": -1},
        {"largest": 99, "n_train": 5001},
        {"drawn": 3},
        {"reversed_answer": 1},
    ],
    "long_addition": [
        LONG | {"tested_digits": 19},
        dict(trained_digits=1, tested_digits=2, n_train=20, n_validation=20, n_test=5000),
    ],
    "in_context": [
        {"function": "quadratic"},
        {"function": "sparse", "curriculum_every": 9, "sparsity": 6},
        {"depth": 17},
        {"noise": -1.0},
        {"factor": float("inf")},
    ],
    "text": [
        {"corpus": ""},
        {"tokenizer": "gpt2", "vocabulary": 50_257},
        {"held_out": 0.0},
        {"prefixes": 129},
        {"checksum": "abc"},
    ],
}


OTHERS = [  # what is misspelt, missing or too little
    ("counting3", {}, "task = 'counting3'.*'counting'"),
    ("counting", {"lenght": 3}, "'length'"),
    ("text", {"tokenizer": "characters"}, "vocabulary"),
    ("long_addition", LONG | {"n_validation": 3}, "n_validation = 3"),
    ("long_addition", LONG | {"trained_digits": 1}, "n_validation = 500"),
    ("in_context", {"function": "sparse", "dims": 2}, "sparsity"),
]


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [(name, row, list(row)[-1]) for name, rows in MISTAKES.items() for row in rows] + OTHERS,
)
def test_bad_parameters_are_named(name, params, message):
    with refused(message):
        build_task(name, params)
