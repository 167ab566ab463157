"""Addition (§7.1, appendix C.3, Figures 5 and 11): test error by number of training examples.

There are three arms: ``decoder`` and ``entp`` take the same steps; ``longer`` is a decoder trained
for more steps, whose runs are stored and not shown (``entp_lab.budgets``). The test error is one
minus the share of test sums with every character right; each checkpoint rule gives its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from entp_lab.budgets import EQUAL_FORWARDS
from entp_lab.configs import ON_CPU, Json, lengthened
from entp_lab.experiment import (
    TWINS,
    Experiment,
    PlannedRuns,
    Tier,
    planned,
    run_of,
    with_model,
)
from entp_lab.frames import paired_within, published, select
from entp_lab.measurements import Findings, levels, measured
from entp_lab.statistics import exceeds
from entp_lab.store import Record, Records
from entp_lib.config import SIZES, TrainConfig
from entp_lib.tasks import build_task
from entp_lib.tasks.addition import Sums
from entp_lib.validation import one_of

LONGER = (EQUAL_FORWARDS,)
ARMS = TWINS + LONGER
# Tokens through the layers in an ENTP step over those in a decoder's, where only answers are
# scored; by largest operand.
ANSWER_RATIOS = {99: 2.7, 999: 3.45}
# In error: closer than this to 1 counts as nothing learned, closer to 0 as at the ceiling.
NEAR = 0.02
# Rule of the overnight design: a training-set size says nothing if both arms' mean errors are above
# the first or below the second.
ALL_WRONG, ALL_RIGHT = (0.90, 0.01)
SCALE = dict(floor=1.0, ceiling=0.0, distance=NEAR)
BEST_ANSWERS = "highest_accuracy"

SMOKE = TrainConfig(
    steps=4, batch_size=8, warmup_steps=1, eval_every=2, eval_sequences=32, final_eval_sequences=100
)
QUICK = TrainConfig(
    steps=900,
    max_lr=5e-3,
    min_lr=5e-4,
    betas=(0.9, 0.95),
    warmup_steps=100,
    eval_every=90,
    eval_sequences=500,
    final_eval_sequences=4000,
)
OVERNIGHT = TrainConfig(
    steps=3000, warmup_steps=100, eval_every=50, eval_sequences=500, final_eval_sequences=10_000
)
GPU = TrainConfig(
    steps=2000,
    batch_size=256,
    max_lr=1e-3,
    min_lr=1e-4,
    warmup_steps=100,
    precision="bf16",
    eval_every=50,
    eval_sequences=2000,
    final_eval_sequences=20_000,
)
# The authors stop ten evaluations after the lowest loss on whole texts. Here that checkpoint is
# kept, but the run goes on: otherwise the other checkpoint rules, and decoders on another budget,
# would not get their share of the steps.
PAPER = TrainConfig(
    steps=8000,
    decay_steps=5000,
    warmup_steps=100,
    precision="bf16",
    eval_every=100,
    eval_sequences=10_000,
    final_eval_sequences=70_000,
)
TINY = dict(n_layers=2, n_heads=2, width=16)
SMALL_2 = dict(n_layers=2, n_heads=4, width=64)
SMALL = SIZES["small"]
MEDIUM = SIZES["medium"]
REVERSED = dict(reversed_answer=True)
PLAIN = dict(reversed_answer=False)
TO_99 = dict(largest=99)
WINDOWS = dict(view="windows")
PAPER_SIZES = (1250, 2500, 3750, 5000, 10_000, 15_000, 20_000)
SOME_SIZES = (2500, 10_000, 20_000)
# The variants of a ``Tier`` are its training-set sizes.
TIERS = {
    "smoke": (
        Tier(REVERSED | TO_99, TINY, SMOKE, 2, ARMS, (200, 400)),
        Tier(PLAIN | TO_99, TINY, SMOKE, 2, TWINS, (200,)),
    ),
    "quick": (
        Tier(REVERSED | TO_99, SMALL_2, QUICK, 5, TWINS, (300, 900, 2700)),
        Tier(REVERSED | TO_99, SMALL_2, QUICK, 5, LONGER, (900,)),
        Tier(PLAIN | TO_99, SMALL_2, QUICK, 5, TWINS, (300, 900)),
    ),
    # The paper's task and model at three of its sizes, for 3,000 steps of its schedule; only
    # answers are scored.
    "overnight": (
        Tier(REVERSED, SMALL, OVERNIGHT, 5, TWINS, (1250, 2500, 5000)),
        Tier(REVERSED, SMALL, OVERNIGHT, 5, LONGER, (1250, 2500)),
        Tier(PLAIN, SMALL, OVERNIGHT, 5, TWINS, (2500,)),
    ),
    # Sized for half an hour on one data-centre GPU. Medium runs at the sizes where, in the authors'
    # logs, its gap closes and reverses.
    "gpu": (
        Tier(REVERSED, SMALL, GPU, 5, TWINS, PAPER_SIZES),
        Tier(REVERSED, SMALL, GPU, 5, LONGER, SOME_SIZES),
        Tier(PLAIN, SMALL, GPU, 5, TWINS, SOME_SIZES),
        Tier(REVERSED, MEDIUM, GPU, 5, TWINS, SOME_SIZES),
    ),
    "paper": (
        Tier(REVERSED | WINDOWS, SMALL, PAPER, 5, ARMS, PAPER_SIZES),
        Tier(PLAIN | WINDOWS, SMALL, PAPER, 5, TWINS, PAPER_SIZES),
        Tier(REVERSED | WINDOWS, MEDIUM, PAPER, 5, TWINS, PAPER_SIZES),
        Tier(PLAIN | WINDOWS, MEDIUM, PAPER, 5, TWINS, PAPER_SIZES),
    ),
}
# The authors' task (operands up to 999) at the tiers that otherwise have a smaller one: a single
# training-set size, to compare with the authors' logs.
TO_999 = {
    "smoke": (Tier(REVERSED, TINY, SMOKE, 2, TWINS, (200,)),),
    "quick": (
        Tier(REVERSED, SMALL_2, replace(QUICK, steps=1000, eval_every=100), 3, TWINS, (5000,)),
    ),
}


def runs_of(
    experiment: str,
    task_name: str,
    tiers: Mapping[str, Sequence[Tier]],
    tier: str,
    seeds: int,
    *,
    longer_eval_every: Mapping[str, int] | None = None,
) -> PlannedRuns:
    """Plan the runs of a tier, seeds outermost, so that runs cut off by a time limit are paired.

    The seed also decides the split. Labels: ``arm``, ``model``, ``format`` of the answer (reversed
    or plain), and ``n_train``. ``longer_eval_every``: by tier, steps between evaluations of the arm
    ``longer``; by default it has as many evaluations as the other arms.
    """
    settings = tiers.get(tier, ())
    every = (longer_eval_every or {}).get(tier)
    for seed in range(seeds or max((setting.seeds for setting in settings), default=0)):
        for setting in settings:
            for size in [{"n_train": n} for n in setting.variants] or [{}]:
                params = {**size, **setting.task, "split_seed": seed}
                base = run_of(
                    experiment, tier, task_name, params, setting.model, setting.train, seed=seed
                )
                task = build_task(task_name, params)
                for arm in setting.arms:
                    if arm == EQUAL_FORWARDS:
                        longer = lengthened(setting.train, ratio_of(task), every)
                        config = replace(base, train=longer)
                    else:
                        config = with_model(base, architecture=arm)
                    yield planned(
                        config,
                        arm=arm,
                        n_train=task.n_train,
                        model=name_of_shape(setting.model),
                        format="reversed" if task.reversed_answer else "plain",
                    )


def name_of_shape(shape: Json) -> str:
    """Return the name of a model in ``SIZES``, or its layers/heads/width."""
    own = "{n_layers}/{n_heads}/{width}".format(**shape)
    return next((name for name, known in SIZES.items() if known == shape), own)


def ratio_of(task: Sums) -> float:
    """Return the tokens through the layers in an ENTP step over those in a decoder's.

    The ratio is (T + 1) / 2 where every character is scored.
    """
    return (task.window + 1) / 2 if task.view == "windows" else ANSWER_RATIOS[task.largest]


def published_rule(records: Records) -> str:
    """Return the authors' checkpoint rule, the lowest validation loss.

    The loss is that of whole texts, or of answers if models are trained on answers only.
    """
    watched = all("text_loss" in r.curves for r in records)
    return "lowest_text_loss" if watched else "lowest_loss"


def scores(records: Records) -> pd.DataFrame:
    """Return a row per run and checkpoint rule: labels and test errors."""
    return pd.DataFrame(
        {
            **r.labels,
            "rule": rule,
            "error": 1 - found["sequence_accuracy"],
            "token_error": 1 - found["token_accuracy"],
        }
        for r in records
        for rule, found in r.metrics["test"].items()
    )


def chosen(table: pd.DataFrame, rule: str, **where: str) -> pd.DataFrame:
    """Select the rows of ``scores`` with a checkpoint rule and the column values in ``where``.

    ConfigError for a rule that the table lacks.
    """
    one_of("checkpoint rule", rule, table["rule"].unique())
    for name, value in {"rule": rule, **where}.items():
        table = table[table[name] == value]
    return table


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the decoder's error − ENTP's: seeds (rows) by sizes at which both were run."""
    return paired_within(table, "error", *TWINS, "n_train")


