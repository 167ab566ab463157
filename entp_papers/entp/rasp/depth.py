"""What depth buys a decoder on Count3: accuracy against layers at one length, and against length at two layers (§6.1).

Lemma 6.2 has the necessary depth grow linearly with n, given Conjecture 6.1, which is false as stated. Trained
accuracy can neither prove nor refute that: it shows what a few layers learn of short sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, name_of, select, twins
from entp_lib.experiments.frames import paired, summary
from entp_lib.experiments.measurements import Level, Measurement
from entp_lib.records.store import Record
from entp_lib.tasks import Counting
from entp_papers.entp.pairless import within

SHALLOW = 2
NEAR = 0.02  # of accuracy: closer to the mode baseline, or to 1, counts as being there


@dataclass(frozen=True)
class DepthTier:
    """One tier: the length that has several depths, the other lengths at ``SHALLOW`` layers, and what all share."""

    length: int
    depths: tuple[int, ...]
    lengths: tuple[int, ...]
    model: dict[str, int]
    train: TrainConfig
    seeds: int


TIERS = {
    "smoke": DepthTier(
        6,
        (1, 2),
        (5,),
        dict(width=16, n_heads=2),
        TrainConfig(steps=10, batch_size=16, warmup_steps=2, eval_every=5, eval_sequences=32, final_eval_sequences=64),
        2,
    ),
    "quick": DepthTier(
        10,
        (1, 2, 4, 8, 12),
        (6, 8, 14),
        dict(width=64, n_heads=4),
        TrainConfig(
            steps=600,
            batch_size=64,
            max_lr=2e-3,
            min_lr=2e-4,
            warmup_steps=100,
            eval_every=60,
            eval_sequences=512,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "gpu": DepthTier(
        64,
        (1, 2, 4, 8, 12),
        (16, 32),
        dict(width=192, n_heads=3),
        TrainConfig(steps=10_000, decay_steps=10_000, eval_every=250, precision="bf16"),
        5,
    ),
    "paper": DepthTier(
        64,
        (1, 2, 3, 6, 12, 24),
        (24, 32, 48),
        dict(width=384, n_heads=6),
        TrainConfig(steps=100_000, eval_every=500, precision="bf16"),
        5,
    ),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoders of every depth at the tier's length, and of ``SHALLOW`` layers at the others."""
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    shapes = [(setting.length, layers) for layers in setting.depths] + [(n, SHALLOW) for n in setting.lengths]
    for n, layers in shapes:
        params = dict(length=n, seed_length=16 if n > 16 else 4, symbols=n, held_out=0.2)
        task = Counting(**params)
        model = ModelConfig("decoder", layers, vocab_size=task.vocab_size, max_length=n, **setting.model)
        base = RunConfig("depth", tier, "counting", params, model, setting.train)
        runs += twins(base, ("decoder",), seeds or setting.seeds, length=n, layers=layers)
    return runs


def table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with the accuracy above the most frequent symbol at each position."""
    found = summary(records)
    found["above_baseline"] = found["token_accuracy"] - found["baseline_token_accuracy"]
    return found


def by_depth(records: Sequence[Record]) -> pd.DataFrame:
    """The rows at the length that has several depths."""
    found = table(records)
    return found[found["length"] == found.groupby("length")["layers"].nunique().idxmax()]


def by_length(records: Sequence[Record]) -> pd.DataFrame:
    """The rows with ``SHALLOW`` layers."""
    found = table(records)
    return found[found["layers"] == SHALLOW]


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Token accuracy of the deepest decoders − two layers', which does not settle Lemma 6.2."""
    if not records or SHALLOW not in set(by_depth(records)["layers"]):
        return []
    deep = by_depth(records)
    arms = (int(deep["layers"].max()), SHALLOW)  # a single layer is ENTP's own
    gain = paired(deep, "token_accuracy", *arms, by="layers")
    used = select(records, length=int(deep["length"].iloc[0]), layers=arms)
    rows = deep[deep["layers"].isin(arms)].groupby("layers")
    means = rows[["token_accuracy", "baseline_token_accuracy"]].mean()
    stand = tuple(Level(score, baseline, 1.0, NEAR) for score, baseline in means.itertuples(index=False))
    names, config = tuple(map(name_of, used)), used[0].config
    barred = within(means["token_accuracy"], config.task, config.task_params)
    return [Measurement("6.2-depth", gain.tolist(), config.tier, names, levels=stand, excluded_because=barred)]


DEPTH = Experiment(
    name="depth",
    version=1,
    title="Depth of a decoder on Count3",
    notebook="04_rasp",
    plan=plan,
    measure=measure,
    changeable=False,
)
