"""Addition: the split is the authors', the text can be read back, windows and answers score what they should."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.tasks import Addition, generator_for
from entp_lib.tasks import addition as module
from entp_lib.training.loop import train
from entp_lib.validation import ConfigError


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_text_is_read_back(a, b, reversed_answer):
    assert module.parse(module.text(a, b, reversed_answer), reversed_answer) == (a, b, a + b)


@pytest.mark.parametrize("example", ["1+2=3", "$1+2=3", "$1-2=3$", "$1+2$", "$1+x=3$", "$1+2=$", "$1+2=3=4$"])
def test_what_is_no_example_is_named(example):
    with pytest.raises(ValueError, match="must"):
        module.parse(example, False)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_carries_are_those_of_the_school_method(a, b):
    carry, count, x, y = 0, 0, a, b
    while x or y or carry:
        carry = (x % 10 + y % 10 + carry) // 10
        count += carry
        x, y = x // 10, y // 10
    assert module.carries(np.array([a]), np.array([b])).tolist() == [count]
    assert module.digits(np.array([a]), np.array([b])).tolist() == [max(len(str(a)), len(str(b)))]


def cells(pairs):
    a, b = pairs.T
    names, counts = np.unique(10 * module.digits(a, b) + module.carries(a, b), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


@pytest.fixture(scope="module")
def split():
    return module.split(2500, 0)


def test_the_test_set_has_the_authors_cells(split):
    """1,909 to 22,779 sums by digits and carries, as in their logged runs."""
    authors = {20: 1909, 21: 2864, 22: 1591, 30: 10500, 31: 22779, 32: 21607, 33: 8750}
    assert cells(split["test"]) == authors


def test_cells_are_in_proportion_everywhere(split):
    whole = cells(split["test"])
    for part, size in (("train", 2400), ("validation", 10_000)):
        found = cells(split[part])
        for cell, count in whole.items():
            expected = size * count / 70_000
            assert abs(found[cell] - expected) <= max(1, 0.05 * expected)


def test_parts_share_no_pair_and_one_digit_sums_are_trained_on_alone(split):
    keys = {part: set(map(tuple, pairs.tolist())) for part, pairs in split.items()}
    assert sum(map(len, keys.values())) == 2500 + 10_000 + 70_000 == len(set.union(*keys.values()))
    one_digit = {(a, b) for a in range(10) for b in range(10)}
    assert one_digit <= keys["train"]
    assert not one_digit & (keys["validation"] | keys["test"])


def test_sums_up_to_99_leave_nothing_out():
    """A small pool for two cores: all pairs but those of one digit are shared out in proportion."""
    parts = module.split(5000, 0, largest=99)
    keys = {part: set(map(tuple, pairs.tolist())) for part, pairs in parts.items()}
    assert set.union(*keys.values()) == {(a, b) for a in range(100) for b in range(100)}
    assert [len(keys[part]) for part in ("train", "validation", "test")] == [5000, 1000, 4000]
    trained, tested = cells(parts["train"][100:]), cells(parts["test"])
    assert trained.keys() == tested.keys() == {20, 21, 22}
    assert all(abs(trained[c] - tested[c] * 4900 / 4000) <= 2 for c in tested)
    with pytest.raises(ConfigError, match="n_train = "):
        Addition(n_train=5001, largest=99)
    task = Addition(n_train=1000, largest=99)
    assert task.length == len("$99+99=891") and task.test().length == task.length


def test_the_seed_of_a_split_decides_it(split):
    assert np.array_equal(module.split(2500, 0)["train"], split["train"])
    other = module.split(2500, 1)
    assert not np.array_equal(other["train"], split["train"]) and cells(other["test"]) == cells(split["test"])


@pytest.mark.parametrize("reversed_answer", [True, False])
@pytest.mark.parametrize(("part", "evaluating"), [("train", False), ("train", True), ("test", True)])
def test_the_answer_is_scored_to_its_end(split, reversed_answer, part, evaluating):
    task = Addition(reversed_answer, part=part)
    batch = task.batch(generator_for("cpu", "a"), 50, evaluating)
    own = set(map(tuple, split["validation" if evaluating and part == "train" else part].tolist()))
    for x, y, wanted, prompt in zip(
        batch.inputs_BT, batch.targets_BT, batch.wanted_BT, batch.prompt_lengths_B, strict=True
    ):
        text = module.decode(x[:prompt].tolist()) + module.decode(y[wanted].tolist())
        a, b, c = module.parse(text, reversed_answer)
        assert c == a + b and (a, b) in own
        assert text == module.text(a, b, reversed_answer)


@pytest.mark.parametrize("view", ["answer", "windows"])
@pytest.mark.parametrize(
    ("part", "own", "asked", "expected"),
    [
        ("train", "validation", 5000, 1000),
        ("train", "validation", 300, 300),
        ("test", "test", 4000, 4000),
        ("seen", "train", 4000, 250),
    ],
)
def test_a_part_is_scored_without_repeats(view, part, own, asked, expected):
    task = Addition(largest=99, n_train=250, view=view, part=part)
    batches = list(task.evaluation(generator_for("cpu", "e"), asked, 128))
    assert max(len(b.inputs_BT) for b in batches) <= 128
    pairs = [
        tuple(map(int, module.decode(row[1 : end - 1]).split("+")))
        for b in batches
        for row, end in zip(b.inputs_BT.tolist(), b.prompt_lengths_B.tolist(), strict=True)
    ]
    assert len(pairs) == len(set(pairs)) == expected
    assert set(pairs) <= set(map(tuple, task.split()[own].tolist()))
    assert [len(b.inputs_BT) for b in replace(task, part="text").evaluation(generator_for("cpu", 0), 5, 3)] == [3, 2]


@pytest.mark.parametrize(("part", "size"), [("train", 300), ("validation", 10_000)])
def test_windows_are_the_running_text(part, size):
    """Cut at line ends they are the examples of a part, each of which occurs once in its text."""
    task = Addition(view="windows", n_train=300)
    line = module.decode(module.running_text(task, part).tolist())
    lines = line.split("\n")[:-1]
    assert len(set(lines)) == size
    assert {module.parse(x, True)[:2] for x in lines} == set(map(tuple, module.split(300, 0)[part].tolist()))
    source = task if part == "train" else task.watched()["text"]
    batch = source.batch(generator_for("cpu", "w"), 20, evaluating=part != "train")
    assert batch.wanted_BT.all() and batch.inputs_BT.shape == (20, 64)
    for x, y in zip(batch.inputs_BT, batch.targets_BT, strict=True):
        assert module.decode([*x.tolist(), int(y[-1])]) in line
    assert task.batch(generator_for("cpu", "w"), 5, evaluating=True).inputs_BT.shape == (5, 13)


def test_what_stops_a_run_and_chooses_its_checkpoint():
    """Windows: the loss of the whole validation text, as the authors have it. Answers: their own loss."""
    windows, answers = Addition(view="windows"), Addition()
    assert list(windows.watched()) == ["text"] and windows.patience_score == "text_loss"
    assert list(windows.checkpoint_rules()) == ["lowest_loss", "lowest_text_loss", "highest_accuracy"]
    assert list(answers.checkpoint_rules()) == ["lowest_loss", "highest_accuracy"]
    assert not answers.watched() and answers.patience_score == "loss"
    for apart in (windows.test(), windows.watched()["text"], windows.reported_apart()["seen"]):
        assert not apart.watched() and not apart.reported_apart() and apart.test() is None


def test_a_run_on_windows_tests_the_checkpoint_of_the_text():
    model = ModelConfig("decoder", 1, 2, 16, 14, 64)
    schedule = TrainConfig(
        steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=8
    )
    config = RunConfig("test", "smoke", "addition", dict(view="windows", n_train=200), model, schedule)
    outcome = train(config)
    assert len(outcome.state.curves["text_loss"]) == 2
    found = outcome.metrics["test"]
    assert set(found) == {"last", "lowest_loss", "lowest_text_loss", "highest_accuracy"}
    best = min(outcome.state.curves["text_loss"])
    assert found["lowest_text_loss"]["step"] == 2 * (outcome.state.curves["text_loss"].index(best) + 1)


def test_groups_name_digits_and_carries():
    task = Addition()
    batch = task.batch(generator_for("cpu", 3), 40, evaluating=True)
    for row, end, name in zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B, task.groups(batch), strict=True):
        a, b = module.decode(row[1 : end - 1]).split("+")
        assert name.startswith(f"{max(len(a), len(b))} digits")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split_seed": -1}, "split_seed = "),
        ({"n_train": 30_000}, "n_train = "),
        ({"view": "lines"}, "view = "),
        ({"window": 12}, "window = "),
        ({"reversed_answer": 1}, "reversed_answer = "),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        Addition(**change)


def test_training_pairs_are_drawn_alike():
    """Every example has the same chance in a batch."""
    batch = Addition(n_train=200).batch(generator_for("cpu", 5), 20_000)
    rows, counts = torch.unique(batch.inputs_BT, dim=0, return_counts=True)
    assert len(rows) == 200 and counts.min() > 60 and counts.max() < 150