def comparable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the training-set sizes at which decoder and ENTP can be compared.

    By design, the laptop tiers drop sizes at which both mean errors are above ``ALL_WRONG`` or both
    are below ``ALL_RIGHT``.
    """
    if not set(table["tier"]) <= set(ON_CPU):
        return table
    arms = table[table["arm"].isin(TWINS)]
    means = arms.pivot_table(index="n_train", columns="arm", values="error").dropna()
    wrong = exceeds(means, ALL_WRONG).all(axis=1)
    right = exceeds(ALL_RIGHT, means).all(axis=1)
    return table[~table["n_train"].isin(means.index[wrong | right])]


def why_excluded(rows: pd.DataFrame) -> str:
    """Return why no size is left to compare; empty if all are at the best score (see levels)."""
    errors = rows[rows["arm"].isin(TWINS)].groupby(["n_train", "arm"])["error"].mean()
    right = exceeds(ALL_RIGHT, errors)
    if right.all():
        return ""
    ends = f"above {ALL_WRONG}" + f" or below {ALL_RIGHT}" * bool(right.any())
    return f"errors of both {ends} at every size"


def paper_model(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the model of the figures: Small, or else the first in the table."""
    models = table["model"].unique()
    return table[table["model"] == ("small" if "small" in models else models[0])]


