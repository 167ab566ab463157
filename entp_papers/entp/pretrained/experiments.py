"""Figures 3, 4 and 9 as planned runs: a pretrained BERT as ENTP, LoRA on Table 5's prompts, a mask
lifted, a provider.

Runs of one seed share their batches, so that arms are compared in pairs.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from entp_lab.budgets import compute_ratio
from entp_lab.configs import lengthened
from entp_lab.experiment import Experiment, no_claims
from entp_lab.frames import select
from entp_lab.measurements import Comparisons, Level, Measurement, Paired
from entp_lab.parameters import NotebookParameters
from entp_lab.plans import PlannedRun, planned_study
from entp_lab.store import Record
from entp_lib.config import TrainConfig
from entp_lib.tasks import Counting
from entp_lib.validation import require
from entp_papers.entp.pairless import within
from entp_papers.entp.pretrained.weights import BUNDLED, check_readable

NOTEBOOK = "05_pretrained"
NEAR = 0.02  # of accuracy: closer to the mode baseline, or to 1, counts as being there
ORDERS = {"count3": 3, "count2": 2}
RANK = 8  # the paper does not say its own

# Of the encoder, by arm: whose weights, the architecture, and how symbols are read in.
ENCODER_ARMS = {
    "pretrained": dict(start="pretrained", architecture="entp", read_in="tokens"),
    "random": dict(start="random", architecture="entp", read_in="tokens"),
    "decoder": dict(start="random", architecture="decoder", read_in="tokens"),
    "longer": dict(start="random", architecture="decoder", read_in="tokens"),
    "fresh": dict(start="pretrained", architecture="entp", read_in="fresh"),
}
LABELS = {
    "pretrained": "ENTP, pretrained",
    "random": "ENTP, random weights",
    "fresh": "ENTP, pretrained, fresh embeddings",
    "decoder": "decoder, random weights",
}
# Of the prompts, by arm: with Table 5's code or without, and C.1's learning rate with its batch of
# 16, or the tier's.
PROMPT_ARMS = {"code": (True, False), "plain": (False, False), "paper_rate": (True, True)}
PAPER_RATE = 1.4e-4


def schedule(
    steps: int, batch: int, rate: float, evaluations: int, scored: int, scored_at_end: int
) -> TrainConfig:
    """Linear warm-up over a tenth of the steps, cosine to a tenth of the rate, no weight decay."""
    rates = dict(max_lr=rate, min_lr=rate / 10, warmup_steps=-(-steps // 10), weight_decay=0.0)
    evaluated = dict(
        eval_every=-(-steps // evaluations),
        eval_sequences=scored,
        final_eval_sequences=scored_at_end,
    )
    return TrainConfig(steps=steps, batch_size=batch, **rates, **evaluated)


# By tier. ``layers``: of the body, 0 for all. ``rank``: of LoRA, 0 trains all weights.
# ``zero_shot``: of the untrained.
SHORT = TrainConfig(
    4, batch_size=4, warmup_steps=1, eval_every=2, eval_sequences=16, final_eval_sequences=32
)
RATES = dict(batch_size=32, max_lr=5e-4, min_lr=5e-5)
BRIEF = TrainConfig(
    64, **RATES, warmup_steps=8, eval_every=8, eval_sequences=64, final_eval_sequences=256
)
RATES = dict(batch_size=32, max_lr=3e-4, min_lr=3e-5)
LONG = TrainConfig(
    600, **RATES, warmup_steps=60, eval_every=30, eval_sequences=512, final_eval_sequences=2048
)
FOUR_ARMS, ARMS = tuple(ENCODER_ARMS)[:-1], tuple(ENCODER_ARMS)
SMALL = dict(length=8, seed_length=3, symbols=8, held_out=0.2)
TENS = dict(length=10, seed_length=4, symbols=10, held_out=0.2)
TINY_BERT = dict(model="tiny-bert", layers=0, task=dict(length=5, seed_length=2, symbols=6))
ENCODER = {
    "smoke": dict(body=TINY_BERT, train=SHORT, seeds=2, arms=ARMS),
    "quick": dict(
        body=dict(model="minilm", layers=2, task=SMALL), train=BRIEF, seeds=5, arms=FOUR_ARMS
    ),
    "overnight": dict(
        body=dict(model="minilm", layers=0, task=TENS), train=LONG, seeds=5, arms=ARMS
    ),
}
TASK = dict(length=5, seed_length=3, symbols=10, held_out=0.2, first_scored=3)
LONGER_TASK = dict(length=8, seed_length=4, symbols=10, held_out=0.2, first_scored=4)
TINY = dict(model="tiny-llama", rank=0, task=TASK, seeds=1, train=schedule(2, 2, 1e-3, 1, 8, 8))
SMOLLM = dict(model="smollm2", rank=RANK, seeds=5)
NIGHT = dict(**SMOLLM, task=LONGER_TASK)
BOTH = ("code", "plain")
PROMPTS = {
    "smoke": dict(**TINY, arms=BOTH, answers=2, zero_shot=4),
    "quick": dict(
        **SMOLLM,
        task=TASK,
        arms=BOTH,
        answers=12,
        zero_shot=32,
        train=schedule(6, 8, 2e-3, 3, 4, 24),
    ),
    "overnight": dict(
        **NIGHT,
        arms=PROMPT_ARMS,
        answers=64,
        zero_shot=512,
        train=schedule(150, 16, 1e-3, 5, 64, 512),
    ),
}
LONGER = ("entp", "decoder", "longer")
LIFTED = {
    "smoke": dict(**TINY, arms=LONGER),
    "quick": dict(
        **SMOLLM, task=TASK, arms=("entp", "decoder"), train=schedule(20, 8, 2e-3, 5, 32, 128)
    ),
    "overnight": dict(**NIGHT, arms=LONGER, train=schedule(200, 16, 1e-3, 10, 128, 512)),
}
DRY_RUN = dict(
    task=dict(length=63, seed_length=16, symbols=64, first_scored=16),
    train=100,
    test=10,
    model="gpt-4o-2024-08-06",
)


def run(
    experiment: str, tier: str, params: dict[str, Any], study: str = "", **labels: Any
) -> PlannedRun:
    """Return a planned study, of its experiment's name unless ``study`` says otherwise."""
    return planned_study(
        experiment, tier, study or experiment, params, params.get("seed", 0), **labels
    )


