"""The studies of random sequences: deterministic, and true to what they are called."""

import json
from types import SimpleNamespace

import pytest
import torch

from entp_lib.validation import ConfigError
from entp_papers.compact import memory_studies

MODEL = dict(symbols=8, length=5, width=12, head_width=6)
SCHEDULE = dict(epochs=12, batch_size=16, rate=1e-2, count_every=4)


def test_capacity_is_deterministic_and_plain():
    first = memory_studies.capacity_study(MODEL, SCHEDULE, 48, runs=2, seed=3)
    assert first == memory_studies.capacity_study(MODEL, SCHEDULE, 48, runs=2, seed=3)
    assert first != memory_studies.capacity_study(MODEL, SCHEDULE, 48, runs=2, seed=4)
    metrics, curves = json.loads(json.dumps(first))
    assert metrics["best"] == max(metrics["capacity"]) and metrics["offset"] == 6
    assert curves["epoch"] == [4, 8, 12] and len(curves["right"]) == len(curves["loss"]) == 3
    assert metrics["steps"] == 36


def test_one_layer_of_entp_gives_the_decoder_s_record():
    decoder, entp = (
        memory_studies.capacity_study({**MODEL, "architecture": name}, SCHEDULE, 48) for name in ("decoder", "entp")
    )
    assert decoder == entp


def test_the_largest_library_lies_where_recall_ends():
    schedule = dict(steps=300, batch_size=64, rate=1e-2, count_every=10)
    metrics, curves = memory_studies.largest_library_study(
        {**MODEL, "width": 6, "feed_forward": "none"}, schedule, [2, 4, 400, 500, 600], runs=2
    )
    assert metrics["bounded"] and metrics["best"] in (2, 4) and curves["size"] == [2, 4, 400, 500]
    assert curves["right"][0] == 2 and curves["right"][2] < 400


def test_shatter_counts_the_runs_that_got_there():
    schedule = dict(epochs=150, batch_size=16, rate=1e-2)
    metrics, curves = memory_studies.shatter_study(MODEL, schedule, library=6, runs=60)
    assert metrics["unfinished"] == 60 - len(curves["epochs"]) < 10
    assert metrics["fit"]["mean"] == pytest.approx(sum(curves["epochs"]) / len(curves["epochs"]))


def test_runs_that_all_take_as_long_have_no_binomial(monkeypatch):
    """The study is kept: its epochs are what they are."""
    even = SimpleNamespace(ended_R=torch.full((60,), 7), best_R=torch.full((60,), 6))
    monkeypatch.setattr(memory_studies.side_by_side, "train", lambda *_: even)
    metrics, curves = memory_studies.shatter_study(MODEL, dict(epochs=9, batch_size=16), library=6, runs=60)
    assert metrics["fit"] is None and metrics["moments"] is None and curves["epochs"] == [7] * 60


@pytest.mark.parametrize(
    "study, arguments, named",
    [
        (memory_studies.capacity_study, ({**MODEL, "widht": 3}, SCHEDULE, 8), "did you mean 'width'"),
        (memory_studies.capacity_study, (MODEL, SCHEDULE, 0), "library = 0"),
        (memory_studies.capacity_study, (MODEL, SCHEDULE, 8, 0), "runs = 0"),
        (memory_studies.largest_library_study, (MODEL, SCHEDULE, [8, 4]), "ascending"),
    ],
)
def test_bad_input(study, arguments, named):
    with pytest.raises(ConfigError, match=named):
        study(*arguments)
