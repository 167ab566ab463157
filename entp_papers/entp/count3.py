"""Count3 (§6, Figure 3) and its control Count2 (appendix C.1), for the three architectures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, TrainConfig
from entp_lib.experiments.changes import LONGER
from entp_lib.experiments.experiment import (
    Experiment,
    PlannedRun,
    Tier,
    by_seed,
    compute_ratio,
    name_of,
    planned,
    select,
    twins,
)
from entp_lib.experiments.frames import by_position, paired, processor_share, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.records.store import Record
from entp_lib.statistics import first_at
from entp_lib.tasks import Counting
from entp_lib.validation import require
from entp_papers.entp import plateau
from entp_papers.entp.pairless import by_length


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 03b: ``threshold`` is the token accuracy whose first crossing is timed, in (0, 1)."""

    threshold: float = 0.8

    def __post_init__(self):
        super().__post_init__()
        check_threshold(self.threshold)


def check_threshold(threshold: float) -> None:
    """ConfigError for a threshold outside (0, 1)."""
    require(0 < threshold < 1, f"threshold = {threshold}: must be between 0 and 1")


PAPER_TASK = dict(length=64, seed_length=16, symbols=64)

# paper: the authors' schedule (reference values were logged at step 150,000). gpu: the same, stopped at 12,000 steps,
# where their log has 0.174 of the tokens (ENTP) against 0.083 (decoder), for two paired seeds.
TIERS = {
    "smoke": Tier(
        dict(length=8, seed_length=3, symbols=8),
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
    # The largest reduced Count3 that two cores learn within ten minutes (docs/journal has the search). It has only
    # 10^4 seeds, so a fifth of them is kept for evaluation.
    "quick": Tier(
        dict(length=10, seed_length=4, symbols=10, held_out=0.2),
        dict(n_layers=3, n_heads=4, width=64),
        TrainConfig(
            steps=1200,
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=100,
            eval_every=50,
            eval_sequences=512,
            final_eval_sequences=4096,
        ),
        5,
    ),
    # To the plateau: quick's task and model, four times the steps, and a decoder with ENTP's token-forwards.
    "overnight": Tier(
        dict(length=10, seed_length=4, symbols=10, held_out=0.2),
        dict(n_layers=3, n_heads=4, width=64),
        TrainConfig(
            steps=4800,
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=100,
            eval_every=24,
            eval_sequences=512,
            final_eval_sequences=4096,
        ),
        5,
    ),
    "gpu": Tier(
        PAPER_TASK,
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=12_000, decay_steps=100_000, eval_every=100, eval_sequences=1024, precision="bf16"),
        2,
    ),
    "paper": Tier(
        PAPER_TASK,
        dict(n_layers=6, n_heads=6, width=384),
        TrainConfig(steps=150_000, decay_steps=100_000, eval_every=500, eval_sequences=6400, precision="bf16"),
        5,
    ),
}


ARCHITECTURES = ("decoder", "prefix_decoder", "entp")
ORDERS = {"count3": 3, "count2": 2}
WITH_CONTROL = ("smoke", "quick")  # Count2 is run where it costs seconds; the paper has it for a language model only
WITH_LONGER = ("smoke", "overnight")  # where a decoder is given ENTP's token-forwards
ON_GPU = ("decoder", "entp")  # what a lease of half an hour has room for
SMALL_ENTP = "small_entp"  # the arm of an ENTP of size Small, which the authors never logged


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every architecture and seed of a tier on Count3, and a decoder on its control."""
    if tier not in TIERS:
        return []
    setting = TIERS[tier]
    runs = []
    for name, architectures in (("count3", ARCHITECTURES), ("count2", ("decoder",))):
        if name == "count2" and tier not in WITH_CONTROL:
            continue
        params = {**setting.task, "order": ORDERS[name]}
        task = Counting(**params)
        model = ModelConfig("decoder", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
        base = RunConfig("count3", tier, "counting", params, model, setting.train)
        if tier == "gpu":
            runs += twins(base, ON_GPU, seeds or setting.seeds, task=name)
            last = runs[-1].config  # the small one with the last seed, so that it comes behind the pairs
            small = ModelConfig.from_size("small", architecture="entp", vocab_size=64, max_length=64)
            runs.append(planned(replace(last, model=small), task=name, arm=SMALL_ENTP))
            continue
        runs += twins(base, architectures, seeds or setting.seeds, task=name)
        if name == "count3" and tier in WITH_LONGER:
            longer = replace(base, train=base.train.lengthened(compute_ratio(task)))
            runs += twins(longer, ("decoder",), seeds or setting.seeds, task=name, arm=LONGER)
    return by_seed(runs) if tier == "overnight" else runs


# Seeds that hardly repeat as sequences: a run of 12,000 steps draws 768,000 of 10^6. Up to order they do
# (count3_sets).
UNSEEN = {
    "smoke": TIERS["smoke"],
    "overnight": Tier(
        dict(length=10, seed_length=6, symbols=10, held_out=0.1),
        dict(n_layers=3, n_heads=4, width=64),
        replace(TIERS["overnight"].train, steps=12_000, eval_every=60),
        5,
    ),
}


def plan_unseen(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every architecture on Count3 with seeds that hardly repeat, and a decoder at ENTP's token-forwards."""
    return beside_longer("count3_unseen", tier, UNSEEN, {}, ARCHITECTURES, seeds)


