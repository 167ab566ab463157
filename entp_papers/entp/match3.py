"""Match3′ (§6.4, Table 2) and the three differences from Count3, each alone."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from entp_lab.budgets import EQUAL_FORWARDS
from entp_lab.experiment import TWINS, Experiment, Plan, Tier, Variant
from entp_lab.frames import paired, published, select, summary
from entp_lab.measurements import Comparisons, Findings, Paired, measured
from entp_lab.store import Records
from entp_lib.config import SIZES, TrainConfig
from entp_papers.entp.count3 import ARMS, REDUCED, SMOKE, above_mode
from entp_papers.entp.pairless import within

NEAR = 0.01  # in accuracy: closer to always the most frequent answer, or to 1, counts as equal
# By the overnight design, an arm closer than this to always the most frequent answer has not begun
# to learn, and its variant is excluded.
BEGUN = 0.02
VARIANT_NAMES = {
    "match3": "Match3′",
    "modulus": "modulus: the length",
    "anchor": "last number, not the first",
    "count": "how many, not whether",
}
# What changes from Match3′ in each variant, in the order of §6.4; Match3′ itself has the arm
# ``longer``, too.
VARIANTS = {
    "match3": Variant(),
    "modulus": Variant({"modulus": 0}, TWINS),
    "anchor": Variant({"anchor": "last"}, TWINS),
    "count": Variant({"output": "count"}, TWINS),
}
PAPER = TrainConfig(steps=100_000, eval_every=500, eval_sequences=1600, precision="bf16")
REDUCED_TASK = dict(length=8, symbols=11, modulus=11)
REDUCED_MODEL = dict(n_layers=2, n_heads=4, width=64)
# The differences are measured where a laptop can afford them; at the paper's own scale only Match3′
# is run.
MEDIUM = SIZES["medium"]
ITSELF = ("match3",)
QUICK = replace(REDUCED, steps=400, warmup_steps=50, eval_every=20, eval_sequences=256)
GPU = replace(PAPER, steps=30_000, decay_steps=30_000, eval_every=250, eval_sequences=1024)
TIERS = {
    "smoke": Tier(
        dict(length=8, symbols=8, modulus=16), dict(n_layers=2, n_heads=2, width=16), SMOKE, 2
    ),
    "quick": Tier(REDUCED_TASK, REDUCED_MODEL, QUICK, 5, TWINS),
    "overnight": Tier(REDUCED_TASK, REDUCED_MODEL, replace(REDUCED, steps=2000, eval_every=20), 5),
    "gpu": Tier({}, MEDIUM, GPU, 1, TWINS, ITSELF),
    "paper": Tier({}, MEDIUM, PAPER, 5, TWINS, ITSELF),
}


def gap(table: pd.DataFrame, variant: str) -> pd.Series:
    """Return ENTP − decoder in token accuracy on one variant, by seed."""
    return paired(table[table["variant"] == variant], "token_accuracy", "entp", "decoder")


def excluded(records: Records, arms: Sequence[str]) -> str:
    """Return why arms on one variant cannot be compared, by the rules of the overnight design.

    Either some arms are within ``BEGUN`` of the most frequent answer, or none is that far above the
    pairless bound, so that none has shown that it finds pairs. Empty if neither holds.
    """
    means = summary(select(records, arm=tuple(arms))).groupby("arm").mean(numeric_only=True)
    above = means["token_accuracy"] - means["baseline_token_accuracy"]
    late = [arm for arm in arms if above.get(arm, BEGUN) < BEGUN]
    if late:
        return f"within {BEGUN} of the majority: {', '.join(late)}"
    return within(means["token_accuracy"], "triplets", records[0].config.task_params, BEGUN)


def printed(records: Records) -> Findings:
    """Measure T2-decoder and T2-entp: the share of whole sequences right, less that in Table 2.

    The runs must have finished their schedule.
    """
    theirs = published("entp", "match3").set_index("architecture")["sequence_accuracy"]
    for name in TWINS:
        if runs := select(records, arm=name):
            yield measured(
                f"T2-{name}", summary(runs)["sequence_accuracy"] - theirs[name], runs, True
            )


def printed_at_scale(records: Records) -> Findings:
    """Measure ``printed`` at the tiers that have the paper's task.

    The others end half-way; ``match3_end``, which does not, measures it itself.
    """
    whole = records[0].config.tier in ("gpu", "paper")
    return printed(select(records, variant="match3")) if whole else []


def differences(records: Records) -> Findings:
    """Measure M3-modulus, M3-anchor and M3-count: ENTP's lead on a variant less that on Match3′.

    Leads are in token accuracy.
    """
    table = summary(records)
    base = select(records, variant="match3")
    for name in ("modulus", "anchor", "count"):
        runs = select(records, variant=name)
        change = (gap(table, name) - gap(table, "match3")).dropna()
        if len(change):
            sides = above_mode(table[table["variant"] == name], TWINS, NEAR)
            late = excluded(runs, TWINS) or excluded(base, TWINS)
            used = select(records, variant=("match3", name), arm=TWINS)
            yield measured(f"M3-{name}", change, used, True, levels=sides, excluded_because=late)


SIDES = {arm: ARMS[arm] for arm in (*TWINS, EQUAL_FORWARDS)}
MATCH3 = Experiment(
    "match3",
    1,
    "Match3′ and its three differences from Count3",
    "06_match3",
    Plan("match3", "triplets", TIERS, SIDES, VARIANTS, variant_label="variant"),
    Comparisons(
        [Paired("T2-shared", "sequence_accuracy", "entp", "decoder", dict(variant="match3"))],
        near=NEAR,
        excluded=excluded,
        others=(printed_at_scale, differences),
    ),
)
