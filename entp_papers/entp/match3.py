"""Match3′ (§6.4, Table 2) and the three differences from Count3, each alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.changes import LONGER
from entp_lib.experiments.experiment import Experiment, PlannedRun, Tier, compute_ratio, name_of, select, twins
from entp_lib.experiments.frames import levels, paired, published, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.statistics import exceeds
from entp_lib.tasks import Triplets
from entp_papers.entp.pairless import within

NEAR = 0.01  # of accuracy: closer to the majority baseline, or to 1, counts as being there
BEGUN = 0.02  # at overnight, by its design: an arm closer to the majority has not begun, and bars its variant
ADDED = 0.05  # of sequences, the margin of Table 2's rows: a decoder that gains more from more steps is not at its end
# What changes from Match3′ in each variant, in the order of §6.4.
CHANGES = {
    "match3": {},
    "modulus": {"modulus": 0},
    "anchor": {"anchor": "last"},
    "count": {"output": "count"},
}
VARIANT_NAMES = {
    "match3": "Match3′",
    "modulus": "modulus = length",
    "anchor": "x_t in place of x_1",
    "count": "count in place of existence",
}

TIERS = {
    "smoke": Tier(
        dict(length=8, symbols=8, modulus=16),
        dict(n_layers=2, n_heads=2, width=16),
        TrainConfig(
            steps=20,
            batch_size=16,
            warmup_steps=5,
            eval_every=10,
            eval_sequences=64,
            final_eval_sequences=128,
        ),
        2,
    ),
    "quick": Tier(
        dict(length=8, symbols=11, modulus=11),
        dict(n_layers=2, n_heads=4, width=64),
        TrainConfig(
            steps=400,
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=50,
            eval_every=20,
            eval_sequences=256,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "overnight": Tier(
        dict(length=8, symbols=11, modulus=11),
        dict(n_layers=2, n_heads=4, width=64),
        TrainConfig(
            steps=2000,
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=100,
            eval_every=20,
            eval_sequences=512,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "gpu": Tier(
        dict(),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=30_000, decay_steps=30_000, eval_every=250, eval_sequences=1024, precision="bf16"),
        1,
    ),
    "paper": Tier(
        dict(),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=100_000, eval_every=500, eval_sequences=1600, precision="bf16"),
        5,
    ),
}
# The differences are measured where a laptop can afford them; the paper's own scale is Match3′ alone.
VARIANTS_AT = {tier: tuple(CHANGES) for tier in ("smoke", "quick", "overnight")}
VARIANTS_AT |= {"gpu": ("match3",), "paper": ("match3",)}
ARMS = ("decoder", "entp")  # what every variant is trained with
WITH_LONGER = ("smoke", "overnight")  # where a decoder is given ENTP's token-forwards on Match3′ itself


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Both architectures at every variant and seed of a tier, and a decoder at ENTP's token-forwards on Match3′."""
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    for name in VARIANTS_AT[tier]:
        params = {**setting.task, **CHANGES[name]}
        task = Triplets(**params)
        model = ModelConfig("decoder", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
        base = RunConfig("match3", tier, "triplets", params, model, setting.train)
        runs += twins(base, ARMS, seeds or setting.seeds, variant=name)
        if name == "match3" and tier in WITH_LONGER:
            longer = replace(base, train=base.train.lengthened(compute_ratio(task)))
            runs += twins(longer, ("decoder",), seeds or setting.seeds, variant=name, arm=LONGER)
    return runs


METRICS = {"token_accuracy": "T2-tokens", "sequence_accuracy": "T2-sequences"}  # with the claim of each


def variant_table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with the accuracy above the majority at each position."""
    table = summary(records)
    table["above_baseline"] = table["token_accuracy"] - table["baseline_token_accuracy"]
    return table


def gap(table: pd.DataFrame, variant: str, metric: str = "token_accuracy", second: str = "decoder") -> pd.Series:
    """ENTP − decoder (or another arm) of a metric on one variant, by seed."""
    return paired(table[table["variant"] == variant], metric, "entp", second)


def gaps(records: Sequence[Record]) -> dict[str, pd.Series]:
    """ENTP − decoder in token accuracy, by seed, for each variant under its readable name."""
    table = variant_table(records)
    return {VARIANT_NAMES[name]: gap(table, name) for name in dict.fromkeys(table["variant"])}


def shares(records: Sequence[Record]) -> dict[str, pd.Series]:
    """The gap of each variant less that of Match3′, both as shares of the way from the majority guess to 1, by seed."""
    table = variant_table(records)
    guess = table[table["arm"] == "decoder"].set_index(["variant", "seed"])["baseline_token_accuracy"]
    found = {name: gap(table, name) / (1 - guess[name]) for name in dict.fromkeys(table["variant"])}
    return {VARIANT_NAMES[name]: (own - found["match3"]).dropna() for name, own in found.items() if name != "match3"}


def against(records: Sequence[Record]) -> dict[tuple[str, str], pd.Series]:
    """ENTP less each decoder on Match3′ itself, by seed, under (the decoder's arm, metric), where both ran."""
    table = variant_table(records)
    found = {
        (second, metric): gap(table, "match3", metric, second) for second in ("decoder", LONGER) for metric in METRICS
    }
    return {key: values for key, values in found.items() if len(values)}


def stuck(records: Sequence[Record]) -> pd.DataFrame:
    """The runs that never left the majority guess at their positions, with their token accuracy and the guess's."""
    table = variant_table(records)
    still = table[exceeds(table["baseline_token_accuracy"] + NEAR, table["token_accuracy"])]
    found = still[["variant", "arm", "seed", "token_accuracy", "baseline_token_accuracy"]]
    return found.replace({"variant": VARIANT_NAMES}).round(3).reset_index(drop=True)


def not_begun(rows: pd.DataFrame, arms: Sequence[str], params: Mapping[str, Any]) -> str:
    """Which arms of a variant are at the majority, by the design of ``overnight``, or that none finds pairs; or empty.

    ``params``: the variant's task. That a pair was found takes as much above the pairless bound as the design asks.
    """
    means = rows.groupby("arm")["above_baseline"].mean()
    late = [arm for arm in arms if means.get(arm, BEGUN) < BEGUN]
    if late:
        return f"within {BEGUN} of the majority: {', '.join(late)}"
    return within(rows[rows["arm"].isin(arms)].groupby("arm")["token_accuracy"].mean(), "triplets", params, BEGUN)


def unfinished(base: pd.DataFrame) -> str:
    """That a longer schedule adds more than ``ADDED`` to the decoder's share of right sequences; else empty."""
    means = base.groupby("arm")["sequence_accuracy"].mean()
    more = means.get(LONGER, math.nan) - means.get("decoder", math.nan)
    return f"too little trained to tell: a longer schedule adds {more:.2f} of the sequences" if more > ADDED else ""


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Table 2, ENTP's lead at equal steps, and the three differences, from paired final values."""
    if not records:
        return []
    table, tier = variant_table(records), records[0].config.tier

    base = table[table["variant"] == "match3"]
    params = {r.labels["variant"]: r.config.task_params for r in records}

    def claim(name: str, values: pd.Series, stand: tuple = (), barred: str = "", **labels) -> Measurement:
        ids = tuple(name_of(r) for r in select(records, **labels))
        return Measurement(name, values.tolist(), tier, ids, tier == "paper", stand, barred)

    found = []
    for metric, name in METRICS.items():
        floor = base[f"baseline_{metric}"].mean()
        stand = levels(base, metric, ARMS, floor=floor, ceiling=1.0, distance=NEAR)
        late = not_begun(base, ARMS, params["match3"])
        found.append(claim(name, gap(base, "match3", metric), stand, late, variant="match3", arm=ARMS))
    printed = published("entp", "match3").set_index("architecture")["sequence_accuracy"]
    for name in ARMS if tier != "quick" else ():  # Table 2 is the end of the course, quick its beginning
        right = base[base["arm"] == name].set_index("seed")["sequence_accuracy"]
        late = unfinished(base) if name == "decoder" else ""
        found.append(claim(f"T2-{name}", right - printed[name], (), late, variant="match3", arm=name))
    for name in ("modulus", "anchor", "count"):
        if (table["variant"] == name).any():
            rows = table[table["variant"] == name]
            change = (gap(table, name) - gap(table, "match3")).dropna()
            late = not_begun(rows, ARMS, params[name]) or not_begun(base, ARMS, params["match3"])
            floor = rows["baseline_token_accuracy"].mean()
            stand = levels(rows, "token_accuracy", ARMS, floor=floor, ceiling=1.0, distance=NEAR)
            found.append(claim(f"M3-{name}", change, stand, late, variant=("match3", name), arm=ARMS))
    return found


MATCH3 = Experiment(
    name="match3",
    version=1,
    title="Match3′ and its three differences from Count3",
    notebook="06_match3",
    plan=plan,
    measure=measure,
)
