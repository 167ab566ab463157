"""Addition (§7.1, appendix C.3, Figures 5 and 11): test error against the number of examples to learn from.

Every run has one of three arms: ``decoder`` and ``entp`` take the same steps; ``longer`` is the decoder trained for as
many token-forwards as ENTP spends, with a schedule of its own. The test error is one minus the share of test sums with
every character right; each checkpoint rule gives one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from entp_lib.config import ON_CPU
from entp_lib.experiments.budgets import EQUAL_FORWARDS
from entp_lib.experiments.comparisons import measured
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.frames import levels, paired_within, processor_share, published, select
from entp_lib.experiments.measurements import Measurement
from entp_lib.experiments.parameters import NotebookParameters
from entp_lib.experiments.plans import PlannedRun
from entp_lib.records.store import Record
from entp_lib.statistics import exceeds
from entp_lib.tasks import build_task
from entp_lib.validation import one_of, require
from entp_papers.entp.addition.tiers import TIERS, TO_999, runs_of

NEAR = 0.02  # of error: closer to 1 counts as having learned nothing, closer to 0 as being at the ceiling
ALL_WRONG, ALL_RIGHT = 0.90, 0.01  # mean errors beyond which a size says nothing, if both arms have them (overnight)
RULES = ("last", "lowest_loss", "lowest_text_loss", "highest_accuracy")
BEST_ANSWERS = "highest_accuracy"
AS_PUBLISHED = ("F5-addition", "F11-addition", "F6-length")


def plan_to_999(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Runs on sums of up to three digits for a tier whose ``plan`` has fewer."""
    return runs_of("addition_to_999", tier, "addition", TO_999.get(tier, ()), seeds)


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every run of a tier; a seed decides split, weights and batches, as the authors' do."""
    return runs_of("addition", tier, "addition", TIERS.get(tier, ()), seeds)


def published_rule(records: Sequence[Record]) -> str:
    """The authors' rule, the lowest loss on validation text: of its answers where nothing else is trained on."""
    watched = all("text_loss" in r.curves for r in records)
    return "lowest_text_loss" if watched else "lowest_loss"


