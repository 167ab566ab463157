"""Figures 3, 4 and 9 as planned runs: a pretrained BERT as ENTP, LoRA on prompts, a mask lifted.

Runs of one seed share their batches, so that arms are compared in pairs.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from entp_lab.budgets import EQUAL_OPERATIONS, compute_ratio, prefixes_of
from entp_lab.configs import Json, lengthened
from entp_lab.experiment import (
    Closed,
    Experiment,
    PlannedRun,
    PlannedRuns,
    Tier,
    no_claims,
    planned_study,
)
from entp_lab.frames import ACCURACIES, select
from entp_lab.measurements import (
    Comparisons,
    Findings,
    Level,
    Paired,
    measured,
    still_improving,
)
from entp_lab.parameters import NotebookParameters
from entp_lab.store import Records
from entp_lib.config import TrainConfig
from entp_lib.tasks import Counting
from entp_lib.validation import require
from entp_papers.entp.pairless import within
from entp_papers.entp.pretrained.weights import BUNDLED, check_readable

NOTEBOOK = "05_pretrained"
NEAR = 0.02  # in accuracy: closer to always the most frequent answer, or to 1, counts as equal
ORDERS = {"count3": 3, "count2": 2}

# Arms of the encoder: the initial weights, the architecture, and how symbols are read in.
# The adapter runs every prefix anew, so an ENTP step has as many times a decoder's multiply-adds as
# it has its tokens (attention itself, a hundredth of the whole, left aside).
ENCODER_ARMS = {
    "pretrained": ("pretrained", "entp", "tokens"),
    "random": ("random", "entp", "tokens"),
    "decoder": ("random", "decoder", "tokens"),
    EQUAL_OPERATIONS: ("random", "decoder", "tokens"),
    "fresh": ("pretrained", "entp", "fresh"),
}
# Arms of the prompts: whether Table 5's code is in them, and whether the learning rate and the
# batch of 16 are C.1's or the tier's.
PROMPT_ARMS = {"code": (True, False), "plain": (False, False), "paper_rate": (True, True)}
PAPER_RATE = 1.4e-4


def schedule(
    steps: int, batch: int, rate: float, evaluations: int, scored: int, scored_at_end: int
) -> TrainConfig:
    """Return a schedule: linear warm-up in a tenth of the steps, cosine to a tenth of the rate."""
    return TrainConfig(
        steps=steps,
        batch_size=batch,
        max_lr=rate,
        min_lr=rate / 10,
        warmup_steps=-(-steps // 10),
        weight_decay=0.0,
        eval_every=-(-steps // evaluations),
        eval_sequences=scored,
        final_eval_sequences=scored_at_end,
    )


# By tier; ``model`` has the model's name and further parameters of the study, such as ``layers`` of
# the body (0 for all) or the ``rank`` of LoRA (0 trains all weights; the paper does not say which
# rank it used).
SHORT = TrainConfig(
    4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=16, final_eval_sequences=32
)
BRIEF = TrainConfig(
    64,
    batch_size=32,
    max_lr=5e-4,
    min_lr=5e-5,
    warmup_steps=8,
    eval_every=8,
    eval_sequences=64,
    final_eval_sequences=256,
)
LONG = TrainConfig(
    600,
    batch_size=32,
    max_lr=3e-4,
    min_lr=3e-5,
    warmup_steps=60,
    eval_every=30,
    eval_sequences=512,
    final_eval_sequences=2048,
)
SMALL = dict(length=8, seed_length=3, symbols=8, held_out=0.2)
TENS = dict(length=10, seed_length=4, symbols=10, held_out=0.2)
LEAST = dict(length=5, seed_length=2, symbols=6)
ARMS = tuple(ENCODER_ARMS)
ENCODER = {
    "smoke": Tier(LEAST, dict(model="tiny-bert", layers=0), SHORT, 2, ARMS),
    "quick": Tier(SMALL, dict(model="minilm", layers=2), BRIEF, 5, ARMS[:-1]),
    "overnight": Tier(TENS, dict(model="minilm", layers=0), LONG, 5, ARMS),
}
TASK = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
LONG_TASK = dict(length=8, seed_length=4, symbols=10, held_out=0.2, first_scored=4)
TWO_STEPS = schedule(2, 2, 1e-3, 1, 8, 8)
SIX_STEPS = schedule(6, 8, 2e-3, 3, 4, 24)
NIGHT = schedule(150, 16, 1e-3, 5, 64, 512)
BOTH = ("code", "plain")
PROMPTS = {
    "smoke": Tier(TASK, dict(model="tiny-llama", rank=0, answers=2), TWO_STEPS, 1, BOTH),
    "quick": Tier(TASK, dict(model="smollm2", rank=8, answers=12), SIX_STEPS, 5, BOTH),
    "overnight": Tier(
        LONG_TASK, dict(model="smollm2", rank=8, answers=64), NIGHT, 5, tuple(PROMPT_ARMS)
    ),
}
ZERO_SHOT = {"smoke": 4, "quick": 32, "overnight": 512}  # prompts for the untrained model
LIFTED_ARMS = ("entp", "decoder", EQUAL_OPERATIONS)
TWENTY_STEPS = schedule(20, 8, 2e-3, 5, 32, 128)
LIFTED = {
    "smoke": Tier(TASK, dict(model="tiny-llama", rank=0), TWO_STEPS, 1, LIFTED_ARMS),
    "quick": Tier(TASK, dict(model="smollm2", rank=8), TWENTY_STEPS, 5, LIFTED_ARMS[:-1]),
    "overnight": Tier(
        LONG_TASK,
        dict(model="smollm2", rank=8),
        schedule(200, 16, 1e-3, 10, 128, 512),
        5,
        LIFTED_ARMS,
    ),
}


def plain(train: TrainConfig) -> Json:
    """Return a schedule as JSON types, defaults left out."""
    usual = asdict(TrainConfig(train.steps))
    values = {name: value for name, value in asdict(train).items() if value != usual[name]}
    if "betas" in values:
        values["betas"] = list(values["betas"])
    return {"steps": train.steps, **values}


def schedule_of(setting: Tier, arm: str) -> Json:
    """Return the schedule of an arm, longer if it has ENTP's multiply-adds."""
    longer = arm == EQUAL_OPERATIONS
    ratio = compute_ratio(prefixes_of(Counting(**setting.task))) if longer else 1
    return plain(lengthened(setting.train, ratio) if longer else setting.train)


