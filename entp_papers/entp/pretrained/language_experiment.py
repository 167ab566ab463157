"""Figures 4 and 9 as planned runs: LoRA on Table 5's prompts, the model before it, and its mask lifted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from entp_lib.config import StudyConfig, TrainConfig
from entp_lib.experiments.experiment import (
    Experiment,
    PlannedRun,
    compute_ratio,
    name_of,
    no_claims,
    planned_study,
    select,
)
from entp_lib.experiments.frames import levels, paired
from entp_lib.experiments.measurements import Level, Measurement
from entp_lib.records.store import Record
from entp_lib.tasks import Counting
from entp_lib.validation import require
from entp_papers.entp.pairless import within
from entp_papers.entp.pretrained.encoder_experiment import NEAR, NOTEBOOK, plain
from entp_papers.entp.pretrained.weights import check_readable

ORDERS = {"count3": 3, "count2": 2}
RANK = 8  # the paper does not say its own
PAPER_RATE = 1.4e-4  # C.1, with batches of 16
TASK = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
LONGER_TASK = dict(length=8, seed_length=4, symbols=10, held_out=0.2, first_scored=4)
# By arm: with Table 5's code or without, and at which rate ("own": the tier's, "paper": C.1's).
PROMPTS = {"code": (True, "own"), "plain": (False, "own"), "paper_rate": (True, "paper")}


@dataclass(frozen=True)
class Setting:
    """A tier of the prompts: model, LoRA's rank, the task, the schedule, arms, seeds; how much is asked untrained."""

    model: str
    rank: int
    task: dict[str, Any]
    train: TrainConfig
    arms: tuple[str, ...]
    seeds: int
    answers: int
    zero_shot: int


