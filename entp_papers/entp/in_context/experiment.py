"""In-context learning (§7.2, appendix C.2, Figures 7 and 10): four function classes, what pure ENTP
needs, baselines.

The paper's model size, schedule and curriculum are unknown. ``error`` is the squared error divided
by E[y²], so that always predicting 0 scores 1, averaged over all numbers of examples from 0 on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from entp_lab.budgets import EQUAL_FORWARDS, equal_forwards
from entp_lab.configs import Json
from entp_lab.experiment import (
    TWINS,
    Arm,
    Closed,
    Experiment,
    Plan,
    PlannedRuns,
    Tier,
    Variant,
    by_seed,
    no_claims,
    planned_study,
    run_of,
    twins,
    with_train,
)
from entp_lab.frames import paired, select, summary
from entp_lab.measurements import Comparisons, Findings, Paired, after, measured
from entp_lab.statistics import reaches
from entp_lab.store import Record, Records
from entp_lib.config import TrainConfig
from entp_lib.tasks import InContext

# the function class in the labels of runs at a lower learning rate
AT_LOWER_RATE = "sparse, lower rate"
# A run is flat if, from the fourth to the last fifth of its steps, its training error falls by at
# most this, in units of E[y²].
FLAT = 0.01
# A model has learned nothing if its error is less than this below 1, the error of predicting 0.
LEARNED = 0.1

ALL = (*TWINS, "hybrid")
ARMS = {name: Arm(name) for name in ALL} | {EQUAL_FORWARDS: Arm("decoder", equal_forwards)}
LONGER = (EQUAL_FORWARDS,)


def by_class(
    model: Json,
    train: Json,
    seeds: int,
    evaluations: int,
    **classes: tuple[Json, Sequence[str], int],
) -> dict[str, Tier]:
    """Return a ``Tier`` for each function class, given its task's parameters, arms and steps."""
    found = {}
    for function, (task, arms, steps) in classes.items():
        schedule = TrainConfig(steps=steps, eval_every=max(1, steps // evaluations), **train)
        found[function] = Tier({"function": function, **task}, model, schedule, seeds, arms)
    return found


SCALES = dict(position_std=0.5, input_std=0.3)
TINY = dict(n_layers=3, n_heads=2, width=16, **SCALES)
MODEL = dict(n_layers=3, n_heads=4, width=64, position_std=1.0, input_std=1.0)
SMOKE = dict(batch_size=8, warmup_steps=2, eval_sequences=16, final_eval_sequences=32)
# Learning rates: on the grid the better for the decoder, and as good as any for ENTP.
RATES = dict(max_lr=3e-3, min_lr=3e-4)
OTHERS = dict(
    warmup_steps=100,
    betas=(0.9, 0.95),
    weight_decay=0.0,
    eval_sequences=512,
    final_eval_sequences=1280,
)
TRAIN = dict(batch_size=64, **RATES, **OTHERS)
NIGHT = {**TRAIN, "eval_sequences": 1024, "final_eval_sequences": 4096}
GPU = {
    **TRAIN,
    "betas": (0.9, 0.999),
    "max_lr": 5e-4,
    "min_lr": 5e-5,
    "warmup_steps": 500,
    "precision": "bf16",
}
PAPER = {**GPU, "max_lr": 1e-4, "min_lr": 1e-4, "warmup_steps": 0, "eval_sequences": 1280}
TASK = dict(dims=3, points=6)
SPARSE = TASK | dict(sparsity=1)
# gpu is meant for half an hour of an H200 per experiment, by counted operations; paper is the
# schedule of Garg et al. docs/costs.md extrapolates what both would cost.
TIERS = {
    "smoke": by_class(
        TINY,
        SMOKE,
        2,
        3,
        linear=(dict(dims=2, points=4), ALL + LONGER, 6),
        sparse=(dict(dims=3, points=4, sparsity=1), TWINS + LONGER, 6),
        network=(dict(dims=2, points=4, hidden=8), TWINS, 6),
        tree=(dict(dims=2, points=4, depth=2), TWINS, 6),
    ),
    "quick": by_class(
        MODEL,
        TRAIN,
        5,
        20,
        linear=(TASK, ALL + LONGER, 500),
        sparse=(SPARSE, TWINS, 500),
        network=(TASK, TWINS, 300),
        tree=({**TASK, "depth": 2}, TWINS, 300),
    ),
    # To convergence: twenty times quick's steps on the two classes that the paper's main figure
    # has.
    "overnight": by_class(
        MODEL,
        NIGHT,
        5,
        100,
        linear=(TASK, ALL + LONGER, 10_000),
        sparse=(SPARSE, TWINS + LONGER, 10_000),
    ),
    "gpu": by_class(
        dict(n_layers=6, n_heads=4, width=128, **SCALES),
        GPU,
        1,
        40,
        **dict.fromkeys(("linear", "sparse"), (dict(curriculum_every=160), ALL, 8000)),
        **dict.fromkeys(("network", "tree"), (dict(curriculum_every=64), TWINS, 3000)),
    ),
    "paper": by_class(
        dict(n_layers=12, n_heads=8, width=256, **SCALES),
        PAPER,
        5,
        250,
        **dict.fromkeys(
            ("linear", "sparse", "network", "tree"), (dict(curriculum_every=2000), ALL, 500_000)
        ),
    ),
}
# labels of the classes in eight dimensions
IN_EIGHT = {"linear": "linear, 8 dimensions", "sparse": "sparse, 8 dimensions"}
# Steps, rates and initial scales (of positions, of the read-in) of the grid on which decoder and
# ENTP are compared.
GRID = {
    "smoke": (3, (5e-4,), (0.02, 0.5), (0.02, 0.3)),
    "quick": (300, (1e-3, 2e-3, 3e-3), (0.02, 1.0), (0.02, 1.0)),
    "gpu": (5000, (5e-4, 2e-3), (0.02, 0.5), (0.02, 0.3)),
    "paper": (50_000, (1e-4, 5e-4), (0.02, 0.5), (0.02, 0.3)),
}
# By tier: the numbers of prompts that classical learners get, and that the costly ones get.
PROMPTS = dict(
    smoke=(32, 2), quick=(1280, 128), overnight=(4096, 128), gpu=(1280, 64), paper=(1280, 256)
)


def plan(tier: str, seeds: int) -> PlannedRuns:
    """Plan every function class, arm and seed of a tier, with equally many evaluations per run."""
    runs = []
    for function, setting in TIERS[tier].items():
        one_class = {function: Variant()}
        of_class = Plan("in_context", "in_context", {tier: setting}, ARMS, one_class, "function")
        evaluations = setting.train.steps // setting.train.eval_every
        for run in of_class(tier, seeds):
            every = max(1, run.config.train.steps // evaluations)
            runs.append(replace(run, config=with_train(run.config, eval_every=every)))
    return by_seed(runs) if tier == "overnight" else runs


def plan_settings(tier: str, seeds: int) -> PlannedRuns:
    """Plan ENTP and decoder on linear functions over a grid of rates and initial scales.

    All else is as in the tier's other runs.
    """
    setting = TIERS[tier]["linear"]
    steps, *values = GRID[tier]
    for rate, position_std, input_std in product(*values):
        scales = dict(position_std=position_std, input_std=input_std)
        train = replace(
            setting.train,
            max_lr=rate,
            min_lr=rate / 10,
            steps=steps,
            eval_every=max(1, steps // 3),
        )
        shape = setting.model | scales
        base = run_of("in_context_settings", tier, "in_context", setting.task, shape, train)
        yield from twins(base, TWINS, seeds or 1, function="linear", max_lr=rate, **scales)


def plan_baselines(tier: str, seeds: int) -> PlannedRuns:
    """Plan the classical learners of every function class, on the prompts of every seed."""
    name = "in_context_baselines"
    prompts, costly = PROMPTS[tier]
    for function, setting in TIERS[tier].items():
        for seed in range(seeds or setting.seeds):
            params = {"prompts": prompts, "costly_prompts": costly, "task": setting.task}
            params["seed"] = seed
            yield planned_study(name, tier, name, params, seed, function=function)


def task_of(record: Record) -> InContext:
    """Return the task of a run."""
    return InContext(**record.config.task_params)


def training_error(record: Record, start: float, end: float) -> float:
    """Return the mean training loss / E[y²] from one share of a run's steps to another.

    Each point of the curve is the mean since the previous point; a point whose steps lie partly
    within the range is weighted by that part.
    """
    steps = np.asarray(record.curves["step"])
    first, last = start * steps[-1], end * steps[-1]
    previous = np.concatenate([[0], steps[:-1]])
    weights = np.maximum(0, np.minimum(steps, last) - np.maximum(previous, first))
    mean = np.average(record.curves["train_loss"], weights=weights)
    return float(mean / task_of(record).normaliser)


def flatness(records: Records) -> pd.DataFrame:
    """Return a row per run: the ``fall`` of its training error from the fourth to the last fifth of
    its steps.

    A run is ``flat`` if the mean fall over the seeds of its arm, tier and class is at most
    ``FLAT``.
    """
    found = pd.DataFrame({**r.labels, "steps": r.curves["step"][-1]} for r in records)
    found["fall"] = [training_error(r, 0.6, 0.8) - training_error(r, 0.8, 1.0) for r in records]
    found["flat"] = reaches(
        FLAT, found.groupby(["tier", "function", "arm"])["fall"].transform("mean")
    )
    return found


def table(records: Records) -> pd.DataFrame:
    """Return ``summary`` with ``error``, its bound ``least``, and ``log_late_error``.

    That is ln of the error from d examples on, where least squares knows a linear function; NaN if
    prompts have fewer.
    """
    found = summary(records)
    late_errors = []
    tasks = [task_of(r) for r in records]
    for r, task in zip(records, tasks, strict=True):
        examples = (np.asarray(r.metrics["position"]) - 1) // 2
        late = np.asarray(r.metrics["loss_by_position"])[examples >= task.dims]
        error = sum(late) / len(late) / task.normaliser if len(late) else math.nan
        late_errors.append(math.log(error))
    found["error"] = found["loss"] / [task.normaliser for task in tasks]
    found["least"] = [least_error(task) for task in tasks]
    found["log_late_error"] = late_errors
    return found


def least_error(task: InContext) -> float:
    """Return a bound of the mean error: what least squares leaves of linear functions, else 0."""
    unknown = np.maximum(0, 1 - np.arange(task.points) / task.dims)
    return (task.function == "linear") * unknown.mean()


def late_leads(records: Records) -> Findings:
    """Measure ln(decoder's error / ENTP's error) from d examples on, for the claims of ``LATE``."""
    for claim, function in LATE.items():
        used = select(records, function=function, arm=TWINS)
        values = paired(table(used), "log_late_error", *TWINS) if used else ()
        if len(values):
            yield measured(claim, values, used)


def too_early(records: Records, arms: Sequence[str]) -> str:
    """Return a message if arms still improve on the classes of Figure 10, else "".

    Figure 10 has ENTP level with the decoder on them.
    """
    compared = select(records, function=("network", "tree"), arm=tuple(arms))
    if not compared or flatness(compared)["flat"].all():
        return ""
    return "too little trained to tell"


def moving(records: Records) -> str:
    """Return a remark on arms whose training error still fell (see ``flatness``), or ""."""
    if not records:
        return ""
    found = flatness(records)
    return after(found.loc[~found["flat"], "steps"])


# Function class, and the arm whose error is subtracted from the decoder's.
CLAIMS = {
    "F7-linear": ("linear", "entp"),
    "F7-sparse-higher": ("sparse", "entp"),
    "F7-sparse": (AT_LOWER_RATE, "entp"),
    "F7-hybrid": ("linear", "hybrid"),
    "F7-linear-eight": (IN_EIGHT["linear"], "entp"),
    "F7-sparse-eight": (IN_EIGHT["sparse"], "entp"),
    "F10-network": ("network", "entp"),
    "F10-tree": ("tree", "entp"),
}
# Function classes of the claims on ln of the ratio of errors from d examples on: least squares
# needs d, and with fewer no method can know the function.
LATE = {"F7-linear-late": "linear", "F7-linear-eight-late": IN_EIGHT["linear"]}
PAIRS = [
    Paired(claim, "error", "decoder", arm, dict(function=function))
    for claim, (function, arm) in CLAIMS.items()
]
# No run counts as at the paper's settings, which are unknown.
SCALE = dict(floor=1.0, ceiling="least", near=LEARNED, frame=table, excluded=too_early)
measure = Comparisons(PAIRS, **SCALE, others=(late_leads,))


def experiment(name: str, title: str, plan, measure=no_claims, **options: Any) -> Experiment:
    """Make an experiment of notebook 08."""
    return Experiment(
        name,
        1,
        title,
        "08_in_context_learning",
        plan,
        measure,
        still_improving_note=moving,
        paper_runs_of="" if name == "in_context" else "in_context",
        **options,
    )


def closed(name: str, title: str, measure=measure, **options: Any) -> Experiment:
    """Make a closed experiment of notebook 08."""
    return experiment(name, title, Closed(name), measure, **options)


IN_CONTEXT = experiment("in_context", "Functions learned in context", plan, measure)
# Follows ``in_context`` overnight, where one of ENTP's five seeds learned sparse functions. Here
# the learning rate is a third, and the steps are twice as many (docs/journal has the trial runs).
IN_CONTEXT_SPARSE = closed("in_context_sparse", "Sparse functions in context at a lower rate")
# Nearer to the paper's sizes, with 16 examples. Trial runs try two learning rates for each model;
# each model then has its better one, which is 1e-3 for all.
IN_CONTEXT_RATES = closed(
    "in_context_rates",
    "Functions of eight dimensions in context: which rate suits which arm",
    no_claims,
    seeded=False,
)
# The falling rate is 3e-3 for each model, as ``in_context`` has it.
LINEAR_FALLING = closed(
    "linear_falling_rates",
    "Linear functions in three dimensions: which falling rate suits which arm",
    no_claims,
    seeded=False,
)
IN_CONTEXT_WIDER = closed("in_context_wider", "Functions of eight dimensions in context, linear")
IN_CONTEXT_WIDER_SPARSE = closed(
    "in_context_wider_sparse", "Functions of eight dimensions in context, sparse"
)
# Trained to the end, at the lower learning rate: the two classes that ``quick`` barely learns.
IN_CONTEXT_NETWORK = closed("in_context_network", "Functions in context to the end: network")
IN_CONTEXT_TREE = closed("in_context_tree", "Functions in context to the end: tree")
# The grid has one seed; more would cost more than everything else.
IN_CONTEXT_SETTINGS = experiment(
    "in_context_settings",
    "What pure ENTP needs to learn in context",
    plan_settings,
    tiers=GRID,
    seeded=False,
)
IN_CONTEXT_BASELINES = experiment(
    "in_context_baselines", "Classical learners in context", plan_baselines
)