def plan_encoder(tier: str, seeds: int) -> PlannedRuns:
    """Plan every arm and seed of a tier; random arms of one seed share their weights."""
    setting = ENCODER[tier]
    for seed, arm in itertools.product(range(seeds or setting.seeds), setting.arms):
        start, architecture, read_in = ENCODER_ARMS[arm]
        params = {
            "task": setting.task,
            "start": start,
            "architecture": architecture,
            "read_in": read_in,
            "train_config": schedule_of(setting, arm),
            "seed": seed,
            **setting.model,
        }
        name = "pretrained_encoder"
        yield planned_study(name, tier, name, params, seed, arm=arm)


def plan_prompts(tier: str, seeds: int) -> PlannedRuns:
    """Plan Count3 and Count2 with and without code, every seed; and each once untrained."""
    setting = PROMPTS[tier]
    train = setting.train
    scored = (train.eval_sequences, train.final_eval_sequences)
    schedules = {False: train, True: schedule(train.steps, 16, PAPER_RATE, 5, *scored)}
    name = "pretrained_prompts"

    tasks = {task: {**setting.task, "order": order} for task, order in ORDERS.items()}
    for seed, task, arm in itertools.product(range(seeds or setting.seeds), ORDERS, setting.arms):
        with_code, paper_rate = PROMPT_ARMS[arm]
        own = {"with_code": with_code, "train_config": plain(schedules[paper_rate]), "seed": seed}
        params = {**setting.model, "task": tasks[task], **own}
        yield planned_study(name, tier, name, params, seed, task=task, arm=arm)
    for task, arm in itertools.product(ORDERS, BOTH):
        params = {
            "model": setting.model["model"],
            "task": tasks[task],
            "with_code": arm == "code",
            "sequences": ZERO_SHOT[tier],
            "answers": ZERO_SHOT[tier],
            "seed": 0,
        }
        labels = dict(task=task, arm=f"{arm}, untrained")
        yield planned_study(name, tier, "pretrained_zero_shot", params, 0, **labels)


def plan_lifted(tier: str, seeds: int) -> PlannedRuns:
    """Plan the bare sequence of Count3 with the model's mask lifted, kept, and kept for longer."""
    setting = LIFTED[tier]
    for seed, arm in itertools.product(range(seeds or setting.seeds), setting.arms):
        params = {
            "architecture": "entp" if arm == "entp" else "decoder",
            "task": {**setting.task, "order": 3},
            "train_config": schedule_of(setting, arm),
            "seed": seed,
            **setting.model,
        }
        name = "pretrained_lifted"
        yield planned_study(name, tier, name, params, seed, task="count3", arm=arm)


COSTS = ("cpu_seconds", "peak_memory_bytes")


def table(records: Records) -> pd.DataFrame:
    """Return a row per run: labels, teacher-forced scores, the baseline's, and cost."""
    rows = []
    for r in records:
        row = {**r.labels, **{name: r.provenance[name] for name in COSTS}}
        for name in ACCURACIES:
            row[name] = r.metrics[name]
            row[f"baseline_{name}"] = r.metrics["baseline"][name]
        rows.append(row)
    return pd.DataFrame(rows)


