"""Experiments of a night each that begin with a gate, runs on a seed that no comparison uses, and
what followed.

Count3 at length 24, and addition trained to four digits. Whether five pairs follow, and by which
numbers, was written down before the first of these runs (docs/journal); what the gate gives is the
result if it stays shut. That of addition did. That of length 24, where ENTP learns from a few
random prefixes of each of many sequences, opened, so that its five pairs are planned here too: with
few prefixes, and with ENTP as it is defined, which learns from all of them on fewer steps (6.6
times a decoder's multiply-adds) and is compared with the decoder of the same steps and with that of
the pairs, which has more steps and still half of ENTP's multiply-adds.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from entp_lab.budgets import MORE_STEPS, SAME_PREFIXES, training_operations
from entp_lab.experiment import Experiment, no_claims
from entp_lab.plans import TWINS, PlannedRun, Tier, planned, run_of, with_model, with_train
from entp_lab.statistics import reaches
from entp_lab.store import Record
from entp_papers.entp.addition.lengths import TIERS as LENGTHS
from entp_papers.entp.count3 import TIERS as COUNT3
from entp_papers.entp.count3 import lead_claims

SEED = 100  # pilots and gates have seeds from here on, comparisons those from 0
ABOVE_MODE = (
    0.05  # of token accuracy, mean of the last ``LAST`` evaluations: either arm must have it
)
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # with which ENTP is compared at length 24
CLAIMS = {"F2-long-all": "decoder", "F2-long-all-more": MORE_STEPS}

LONG = replace(COUNT3["overnight"].train, steps=40_000, warmup_steps=200, eval_every=400)
COUNTING = {
    "smoke": COUNT3["smoke"],
    "overnight": Tier(
        dict(length=24, seed_length=8, symbols=24), COUNT3["overnight"].model, LONG, 5
    ),
}
FEW = {"smoke": 2, "overnight": 4}  # prefixes that ENTP draws of each sequence
ALL = {
    "smoke": dict(steps=10, eval_every=5),
    "overnight": dict(steps=12_000, eval_every=200),
}  # where it has them all
LONGER = dict(
    LENGTHS["overnight"].task, n_train=20_000, trained_digits=4, tested_digits=6, window=22
)
TRAIN = replace(LENGTHS["overnight"].train, steps=7000, eval_every=140)
FOUR_DIGITS = {
    "smoke": LENGTHS["smoke"],
    "overnight": replace(LENGTHS["overnight"], task=LONGER, train=TRAIN),
}


def counting_run(experiment: str, tier: str, arm: str, seed: int) -> PlannedRun:
    """One run at length 24; the arms of a seed see the same sequences, and all are scored on every
    prefix.
    """
    setting, drawn = COUNTING[tier], 0 if arm == "decoder" else FEW[tier]
    params = setting.task | ({"drawn": drawn} if drawn else {})
    architecture = "entp" if arm == "entp" else "decoder"
    config = run_of(
        experiment, tier, "counting", params, setting.model, setting.train, architecture, seed
    )
    return planned(config, arm=arm, drawn=drawn)


def plan_gate(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the gate: a decoder that learns from every scored prefix, and ENTP that learns from a
    few.
    """
    return [counting_run("count3_long", tier, arm, SEED) for arm in TWINS]


def plan_pairs(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the gate's runs on the seeds of comparisons, and a decoder that learns from ENTP's few
    prefixes.
    """
    every, arms = range(seeds or COUNTING[tier].seeds), (*TWINS, SAME_PREFIXES)
    return [counting_run("count3_long_pairs", tier, arm, seed) for seed in every for arm in arms]


def plan_all_prefixes(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """By seed: decoder and ENTP on all prefixes, and the decoder that ``count3_long_pairs`` has."""
    runs = []
    for seed in range(seeds or COUNTING[tier].seeds):
        base = with_train(
            counting_run("count3_long_all", tier, "decoder", seed).config, **ALL[tier]
        )
        runs += [planned(with_model(base, architecture=name), drawn=0) for name in TWINS]
        longer = counting_run("count3_long_pairs", tier, "decoder", seed)
        runs.append(planned(longer.config, arm=MORE_STEPS, drawn=0))
    return runs


def plan_four_digits(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """One run of ENTP, on the gate's seed."""
    setting = FOUR_DIGITS[tier]
    params = {**setting.task, "split_seed": SEED}
    config = run_of(
        "addition_four_digits",
        tier,
        "long_addition",
        params,
        setting.model,
        setting.train,
        "entp",
        SEED,
    )
    return [planned(config, n_train=params["n_train"])]


def counting_gate(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per arm: token accuracy, mean of its last evaluations, the mode baseline's, and
    whether it is open.
    """
    rows = {}
    for r in records:
        late = float(np.mean(r.curves["token_accuracy"][-LAST:]))
        mode = r.metrics["baseline"]["token_accuracy"]
        rows[r.labels["arm"]] = {
            f"token accuracy, last {LAST} evaluations": round(late, 4),
            "mode baseline": round(mode, 4),
            "above the mode": round(late - mode, 4),
            "comparison follows": bool(reaches(late - mode, ABOVE_MODE)),
            "multiply-adds": f"{training_operations(r.config):.3g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


TITLE, DETAILS = "Count3 at length 24, few prefixes of many sequences", "03b_count3_details"
ALONE = dict(tiers=("smoke", "overnight"))
COUNT3_LONG = Experiment(
    "count3_long", 1, f"{TITLE}: the gate", DETAILS, plan_gate, no_claims, **ALONE
)
COUNT3_LONG_PAIRS = Experiment(
    "count3_long_pairs", 1, f"{TITLE}: pairs", DETAILS, plan_pairs, no_claims, **ALONE
)
TITLE, MEASURE = "Count3 at length 24, all prefixes", lead_claims(CLAIMS)
COUNT3_LONG_ALL = Experiment(
    "count3_long_all", 1, TITLE, "03_count3", plan_all_prefixes, MEASURE, **ALONE
)
TITLE = "Addition trained to four digits: the gate"
ADDITION_FOUR_DIGITS = Experiment(
    "addition_four_digits", 1, TITLE, "07_addition", plan_four_digits, no_claims, **ALONE
)