def schedule(steps: int, batch: int, rate: float, evaluations: int, **more: Any) -> TrainConfig:
    """Linear warm-up over a tenth of the steps, cosine to a tenth of the rate, no weight decay."""
    common = dict(max_lr=rate, min_lr=rate / 10, warmup_steps=-(-steps // 10), weight_decay=0.0)
    return TrainConfig(steps=steps, batch_size=batch, eval_every=-(-steps // evaluations), **common, **more)


SMOKE = dict(eval_sequences=8, final_eval_sequences=8)
SETTINGS = {
    "smoke": Setting("tiny-llama", 0, TASK, schedule(2, 2, 1e-3, 1, **SMOKE), ("code", "plain"), 1, 2, 4),
    "quick": Setting(
        "smollm2",
        RANK,
        TASK,
        schedule(6, 8, 2e-3, 3, eval_sequences=4, final_eval_sequences=24),
        ("code", "plain"),
        5,
        12,
        32,
    ),
    "overnight": Setting(
        "smollm2",
        RANK,
        LONGER_TASK,
        schedule(150, 16, 1e-3, 5, eval_sequences=64, final_eval_sequences=512),
        ("code", "plain", "paper_rate"),
        5,
        64,
        512,
    ),
}


def plan_prompts(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Count3 and Count2 with and without code, every seed; and each once before any training."""
    if tier not in SETTINGS:
        return []
    setting, runs = SETTINGS[tier], []
    for seed in range(seeds or setting.seeds):
        for name, order in ORDERS.items():
            for arm in setting.arms:
                with_code, rate = PROMPTS[arm]
                train = setting.train
                if rate == "paper":
                    train = schedule(train.steps, 16, PAPER_RATE, 5, **evaluated(train))
                params = dict(
                    model=setting.model,
                    task={**setting.task, "order": order},
                    with_code=with_code,
                    rank=setting.rank,
                    train_config=plain(train),
                    answers=setting.answers,
                    seed=seed,
                )
                config = StudyConfig("pretrained_prompts", tier, "pretrained_prompts", params, seed, seed)
                runs.append(planned_study(config, task=name, arm=arm))
    for name, order in ORDERS.items():
        for arm, with_code in (("code", True), ("plain", False)):
            params = dict(
                model=setting.model,
                task={**setting.task, "order": order},
                with_code=with_code,
                sequences=setting.zero_shot,
                answers=setting.zero_shot,
                seed=0,
            )
            config = StudyConfig("pretrained_prompts", tier, "pretrained_zero_shot", params)
            runs.append(planned_study(config, task=name, arm=f"{arm}, untrained"))
    return runs


DRY_RUN = dict(
    task=dict(length=63, seed_length=16, symbols=64, first_scored=16), train=100, test=10, model="gpt-4o-2024-08-06"
)


def plan_provider(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The dry run with a provider on the loopback, at the paper's lengths: nothing is trained, nobody is paid."""
    if tier not in ("smoke", "quick"):
        return []
    params = {**DRY_RUN, "client": tier != "smoke"}  # smoke runs without the extra: files and price alone
    return [planned_study(StudyConfig("pretrained_provider", tier, "pretrained_dry_run", params))]


def evaluated(train: TrainConfig) -> dict[str, int]:
    return {name: getattr(train, name) for name in ("eval_sequences", "final_eval_sequences")}


def trained(records: Sequence[Record]) -> list[Record]:
    """The records of fine-tuned models."""
    return [r for r in records if r.config.study == "pretrained_prompts"]


EMPTY = "study seed tier task arm token_accuracy sequence_accuracy exact_match invalid baseline_token_accuracy".split()


def table(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run of either experiment: labels, teacher-forced scores, answers by verdict, baseline, cost."""
    rows = []
    for r in records:
        m = r.metrics
        row = {**r.labels, **{k: m[k] for k in ("loss", "token_accuracy", "sequence_accuracy")}}
        row |= {k: v for k, v in m.get("generated", {}).items() if k != "answers"}
        row |= {f"baseline_{k}": m["baseline"][k] for k in ("token_accuracy", "sequence_accuracy")}
        row |= {"steps": m.get("steps", 0), "token_forwards": m.get("token_forwards", 0)}
        row |= {k: r.provenance[k] for k in ("cpu_seconds", "peak_memory_bytes")}
        rows.append(row)
    found = pd.DataFrame(rows, columns=None if rows else [*EMPTY])
    found["above_baseline"] = found["token_accuracy"] - found["baseline_token_accuracy"]
    return found


def examples(records: Sequence[Record], task: str, kind: str, most: int = 5) -> pd.DataFrame:
    """Answers that fine-tuned models wrote, ``right`` or ``wrong``, at most ``most``, from one run after the other."""
    found = [e | {"seed": r.labels["seed"]} for r in trained(records) for e in shown(r, task, kind)]
    return pd.DataFrame(found[:most], columns=["seed", "asked", "right", "answered", "verdict"])


def shown(record: Record, task: str, kind: str) -> list[dict[str, str]]:
    require(kind in ("right", "wrong"), f"kind = {kind!r}: must be 'right' or 'wrong'")
    return record.metrics["examples"][kind] if record.labels["task"] == task else []


def measure_prompts(records: Sequence[Record]) -> list[Measurement]:
    """Whether the tuned model fails on Count3 and learns the control with the same prompt."""
    if not records:
        return []
    tier, tuned = records[0].config.tier, trained(records)
    scores = table(tuned)
    code = scores[scores["arm"] == "code"].set_index(["task", "seed"])
    hard, easy = code.loc["count3"], code.loc["count2"]
    # That Count3 fails says something only where the same training teaches the control.
    control = Level(easy["sequence_accuracy"].mean(), easy["baseline_sequence_accuracy"].mean(), 1.0, NEAR)
    barred = "the control is not learned" if control.at_floor else ""
    fails = (hard["sequence_accuracy"] - hard["baseline_sequence_accuracy"]).tolist()
    used = {n: tuple(name_of(r) for r in select(tuned, task=n, arm="code")) for n in ORDERS}
    both = used["count3"] + used["count2"]
    gap = (easy["above_baseline"] - hard["above_baseline"]).dropna().tolist()
    stand = tuple(
        Level(part["token_accuracy"].mean(), part["baseline_token_accuracy"].mean(), 1.0, NEAR) for part in (hard, easy)
    )
    tasks = [record.config.params["task"] for n in ORDERS for record in select(tuned, task=n, arm="code")[:1]]
    asked = zip((hard, easy), sorted(tasks, key=lambda task: -task["order"]), strict=True)
    beyond = [within([part["token_accuracy"].mean()], "counting", task) for part, task in asked]
    return [
        Measurement("F4-llm", fails, tier, both, excluded_because=barred),
        Measurement("C1-llm", gap, tier, both, levels=stand, excluded_because="; ".join(beyond) if all(beyond) else ""),
    ]


LIFTED_ARMS = ("entp", "decoder", "longer")
LIFTED_AT_QUICK = ("entp", "decoder")  # equal token-forwards are left to overnight
LIFTED = {
    "smoke": ("tiny-llama", 0, TASK, schedule(2, 2, 1e-3, 1, **SMOKE), 1),
    "quick": ("smollm2", RANK, TASK, schedule(20, 8, 2e-3, 5, eval_sequences=32, final_eval_sequences=128), 5),
    "overnight": (
        "smollm2",
        RANK,
        LONGER_TASK,
        schedule(200, 16, 1e-3, 10, eval_sequences=128, final_eval_sequences=512),
        5,
    ),
}


def plan_lifted(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The bare sequence of Count3 with the model's mask lifted, kept, and kept at equal token-forwards."""
    if tier not in LIFTED:
        return []
    model, rank, task, train, own = LIFTED[tier]
    longer = train.lengthened(compute_ratio(Counting(**task)))
    runs = []
    for seed in range(seeds or own):
        for arm in LIFTED_AT_QUICK if tier == "quick" else LIFTED_ARMS:
            params = dict(
                model=model,
                architecture="entp" if arm == "entp" else "decoder",
                task={**task, "order": 3},
                rank=rank,
                train_config=plain(longer if arm == "longer" else train),
                seed=seed,
            )
            config = StudyConfig("pretrained_lifted", tier, "pretrained_lifted", params, seed, seed)
            runs.append(planned_study(config, task="count3", arm=arm))
    return runs


def measure_lifted(records: Sequence[Record]) -> list[Measurement]:
    """The mask lifted less the mask kept, at equal steps, in token accuracy."""
    if not records:
        return []
    scores, arms = table(records), ("entp", "decoder")
    floor = scores["baseline_token_accuracy"].mean()
    stand = levels(scores, "token_accuracy", arms, floor=floor, ceiling=1.0, distance=NEAR)
    used = tuple(name_of(r) for r in select(records, arm=arms))
    values = paired(scores, "token_accuracy", *arms).tolist()
    means = scores[scores["arm"].isin(arms)].groupby("arm")["token_accuracy"].mean()
    barred = within(means, "counting", records[0].config.params["task"])
    return [Measurement("F4-lifted", values, records[0].config.tier, used, levels=stand, excluded_because=barred)]


PRETRAINED_PROMPTS = Experiment(
    name="pretrained_prompts",
    version=1,
    title="LoRA on Table 5's prompts: Count3 and its control",
    notebook=NOTEBOOK,
    plan=plan_prompts,
    measure=measure_prompts,
    jobs=1,
    check_prerequisites=check_readable,
    show_only=True,
)
PRETRAINED_PROVIDER = Experiment(
    name="pretrained_provider",
    version=1,
    title="A provider's fine-tuning, tried on the loopback",
    notebook=NOTEBOOK,
    plan=plan_provider,
    measure=no_claims,
    jobs=1,
)
PRETRAINED_LIFTED = Experiment(
    name="pretrained_lifted",
    version=1,
    title="A causal language model with its mask lifted",
    notebook=NOTEBOOK,
    plan=plan_lifted,
    measure=measure_lifted,
    jobs=1,
    check_prerequisites=check_readable,
    show_only=True,
)