def near_baseline(records: Records, arms: Sequence[str]) -> str:
    """Return a message if no arm is far enough above the shortcut (see ``within``), else ""."""
    means = table(select(records, arm=tuple(arms))).groupby("arm")["token_accuracy"].mean()
    return within(means, "counting", records[0].config.params["task"])


def reached(scores: pd.DataFrame, metric: str) -> Level:
    """Return the level of the mean of a metric over seeds."""
    return Level(scores[metric].mean(), scores[f"baseline_{metric}"].mean(), 1.0, NEAR)


def measure_prompts(records: Records) -> Findings:
    """Measure how far the tuned model fails on Count3, and its lead on the control, Count2.

    A failure on Count3 is informative only if the same training teaches the control.
    """
    tuned = [select(records, study="pretrained_prompts", arm="code", task=task) for task in ORDERS]
    hard, easy = (table(runs).set_index("seed") for runs in tuned)
    above = {
        metric: [scores[metric] - scores[f"baseline_{metric}"] for scores in (hard, easy)]
        for metric in ACCURACIES
    }
    sides = tuple(reached(scores, "token_accuracy") for scores in (hard, easy))
    alike = [
        within([side.score], "counting", runs[0].config.params["task"])
        for side, runs in zip(sides, tuned, strict=True)
    ]
    control = reached(easy, "sequence_accuracy")
    gap = (above["token_accuracy"][1] - above["token_accuracy"][0]).dropna()
    used = [*tuned[0], *tuned[1]]
    return [
        measured(
            "F4-llm",
            above["sequence_accuracy"][0],
            used,
            excluded_because="the control is not learned" if control.at_floor else "",
        ),
        measured(
            "C1-llm",
            gap,
            used,
            levels=sides,
            excluded_because="; ".join(alike) if all(alike) else "",
        ),
    ]


def notes(records: Records) -> str:
    """Say whether prompts were seen in other orders, and who was still improving."""
    task = Counting(**records[0].config.params["task"])
    return "; ".join(filter(None, (task.caveat, still_improving(records))))


def experiment(name: str, title: str, plan, measure=no_claims, **options: Any) -> Experiment:
    """Make an experiment of this notebook; one run at a time, so that weights are read once."""
    options |= dict(jobs=1, still_improving_note=notes)
    return Experiment(name, 1, title, NOTEBOOK, plan, measure, **options)


def tokens_compared(*claims: tuple[str, str, str]) -> Comparisons:
    """Return the table of claims on token accuracy: claim, and the two arms."""
    rows = [Paired(claim, "token_accuracy", *arms) for claim, *arms in claims]
    return Comparisons(rows, near=NEAR, frame=table, excluded=near_baseline)


PRETRAINED_ENCODER = experiment(
    "pretrained_encoder",
    "A pretrained BERT trained with ENTP on Count3",
    plan_encoder,
    tokens_compared(
        ("F3-bert", "pretrained", "random"),
        ("F3-bert-entp", "random", "decoder"),
        ("F3-bert-operations", "random", EQUAL_OPERATIONS),
        ("F3-bert-pretrained-operations", "pretrained", EQUAL_OPERATIONS),
        ("F3-bert-fresh", "fresh", "pretrained"),
    ),
    tiers=ENCODER,
    check_prerequisites=check_readable,
)
PRETRAINED_PROMPTS = experiment(
    "pretrained_prompts",
    "LoRA on Table 5's prompts: Count3 and its control",
    plan_prompts,
    measure_prompts,
    tiers=PROMPTS,
    check_prerequisites=check_readable,
    show_only=True,
)
PRETRAINED_LIFTED = experiment(
    "pretrained_lifted",
    "A causal language model with its mask lifted",
    plan_lifted,
    tokens_compared(("F4-lifted", "entp", "decoder")),
    tiers=LIFTED,
    check_prerequisites=check_readable,
    show_only=True,
)
# The stored rehearsal with a provider: files and price at the paper's lengths.
PRETRAINED_PROVIDER = experiment(
    "pretrained_provider",
    "A provider's fine-tuning and its price",
    Closed("pretrained_provider"),
    show_only=True,
)


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 05, each model a bundled name, a hub name or a folder."""

    encoder: str = "minilm"
    language_model: str = "smollm2"

    def __post_init__(self):
        super().__post_init__()
        for name in ("encoder", "language_model"):
            require(
                getattr(self, name).strip(),
                f"{name} = '': must name a model, such as {' or '.join(BUNDLED)}",
            )


def of_model(experiment: Experiment, model: str) -> Experiment:
    """Return the experiment with ``model`` wherever it plans a bundled one."""

    def swapped(run: PlannedRun) -> PlannedRun:
        params = run.config.params
        if params.get("model") not in BUNDLED:
            return run
        return replace(run, config=replace(run.config, params={**params, "model": model}))

    def plan(tier: str, seeds: int = 0) -> PlannedRuns:
        return [swapped(run) for run in experiment.plan(tier, seeds)]

    return replace(experiment, plan=plan)
