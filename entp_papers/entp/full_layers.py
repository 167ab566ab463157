"""How many layers must see the whole prefix? Count3 with the last 0, 2, 3 or all 4 layers full, at two budgets.

A question of our own: the paper has all layers full (ENTP) or none (decoder). Compute is counted in layer-tokens of a
sequence: every token once in a causal layer, every wanted prefix's tokens in a full one.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig
from entp_lib.experiments.claims import answer, reference_claims
from entp_lib.experiments.experiment import (
    Experiment,
    PlannedRun,
    Tier,
    by_seed,
    compute_ratio,
    name_of,
    planned,
    select,
)
from entp_lib.experiments.frames import paired, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import mean_interval, ratio_interval
from entp_lib.tasks import Counting
from entp_papers.entp import plateau
from entp_papers.entp.count3 import UNSEEN

FULL_LAYERS = (0, 2, 3, 4)  # of 4; a single one, read at its end only, is causal
BUDGETS = EQUAL_STEPS, EQUAL_FORWARDS = "equal steps", "equal token-forwards"
TIERS = {
    "smoke": Tier(UNSEEN["smoke"].task, dict(n_layers=4, n_heads=2, width=16), UNSEEN["smoke"].train, 2),
    "overnight": Tier(
        UNSEEN["overnight"].task,
        dict(n_layers=4, n_heads=4, width=64),
        replace(UNSEEN["overnight"].train, steps=6000, eval_every=60),
        5,
    ),
}


def arm_name(full: int) -> str:
    """How a number of full layers is called as an arm."""
    return f"{full} full"


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every number of full layers and seed, for the same steps and for ENTP's token-forwards.

    The runs of ENTP itself serve both budgets: they are planned once, at equal steps.
    """
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    task = Counting(**setting.task)
    entp = ModelConfig("entp", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
    for full in FULL_LAYERS:
        ratio = layer_tokens(entp.n_layers, entp.n_layers, task) / layer_tokens(full, entp.n_layers, task)
        trains = {EQUAL_STEPS: setting.train}
        if full < entp.n_layers:
            trains[EQUAL_FORWARDS] = setting.train.lengthened(ratio)
        for budget, train in trains.items():
            for seed in range(seeds or setting.seeds):
                model = entp.with_full_layers(full)
                config = RunConfig("full_layers", tier, "counting", setting.task, model, train, seed, seed)
                runs.append(planned(config, arm=arm_name(full), full=full, budget=budget))
    return by_seed(runs)


def layer_tokens(full: int, n_layers: int, task: Counting) -> float:
    """Tokens of a sequence that a stack sends through its layers, in units of a sequence's tokens."""
    return (n_layers - full) + full * compute_ratio(task)


def on_budget(table: pd.DataFrame, budget: str) -> pd.DataFrame:
    """The rows of a ``summary`` at one budget; those of ENTP belong to both."""
    return table[(table["budget"] == budget) | (table["architecture"] == "entp")]


def gain_shares(records: Sequence[Record]) -> pd.DataFrame:
    """By budget and arm: gain in token accuracy over no full layer, paired by seed, and its share of all four's gain.

    Both with 95 % intervals, the share's by Fieller. ``four ahead``: whether all four are ahead of none by the rule of
    our questions; where they are not there is no gain to share, and the share is left blank.
    """
    if not records:
        return pd.DataFrame()
    rows, margin = {}, reference_claims().set_index("id").loc["L-4-0", "margin"]
    for budget in BUDGETS:
        table = on_budget(summary(records), budget)
        whole = paired(table, "token_accuracy", arm_name(4), arm_name(0))
        _, low, high = mean_interval(whole)
        ahead = answer(low, high, pairs=len(whole), margin=margin, positive="ahead", negative="behind") == "ahead"
        for full in FULL_LAYERS[1:]:
            gain = paired(table, "token_accuracy", arm_name(full), arm_name(0))
            mean, low, high = mean_interval(gain)
            row = {"gain": mean, "low": low, "high": high, "pairs": len(gain), "four ahead": ahead}
            both = gain.index.intersection(whole.index)
            share = ratio_interval(gain[both], whole[both]) if ahead else (float("nan"),) * 3
            rows[budget, arm_name(full)] = row | dict(zip(("share", "share low", "share high"), share, strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["budget", "arm"])


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Token accuracy of four and of two full layers − none, at equal steps."""
    at_steps, found = select(records, budget=EQUAL_STEPS), []
    if not at_steps:
        return []
    table = summary(at_steps)
    for full in (4, 2):
        arms = arm_name(full), arm_name(0)
        values = paired(table, "token_accuracy", *arms).tolist()
        standing = dict(levels=plateau.stand(table, "token_accuracy", arms), barred=plateau.pairless(at_steps, arms))
        used = tuple(name_of(r) for r in select(at_steps, arm=arms))
        found.append(Measurement(f"L-{full}-0", values, at_steps[0].config.tier, used, **standing))
    return found


FULL_LAYER_RUNS = Experiment(
    name="full_layers",
    version=1,
    title="How many full layers Count3 takes",
    notebook="03b_count3_details",
    plan=plan,
    measure=measure,
    changeable=False,
)
