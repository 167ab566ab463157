"""How many layers must see the whole prefix? Count3 with the last 0, 2, 3 or all 4 layers full.

A question of our own: the paper has all layers full (ENTP) or none (decoder). What is shown has
equal steps. The runs of a second budget, with as many tokens through the layers as ENTP, are
planned and stored.
"""

from dataclasses import replace

from entp_lab.budgets import EQUAL_FORWARDS, equal_forwards, on_budget
from entp_lab.experiment import (
    Experiment,
    PlannedRuns,
    by_seed,
    planned,
    run_of,
    with_seed,
)
from entp_lab.measurements import Comparisons, Paired
from entp_papers.entp.count3 import UNSEEN
from entp_papers.entp.pairless import no_pairs_found

FULL_LAYERS = (0, 2, 3, 4)  # of 4; a single one, read at its end only, is causal
SAME_STEPS = "equal steps"
TRAIN = replace(UNSEEN["overnight"].train, steps=6000)
TIERS = {
    "smoke": replace(UNSEEN["smoke"], model=dict(n_layers=4, n_heads=2, width=16)),
    "overnight": replace(
        UNSEEN["overnight"], model=dict(n_layers=4, n_heads=4, width=64), train=TRAIN
    ),
}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan every number of full layers and seed at both budgets; ENTP's runs serve both, and are
    planned once.
    """
    setting = TIERS[tier]
    runs = []
    entp = run_of(
        "full_layers", tier, "counting", setting.task, setting.model, setting.train, "entp"
    )
    for full in FULL_LAYERS:
        base = replace(entp, model=entp.model.with_full_layers(full))
        budgets = {SAME_STEPS: base}
        if full < entp.model.n_layers:
            budgets[EQUAL_FORWARDS] = on_budget(equal_forwards, entp, base)
        for budget, config in budgets.items():
            for seed in range(seeds or setting.seeds):
                runs.append(
                    planned(with_seed(config, seed), arm=f"{full} full", full=full, budget=budget)
                )
    return by_seed(runs)


MEASURE = Comparisons(
    [
        Paired(claim, "token_accuracy", arm, "0 full", dict(budget=SAME_STEPS))
        for claim, arm in (("L-4-0", "4 full"), ("L-2-0", "2 full"))
    ],
    excluded=no_pairs_found,
)
FULL_LAYER_RUNS = Experiment(
    "full_layers",
    1,
    "How many full layers Count3 takes",
    "03b_count3_details",
    plan,
    MEASURE,
    tiers=TIERS,
    paper_runs_of="count3",
)
