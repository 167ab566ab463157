"""Two experiments that cost a night each and begin with a gate: a run or two on a seed that no comparison uses.

Count3 at length 24, where ENTP learns from a few random prefixes of each of many sequences, and addition trained to
four digits. Whether five pairs follow, and by which numbers, was written down before the first of these runs
(docs/journal); what the gate gives is the result if it stays shut. That of addition did; that of length 24 opened,
so that its five pairs are planned here too.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from entp_lib.config import ModelConfig, RunConfig
from entp_lib.experiments.changes import SAME_PREFIXES
from entp_lib.experiments.experiment import Experiment, PlannedRun, no_claims, planned
from entp_lib.records.store import Record
from entp_lib.statistics import exceeds, reaches
from entp_lib.tasks import Counting, build_task
from entp_papers.entp.addition.experiment import BEST_ANSWERS
from entp_papers.entp.addition.lengths import TIERS as LENGTHS
from entp_papers.entp.addition.lengths import by_digits
from entp_papers.entp.addition.tiers import SMALL_2, Block
from entp_papers.entp.count3 import TIERS as COUNT3

SEED = 100  # pilots and gates have seeds from here on, comparisons those from 0
PAIRS = 5  # random seeds that follow a gate which opened
ABOVE_MODE = 0.05  # of token accuracy, mean of the last ``LAST`` evaluations: either arm must have it
LAST = 5
DECODERS = ("decoder", SAME_PREFIXES)  # with which ENTP is compared at length 24
BELOW_ONE = 0.95  # test error one digit beyond the trained lengths: ENTP must be below it

# By tier: the task, the prefixes that ENTP draws of each sequence, model and schedule.
COUNTING = {
    "smoke": (dict(length=8, seed_length=3, symbols=8), 2, COUNT3["smoke"].model, COUNT3["smoke"].train),
    "overnight": (
        dict(length=24, seed_length=8, symbols=24),
        4,
        COUNT3["overnight"].model,
        replace(COUNT3["overnight"].train, steps=40_000, warmup_steps=200, eval_every=400),
    ),
}
FOUR_DIGITS = {
    "smoke": replace(LENGTHS["smoke"], arms=("entp",), seeds=1),
    "overnight": Block(
        [
            dict(
                n_train=20_000,
                n_validation=500,
                n_test=5000,
                trained_digits=4,
                tested_digits=6,
                view="windows",
                window=22,
            )
        ],
        ("entp",),
        SMALL_2,
        replace(LENGTHS["overnight"].train, steps=7000, eval_every=140),
        1,
    ),
}


def plan_counting(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The gate: a decoder that learns from every scored prefix, and ENTP that learns from a few."""
    return [counting_run("count3_long", tier, arm, SEED) for arm in ("decoder", "entp") if tier in COUNTING]


def plan_counting_pairs(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """What the gate opened to, on the seeds of comparisons, and a decoder that learns from ENTP's few prefixes."""
    if tier not in COUNTING:
        return []
    arms, wanted = ("decoder", "entp", SAME_PREFIXES), seeds or (2 if tier == "smoke" else PAIRS)
    return [counting_run("count3_long_pairs", tier, arm, seed) for seed in range(wanted) for arm in arms]


def counting_run(experiment: str, tier: str, arm: str, seed: int) -> PlannedRun:
    """One run at length 24; the arms of a seed see the same sequences, and all are scored on every prefix."""
    params, few, shape, train = COUNTING[tier]
    architecture, drawn = ("entp", few) if arm == "entp" else ("decoder", few if arm == SAME_PREFIXES else 0)
    task = Counting(**params, drawn=drawn)
    model = ModelConfig(architecture, vocab_size=task.vocab_size, max_length=task.length, **shape)
    kept = {**params, **({"drawn": drawn} if drawn else {})}
    return planned(RunConfig(experiment, tier, "counting", kept, model, train, seed, seed), arm=arm, drawn=drawn)


def plan_four_digits(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """One run of ENTP, on the gate's seed."""
    if tier not in FOUR_DIGITS:
        return []
    block = FOUR_DIGITS[tier]
    params = {**block.tasks[0], "split_seed": SEED}
    task = build_task("long_addition", params)
    model = ModelConfig("entp", vocab_size=task.vocab_size, max_length=task.length, **block.shape)
    config = RunConfig("addition_four_digits", tier, "long_addition", params, model, block.train, SEED, SEED)
    return [planned(config, n_train=task.n_train)]


def counting_gate(records: Sequence[Record]) -> pd.DataFrame:
    """A row per arm: token accuracy, mean of its last evaluations, the mode baseline's, and whether it is open."""
    rows = {}
    for r in records:
        late = float(np.mean(r.curves["token_accuracy"][-LAST:]))
        mode = r.metrics["baseline"]["token_accuracy"]
        rows[r.labels["arm"]] = {
            f"token accuracy, last {LAST} evaluations": round(late, 4),
            "mode baseline": round(mode, 4),
            "above it": round(late - mode, 4),
            "opens": bool(reaches(late - mode, ABOVE_MODE)),
            "token-forwards": f"{r.provenance['token_forwards']:.3g}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def four_digits_gate(records: Sequence[Record]) -> pd.DataFrame:
    """A row per checkpoint rule and tested length: ENTP's test error, and whether it opens the gate."""
    found = []
    for record in records:
        beyond = record.config.task_params["trained_digits"] + 1
        for rule in ("last", BEST_ANSWERS):
            errors = by_digits([record], rule)
            for row in errors.itertuples():
                opens = row.digits == beyond and exceeds(BELOW_ONE, row.error)
                found.append({"weights": rule, "digits": row.digits, "test error": row.error, "opens": opens})
    return pd.DataFrame(found)


COUNT3_LONG = Experiment(
    name="count3_long",
    version=1,
    title="Count3 at length 24, few prefixes of many sequences: the gate",
    notebook="03b_count3_details",
    plan=plan_counting,
    measure=no_claims,
    changeable=False,
)
COUNT3_LONG_PAIRS = Experiment(
    name="count3_long_pairs",
    version=1,
    title="Count3 at length 24, few prefixes of many sequences: pairs",
    notebook="03b_count3_details",
    plan=plan_counting_pairs,
    measure=no_claims,
    changeable=False,
)
ADDITION_FOUR_DIGITS = Experiment(
    name="addition_four_digits",
    version=1,
    title="Addition trained to four digits: the gate",
    notebook="07_addition",
    plan=plan_four_digits,
    measure=no_claims,
    changeable=False,
)
