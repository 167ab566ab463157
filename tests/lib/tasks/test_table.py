"""Sequences of one's own: files become batches, parts stay apart, and mistakes are named by their line."""

import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entp_lab.configs import RunConfig
from entp_lab.runs import run
from entp_lib.config import ModelConfig, TrainConfig
from entp_lib.evaluation import constant_baseline
from entp_lib.tasks import Table, table
from entp_lib.tasks.base import PARTS
from entp_lib.validation import ConfigError

SUMS = "sequence,scored\n" + "".join(
    f"{a} + {b} = {' '.join(str(a + b))},5-{4 + len(str(a + b))}\n" for a in range(8) for b in range(8)
)


def csv_of(folder, text, name="own.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def everything(task):
    """All examples of all parts, as one batch each."""
    return {part: task.rows_of(part, torch.arange(task.count(part))) for part in PARTS}


def test_words_become_symbols_and_scored_tokens_targets(tmp_path):
    task = Table(csv_of(tmp_path, SUMS))
    assert task.vocab_size == 12 and task.length == 5 and not task.continuous  # ten digits, + and =
    words = task.contents.words
    for batch in everything(task).values():
        for inputs, targets, scored in zip(batch.inputs_BT, batch.targets_BT, batch.scored_BT, strict=True):
            text = [words[i] for i in inputs]
            answer = "".join(words[i] for i in targets[scored])
            assert int(text[0]) + int(text[2]) == int(answer) and scored.tolist()[:3] == [False] * 3
        assert batch.prompt_lengths_B.eq(4).all()


def test_targets_of_their_own_are_asked_after_each_scored_position(tmp_path):
    lines = [[i % 5, (3 * i) % 5, (7 * i + 1) % 5] for i in range(60)]
    rows = "".join(f"{' '.join(map(str, x))},2 3,{sum(x[:2])} {sum(x)}\n" for x in lines)
    task = Table(csv_of(tmp_path, "sequence,scored,targets\n" + rows))
    assert task.vocab_size == 1 + max(map(sum, lines)) and task.length == 3
    for batch in everything(task).values():
        assert batch.scored_BT.tolist() == [[False, True, True]] * len(batch.scored_BT)
        assert torch.equal(batch.inputs_BT.cumsum(1)[batch.scored_BT], batch.targets_N)


@given(st.integers(6, 80), st.floats(0.02, 0.45), st.integers(0, 5))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_are_disjoint_whole_and_share_no_input(tmp_path, count, held_out, seed):
    # every sequence twice: both copies must be in one part, or the model would have seen what it is tested on
    rows = "".join(f"{i} {i % 3}\n" for i in range(count)) * 2
    task = Table(csv_of(tmp_path, "sequence\n" + rows, f"{count}.csv"), held_out=held_out, split_seed=seed)
    parts = {part: set(map(tuple, batch.inputs_BT.tolist())) for part, batch in everything(task).items()}
    assert sum(task.count(part) for part in PARTS) == 2 * count
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["validation"]
    assert not parts["validation"] & parts["test"]


@pytest.mark.parametrize("answered", [False, True])
def test_what_no_prediction_sees_tells_no_two_inputs_apart(tmp_path, answered):
    """The same prompt with two answers is one input, and so is one with two tails behind its last answer."""
    heads, tails = [f"{i} {i % 3}" for i in range(30)], ("7", "8", "7 5", "7 6 6")
    rows = "".join(f"{head} {tail},{'2,1' if answered else '3'}\n" for head in heads for tail in tails)
    task = Table(csv_of(tmp_path, f"sequence,scored{',targets' * answered}\n" + rows), held_out=0.3)
    prompts = {part: set(map(tuple, batch.inputs_BT[:, :2].tolist())) for part, batch in everything(task).items()}
    assert sorted(map(len, prompts.values())) == [9, 9, 12] and len(set.union(*prompts.values())) == 30
    assert [task.count(part) for part in PARTS] == [4 * len(prompts[part]) for part in PARTS]


def test_named_parts_are_kept(tmp_path):
    rows = "".join(f"{i} 1,{PARTS[i % 3]}\n" for i in range(9))
    task = Table(csv_of(tmp_path, "sequence,part\n" + rows))
    assert {p: sorted(b.inputs_BT[:, 0].tolist()) for p, b in everything(task).items()} == {
        p: [i for i in range(9) if i % 3 == k] for k, p in enumerate(PARTS)
    }


def test_arrays_say_the_same_as_lines(tmp_path):
    sequences = np.array([[3, 1, 4, 1], [1, 5, 9, -1], [2, 6, 5, 3], [5, 8, -1, -1]] * 5)
    np.savez(tmp_path / "own.npz", sequences=sequences, part=np.array(["train", "validation", "test", "train"] * 5))
    lines = [" ".join(str(x) for x in row if x >= 0) for row in sequences]
    parts = ["train", "validation", "test", "train"] * 5
    text = "sequence,part\n" + "".join(f"{line},{part}\n" for line, part in zip(lines, parts, strict=True))
    arrays, table = Table(str(tmp_path / "own.npz")), Table(csv_of(tmp_path, text))
    for one, two in zip(everything(arrays).values(), everything(table).values(), strict=True):
        assert all(torch.equal(vars(one)[n], vars(two)[n]) for n in ("inputs_BT", "targets_BT", "scored_BT"))


def test_a_run_on_it_ends_in_a_record_with_a_test(tmp_path, store):
    task = Table(csv_of(tmp_path, SUMS), held_out=0.2).named()
    params = {"file": task.file, "checksum": task.checksum, "held_out": 0.2}
    shape = dict(n_layers=2, n_heads=2, width=16, vocab_size=task.vocab_size, max_length=task.length)
    train = TrainConfig(steps=6, batch_size=8, warmup_steps=1, eval_every=3, eval_sequences=8, final_eval_sequences=20)
    config = RunConfig("own_data", "quick", "table", params, ModelConfig("prefix_decoder", **shape), train)
    record = run(config, 1, store=store)
    assert record.status == "complete" and record.metrics["data"]["train"] == task.count("train")
    assert set(record.metrics["test"]) == {"last", "lowest_loss", "highest_accuracy"}
    assert record.metrics["data"]["checksum"] == task.checksum and len(record.metrics["data"]["words"]) == 12


def test_real_numbers_are_a_task_of_squared_errors(tmp_path, store):
    x = np.random.default_rng(0).normal(size=(60, 5, 2)).astype(np.float32)
    np.savez(tmp_path / "own.npz", sequences=x, targets=x.sum(axis=(1, 2))[:, None] * np.ones((60, 5)))
    task = Table(str(tmp_path / "own.npz")).named()
    assert task.continuous and task.input_dim == 2 and task.losses(torch.zeros(3, 1), torch.ones(3)).tolist() == [1] * 3
    shape = dict(n_layers=2, n_heads=2, width=16, vocab_size=0, max_length=5, input_dim=2, output_dim=1)
    train = TrainConfig(steps=4, batch_size=8, warmup_steps=1, eval_every=2, eval_sequences=8, final_eval_sequences=20)
    params = {"file": task.file, "checksum": task.checksum}
    record = run(RunConfig("own_data", "quick", "table", params, ModelConfig("entp", **shape), train), 1, store=store)
    assert record.status == "complete" and "lowest_loss" in record.metrics["test"]


def test_the_constant_guess_of_real_numbers_is_their_mean(tmp_path):
    targets = 100 + np.random.default_rng(0).normal(size=(400, 3)) + np.array([0, 50, 0])
    scored = np.array([[True, True, False]] * 400)
    np.savez(tmp_path / "own.npz", sequences=targets[:, :, None], targets=targets, scored=scored)
    baseline = constant_baseline(Table(str(tmp_path / "own.npz")), 100, 0)
    assert baseline["loss_by_position"] == pytest.approx([1, 1], abs=0.6)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "grows.csv"
    path.write_text(SUMS)
    read = table.read

    def grow(name):
        contents = read(name)
        path.write_text(SUMS + "9 + 9 = 1 8,5-6\n")
        return contents

    monkeypatch.setattr(table, "read", grow)
    with pytest.raises(ConfigError, match=r"grows\.csv changed while it was read"):
        table.opened(str(path))


def test_another_file_under_the_same_name_is_refused(tmp_path):
    named = Table(csv_of(tmp_path, SUMS)).named()
    csv_of(tmp_path, SUMS + "9 + 9 = 1 8,5-6\n")
    with pytest.raises(ConfigError, match=named.checksum):
        named.facts()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tokens\n1 2\n", "'sequence'"),
        ("sequence\n", "no sequences"),
        ("sequence,scored\n1 2,\n,2\n", "line 3"),
        ("sequence,scored\n1 2,1\n", "line 2: scored position 1 "),
        ("sequence,scored\n1 2,2\n\r\n\r\n1 2,9\n", "line 5: scored position 9 "),
        ("sequence,scored\n1 2,2-99999999999\n", "scored position 99999999999 "),
        ("sequence,scored\n1 2,x\n", "scored 'x'"),
        ("sequence,scored\n1 2 3 4 5 6 7 8,3 8-5\n", "scored '8-5'"),
        (f"sequence,scored\n1 2,{'9' * 5000}\n", "scored '9999"),
        ("sequence,scored\n1 2 3 4 5 6 7 8,6,8\n", "more cells than columns"),
        ("sequence,scored,targets\n1 2,2,1 1\n", "line 2: 2 targets"),
        ("sequence,scored,targets\n1 2 3,3 1,5 6\n", "scored '3 1'"),
        ("sequence\n1 9999999\n", "symbol 9999999 "),
        (f"sequence\n1 {'7' * 5000}\n", "symbol 77777777777777777777 "),
        ("sequence,part\n0 0,train\n0 0,validation\n0 0,test\n", "single symbol"),
        ("sequence\n1 2\n1 3\n", "left for"),
        ('sequence,scored\n"1 2 3,2\n1 2,2\n', "own.csv"),  # a quote that is never closed swallows no lines
    ],
)
def test_mistakes_in_a_csv_file_are_named(tmp_path, text, place):
    with pytest.raises(ConfigError, match=place):
        Table(csv_of(tmp_path, text)).facts()


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"x": np.ones((2, 2), int)}, "'sequences'"),
        ({"sequences": np.ones(3, int)}, "sequences is int64"),
        ({"sequences": np.ones((2, 3, 1))}, "'targets'"),
        ({"sequences": np.full((8, 3, 2), 1e39), "targets": np.ones((8, 3))}, "finite numbers, in fp32"),
        ({"sequences": np.ones((2, 3), int), "scored": np.full((2, 3), 2)}, "scored must"),
        ({"sequences": np.ones((2, 3), int), "scored": np.ones((2, 3), bool)}, "sequence 1 wants its first"),
        ({"sequences": np.array([[1, -1, 2]])}, "sequence 1 has padding"),
        ({"sequences": np.array([[1, 2, -7]])}, "sequences hold -7"),
        ({"sequences": np.ones((2, 3, 1)), "targets": np.full((2, 3), "a")}, "targets is <U1"),
        ({"sequences": np.array([[1, 2, -1]]), "scored": np.array([[0, 1, 1]])}, "sequence 1 .* behind its end"),
        ({"sequences": np.array([[1, 2]]), "targets": np.array([["a", "b"]], dtype=object)}, "own.npz"),
    ],
)
def test_mistakes_in_arrays_are_named_and_nothing_is_unpickled(tmp_path, arrays, name):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ConfigError, match=name):
        Table(str(tmp_path / "own.npz")).facts()


@pytest.mark.parametrize("name", ["own.csv", "own.npz", "member.npz", "own.txt", "absent.csv"])
def test_files_that_are_none_are_named(tmp_path, name):
    (tmp_path / "own.csv").write_bytes(b"sequence\n\xff\xfe\n")
    (tmp_path / "own.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "own.txt").write_text("1 2")
    with zipfile.ZipFile(tmp_path / "member.npz", "w") as file:
        file.writestr("sequences", b"text")
    with pytest.raises(ConfigError, match=name):
        Table(str(tmp_path / name)).facts()


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, sequences=np.arange(40_000).reshape(200, 200) % 7)
    whole, refused = path.read_bytes(), 0
    for place in range(60, 700, 32):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            Table(str(path)).facts()
        except ConfigError as error:
            refused += "a.npz" in str(error)
    assert refused > 10
