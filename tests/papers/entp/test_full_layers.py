"""How many full layers: gains are paired on each budget, and shared out only where all four are ahead of none."""

import pytest
from made_up import record_of

from entp_lib.registry import EXPERIMENTS
from entp_papers.entp import full_layers
from entp_papers.entp.full_layers import SAME_FORWARDS, SAME_STEPS

FULL_LAYER_RUNS = EXPERIMENTS["full_layers"]


def records(accuracies):
    """Five seeds of overnight; ``accuracies``: of 0, 2, 3 full layers on each budget, and of 4, the seeds alike."""
    found = []
    for run in FULL_LAYER_RUNS.plan("overnight", 0):
        full, budget, seed = (run.labels[name] for name in ("full", "budget", "seed"))
        accuracy = accuracies[budget][full] + 0.001 * seed * (full + 1)
        scores = {"token_accuracy": accuracy, "sequence_accuracy": accuracy / 2}
        metrics = {**scores, "baseline": {"token_accuracy": 0.2, "sequence_accuracy": 0.0}}
        curves = {"step": [1], "token_forwards": [1], "token_accuracy": [accuracy]}
        found.append(record_of(run, curves, **metrics))
    return found


STEPS = {0: 0.5, 2: 0.6, 3: 0.66, 4: 0.7}


def test_shares_are_those_of_the_means_on_the_budget_that_four_layers_win():
    behind = {0: 0.8, 2: 0.75, 3: 0.72}
    table = full_layers.gain_shares(records({SAME_STEPS: STEPS, SAME_FORWARDS: behind}))
    assert list(table.index) == [(b, f"{k} full") for b in (SAME_STEPS, SAME_FORWARDS) for k in (2, 3, 4)]
    won = table.loc[SAME_STEPS]
    assert won["four ahead"].all() and (won["pairs"] == 5).all()
    assert won["gain"].tolist() == pytest.approx([0.104, 0.166, 0.208])  # each seed adds 0.001 a layer
    assert won["share"].tolist() == pytest.approx([0.5, 0.166 / 0.208, 1.0])
    assert (won["share low"] <= won["share"] + 1e-9).all() and (won["share"] <= won["share high"] + 1e-9).all()
    lost = table.loc[SAME_FORWARDS]
    assert not lost["four ahead"].any() and lost[["share", "share low", "share high"]].isna().all(axis=None)
    assert lost["gain"].iloc[0] == pytest.approx(-0.05 + 0.004)
