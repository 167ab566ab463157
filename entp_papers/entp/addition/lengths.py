"""Addition beyond the trained lengths (§7.1, appendix C.3, Figure 6).

The test error is reported by the number of digits of the longer operand.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from entp_lab.configs import ON_CPU
from entp_lab.experiment import TWINS, Experiment, Tier
from entp_lab.frames import paired, select
from entp_lab.measurements import Findings, levels, measured
from entp_lab.statistics import exceeds, reaches
from entp_lab.store import Records
from entp_lib.config import SIZES, TrainConfig
from entp_papers.entp.addition import experiment as sums
from entp_papers.entp.addition.experiment import BEST_ANSWERS, SCALE, SMALL_2, TINY, chosen, scores

# Rules of the overnight design, written down before its runs.
# If the decoder's mean error at trained lengths is this or more, longer sums are not compared.
GATE = 0.20
# If both arms' errors one digit beyond the trained lengths are above this, nothing is compared.
HOPELESS = 0.95

# Windows train the positions that longer sums reach. They are shorter than the authors' 64
# characters where numbers are shorter. quick trains on answers only, because with windows no model
# learns even the trained lengths in its time (600 steps of 32 windows of 16 characters leave at
# most 8 % right); its positions beyond the trained lengths therefore stay as initialised.
TWO_DIGITS = dict(n_train=4000, n_validation=500, n_test=5000, trained_digits=2, tested_digits=4)
SHORT = dict(view="windows", window=16)
SCORED = dict(eval_sequences=250, final_eval_sequences=5000)
DEEP = SIZES["small_deep"]
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
    "smoke": Tier(
        TWO_DIGITS | FEW | SHORT, TINY, replace(sums.SMOKE, eval_sequences=16), 2, sums.ARMS
    ),
    "quick": Tier(TWO_DIGITS, SMALL_2, replace(QUICK, steps=600, eval_every=60), 5, TWINS),
    "overnight": Tier(TWO_DIGITS | SHORT, SMALL_2, NIGHT, 5, sums.ARMS),
    "gpu": Tier(SIX_DIGITS, DEEP, replace(sums.GPU, **GPU), 5, sums.ARMS),
    "paper": Tier(dict(view="windows"), DEEP, PAPER, 5, sums.ARMS),
}


def by_digits(records: Records, rule: str) -> pd.DataFrame:
    """Return ``scores`` by one checkpoint rule, with a row and an error per group of the task.

    ``digits`` are those of the longer operand. ConfigError for a rule that the records lack.
    """
    rows = []
    for r, row in zip(records, chosen(scores(records), rule).to_dict("records"), strict=True):
        for name, found in r.metrics["test"][rule]["groups"].items():
            error = 1 - found["right"] / found["sequences"]
            rows.append({**row, "group": name, "error": error, "digits": int(name.split()[0])})
    return pd.DataFrame(rows).sort_values(["arm", "seed", "digits"], ignore_index=True)


def unlearned(records: Records) -> str:
    """Return a message if the decoder's last weights fail on the trained lengths, else ""."""
    decoders = select(records, arm="decoder")
    error = np.mean([1 - r.metrics["sequence_accuracy"] for r in decoders])
    if not reaches(error, GATE):
        return ""
    return f"the decoder errs on {GATE:.0%} of the trained lengths or more"


def excluded(records: Records) -> str:
    """Return why a laptop tier compares nothing beyond the trained lengths, by design, or ""."""
    if records[0].config.tier not in ON_CPU:
        return ""
    errors = by_digits(records, "last")
    errors = errors[errors["digits"] == records[0].config.task_params["trained_digits"] + 1]
    hopeless = exceeds(errors.groupby("arm")["error"].mean()[list(TWINS)], HOPELESS).all()
    return unlearned(records) or (
        f"both err on more than {HOPELESS:.0%} one digit on" if hopeless else ""
    )


def measure(records: Records) -> Findings:
    """Measure Figure 6 as published, by the last weights, and single characters of longer sums.

    No run counts as at the paper's settings, because the paper's ENTP had half of the steps. The
    error is the mean over numbers of digits, with equal weights. Single characters still tell
    models apart where no whole sum is right. They are measured only for models trained on windows;
    training on answers leaves later positions as initialised.
    """
    errors = by_digits(records, "last")
    means = errors.groupby(["seed", "arm"], as_index=False)["error"].mean()
    values = paired(means, "error", *TWINS)
    if not len(values):
        return
    used = select(records, arm=TWINS)
    sides = levels(errors, "error", TWINS, **SCALE)
    yield measured("F6-length", values, used, levels=sides, excluded_because=excluded(records))
    if records[0].config.task_params.get("view") == "windows":
        table = chosen(scores(records), BEST_ANSWERS)
        values = paired(table, "token_error", *TWINS)
        yield measured("F6-characters", values, used, excluded_because=unlearned(records))


# The longer decoder is evaluated every 170 of its 34,000 steps; evaluations every 680 steps would
# be further apart than the tolerance of its speed comparison.
PLAN = partial(
    sums.runs_of,
    "addition_lengths",
    "long_addition",
    {tier: (setting,) for tier, setting in TIERS.items()},
    longer_eval_every={"overnight": 170},
)
LENGTHS = Experiment(
    "addition_lengths", 2, "Addition beyond the trained lengths", "07_addition", PLAN, measure
)
