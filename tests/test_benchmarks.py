"""Opponents of the engine's benchmark compute the same thing, and its rows have the columns that readers expect."""

import functools
import json
import math

import pytest
import torch

from benchmarks import compact, engine, loader
from benchmarks.hammer import inputs
from entp_lib.config import ModelConfig
from entp_lib.models import build_model
from entp_lib.tasks import LongAddition


@pytest.fixture
def tiny():
    return build_model(ModelConfig("entp", 3, 2, 16, engine.VOCAB, 10)).double()


def gradients(model, step):
    step()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("other", ["loop", "padded", "packed"])
def test_opponents_compute_the_same_gradients(tiny, other):
    """The loop and the padded batch are honest: same loss, same gradients as the engine's step."""
    x, y = engine.data(4, 10, "cpu")
    wanted = torch.ones_like(x, dtype=torch.bool)
    step = {
        "loop": functools.partial(engine.loop_step, tiny, x, y),
        "padded": functools.partial(engine.padded_step, tiny, x, y, 35),
        "packed": functools.partial(engine.engine_step, tiny, x, y, wanted, "packed"),
    }[other]
    expected = gradients(tiny, functools.partial(engine.engine_step, tiny, x, y, wanted))
    for found, grad in zip(gradients(tiny, step), expected, strict=True):
        torch.testing.assert_close(found, grad, rtol=1e-9, atol=1e-12)


def test_a_ratio_says_how_many_times_faster(monkeypatch):
    """Seconds of the other over ours, in turn; memory as a share of the other's."""
    clock = iter([1.0, 3.0, 2.0, 4.0, 1.0, 5.0])
    monkeypatch.setattr(engine, "seconds", lambda step, device: next(clock))
    growths = iter([2**22, 2**23])
    monkeypatch.setattr(engine, "growth", lambda step, device: next(growths))
    row = engine.compare(None, None, "cpu", 3)
    assert (row["ratio_median"], row["ratio_min"], row["ratio_max"]) == (3.0, 2.0, 5.0)
    assert row["peak_memory_ratio"] == 0.5 and row["seconds"] == 1.0


def test_a_training_case_names_its_bound_and_share(monkeypatch):
    monkeypatch.setattr(engine, "SIZES", {"small": dict(n_layers=2, n_heads=2, width=16)})
    monkeypatch.setattr(engine, "model_of", lambda *_: build_model(ModelConfig("entp", 2, 2, 16, engine.VOCAB, 64)))
    first, second = engine.training_cases("small", "cpu", quick=True)
    assert "loop" in first["against"] and "padded" in second["against"]
    assert first["operation_bound"] == 24 / 9 and 0 < first["share_of_matmul_rate"] < 2
    assert all(math.isfinite(row["ratio_median"]) for row in (first, second))


def test_against_a_decoder_both_take_the_same_step(monkeypatch):
    """Same batch, one thread, one length of rows; the bound is that of the operations."""
    threads, losses = [], []

    def compare(step, other, device, repeat):
        threads.append(torch.get_num_threads())
        for run in (step, other):
            run()
            losses.append(run.args[0].blocks[0].attention.qkv.weight.grad.abs().sum())
        return {"ratio_median": 0.5, "ratio_min": 0.4, "ratio_max": 0.6, "peak_memory_ratio": None, "seconds": 1.0}

    monkeypatch.setattr(engine, "compare", compare)
    monkeypatch.setattr(engine, "SIZES", {"small": dict(n_layers=2, n_heads=2, width=16)})
    monkeypatch.setattr(
        engine, "model_of", lambda size, length, device, a: build_model(ModelConfig(a, 2, 2, 16, engine.VOCAB, length))
    )
    task = LongAddition(n_train=50, n_validation=20, n_test=20, trained_digits=4, tested_digits=5)
    row = engine.against_decoder(task, "small", "cpu", quick=True)
    assert "sums of 4 digits, T = 16, answer only" in row["case"] and row["against"] == "decoder"
    assert threads == [1] and all(x > 0 for x in losses) and 0.1 < row["operation_bound"] < 1


def test_the_loaders_ratio_is_of_the_same_tokens(monkeypatch, tmp_path, capsys):
    """Loader and training are timed over as many tokens: the ratio of rates is that of seconds."""
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    clock = iter([0.5, 20.0])
    monkeypatch.setattr(loader, "seconds", lambda step, device: next(clock))
    monkeypatch.setattr("sys.argv", ["loader", "--quick", "--tier", "smoke", "--json", str(tmp_path / "row.json")])
    loader.main()
    (row,) = json.loads((tmp_path / "row.json").read_text())
    assert row["ratio_median"] == row["ratio_min"] == row["ratio_max"] == 40
    assert row["loader_tokens_per_second"] == 16 * 16 * 16 / 0.5
    assert "one thread" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["record, looked at", "stories", "pronouns", "events"])
def test_the_hammer_finds_nothing_malformed_that_is_used(kind, tmp_path):
    """Its quick kinds of file with all damage; the hammer itself takes minutes."""
    spoiled = inputs.KINDS[kind]
    (tmp_path / "sound").mkdir()
    spoiled.make(tmp_path / "sound")
    sound = spoiled.read(tmp_path / "sound")
    for how, damage in inputs.DAMAGE.items():
        at = tmp_path / how
        at.mkdir()
        path = spoiled.make(at)
        damage(path)
        assert inputs.judged(spoiled, at, path, sound) == [], how


def test_runs_side_by_side_are_compared_with_the_same_runs_one_after_the_other():
    cfg = compact.MemoryConfig(symbols=8, length=4, width=8, head_width=8)
    row = compact.compare(cfg, 3, 8, compact.Schedule(epochs=2, batch_size=4, count_every=1), 1)
    assert row["ratio_median"] > 0 and row["differ"] < 1e-5


def test_a_bert_as_entp_is_compared_with_the_loop_and_a_padded_batch(monkeypatch):
    pytest.importorskip("transformers")
    found = []

    def run_both(step, other, device, repeat):
        step()
        found.append((step.args, other.args))
        return {"ratio_median": 1.0, "ratio_min": 1.0, "ratio_max": 1.0, "peak_memory_ratio": None, "seconds": 1.0}

    monkeypatch.setattr(engine, "compare", run_both)
    monkeypatch.setattr(engine, "matmul_rate", lambda device: 1e9)
    rows = engine.pretrained_encoder("cpu", quick=True)
    assert found == [(("grouped",), ("reference",)), (("grouped",), ("padded",))]
    assert [row["against"] for row in rows] == ["loop over single prefixes", "padded batch of prefixes"]
    assert all(0 < row["share_of_matmul_rate"] for row in rows)