def scores(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run and checkpoint rule: its labels, the step of the checkpoint, its test scores, cost.

    ``seen_error`` is that of the last weights on the training examples.
    """
    rows = []
    for r in records:
        about = {
            **r.labels,
            "seen_error": 1 - r.metrics["seen"]["sequence_accuracy"],
            "token_forwards": r.provenance["token_forwards"],
            "train_seconds": r.provenance["train_seconds"] * processor_share(r),
        }
        for rule, found in r.metrics["test"].items():
            rows.append(
                {
                    **about,
                    "rule": rule,
                    "step": found["step"],
                    "error": 1 - found["sequence_accuracy"],
                    "token_error": 1 - found["token_accuracy"],
                }
            )
    return pd.DataFrame(rows)


def chosen(table: pd.DataFrame, rule: str, **where: str) -> pd.DataFrame:
    """The rows of ``scores`` by one checkpoint rule, and of one format. ConfigError for a rule they do not have."""
    one_of("checkpoint rule", rule, table["rule"].unique())
    for name, value in {"rule": rule, **where}.items():
        table = table[table[name] == value]
    return table


@dataclass(frozen=True)
class Parameters(NotebookParameters):
    """Parameters of notebook 07; ``rule``: which checkpoint is tested."""

    rule: str = "lowest_loss"

    def __post_init__(self):
        super().__post_init__()
        check_rule(self)


def check_rule(parameters: Parameters) -> None:
    """ConfigError, before anything is trained, for a checkpoint rule that the runs asked for will not have."""
    rule, tier = parameters.rule, parameters.tier
    one_of("checkpoint rule", rule, RULES)
    stored = tier == "best" and not (parameters.fresh or parameters.changes)
    if rule != "lowest_text_loss" or stored:
        return
    runs = ADDITION.runs_for(parameters)[1]
    watched = any(build_task(run.config.task, run.config.task_params).watched() for run in runs)
    require(
        watched,
        f"checkpoint rule {rule!r}: the runs of tier {tier} train on answers alone and watch no loss of whole texts",
    )


def gaps(table: pd.DataFrame, first: str = "decoder", second: str = "entp") -> pd.DataFrame:
    """Error of one arm − that of another, paired: seeds (rows) by training-set sizes at which both were run."""
    return paired_within(table, "error", first, second, "n_train")


def comparable(table: pd.DataFrame, first: str = "decoder", second: str = "entp") -> pd.DataFrame:
    """The rows of training-set sizes that say something of two arms; a laptop's tiers drop the others, by design.

    A size is dropped if both mean errors are above ``ALL_WRONG`` or both below ``ALL_RIGHT``.
    """
    if not set(table["tier"]) <= set(ON_CPU):
        return table
    arms = table[table["arm"].isin((first, second))]
    means = arms.pivot_table(index="n_train", columns="arm", values="error").dropna()
    idle = means.index[exceeds(means, ALL_WRONG).all(axis=1) | exceeds(ALL_RIGHT, means).all(axis=1)]
    return table[~table["n_train"].isin(idle)]


def why_excluded(rows: pd.DataFrame, arms: Sequence[str]) -> str:
    """Why two arms of which no size is left cannot be compared; empty at the best score, as their levels say."""
    errors = rows[rows["arm"].isin(arms)].groupby(["n_train", "arm"])["error"].mean()
    right = exceeds(ALL_RIGHT, errors)
    if right.all():
        return ""
    ends = f"above {ALL_WRONG}" + f" or below {ALL_RIGHT}" * bool(right.any())
    return f"errors of both {ends} at every size"


def pooled(found: pd.DataFrame) -> pd.Series:
    """Mean over training-set sizes of each seed's ``gaps``, so that pairs are seeds; seeds that lack one left out."""
    return found.dropna().mean(axis=1) if len(found) else pd.Series(dtype=float)


def paper_model(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the figures' model: Small, or the first there is where a tier has no Small."""
    return table[table["model"] == ("small" if (table["model"] == "small").any() else table["model"].iloc[0])]


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Figures 5 and 11 as published, and Figure 5 by best validation accuracy: test errors, pooled over sizes.

    A comparison all of whose sizes are dropped (``comparable``) is excluded, and shows all of them.
    """
    table, found = paper_model(scores(records)), []
    for claim, form, rule, first in (
        ("F5-addition", "reversed", published_rule(records), "decoder"),
        ("F5-best", "reversed", BEST_ANSWERS, "decoder"),
        ("F5-fair", "reversed", BEST_ANSWERS, EQUAL_FORWARDS),
        ("F11-addition", "plain", published_rule(records), "decoder"),
    ):
        arms, rows = (first, "entp"), chosen(table, rule, format=form)
        rows = rows[rows["n_train"].isin(gaps(rows, first).columns)]  # those at which both arms ran
        left = comparable(rows, first)
        judged: dict[str, Any] = {} if len(left) else {"excluded_because": why_excluded(rows, arms)}
        rows = left if len(left) else rows
        values = pooled(gaps(rows, first))
        if len(values):
            judged["levels"] = levels(rows, "error", arms, floor=1.0, ceiling=0.0, distance=NEAR)
            of = dict(format=form, arm=arms, n_train=tuple(rows["n_train"]), model=rows["model"].iloc[0])
            used = select(records, **of)
            judged |= authors_difference(used, form) if claim in AS_PUBLISHED else {}
            found.append(measured(claim, values, used, True, **judged))
    return found


def to_999(records: Sequence[Record]) -> list[Record]:
    """The runs on the authors' task: operands to 999, as the task has them by default."""
    return [r for r in records if r.config.task == "addition" and r.config.task_params.get("largest", 999) == 999]


def authors_difference(records: Sequence[Record], form: str) -> dict[str, Any]:
    """The authors' decoder − ENTP over the sizes that runs on their task have, if not over all: value and remark.

    Empty where the claim's own value, a mean over all their sizes, holds: none of these, or all of them, were run.
    """
    have = {r.labels["n_train"] for r in to_999(records)}
    logged = published("entp", "addition").query("model == 'small' and format == @form")
    by_arm = logged.pivot(index="n_train", columns="architecture", values="error")
    shared = sorted(have & set(by_arm.index))
    if not shared or len(shared) == len(by_arm):
        return {}
    value = (by_arm["decoder"] - by_arm["entp"])[shared].mean()
    named = " and ".join(filter(None, [", ".join(f"{n:,}" for n in shared[:-1]), f"{shared[-1]:,}"]))
    return {"paper_value": round(float(value), 4), "remark": f"the paper's and ours at {named} examples"}


ADDITION_TO_999 = Experiment(
    "addition_to_999",
    2,
    "Addition up to 999, beside the authors' logs",
    "07_addition",
    plan_to_999,
    no_claims,
    changeable=False,
)
ADDITION = Experiment(
    "addition", 2, "Addition from few examples", "07_addition", plan, measure, figure_labels={"model": "small"}
)
