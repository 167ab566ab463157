"""Addition beyond the trained lengths (§7.1, appendix C.3, Figure 6): test error by digits of the
longer operand.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from entp_lab.configs import ON_CPU
from entp_lab.experiment import Experiment
from entp_lab.frames import paired, select
from entp_lab.measurements import Measurement, levels, measured
from entp_lab.plans import TWINS, Tier
from entp_lab.statistics import exceeds, reaches
from entp_lab.store import Record
from entp_lib.config import SIZES, TrainConfig
from entp_papers.entp.addition import experiment as sums
from entp_papers.entp.addition.experiment import BEST_ANSWERS, NEAR, SMALL_2, TINY, chosen, scores
from entp_papers.entp.addition.tables import by_group

# Rules of the overnight design, written down before its runs.
GATE = (
    0.20  # the decoder's mean error at trained lengths from which on nothing is said of longer ones
)
# error one digit beyond the trained lengths: nothing is compared where both arms are above it
HOPELESS = 0.95

# Windows train the positions that longer sums reach; shorter than the authors' 64 characters where
# numbers are shorter. quick has answers alone: in windows no model learns even the trained lengths
# in its time (600 steps of 32 windows of 16 characters leave at most 8 % right), and so positions
# beyond the trained lengths stay as they were initialised.
TWO_DIGITS = dict(n_train=4000, n_validation=500, n_test=5000, trained_digits=2, tested_digits=4)
SHORT = dict(view="windows", window=16)
SCORED = dict(eval_sequences=250, final_eval_sequences=5000)
EVERY, DEEP = (*sums.ARMS,), SIZES["small_deep"]
LONG = dict(steps=50_000, decay_steps=50_000, warmup_steps=TrainConfig.warmup_steps, eval_every=500)
QUICK = replace(sums.QUICK, **SCORED)
NIGHT = replace(QUICK, steps=4000, warmup_steps=200, eval_every=80)
GPU = dict(
    steps=3000, batch_size=128, eval_every=150, eval_sequences=1000, final_eval_sequences=10_000
)
SIX_DIGITS = dict(n_train=100_000, trained_digits=6, tested_digits=9, view="windows", window=31)
FEW = dict(n_train=200, n_validation=50, n_test=200)
PAPER = replace(sums.PAPER, eval_sequences=5000, final_eval_sequences=25_000, **LONG)
TIERS = {
    "smoke": Tier(TWO_DIGITS | FEW | SHORT, TINY, replace(sums.SMOKE, eval_sequences=16), 2, EVERY),
    "quick": Tier(TWO_DIGITS, SMALL_2, replace(QUICK, steps=600, eval_every=60), 5, TWINS),
    "overnight": Tier(TWO_DIGITS | SHORT, SMALL_2, NIGHT, 5, EVERY),
    "gpu": Tier(SIX_DIGITS, DEEP, replace(sums.GPU, **GPU), 5, EVERY),
    "paper": Tier(dict(view="windows"), DEEP, PAPER, 5, EVERY),
}


def by_digits(records: Sequence[Record], rule: str) -> pd.DataFrame:
    """``by_group`` with ``digits`` of the longer operand as a number."""
    found = by_group(records, rule)
    found["digits"] = found["group"].str.split().str[0].astype(int)
    return found.sort_values(["arm", "seed", "digits"], ignore_index=True)


def unlearned(records: Sequence[Record]) -> str:
    """Say that the decoder's last weights err on too many sums of the trained lengths; empty where
    they do not.
    """
    error = np.mean(
        [1 - r.metrics["sequence_accuracy"] for r in records if r.labels["arm"] == "decoder"]
    )
    return (
        f"the decoder errs on {GATE:.0%} of the trained lengths or more"
        if reaches(error, GATE)
        else ""
    )


def excluded(records: Sequence[Record]) -> str:
    """Why a laptop's tiers compare nothing beyond the trained lengths, by their design; empty where
    they may.
    """
    if records[0].config.tier not in ON_CPU:
        return ""
    errors = by_digits(records, "last")
    errors = errors[errors["digits"] == records[0].config.task_params["trained_digits"] + 1]
    hopeless = exceeds(errors.groupby("arm")["error"].mean()[list(TWINS)], HOPELESS).all()
    return unlearned(records) or (
        f"both err on more than {HOPELESS:.0%} one digit on" if hopeless else ""
    )


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Figure 6 as published, by the last weights; never at the paper's settings, whose ENTP had
    half of the steps.

    Its error is the mean over digits, each counting alike however many sums have them. Of models
    trained on windows also single characters of longer sums, which are left where no whole sum is
    right.
    """
    errors, scale = by_digits(records, "last"), dict(floor=1.0, ceiling=0.0, distance=NEAR)
    values = paired(
        errors.groupby(["seed", "arm"], as_index=False)["error"].mean(), "error", *TWINS
    )
    if not len(values):
        return []
    used, sides = select(records, arm=TWINS), levels(errors, "error", TWINS, **scale)
    found = [measured("F6-length", values, used, levels=sides, excluded_because=excluded(records))]
    if (
        records[0].config.task_params.get("view") == "windows"
    ):  # answers alone leave later positions as they began
        table = chosen(scores(records), BEST_ANSWERS)
        judged = dict(
            levels=levels(table, "token_error", TWINS, **scale), excluded_because=unlearned(records)
        )
        found.append(
            measured("F6-characters", paired(table, "token_error", *TWINS), used, **judged)
        )
    return found


# The longer decoder is evaluated every 170 of 34,000 steps: at 680 two would be further apart than
# its speed's margin.
OF_TIER, EVERY_170 = (
    {tier: (setting,) for tier, setting in TIERS.items()},
    dict(longer_eval_every={"overnight": 170}),
)
PLAN = partial(sums.runs_of, "addition_lengths", "long_addition", OF_TIER, **EVERY_170)
TITLE = "Addition beyond the trained lengths"
LENGTHS = Experiment("addition_lengths", 2, TITLE, "07_addition", PLAN, measure)
