"""How many layers must see the whole prefix? Count3 with the last 0, 2, 3 or all 4 layers full.

A question of our own: the paper has all layers full (ENTP) or none (decoder). What is shown has
equal steps. The runs of a second budget, with as many tokens through the layers as ENTP, are
planned and stored.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from entp_lab.budgets import EQUAL_FORWARDS, equal_forwards, on_budget
from entp_lab.claims import answer, reference_claims
from entp_lab.experiment import Experiment
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Paired
from entp_lab.plans import PlannedRun, by_seed, planned, run_of, with_seed
from entp_lab.statistics import mean_interval, ratio_interval
from entp_lab.store import Record
from entp_papers.entp.count3 import UNSEEN
from entp_papers.entp.pairless import no_pairs_found

FULL_LAYERS = (0, 2, 3, 4)  # of 4; a single one, read at its end only, is causal
SAME_STEPS = "equal steps"
SAME_FORWARDS = EQUAL_FORWARDS
TRAIN = replace(UNSEEN["overnight"].train, steps=6000)
TIERS = {
    "smoke": replace(UNSEEN["smoke"], model=dict(n_layers=4, n_heads=2, width=16)),
    "overnight": replace(
        UNSEEN["overnight"], model=dict(n_layers=4, n_heads=4, width=64), train=TRAIN
    ),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every number of full layers and seed at both budgets; the runs of ENTP serve both, and are
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
            budgets[SAME_FORWARDS] = on_budget(equal_forwards, entp, base)
        for budget, config in budgets.items():
            for seed in range(seeds or setting.seeds):
                runs.append(
                    planned(with_seed(config, seed), arm=f"{full} full", full=full, budget=budget)
                )
    return by_seed(runs)


def gain_shares(records: Sequence[Record]) -> pd.DataFrame:
    """By arm: gain in token accuracy over no full layer, paired by seed, and its share of all
    four's gain.

    Both with 95 % intervals, the share's by Fieller. ``four ahead``: whether all four are ahead of
    none by the rule of our questions; where they are not there is no gain to share, and the share
    is left blank.
    """
    rows = {}
    margin = reference_claims().set_index("id").loc["L-4-0", "margin"]
    table = summary(select(records, budget=SAME_STEPS))
    arms = [f"{full} full" for full in FULL_LAYERS[1:]]
    gains = {arm: paired(table, "token_accuracy", arm, "0 full") for arm in arms}
    whole = gains["4 full"]
    _, low, high = mean_interval(whole)
    ahead = (
        answer(low, high, pairs=len(whole), margin=margin, positive="ahead", negative="behind")
        == "ahead"
    )
    for arm, gain in gains.items():
        mean, low, high = mean_interval(gain)
        row = {"gain": mean, "low": low, "high": high, "pairs": len(gain), "four ahead": ahead}
        both = gain.index.intersection(whole.index)
        share = ratio_interval(gain[both], whole[both]) if ahead else (float("nan"),) * 3
        rows[arm] = row | dict(zip(("share", "share low", "share high"), share, strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")


CLAIMS = [
    Paired("L-4-0", "token_accuracy", "4 full", "0 full", dict(budget=SAME_STEPS)),
    Paired("L-2-0", "token_accuracy", "2 full", "0 full", dict(budget=SAME_STEPS)),
]
TITLE = "How many full layers Count3 takes"
MEASURE = Comparisons(CLAIMS, excluded=no_pairs_found)
FULL_LAYER_RUNS = Experiment(
    "full_layers", 1, TITLE, "03b_count3_details", plan, MEASURE, tiers=TIERS
)