def beside_longer(
    name: str, tier: str, tiers: Mapping[str, Tier], params: Mapping[str, Any], architectures: Sequence[str], seeds: int
) -> list[PlannedRun]:
    """Architectures on the task of a tier, ``params`` set, and a decoder at ENTP's token-forwards; seeds outermost."""
    if tier not in tiers:
        return []
    setting = tiers[tier]
    task = Counting(**{**setting.task, **params})
    model = ModelConfig("decoder", vocab_size=task.vocab_size, max_length=task.length, **setting.model)
    base = RunConfig(name, tier, "counting", {**setting.task, **params}, model, setting.train)
    longer = replace(base, train=base.train.lengthened(compute_ratio(task)))
    runs = twins(base, architectures, seeds or setting.seeds)
    return by_seed([*runs, *twins(longer, ("decoder",), seeds or setting.seeds, arm=LONGER)])


# Claims from final values: metric, first and second arm of the difference.
PAIRS = {
    "F2-tokens": ("token_accuracy", "entp", "decoder"),
    "F2-sequences": ("sequence_accuracy", "entp", "decoder"),
    "F2-prefix": ("token_accuracy", "prefix_decoder", "decoder"),
    "F2-prefix-fails": ("sequence_accuracy", "entp", "prefix_decoder"),
}


REACHED_UNSEEN = 0.80  # of tokens; 0.95, which is timed on quick's task, is above the end of this one's pilot


def measure_unseen(records: Sequence[Record]) -> list[Measurement]:
    """Count3 with seeds that hardly repeat: ENTP less each other arm in final token accuracy, and by prefix length."""
    leads = plateau.leads(records, {"F2-unseen": "decoder", "F2-unseen-prefix": "prefix_decoder"})
    return leads + plateau.growth(records)


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Finding 2, token and sequence accuracy apart, the prefix decoder, and the control, from final values."""
    if not records:
        return []
    tier = records[0].config.tier
    count3, count2 = select(records, task="count3"), select(records, task="count2")
    table, found = summary(count3), []
    for claim, (metric, *arms) in PAIRS.items():
        used = tuple(name_of(r) for r in select(count3, arm=tuple(arms)))
        values = paired(table, metric, *arms).tolist()
        stand, barred = plateau.stand(table, metric, arms), plateau.pairless(count3, arms)
        found.append(Measurement(claim, values, tier, used, tier == "paper", stand, barred))
    if tier in WITH_LONGER:  # quick stops in the middle of the course
        found += plateau.measure(count3)
    if count2:
        used = tuple(name_of(r) for r in [*select(count3, arm="decoder"), *count2])
        gap = control_gaps(records)["above_baseline"].tolist()
        parts = [(part, summary(select(part, arm="decoder"))) for part in (count2, count3)]
        stand = tuple(side for _, table in parts for side in plateau.stand(table, "token_accuracy", ("decoder",)))
        within = [plateau.pairless(part, ("decoder",)) for part, _ in parts]
        barred = "; ".join(within) if all(within) else ""
        found.append(Measurement("C1-count2", gap, tier, used, tier == "paper", stand, barred))
    return found


def control_gaps(records: Sequence[Record]) -> pd.DataFrame:
    """A decoder's Count2 − Count3 by seed, in token accuracy and in token accuracy above the mode baseline."""
    easy, hard = (summary(select(records, task=t, arm="decoder")).set_index("seed") for t in ("count2", "count3"))
    for table in (easy, hard):
        table["above_baseline"] = table["token_accuracy"] - table["baseline_token_accuracy"]
    columns = ["token_accuracy", "above_baseline"]
    return (easy[columns] - hard[columns]).dropna()


def positions(records: Sequence[Record]) -> pd.DataFrame:
    """Final token accuracy and mean margin by prefix length, with the mode baseline and the pairless bound there."""
    found = by_position(records, {"token_accuracy": "token_accuracy_by_position", "margin": "margin_by_position"})
    found["baseline"] = [a for r in records for a in r.metrics["baseline"]["token_accuracy_by_position"]]
    found["pairless"] = [a for r in records for a in by_length(r.config.task, r.config.task_params)["pairless"]]
    return found


def time_to_threshold(records: Sequence[Record], threshold: float) -> pd.DataFrame:
    """First evaluation with token accuracy at ``threshold`` or above: how many seeds, median and range.

    ConfigError for a threshold outside (0, 1).
    """
    check_threshold(threshold)
    rows = {}
    for name in dict.fromkeys(r.labels["arm"] for r in records):
        runs = select(records, arm=name)
        row = {"seeds that reach it": ""}
        for axis in ("step", "token_forwards", "seconds"):
            scale = [processor_share(r) if axis == "seconds" else 1 for r in runs]
            found = [first_at(r.curves, "token_accuracy", threshold, axis) for r in runs]
            reached = sorted(x * share for x, share in zip(found, scale, strict=True) if x is not None)
            row["seeds that reach it"] = f"{len(reached)} of {len(runs)}"
            label = f"{axis.replace('_', '-')}: median (range)"
            row[label] = f"{median(reached):.4g} ({reached[0]:.4g} to {reached[-1]:.4g})" if reached else "never"
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


COUNT3 = Experiment(
    name="count3",
    version=1,
    title="Count3 for three architectures, and Count2, the control",
    notebook="03_count3",
    plan=plan,
    measure=measure,
)
COUNT3_UNSEEN = Experiment(
    name="count3_unseen",
    version=1,
    title="Count3 with seeds that hardly repeat",
    notebook="03b_count3_details",
    plan=plan_unseen,
    measure=measure_unseen,
    changeable=False,
)
