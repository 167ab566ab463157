"""The authors' logged runs in steps and in compute: what each score costs ENTP and the decoder.

A log tells at which step a model first has a score; what a step costs follows from the model, from
the prefixes that are scored and from the batch. Steps come from
``results/reference/entp/logged_steps.csv``, multiply-adds from ``entp_lib.costs``, for ENTP as this
library computes it (the authors' program runs every prefix by itself and takes a quarter more).
PyTorch's operation counter checks them on one sequence.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from entp_lab.experiment import Experiment
from entp_lab.frames import published, select
from entp_lab.measurements import Check
from entp_lab.plans import TWINS, PlannedRun, planned_study
from entp_lab.store import Record
from entp_lib import costs
from entp_lib.config import ModelConfig
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
BACKWARD = 2  # a gradient takes as many multiply-adds again as two forward passes


def logged_study(task: str, model: str) -> tuple[dict[str, Any], dict[str, list]]:
    """Cost of a training step of a logged pair, and the steps at which each arm first has a score.

    Metrics, by arm: ``step`` (multiply-adds of a training step), ``forward`` (of one sequence
    forward, by the formulas) and ``counted`` (the same by PyTorch's counter). Curves: ``level``,
    ``decoder`` and ``entp`` (steps; null where the log never gets there). ConfigError for a pair
    that is not logged.
    """
    log = published("entp", NAME).query("task == @task and model == @model")
    require(
        len(log) > 0, f"task = {task!r}, model = {model!r}: not among the authors' logged pairs"
    )
    tokens, first, vocabulary, batch = SETTINGS[task]
    lengths = range(first, tokens + 1)
    metrics = {}
    scored_1T = torch.arange(1, tokens + 1)[None] >= first
    for arm in TWINS:
        cfg = ModelConfig.from_size(
            model, architecture=arm, vocab_size=vocabulary, max_length=tokens
        )
        network = build_model(cfg, 0)
        inputs_1T = torch.zeros(1, tokens, dtype=torch.long)
        with torch.no_grad():
            counted = costs.counted(lambda run=network, x=inputs_1T: run(x, scored_1T))
        forward = costs.training_pass(cfg, lengths, tokens)
        metrics[arm] = {
            "step": (1 + BACKWARD) * forward * batch,
            "forward": forward,
            "counted": counted,
        }
    steps = log.pivot(index="level", columns="architecture", values="step").reindex(
        log["level"].unique()
    )
    found = {arm: [None if pd.isna(step) else int(step) for step in steps[arm]] for arm in TWINS}
    return metrics, {"level": steps.index.tolist(), **found}


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Plan a study for each logged pair of curves."""
    logged = published("entp", NAME)[["task", "model"]].drop_duplicates().to_dict("records")
    pairs = {"smoke": [dict(task="shakespeare", model="small")], "quick": logged}.get(tier, [])
    return [planned_study("authors_log", tier, NAME, pair, **pair) for pair in pairs]


def spent(record: Record) -> pd.DataFrame:
    """By score (rows): steps and multiply-adds of each arm to it, and ratios; NaN where an arm
    never gets there.
    """
    steps = pd.DataFrame(record.curves).astype(float).set_index("level")
    operations = steps * pd.Series({arm: record.metrics[arm]["step"] for arm in TWINS})
    fewer = steps["decoder"] / steps["entp"]
    more = operations["entp"] / operations["decoder"]
    ratios = pd.DataFrame({"fewer steps": fewer, "more multiply-adds": more})
    return pd.concat({"steps": steps, "multiply-adds": operations, "ratio": ratios}, axis=1)


def ratios(records: Sequence[Record]) -> pd.DataFrame:
    """Return by logged pair the range of the ratios of steps and of multiply-adds over scores both
    reach.
    """
    rows = {}
    for r in records:
        found = spent(r)["ratio"].dropna()
        row = {
            "scores both reach": len(found),
            "decoder's steps in ENTP's": to_text(found["fewer steps"]),
        }
        row["ENTP's multiply-adds in the decoder's"] = to_text(found["more multiply-adds"])
        rows[r.labels["task"], r.labels["model"]] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def to_text(values: pd.Series) -> str:
    """Return the least and the largest of some ratios."""
    return f"{values.min():.1f} to {values.max():.1f}"


def measure(records: Sequence[Record]) -> list[Check]:
    """Whether Count3's log has ENTP in fewer steps, at more compute, alone with whole sequences;
    sums and text too.
    """
    found = []

    def check(claim: str, holds: bool, remark: str, used: Sequence[Record]) -> None:
        found.append(
            Check(
                claim,
                holds,
                used[0].config.tier,
                records=tuple(r.name for r in used),
                remark=remark,
            )
        )

    if count3 := select(records, task="count3", model="medium"):
        both = spent(count3[0])["ratio"].dropna()
        fewer = both["fewer steps"]
        more = both["more multiply-adds"]
        check("F3-log-steps", bool((fewer > 1).all()), f"{to_text(fewer)} times fewer", count3)
        check("F3-log-compute", bool((more > 1).all()), f"{to_text(more)} times as many", count3)
        last = (
            published("entp", "count3")
            .query("size == 'medium'")
            .set_index("architecture")["sequence_accuracy"]
        )
        alone = last["entp"] > 0.5 and last["decoder"] < 0.01
        check(
            "F3-log-sequences",
            bool(alone),
            f"{last['entp']:.3f} of them, the decoder {last['decoder']:.3f}",
            count3,
        )
    for claim, tasks in (
        ("F5-log-compute", ("plain addition", "reversed addition")),
        ("T3-log-compute", ("openwebtext", "shakespeare")),
    ):
        if used := select(records, task=tasks):
            both = pd.concat([spent(r)["ratio"].dropna() for r in used])
            fewer = both["fewer steps"]
            more = both["more multiply-adds"]
            remark = f"{to_text(more)} times as many; the decoder's steps are {to_text(fewer)} times ENTP's"
            check(claim, bool((more > 1).all()), remark, used)
    return found


TITLE = "The authors' logs in steps and in compute"
AUTHORS_LOG = Experiment("authors_log", 1, TITLE, "03_count3", plan, measure, seeded=False)
