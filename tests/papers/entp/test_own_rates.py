"""Runs of each model at its own constant learning rate."""

from dataclasses import replace

import pytest

from entp_lab.budgets import training_operations
from entp_lab.registry import EXPERIMENTS
from entp_lib.training import learning_rate
from entp_papers.entp.own_rates import LINEAR_OWN_RATES, TRIAL_SEED, OwnRates


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
    assert len(by_rate) >= 3
    for entp, decoder in by_rate.values():
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
