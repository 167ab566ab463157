"""Runs of each model at its own constant learning rate."""

import math
from dataclasses import replace

import pytest

from entp_lab.budgets import training_operations
from entp_lab.registry import EXPERIMENTS
from entp_lab.runs import run as compute
from entp_lab.store import Store
from entp_lib.training import learning_rate
from entp_papers.entp.own_rates import (
    LINEAR_OWN_RATES,
    TRIAL_SEED,
    Measure,
    OwnRates,
    chosen_rates,
    compared,
)


@pytest.mark.parametrize("name", ["linear_own_rates", "text_own_rates", "sets_own_rates"])
def test_trial_runs_have_constant_rates_and_both_models_the_same_compute(name):
    runs = [run for run in EXPERIMENTS[name].plan("overnight") if run.labels["seed"] == TRIAL_SEED]
    for run in runs:
        train = run.config.train
        later = {
            learning_rate(step, train)
            for step in (train.warmup_steps, train.steps // 2, train.steps)
        }
        assert later == {run.labels["rate"]}
    by_rate = {}
    for run in runs:
        by_rate.setdefault(run.labels["rate"], []).append(training_operations(run.config))
    pairs = [
        both for both in by_rate.values() if len(both) == 2
    ]  # one model may have tried one rate more
    assert len(pairs) >= 3
    for entp, decoder in pairs:
        assert decoder == pytest.approx(entp, rel=1e-3)


def test_pairs_are_planned_when_a_rate_is_chosen_and_share_weights_and_batches():
    plan = EXPERIMENTS["linear_own_rates"].plan
    chosen = {"entp": 1e-3, "operations": 3e-4}
    before = OwnRates(
        "linear_own_rates", EXPERIMENTS["in_context"], (1e-3,), {"function": "linear"}
    )
    with_pairs = replace(before, chosen=chosen)("overnight")
    pairs = [run for run in with_pairs if run.labels["seed"] != TRIAL_SEED]
    assert not [run for run in before("overnight") if run.labels["seed"] != TRIAL_SEED]
    assert [run.labels["seed"] for run in pairs] == [seed for seed in range(5) for _ in chosen]
    assert {(run.labels["arm"], run.labels["rate"]) for run in pairs} == set(chosen.items())
    assert all(run.config.model_seed == run.config.data_seed for run in pairs)
    assert LINEAR_OWN_RATES.plan("overnight") == plan("overnight")


def a_run(small_run, store, arm, seed, losses, every):
    record = compute(small_run(), 1, store=store)
    steps = [every * k for k in range(1, len(losses) + 1)]
    curves = {"step": steps, "loss": losses, "token_accuracy": [1 - loss for loss in losses]}
    return replace(record, curves=curves, labels={"arm": arm, "seed": seed, "rate": 1e-3})


def test_a_decoder_counts_with_the_steps_to_entps_last_loss_and_both_with_the_mean_of_three(
    small_run, store
):
    entp = a_run(small_run, store, "entp", 0, [0.9, 0.6, 0.5, 0.4], 10)  # ends at 0.5
    late = a_run(small_run, store, "operations", 0, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], 10)
    never = replace(late, curves={**late.curves, "loss": [0.9] * 8, "token_accuracy": [0.1] * 8})
    trial = replace(entp, labels={**entp.labels, "seed": TRIAL_SEED})
    row = compared([entp, late, trial]).loc[0]
    assert row["steps"] == 60 / 40 and row["reached"]  # 0.6, 0.5 and 0.4
    assert row["equal steps"] == pytest.approx(0.7 - 0.5)
    assert row["equal multiply-adds"] == pytest.approx(0.3 - 0.5)
    assert compared([entp, late], "token_accuracy").loc[0, "equal steps"] == pytest.approx(0.2)
    assert compared([entp, never]).loc[0, ["steps", "reached"]].tolist() == [80 / 40, False]
    measure = Measure("F7-own", level=dict(floor=1.0, ceiling=0.0, distance=0.1))
    found = {m.claim: m for m in measure([entp, late, trial])}
    assert found["F7-own-speed"].values == pytest.approx([math.log(1.5)])
    decoder_and_entp = [level.score for level in found["F7-own-operations"].levels]
    assert decoder_and_entp == pytest.approx([0.3, 0.5])
    assert Measure("F7-own")([trial]) == []


def test_of_rates_within_a_hundredth_of_the_best_loss_the_lowest_is_chosen(small_run, store):
    losses = {3e-4: 0.505, 1e-3: 0.5, 3e-3: 0.7}
    trials = []
    for rate, loss in losses.items():
        record = a_run(small_run, store, "entp", TRIAL_SEED, [0.9, loss, loss, loss], 10)
        trials.append(replace(record, labels={**record.labels, "rate": rate}))
    assert chosen_rates(trials) == {"entp": 3e-4}
    assert chosen_rates(trials[1:]) == {"entp": 1e-3}


def test_the_first_runs_of_a_seed_have_the_rates_that_the_rule_chooses_from_the_committed_trial():
    runs = LINEAR_OWN_RATES.plan("overnight")
    store, trial = Store(), [run for run in runs if run.labels["seed"] == TRIAL_SEED]
    records = [
        replace(store.find(run.config, LINEAR_OWN_RATES.version), labels=run.labels)
        for run in trial
    ]
    first = [run.labels for run in runs if run.labels["seed"] == 0][:2]
    assert chosen_rates(records) == {labels["arm"]: labels["rate"] for labels in first}


def test_pairs_are_compared_with_the_decoder_of_the_rate_that_is_asked_for(small_run, store):
    entp = a_run(small_run, store, "entp", 0, [0.5] * 4, 10)
    chosen = a_run(small_run, store, "operations", 0, [0.4] * 8, 10)
    beside = replace(chosen, curves={**chosen.curves, "loss": [0.3] * 8})
    chosen = replace(chosen, labels={**chosen.labels, "rate": 3e-4})
    records = [entp, beside, chosen]
    leads = [compared(records, rate=rate).loc[0, "equal steps"] for rate in (3e-4, 1e-3)]
    assert leads == pytest.approx([-0.1, -0.2])
