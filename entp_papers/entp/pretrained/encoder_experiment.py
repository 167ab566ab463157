"""Figure 3's fourth curve as planned runs: a pretrained BERT with ENTP, random weights, decoders of the same size."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig, TrainConfig
from entp_lib.experiments.experiment import (
    Experiment,
    PlannedRun,
    compute_ratio,
    name_of,
    planned_study,
    select,
)
from entp_lib.experiments.frames import levels, paired
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.tasks import Counting
from entp_papers.entp.pairless import within
from entp_papers.entp.pretrained.weights import check_readable

NOTEBOOK = "05_pretrained"
# By arm: whose weights, and whether every prefix runs afresh.
ARMS = {
    "pretrained": ("pretrained", "entp"),
    "random": ("random", "entp"),
    "decoder": ("random", "decoder"),
    "longer": ("random", "decoder"),
}
LABELS = {
    "pretrained": "ENTP, pretrained",
    "random": "ENTP, random weights",
    "fresh": "ENTP, pretrained, fresh embeddings",
    "decoder": "decoder, random weights",
    "longer": "decoder, equal token-forwards",
}
NEAR = 0.02  # of accuracy: closer to the mode baseline, or to 1, counts as being there


@dataclass(frozen=True)
class Setting:
    """A tier: which body and how many of its layers (0: all), the task, the schedule, seeds, and the arms."""

    model: str
    layers: int
    task: dict[str, Any]
    train: TrainConfig
    seeds: int
    arms: tuple[str, ...] = tuple(ARMS)


SMALL = dict(length=8, seed_length=3, symbols=8, held_out=0.2)
SETTINGS = {
    "smoke": Setting(
        "tiny-bert",
        0,
        dict(length=5, seed_length=2, symbols=6),
        TrainConfig(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=16, final_eval_sequences=32),
        2,
        (*ARMS, "fresh"),
    ),
    "quick": Setting(
        "minilm",
        2,
        SMALL,
        TrainConfig(
            steps=64,
            batch_size=32,
            max_lr=5e-4,
            min_lr=5e-5,
            warmup_steps=8,
            eval_every=8,
            eval_sequences=64,
            final_eval_sequences=256,
        ),
        5,
    ),
    "overnight": Setting(
        "minilm",
        0,
        dict(length=10, seed_length=4, symbols=10, held_out=0.2),
        TrainConfig(
            steps=600,
            batch_size=32,
            max_lr=3e-4,
            min_lr=3e-5,
            warmup_steps=60,
            eval_every=30,
            eval_sequences=512,
            final_eval_sequences=2048,
        ),
        5,
        (*ARMS, "fresh"),
    ),
}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every arm and seed of a tier, seeds outermost; arms of one seed share batches, and random ones their weights."""
    if tier not in SETTINGS:
        return []
    setting = SETTINGS[tier]
    ratio = compute_ratio(Counting(**setting.task))
    runs = []
    for seed in range(seeds or setting.seeds):
        for arm in setting.arms:
            start, architecture = ARMS.get(arm, ("pretrained", "entp"))
            schedule = setting.train.lengthened(ratio) if arm == "longer" else setting.train
            params = dict(
                model=setting.model,
                start=start,
                architecture=architecture,
                read_in="fresh" if arm == "fresh" else "tokens",
                layers=setting.layers,
                task=setting.task,
                train_config=plain(schedule),
                seed=seed,
            )
            config = StudyConfig("pretrained_encoder", tier, "pretrained_encoder", params, seed, seed)
            runs.append(planned_study(config, arm=arm))
    return runs


def plain(schedule: TrainConfig) -> dict[str, Any]:
    """A schedule as JSON types, without what stands at its default."""
    values, usual = asdict(schedule), asdict(replace(TrainConfig(steps=1), steps=schedule.steps))
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if k == "steps" or v != usual[k]}


def table(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run: labels, scores, the mode baseline, and what it cost."""
    rows = []
    for r in records:
        m = r.metrics
        rows.append(
            {
                **r.labels,
                **{k: m[k] for k in ("loss", "token_accuracy", "sequence_accuracy", "steps", "token_forwards")},
                **{f"baseline_{k}": m["baseline"][k] for k in ("token_accuracy", "sequence_accuracy")},
                "train_cpu_seconds": m["cpu_seconds"],
                "cpu_seconds": r.provenance["cpu_seconds"],
                "peak_memory_bytes": r.provenance["peak_memory_bytes"],
            }
        )
    return pd.DataFrame(rows)


# Claims and questions: metric, and the arms whose difference they are about.
PAIRS = {
    "F3-bert": ("token_accuracy", "pretrained", "random"),
    "F3-bert-entp": ("token_accuracy", "random", "decoder"),
}


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Token accuracy that pretraining gives ENTP, and ENTP's lead over a decoder of its size from random weights."""
    if not records:
        return []
    found, tier = [], records[0].config.tier
    scores = table(records)
    for claim, (metric, *arms) in PAIRS.items():
        floor = scores[f"baseline_{metric}"].mean()
        stand = levels(scores, metric, arms, floor=floor, ceiling=1.0, distance=NEAR)
        used, means = select(records, arm=tuple(arms)), scores[scores["arm"].isin(arms)].groupby("arm")[metric].mean()
        standing = dict(levels=stand, excluded_because=within(means, "counting", used[0].config.params["task"]))
        values, names = paired(scores, metric, *arms).tolist(), tuple(map(name_of, used))
        found.append(Measurement(claim, values, tier, names, **standing))
    return found


PRETRAINED_ENCODER = Experiment(
    name="pretrained_encoder",
    version=1,
    title="A pretrained BERT trained with ENTP on Count3",
    notebook=NOTEBOOK,
    plan=plan,
    measure=measure,
    jobs=1,  # weights are read once per process
    check_prerequisites=check_readable,
)
