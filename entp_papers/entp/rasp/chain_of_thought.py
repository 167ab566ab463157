"""Count3 by chain of thought (Remark 6.4): a decoder that writes Algorithm 6's trace, and one that answers at once."""

from collections.abc import Sequence

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.experiment import Experiment, PlannedRun, Tier, name_of, planned
from entp_lib.experiments.frames import levels, paired, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.tasks import Chain
from entp_papers.entp.pairless import within

# ``train`` is that of the trace. The direct answer is trained three times as many steps: its rows are a
# third as long, so that both process the same number of tokens.
TIERS = {
    "smoke": Tier(
        dict(longest=3, symbols=4),
        dict(n_layers=2, n_heads=2, width=16),
        TrainConfig(steps=10, batch_size=16, warmup_steps=2, eval_every=5, eval_sequences=32, final_eval_sequences=64),
        2,
    ),
    "quick": Tier(
        dict(longest=5, symbols=8),
        dict(n_layers=3, n_heads=4, width=64),
        TrainConfig(
            steps=3000,
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=100,
            eval_every=150,
            eval_sequences=512,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "gpu": Tier(
        dict(longest=16, symbols=16),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=10_000, decay_steps=10_000, eval_every=250, precision="bf16"),
        5,
    ),
    "paper": Tier(
        dict(longest=64, symbols=64),
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=100_000, eval_every=500, precision="bf16"),
        5,
    ),
}
MORE_STEPS = 3
NEAR = 0.02  # of right answers: closer to none, or to all, counts as being there


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The trace and the direct answer at every seed of a tier."""
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    trains = {"trace": setting.train, "direct": setting.train.lengthened(MORE_STEPS)}
    for seed in range(seeds or setting.seeds):
        for way, train in trains.items():
            params = {**setting.task, "scored": way}
            task = Chain(**params)
            model = ModelConfig("decoder", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
            config = RunConfig("chain_of_thought", tier, "chain", params, model, train, seed, seed)
            runs.append(planned(config, arm=way))
    return runs


def table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with ``answer``: how often greedy decoding ends in the right answer, at the least.

    A trace counts only if every token of it is right: then greedy decoding writes it. One with an error may end well.
    """
    found = summary(records)
    found["answer"] = found["sequence_accuracy"]
    found["answer_given_trace"] = [r.metrics.get("answer", r.metrics)["sequence_accuracy"] for r in records]
    return found


def gaps(records: Sequence[Record]) -> pd.Series:
    """Trace − direct in right answers, paired by seed."""
    return paired(table(records), "answer", "trace", "direct")


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Whether the way out of Lemma 6.2 works when it is trained: Remark 6.4."""
    if not records:
        return []
    ids = tuple(name_of(r) for r in records)
    rows = table(records)
    floor = rows.loc[rows["arm"] == "direct", "baseline_sequence_accuracy"].mean()
    stand = levels(rows, "answer", ("trace", "direct"), floor=floor, ceiling=1.0, distance=NEAR)
    barred = within(rows.groupby("arm")["answer"].mean(), "chain", records[0].config.task_params)
    return [
        Measurement(
            "6.4-trained", gaps(records).tolist(), records[0].config.tier, ids, levels=stand, excluded_because=barred
        )
    ]


CHAIN_OF_THOUGHT = Experiment(
    name="chain_of_thought",
    version=1,
    title="Count3 with and without a chain of thought",
    notebook="04_rasp",
    plan=plan,
    measure=measure,
    changeable=False,
)
