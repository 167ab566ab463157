"""Decoders trained on Count3: with a chain of thought or at once (Remark 6.4), and of several depths (§6.1).

Lemma 6.2 has the necessary depth grow linearly with n, given Conjecture 6.1, which is false as stated. Trained
accuracy can neither prove nor refute that: it shows what a few layers learn of short sequences.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import levels, paired, select, summary
from entp_lib.experiments.measurements import Level, Measurement, name_of
from entp_lib.experiments.plans import PlannedRun, planned, twins
from entp_lib.records.store import Record
from entp_lib.tasks import Chain, Counting
from entp_papers.entp.pairless import within

NEAR = 0.02  # of accuracy: closer to the baseline, or to 1, counts as being there
MORE_STEPS = 3  # the direct answer's rows are a third as long as the trace's: both process the same number of tokens
SHALLOW = 2
# By tier: schedule and seeds of both experiments.
SMOKE = TrainConfig(10, 16, warmup_steps=2, eval_every=5, eval_sequences=32, final_eval_sequences=64)
QUICK = TrainConfig(
    3000, 64, 3e-3, 3e-4, warmup_steps=100, eval_every=150, eval_sequences=512, final_eval_sequences=4096
)
SCHEDULES = {
    "smoke": (SMOKE, 2),
    "quick": (QUICK, 5),
    "gpu": (TrainConfig(10_000, decay_steps=10_000, eval_every=250, precision="bf16"), 5),
    "paper": (TrainConfig(100_000, eval_every=500, precision="bf16"), 5),
}
# By tier: the task and the model.
CHAINS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "smoke": (dict(longest=3, symbols=4), dict(n_layers=2, n_heads=2, width=16)),
    "quick": (dict(longest=5, symbols=8), dict(n_layers=3, n_heads=4, width=64)),
    "gpu": (dict(longest=16, symbols=16), dict(n_layers=6, n_heads=6, width=384)),
    "paper": (dict(longest=64, symbols=64), dict(n_layers=6, n_heads=6, width=384)),
}
# By tier: the length that has several depths, these, the other lengths at ``SHALLOW`` layers, and the model's size.
DEPTHS: dict[str, dict[str, Any]] = {
    "smoke": dict(length=6, depths=(1, 2), lengths=(5,), model=dict(width=16, n_heads=2)),
    "quick": dict(length=10, depths=(1, 2, 4, 8, 12), lengths=(6, 8, 14), model=dict(width=64, n_heads=4)),
    "gpu": dict(length=64, depths=(1, 2, 4, 8, 12), lengths=(16, 32), model=dict(width=192, n_heads=3)),
    "paper": dict(length=64, depths=(1, 2, 3, 6, 12, 24), lengths=(24, 32, 48), model=dict(width=384, n_heads=6)),
}


def plan_chains(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The trace and the direct answer at every seed of a tier."""
    if tier not in CHAINS:
        return []
    (task, shape), (trace, own), runs = CHAINS[tier], SCHEDULES[tier], []
    for seed in range(seeds or own):
        for arm, train in (("trace", trace), ("direct", trace.lengthened(MORE_STEPS))):
            params = {**task, "scored": arm}
            chain = Chain(**params)
            model = ModelConfig("decoder", vocab_size=chain.vocab_size, max_length=chain.length, **shape)
            config = RunConfig("chain_of_thought", tier, "chain", params, model, train, seed, seed)
            runs.append(planned(config, arm=arm))
    return runs


def chain_table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with ``answer``: how often greedy decoding ends in the right answer, at the least.

    A trace counts only if every token of it is right: then greedy decoding writes it. One with an error may end well.
    """
    found = summary(records)
    found["answer"] = found["sequence_accuracy"]
    found["answer_given_trace"] = [r.metrics.get("answer", r.metrics)["sequence_accuracy"] for r in records]
    return found


def measure_chains(records: Sequence[Record]) -> list[Measurement]:
    """Trace − direct in right answers: whether the way out of Lemma 6.2 works when it is trained (Remark 6.4)."""
    if not records:
        return []
    ids, rows, config = tuple(map(name_of, records)), chain_table(records), records[0].config
    floor = rows.loc[rows["arm"] == "direct", "baseline_sequence_accuracy"].mean()
    reached = levels(rows, "answer", ("trace", "direct"), floor=floor, ceiling=1.0, distance=NEAR)
    barred = within(rows.groupby("arm")["answer"].mean(), "chain", config.task_params)
    gaps = paired(rows, "answer", "trace", "direct").tolist()
    return [Measurement("6.4-trained", gaps, config.tier, ids, levels=reached, excluded_because=barred)]


def plan_depths(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoders of every depth at the tier's length, and of ``SHALLOW`` layers at the others."""
    if tier not in DEPTHS:
        return []
    t, (train, own), runs = DEPTHS[tier], SCHEDULES[tier], []
    if tier == "quick":
        train = replace(train, steps=600, max_lr=2e-3, min_lr=2e-4, eval_every=60)
    for n, layers in [(t["length"], depth) for depth in t["depths"]] + [(n, SHALLOW) for n in t["lengths"]]:
        params = dict(length=n, seed_length=16 if n > 16 else 4, symbols=n, held_out=0.2)
        model = ModelConfig("decoder", layers, vocab_size=Counting(**params).vocab_size, max_length=n, **t["model"])
        base = RunConfig("depth", tier, "counting", params, model, train)
        runs += twins(base, ("decoder",), seeds or own, length=n, layers=layers)
    return runs


def depth_tables(records: Sequence[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``summary`` with the accuracy above the mode baseline: at the length that has several depths, and by length."""
    found = summary(records)
    found["above_baseline"] = found["token_accuracy"] - found["baseline_token_accuracy"]
    deep = found["length"] == found.groupby("length")["layers"].nunique().idxmax()
    return found[deep], found[found["layers"] == SHALLOW]


def measure_depths(records: Sequence[Record]) -> list[Measurement]:
    """Token accuracy of the deepest decoders − two layers', which does not settle Lemma 6.2."""
    deep = depth_tables(records)[0] if records else pd.DataFrame({"layers": []})
    if SHALLOW not in set(deep["layers"]):
        return []
    arms = (int(deep["layers"].max()), SHALLOW)  # a single layer is ENTP's own
    gain = paired(deep, "token_accuracy", *arms, by="layers")
    used = select(records, length=int(deep["length"].iloc[0]), layers=arms)
    rows = deep[deep["layers"].isin(arms)].groupby("layers")
    means = rows[["token_accuracy", "baseline_token_accuracy"]].mean()
    reached = tuple(Level(score, baseline, 1.0, NEAR) for score, baseline in means.itertuples(index=False))
    names, config = tuple(map(name_of, used)), used[0].config
    barred = within(means["token_accuracy"], config.task, config.task_params)
    return [Measurement("6.2-depth", gain.tolist(), config.tier, names, levels=reached, excluded_because=barred)]


COMMON = dict(version=1, notebook="04_rasp", changeable=False)
CHAIN_OF_THOUGHT = Experiment(
    name="chain_of_thought",
    title="Count3 with and without a chain of thought",
    plan=plan_chains,
    measure=measure_chains,
    **COMMON,
)
DEPTH = Experiment(
    name="depth", title="Depth of a decoder on Count3", plan=plan_depths, measure=measure_depths, **COMMON
)
