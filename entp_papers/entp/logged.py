"""The authors' logged runs in steps and in compute: what each score costs ENTP and the decoder.

A log tells at which step a model first has a score; what a step costs follows from the model, from
the prefixes that are scored and from the batch. Steps come from
``results/reference/entp/logged_steps.csv``, multiply-adds from ``entp_lib.costs``, for ENTP as this
library computes it (the authors' program runs every prefix by itself and takes a quarter more).
PyTorch's operation counter checks them on one sequence.
"""

import pandas as pd
import torch

from entp_lab.experiment import TWINS, Experiment, PlannedRuns, planned_study
from entp_lab.frames import published, select
from entp_lab.measurements import Findings, checked
from entp_lab.store import Record, Records
from entp_lab.studies import Study
from entp_lib import costs
from entp_lib.config import SIZES, ModelConfig
from entp_lib.model import build_model
from entp_lib.validation import require

NAME = "logged_steps"
# By task: tokens of a sequence, the shortest scored prefix, vocabulary, sequences of a batch.
SETTINGS = {
    "count3": (64, 17, 64, 64),
    **dict.fromkeys(("plain addition", "reversed addition"), (64, 1, 14, 64)),
    "shakespeare": (64, 1, 65, 64),
    "openwebtext": (128, 1, 50_304, 32),
}
PASSES = 3  # a backward pass takes as many multiply-adds as two forward passes


def models(task: str, model: str) -> dict[str, ModelConfig]:
    """Return the configuration of each arm of a logged pair, "entp" and "decoder"."""
    tokens, _, vocabulary, _ = SETTINGS[task]
    return {
        arm: ModelConfig(arm, **SIZES[model], vocab_size=vocabulary, max_length=tokens)
        for arm in TWINS
    }


def step_operations(task: str, model: str) -> dict[str, int]:
    """Return the multiply-adds of a training step of each arm of a logged pair."""
    tokens, first, _, sequences = SETTINGS[task]
    return {
        arm: sequences * PASSES * costs.training_pass(cfg, range(first, tokens + 1), tokens)
        for arm, cfg in models(task, model).items()
    }


def logged_study(task: str, model: str) -> Study:
    """Return the cost of a training step of a logged pair, and each arm's steps to its scores.

    Metrics, by arm: ``step`` (multiply-adds of a training step), ``forward`` (those of a forward
    pass over one sequence, by the formulas) and ``counted`` (the same by PyTorch's counter).
    Curves: ``level``, ``decoder`` and ``entp`` (steps; null where the log never gets there).
    ConfigError for a pair that is not logged.
    """
    log = published("entp", NAME).query("task == @task and model == @model")
    require(
        len(log) > 0, f"task = {task!r}, model = {model!r}: not among the authors' logged pairs"
    )
    tokens, first, _, sequences = SETTINGS[task]
    metrics = {}
    inputs_1T = torch.zeros(1, tokens, dtype=torch.long)
    scored_1T = torch.arange(1, tokens + 1)[None] >= first
    for arm, step in step_operations(task, model).items():
        network = build_model(models(task, model)[arm], 0)
        with torch.no_grad():
            counted = costs.counted(lambda run=network: run(inputs_1T, scored_1T))
        forward = step // (sequences * PASSES)
        metrics[arm] = {"step": step, "forward": forward, "counted": counted}
    steps = log.pivot(index="level", columns="architecture", values="step").reindex(
        log["level"].unique()
    )
    found = {arm: [None if pd.isna(step) else int(step) for step in steps[arm]] for arm in TWINS}
    return metrics, {"level": steps.index.tolist(), **found}


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan a study for each logged pair of curves."""
    logged = published("entp", NAME)[["task", "model"]].drop_duplicates().to_dict("records")
    pairs = {"smoke": [dict(task="shakespeare", model="small")], "quick": logged}.get(tier, [])
    return [planned_study("authors_log", tier, NAME, pair, **pair) for pair in pairs]


def ratios_of(record: Record) -> pd.DataFrame:
    """Return a row per score that both arms reach: the ratios of their steps and multiply-adds."""
    steps = pd.DataFrame(record.curves).astype(float)
    operations = steps * pd.Series({arm: record.metrics[arm]["step"] for arm in TWINS})
    fewer = steps["decoder"] / steps["entp"]
    more = operations["entp"] / operations["decoder"]
    return pd.DataFrame({"fewer steps": fewer, "more multiply-adds": more}).dropna()


def ratios(records: Records) -> pd.DataFrame:
    """Return by logged pair the range of the ratios of steps and of multiply-adds."""
    rows = {}
    for r in records:
        found = ratios_of(r)
        rows[r.labels["task"], r.labels["model"]] = {
            "losses both reach": len(found),
            "decoder's steps / ENTP's": to_text(found["fewer steps"]),
            "ENTP's compute / decoder's": to_text(found["more multiply-adds"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def to_text(values: pd.Series) -> str:
    """Return the least and the largest of some ratios."""
    return f"{values.min():.1f} to {values.max():.1f}"


# Claims that all ratios are above 1, by the column of the ratios and the logged pairs.
ABOVE_ONE = {
    "F3-log-steps": ("fewer steps", dict(task="count3", model="medium")),
    "F3-log-compute": ("more multiply-adds", dict(task="count3", model="medium")),
    "F5-log-compute": ("more multiply-adds", dict(task=("plain addition", "reversed addition"))),
    "T3-log-compute": ("more multiply-adds", dict(task=("openwebtext", "shakespeare"))),
}


def measure(records: Records) -> Findings:
    """Check that ENTP takes fewer steps and more compute, and alone gets whole sequences right."""
    for claim, (column, pairs) in ABOVE_ONE.items():
        used = select(records, **pairs)
        if not used:
            continue
        reached = pd.concat(map(ratios_of, used))
        remark = f"{to_text(reached[column])} times {'fewer' if 'steps' in column else 'as many'}"
        if len(used) > 1:
            remark += f"; the decoder's steps are {to_text(reached['fewer steps'])} times ENTP's"
        holds = bool((reached[column] > 1).all())
        yield checked(claim, holds, used, remark=remark)
    if used := select(records, task="count3", model="medium"):
        logged = published("entp", "count3").query("size == 'medium'").set_index("architecture")
        entp, decoder = logged["sequence_accuracy"][["entp", "decoder"]]
        alone = entp > 0.5 and decoder < 0.01
        remark = f"{entp:.3f} of them, the decoder {decoder:.3f}"
        yield checked("F3-log-sequences", bool(alone), used, remark=remark)


AUTHORS_LOG = Experiment(
    "authors_log",
    1,
    "The authors' logs in steps and in compute",
    "03_count3",
    plan,
    measure,
    seeded=False,
)