def plain(train: TrainConfig) -> dict[str, Any]:
    """Return a schedule as JSON types, defaults left out."""
    values, usual = asdict(train), asdict(TrainConfig(train.steps))
    return {
        k: list(v) if isinstance(v, tuple) else v
        for k, v in values.items()
        if k == "steps" or v != usual[k]
    }


def by_arm(t: Mapping[str, Any], task: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the schedule of each arm of a tier: "longer" is stored and not shown
    (``entp_lab.budgets``).
    """
    longer = lengthened(t["train"], compute_ratio(Counting(**task)))
    return {arm: plain(longer if arm == "longer" else t["train"]) for arm in t["arms"]}


def plan_encoder(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every arm and seed of a tier, seeds outermost; random arms of one seed share their
    weights.
    """
    t, runs = ENCODER[tier], []
    for seed in range(seeds or t["seeds"]):
        for arm, train in by_arm(t, t["body"]["task"]).items():
            params = {**t["body"], **ENCODER_ARMS[arm], "train_config": train, "seed": seed}
            runs.append(run("pretrained_encoder", tier, params, arm=arm))
    return runs


def plan_prompts(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Count3 and Count2 with and without code, every seed; and each once before any training."""
    t, runs, name = PROMPTS[tier], [], "pretrained_prompts"
    train = t["train"]
    paper = schedule(
        train.steps, 16, PAPER_RATE, 5, train.eval_sequences, train.final_eval_sequences
    )
    tasks = {
        name: dict(model=t["model"], task={**t["task"], "order": order})
        for name, order in ORDERS.items()
    }
    for seed in range(seeds or t["seeds"]):
        for task, arm in itertools.product(tasks, t["arms"]):
            with_code, paper_rate = PROMPT_ARMS[arm]
            params = {
                **tasks[task],
                "with_code": with_code,
                "rank": t["rank"],
                "answers": t["answers"],
                "seed": seed,
            }
            params["train_config"] = plain(paper if paper_rate else train)
            runs.append(run(name, tier, params, task=task, arm=arm))
    for task, arm in itertools.product(tasks, BOTH):
        params = tasks[task] | dict(
            with_code=arm == "code", sequences=t["zero_shot"], answers=t["zero_shot"], seed=0
        )
        runs.append(
            run(name, tier, params, "pretrained_zero_shot", task=task, arm=f"{arm}, untrained")
        )
    return runs


def plan_provider(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Files and price at the paper's lengths; ``quick`` is a rehearsal with a provider, of which a
    record is left.
    """
    params = {**DRY_RUN, "client": tier != "smoke"}
    return [run("pretrained_provider", tier, params, "pretrained_dry_run")]


def plan_lifted(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Return the bare sequence of Count3 with the model's mask lifted, kept, and kept for
    longer.
    """
    t, runs = LIFTED[tier], []
    for seed in range(seeds or t["seeds"]):
        for arm, train in by_arm(t, t["task"]).items():
            params = dict(model=t["model"], architecture="entp" if arm == "entp" else "decoder")
            params |= dict(
                task={**t["task"], "order": 3}, rank=t["rank"], train_config=train, seed=seed
            )
            runs.append(run("pretrained_lifted", tier, params, task="count3", arm=arm))
    return runs


SCORES = ("loss", "token_accuracy", "sequence_accuracy")
EMPTY = "study seed tier task arm token_accuracy sequence_accuracy exact_match invalid baseline_token_accuracy".split()


def table(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row per run of any of these experiments: labels, teacher-forced scores, answers by
    verdict, baseline, cost.
    """
    rows = [
        {
            **r.labels,
            **{name: r.metrics[name] for name in SCORES},
            **{
                name: share
                for name, share in r.metrics.get("generated", {}).items()
                if name != "answers"
            },
            **{f"baseline_{name}": r.metrics["baseline"][name] for name in SCORES[1:]},
            **{name: r.metrics.get(name, 0) for name in ("steps",)},
            **{name: r.provenance[name] for name in ("cpu_seconds", "peak_memory_bytes")},
        }
        for r in records
    ]
    found = pd.DataFrame(rows, columns=None if rows else EMPTY)
    found["above_baseline"] = found["token_accuracy"] - found["baseline_token_accuracy"]
    return found


def examples(records: Sequence[Record], task: str, kind: str, most: int = 5) -> pd.DataFrame:
    """Answers that fine-tuned models wrote, ``right`` or ``wrong``, at most ``most``, from one run
    after the other.
    """
    tuned = select(records, study="pretrained_prompts", task=task)
    found = [e | {"seed": r.labels["seed"]} for r in tuned for e in r.metrics["examples"][kind]]
    return pd.DataFrame(found[:most], columns=["seed", "asked", "right", "answered", "verdict"])


def near_baseline(records: Sequence[Record], arms: Sequence[str]) -> str:
    """Why a comparison of token accuracies says nothing: no arm is above what needs no pair, as
    ``within`` has it.
    """
    means = table(select(records, arm=tuple(arms))).groupby("arm")["token_accuracy"].mean()
    return within(means, "counting", records[0].config.params["task"])


COMPARED = dict(near=NEAR, frame=table, excluded=near_baseline)


def measure_prompts(records: Sequence[Record]) -> list[Measurement]:
    """Failure of the tuned model on Count3, and its lead on the control with the same prompt."""
    tier, tuned = records[0].config.tier, select(records, study="pretrained_prompts", arm="code")
    used = {name: select(tuned, task=name) for name in ORDERS}
    names = tuple(r.name for found in used.values() for r in found)
    hard, easy = (table(found).set_index("seed") for found in used.values())
    # That Count3 fails says something only where the same training teaches the control.
    control = Level(
        easy["sequence_accuracy"].mean(), easy["baseline_sequence_accuracy"].mean(), 1.0, NEAR
    )
    fails = (hard["sequence_accuracy"] - hard["baseline_sequence_accuracy"]).tolist()
    gap = (easy["above_baseline"] - hard["above_baseline"]).dropna().tolist()
    means = [part[["token_accuracy", "baseline_token_accuracy"]].mean() for part in (hard, easy)]
    reached = tuple(Level(score, baseline, 1.0, NEAR) for score, baseline in means)
    tasks = [found[0].config.params["task"] for found in used.values()]
    beyond = [
        within([score], "counting", task) for (score, _), task in zip(means, tasks, strict=True)
    ]
    unlearned = "the control is not learned" if control.at_floor else ""
    alike = "; ".join(beyond) if all(beyond) else ""
    return [
        Measurement("F4-llm", fails, tier, names, excluded_because=unlearned),
        Measurement("C1-llm", gap, tier, names, levels=reached, excluded_because=alike),
    ]


def experiment(name: str, title: str, plan, measure, **options: Any) -> Experiment:
    """One of this notebook, a run at a time, so that weights are read once per process."""
    return Experiment(name, 1, title, NOTEBOOK, plan, measure, jobs=1, **options)


READ = dict(check_prerequisites=check_readable)
STORED = dict(**READ, show_only=True)
CLAIMS = (
    Paired("F3-bert", "token_accuracy", "pretrained", "random"),
    Paired("F3-bert-entp", "token_accuracy", "random", "decoder"),
)
TITLE, MEASURE = "A pretrained BERT trained with ENTP on Count3", Comparisons(CLAIMS, **COMPARED)
PRETRAINED_ENCODER = experiment(
    "pretrained_encoder", TITLE, plan_encoder, MEASURE, tiers=ENCODER, **READ
)
TITLE = "LoRA on Table 5's prompts: Count3 and its control"
PRETRAINED_PROMPTS = experiment(
    "pretrained_prompts", TITLE, plan_prompts, measure_prompts, tiers=PROMPTS, **STORED
)
MEASURE = Comparisons([Paired("F4-lifted", "token_accuracy", "entp", "decoder")], **COMPARED)
TITLE = "A causal language model with its mask lifted"
PRETRAINED_LIFTED = experiment(
    "pretrained_lifted", TITLE, plan_lifted, MEASURE, tiers=LIFTED, **STORED
)
TITLE, BOTH_TIERS = (
    "A provider's fine-tuning and its price",
    dict(tiers=("smoke", "quick"), show_only=True),
)
PRETRAINED_PROVIDER = experiment(
    "pretrained_provider", TITLE, plan_provider, no_claims, **BOTH_TIERS
)


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 05: ``encoder`` and ``language_model`` are a bundled name, a hub name
    or a folder.
    """

    encoder: str = "minilm"
    language_model: str = "smollm2"

    def __post_init__(self):
        super().__post_init__()
        for name in ("encoder", "language_model"):
            named = bool(getattr(self, name).strip())
            require(named, f"{name} = '': must name a model, such as {' or '.join(BUNDLED)}")


def of_model(experiment: Experiment, model: str) -> Experiment:
    """Return the experiment with ``model`` wherever it plans a bundled one."""

    def swapped(run: PlannedRun) -> PlannedRun:
        params = run.config.params
        if params.get("model") not in BUNDLED:
            return run
        return replace(run, config=replace(run.config, params={**params, "model": model}))

    return replace(
        experiment,
        plan=lambda tier, seeds=0: [swapped(run) for run in experiment.plan(tier, seeds)],
    )