def measure(records: Records) -> Findings:
    """Measure Figures 5 and 11 as published, and Figure 5 by best validation accuracy.

    Test errors are pooled over sizes. If ``comparable`` drops every size, the comparison is
    excluded and its value is taken over all sizes.
    """
    table = paper_model(scores(records))
    theirs = published_rule(records)
    for claim, form, rule in (
        ("F5-addition", "reversed", theirs),
        ("F5-best", "reversed", BEST_ANSWERS),
        ("F11-addition", "plain", theirs),
    ):
        rows = chosen(table, rule, format=form)
        rows = rows[rows["n_train"].isin(gaps(rows).columns)]  # sizes at which both arms ran
        left = comparable(rows)
        excluded = "" if len(left) else why_excluded(rows)
        rows = left if len(left) else rows
        values = gaps(rows).dropna().mean(axis=1)  # of seeds that have all sizes
        if not len(values):
            continue
        used = select(
            records,
            format=form,
            arm=TWINS,
            n_train=tuple(rows["n_train"]),
            model=rows["model"].iloc[0],
        )
        yield measured(
            claim,
            values,
            used,
            True,
            levels=levels(rows, "error", TWINS, **SCALE),
            excluded_because=excluded,
            **(authors_difference(used, form) if rule == theirs else {}),
        )


def to_999(records: Records) -> list[Record]:
    """Return the runs on the authors' task: operands up to 999, the task's default."""
    return [r for r in records if r.config.task_params.get("largest", 999) == 999]


def authors_difference(records: Records, form: str) -> Json:
    """Return the authors' decoder − ENTP averaged over the sizes that were run here: value, remark.

    Empty if none or all of their sizes were run on their task: then the claim's own value, a mean
    over all sizes, applies.
    """
    have = {r.labels["n_train"] for r in to_999(records)}
    logged = published("entp", "addition").query("model == 'small' and format == @form")
    by_arm = logged.pivot(index="n_train", columns="architecture", values="error")
    shared = sorted(have & set(by_arm.index))
    if not shared or len(shared) == len(by_arm):
        return {}
    value = (by_arm["decoder"] - by_arm["entp"])[shared].mean()
    *first, last = (f"{n:,}" for n in shared)
    named = f"{', '.join(first)} and {last}" if first else last
    return {
        "paper_value": round(float(value), 4),
        "remark": f"the paper's and ours at {named} examples",
    }


ADDITION = Experiment(
    "addition",
    2,
    "Addition from few examples",
    "07_addition",
    partial(runs_of, "addition", "addition", TIERS),
    measure,
    figure_labels={"model": "small"},
)
ADDITION_TO_999 = Experiment(
    "addition_to_999",
    2,
    "Addition up to 999, beside the authors' logs",
    "07_addition",
    partial(runs_of, "addition_to_999", "addition", TO_999),
    paper_runs_of="addition",
)
