"""The text experiment: arms differ in what they say, minima and paired differences are those of the curves."""

import dataclasses
import math

import pytest

from entp_lib.config import NotebookParameters
from entp_lib.experiments import EXPERIMENTS, cost_per_run, summary
from entp_lib.experiments import text as module
from entp_lib.records import Record
from entp_lib.tasks import Text, build_task

OPENWEBTEXT = EXPERIMENTS["openwebtext"]


def test_arms_differ_in_rates_and_positions_alone():
    runs = {arm: [c for c in OPENWEBTEXT.configs("quick", 1) if module.arm_of(c) == arm] for arm in module.ARMS}
    assert [len(runs[arm]) for arm in module.ARMS] == [2, 2, 1]
    plain, swapped, every = (runs[arm][0] for arm in module.ARMS)
    rates = swapped.train.min_lr, swapped.train.max_lr
    assert rates == (plain.train.max_lr, plain.train.min_lr) and rates[0] > rates[1]
    assert dataclasses.replace(swapped, train=plain.train) == plain
    assert every.task_params == {**plain.task_params, "prefixes": 0} and every.train == plain.train
    for arm in runs:
        assert module.on_arm([], arm) == [] and {c.model.architecture for c in runs[arm]} <= {"decoder", "entp"}


def test_tiers_that_score_every_position_have_no_third_arm():
    for tier in ("gpu", "paper"):
        assert {module.arm_of(c) for c in OPENWEBTEXT.configs(tier)} == {module.TABLE_8, module.SWAPPED}


def test_the_papers_settings_are_those_of_table_8():
    config = OPENWEBTEXT.configs("paper", 1)[0]
    task, shape, train = build_task(config.task, config.task_params), config.model, config.train
    assert (shape.n_layers, shape.n_heads, shape.width, shape.vocab_size) == (6, 6, 384, 50_304)
    assert (train.batch_size, train.warmup_steps, train.decay_steps) == (32, 2000, 600_000)
    assert (train.max_lr, train.min_lr, train.betas, train.weight_decay) == (6e-4, 6e-5, (0.9, 0.95), 0.1)
    assert task == Text("openwebtext", tokenizer="gpt2", split="nanogpt", held_out=0.0005, context=128)


def test_embedded_tiers_name_their_text():
    for tier in ("quick", "gpu"):
        assert all(len(c.task_params["checksum"]) == 16 for c in OPENWEBTEXT.configs(tier))


def made_up(config, losses, train=(3.0, 2.0, 1.0)):
    """A record with given validation losses; nothing is trained."""
    entp = config.model.architecture == "entp"
    curves = {
        "step": [10, 20, 30],
        "token_forwards": [1000, 2000, 3000] if entp else [100, 200, 300],
        "seconds": [4.0, 8.0, 12.0] if entp else [1.0, 2.0, 3.0],
        "train_loss": list(train),
        "loss": list(losses),
    }
    metrics = {"loss": losses[-1], "baseline": {"loss": 3.0}, "position": [1, 2], "loss_by_position": [2.0, 1.0]}
    return Record("openwebtext", 1, config, metrics, curves, {})


@pytest.fixture
def records():
    """One seed of quick: ENTP 0.2 nats ahead at its lowest, behind at the end, 0.1 behind with the rates swapped."""
    curves = {
        (module.TABLE_8, "decoder"): (3.0, 2.0, 2.4),
        (module.TABLE_8, "entp"): (3.2, 1.8, 2.5),
        (module.SWAPPED, "decoder"): (3.0, 2.5, 2.0),
        (module.SWAPPED, "entp"): (3.0, 2.5, 2.1),
        (module.EVERY_POSITION, "decoder"): (2.0, 1.5, 1.4),
    }
    configs = OPENWEBTEXT.configs("quick", 1)
    return [made_up(c, curves[module.arm_of(c), c.model.architecture]) for c in configs]


def test_minima_and_differences_are_those_of_the_curves(records):
    table = module.minima(records).set_index(["arm", "architecture"])
    row = table.loc[(module.TABLE_8, "entp")]
    assert (row["lowest validation loss"], row["last validation loss"]) == (1.8, 2.5)
    assert (row["lowest training loss"], row["last training loss"]) == (1.0, 1.0)
    assert row["lowest validation perplexity"] == math.exp(1.8) and row["unigram loss"] == 3.0
    smooth = module.minima(records, smoothed=2).set_index(["arm", "architecture"]).loc[(module.TABLE_8, "entp")]
    assert smooth["lowest validation loss"] == pytest.approx(2.15)
    found = module.gaps(records)
    assert found["Table 8: lowest validation loss"].tolist() == pytest.approx([0.2])
    assert found["Table 8: last validation loss"].tolist() == pytest.approx([-0.1])
    assert found["rates swapped: lowest validation loss"].tolist() == pytest.approx([-0.1])


def test_the_claim_is_measured_on_the_printed_schedule(records):
    (measured,) = OPENWEBTEXT.measure(records)
    assert measured.claim == "T3-loss" and list(measured.values) == pytest.approx([0.2])
    assert len(measured.records) == 2 and not measured.paper_settings
    assert OPENWEBTEXT.measure([]) == []


def test_equal_compute_is_what_the_decoder_spent(records):
    table = module.at_equal_compute(records)
    assert table.loc[(module.TABLE_8, "decoder")].tolist() == [2.4, 2.4, 2.4]
    assert table.loc[(module.TABLE_8, "entp"), "step"] == 2.5
    assert table.loc[(module.TABLE_8, "entp")].isna().tolist() == [False, True, True]  # not one evaluation by then
    assert (module.EVERY_POSITION, "entp") not in table.index and len(table) == 5


def test_frames_have_a_row_for_each_point(records):
    course = module.courses(records)
    assert len(course) == 5 * 3 and course["tokens"].tolist()[:3] == [10 * 64 * 32, 20 * 64 * 32, 30 * 64 * 32]
    assert course["perplexity"].iloc[0] == math.exp(3.0)
    positions = module.loss_by_position(records)
    assert len(positions) == 5 * 2 and set(positions["architecture"]) == {"decoder", "entp"}


def test_the_smoke_tier_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    done = OPENWEBTEXT.collect(NotebookParameters(tier="smoke", seeds=1))
    assert len(done.complete) == 5
    assert module.minima(done.complete)["last training loss"].lt(math.log(256)).all()
    assert len({r.metrics["corpus"]["checksum"] for r in done.complete}) == 1
    shown = summary(done.complete)
    assert len(cost_per_run(shown)) == 2 and shown["baseline_token_accuracy"].nunique() == 1
    assert set(module.loss_by_position(done.complete)["position"]) == set(range(1, 17))
    assert len(module.at_equal_compute(done.complete)) == 5
