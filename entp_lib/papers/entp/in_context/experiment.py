"""In-context learning (§7.2, appendix C.2, Figures 7 and 10): four function classes, what pure ENTP needs, baselines.

The paper's model size, schedule and curriculum are unknown. ``error`` is the squared error divided by E[y²], so that
the predictor 0 scores 1, as a mean over all numbers of examples from none on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from entp_lib.collection.ends import after
from entp_lib.collection.experiment import (
    Experiment,
    PlannedRun,
    by_seed,
    compute_ratio,
    name_of,
    no_claims,
    planned_study,
    select,
    twins,
)
from entp_lib.collection.frames import levels, paired, summary
from entp_lib.collection.measurements import Measurement
from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.papers.entp.in_context.flat import flatness, task_of
from entp_lib.runs.records import Record
from entp_lib.tasks import InContext

BOTH, ALL = ("decoder", "entp"), ("decoder", "entp", "hybrid")
LONGER = "longer"  # a decoder trained on as many token-forwards as ENTP
SCALES = dict(position_std=0.5, input_std=0.3)

ADAM = dict(betas=(0.9, 0.999), weight_decay=0.0)


@dataclass(frozen=True)
class FunctionRuns:
    """The runs on one function class: the task's parameters, the architectures, the steps of each."""

    task: dict[str, Any]
    architectures: Sequence[str]
    steps: int


@dataclass(frozen=True)
class SettingsGrid:
    """Rates and initial scales on which decoder and ENTP are compared, for so many steps."""

    steps: int
    max_lr: Sequence[float]
    position_std: Sequence[float]
    input_std: Sequence[float]


@dataclass(frozen=True)
class InContextTier:
    """One tier: the model, the training but for its length, the runs of each class and what goes with them.

    ``equal_compute``: the classes for which a decoder is trained for ENTP's token-forwards. ``settings``: the grid on
    which the setting of the runs lies, None for a tier that takes over quick's. ``baselines``: the prompts that
    classical learners get.
    """

    model: dict[str, Any]
    train: dict[str, Any]
    runs: dict[str, FunctionRuns]
    equal_compute: Sequence[str]
    seeds: int
    evaluations: int
    settings: SettingsGrid | None
    baselines: dict[str, int]


# gpu is meant for half an hour of an H200 per experiment, by counted operations; paper is the schedule of Garg et al.
# README.md extrapolates what both would cost.
TIERS = {
    "smoke": InContextTier(
        model=dict(n_layers=3, n_heads=2, width=16, **SCALES),
        train=dict(batch_size=8, warmup_steps=2, eval_sequences=16, final_eval_sequences=32),
        runs={
            "linear": FunctionRuns(dict(dims=2, points=4), ALL, 6),
            "sparse": FunctionRuns(dict(dims=3, points=4, sparsity=1), BOTH, 6),
            "network": FunctionRuns(dict(dims=2, points=4, hidden=8), BOTH, 6),
            "tree": FunctionRuns(dict(dims=2, points=4, depth=2), BOTH, 6),
        },
        equal_compute=("linear", "sparse"),
        seeds=2,
        evaluations=3,
        settings=SettingsGrid(steps=3, max_lr=(5e-4,), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=32, costly_prompts=2),
    ),
    "quick": InContextTier(
        model=dict(n_layers=3, n_heads=4, width=64, position_std=1.0, input_std=1.0),
        train=dict(
            batch_size=64,
            max_lr=3e-3,  # the better for the decoder on the grid, and as good as any for ENTP
            min_lr=3e-4,
            warmup_steps=100,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            eval_sequences=512,
            final_eval_sequences=1280,
        ),
        runs={
            "linear": FunctionRuns(dict(dims=3, points=6), ALL, 500),
            "sparse": FunctionRuns(dict(dims=3, points=6, sparsity=1), BOTH, 500),
            "network": FunctionRuns(dict(dims=3, points=6), BOTH, 300),
            "tree": FunctionRuns(dict(dims=3, points=6, depth=2), BOTH, 300),
        },
        equal_compute=("linear",),
        seeds=5,
        evaluations=20,
        settings=SettingsGrid(steps=300, max_lr=(1e-3, 2e-3, 3e-3), position_std=(0.02, 1.0), input_std=(0.02, 1.0)),
        baselines=dict(prompts=1280, costly_prompts=128),
    ),
    # To convergence: twenty times quick's steps on the two classes that the paper's main figure has.
    "overnight": InContextTier(
        model=dict(n_layers=3, n_heads=4, width=64, position_std=1.0, input_std=1.0),
        train=dict(
            batch_size=64,
            max_lr=3e-3,
            min_lr=3e-4,
            warmup_steps=100,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            eval_sequences=1024,
            final_eval_sequences=4096,
        ),
        runs={
            "linear": FunctionRuns(dict(dims=3, points=6), ALL, 10_000),
            "sparse": FunctionRuns(dict(dims=3, points=6, sparsity=1), BOTH, 10_000),
        },
        equal_compute=("linear", "sparse"),
        seeds=5,
        evaluations=100,
        settings=None,
        baselines=dict(prompts=4096, costly_prompts=128),
    ),
    "gpu": InContextTier(
        model=dict(n_layers=6, n_heads=4, width=128, **SCALES),
        train=dict(
            batch_size=64,
            max_lr=5e-4,
            min_lr=5e-5,
            warmup_steps=500,
            **ADAM,
            precision="bf16",
            eval_sequences=512,
            final_eval_sequences=1280,
        ),
        runs={
            "linear": FunctionRuns(dict(curriculum_every=160), ALL, 8000),
            "sparse": FunctionRuns(dict(curriculum_every=160), ALL, 8000),
            "network": FunctionRuns(dict(curriculum_every=64), BOTH, 3000),
            "tree": FunctionRuns(dict(curriculum_every=64), BOTH, 3000),
        },
        equal_compute=(),
        seeds=1,
        evaluations=40,
        settings=SettingsGrid(steps=5000, max_lr=(5e-4, 2e-3), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=64),
    ),
    "paper": InContextTier(
        model=dict(n_layers=12, n_heads=8, width=256, **SCALES),
        train=dict(
            batch_size=64,
            max_lr=1e-4,
            min_lr=1e-4,
            warmup_steps=0,
            **ADAM,
            precision="bf16",
            eval_sequences=1280,
            final_eval_sequences=1280,
        ),
        runs={
            name: FunctionRuns(dict(curriculum_every=2000), ALL, 500_000)
            for name in ("linear", "sparse", "network", "tree")
        },
        equal_compute=(),
        seeds=5,
        evaluations=250,
        settings=SettingsGrid(steps=50_000, max_lr=(1e-4, 5e-4), position_std=(0.02, 0.5), input_std=(0.02, 0.3)),
        baselines=dict(prompts=1280, costly_prompts=256),
    ),
}


def base_run(experiment: str, tier: str, function: str, steps: int, evaluations: int) -> RunConfig:
    """The decoder of a tier on a function class, for so many steps."""
    setting = TIERS[tier]
    params = {"function": function, **setting.runs[function].task}
    task = InContext(**params)
    shape = dict(vocab_size=0, max_length=task.length, input_dim=task.dims, output_dim=1)
    train = TrainConfig(steps=steps, eval_every=max(1, steps // evaluations), **setting.train)
    return RunConfig(experiment, tier, "in_context", params, ModelConfig("decoder", **setting.model, **shape), train)


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every function class, architecture and seed of a tier, and decoders at ENTP's compute (arm ``longer``)."""
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    for function, of_class in setting.runs.items():
        base = base_run("in_context", tier, function, of_class.steps, setting.evaluations)
        runs += twins(base, of_class.architectures, seeds or setting.seeds, function=function)
        if function in setting.equal_compute:
            ratio = compute_ratio(InContext(**base.task_params))
            train = base.train.lengthened(ratio, eval_every=max(1, int(of_class.steps * ratio) // setting.evaluations))
            longer = replace(base, train=train)
            runs += twins(longer, ("decoder",), seeds or setting.seeds, function=function, arm=LONGER)
    return by_seed(runs) if tier == "overnight" else runs


@dataclass(frozen=True)
class SlowerRuns:
    """Sparse functions at a lower rate, for so many steps; all else as in the tier's other runs."""

    steps: int
    max_lr: float


# After ``in_context`` overnight, where one of ENTP's five seeds learned sparse functions: at a third of its rate, and
# for twice the steps (docs/JOURNAL.md has the pilots).
SLOWER = {"smoke": SlowerRuns(6, 1e-3), "overnight": SlowerRuns(20_000, 1e-3)}
AT_LOWER_RATE = "sparse, lower rate"


def plan_slower(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoder and ENTP on sparse functions at a lower rate."""
    if tier not in SLOWER:
        return []
    setting, of_tier = SLOWER[tier], TIERS[tier]
    base = base_run("in_context_sparse", tier, "sparse", setting.steps, of_tier.evaluations)
    base = replace(base, train=replace(base.train, max_lr=setting.max_lr, min_lr=setting.max_lr / 10))
    return by_seed(twins(base, BOTH, seeds or of_tier.seeds, function=AT_LOWER_RATE))


def plan_settings(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """ENTP and decoder on linear functions over a grid of rates and initial scales, one seed unless told otherwise."""
    if tier not in TIERS or TIERS[tier].settings is None:
        return []
    grid, runs = TIERS[tier].settings, []
    base = base_run("in_context_settings", tier, "linear", grid.steps, 3)
    for rate, position_std, input_std in product(grid.max_lr, grid.position_std, grid.input_std):
        model = replace(base.model, position_std=position_std, input_std=input_std)
        train = replace(base.train, max_lr=rate, min_lr=rate / 10)
        labels = dict(function="linear", max_lr=rate, position_std=position_std, input_std=input_std)
        runs += twins(replace(base, model=model, train=train), BOTH, seeds or 1, **labels)
    return runs


def plan_baselines(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """The classical learners of every function class, on the prompts of every seed."""
    if tier not in TIERS:
        return []
    setting, studies = TIERS[tier], []
    for function, of_class in setting.runs.items():
        for seed in range(seeds or setting.seeds):
            params = {"task": {"function": function, **of_class.task}, **setting.baselines, "seed": seed}
            config = StudyConfig("in_context_baselines", tier, "in_context_baselines", params, seed, seed)
            studies.append(planned_study(config, function=function))
    return studies


def table(records: Sequence[Record]) -> pd.DataFrame:
    """``summary`` with the error, and as ``late_error`` that where at least d examples are shown."""
    found = summary(records)
    found["error"] = [r.metrics["loss"] / task_of(r).normaliser for r in records]
    found["late_error"] = [late_error(r) for r in records]
    return found


def late_error(record: Record) -> float:
    """Mean error at the points with at least d examples, from which least squares knows a linear function.

    NaN where no prompt has so many.
    """
    task, scores = task_of(record), record.metrics
    by_examples = zip(scores["position"], scores["loss_by_position"], strict=True)
    late = [loss for position, loss in by_examples if (position - 1) // 2 >= task.dims]
    return sum(late) / len(late) / task.normaliser if late else math.nan


CLAIMS = {  # paired differences first − second of the error
    "F7-linear": ("linear", "decoder", "entp"),
    "F7-sparse": ("sparse", "decoder", "entp"),
    "F7-linear-fair": ("linear", LONGER, "entp"),
    "F7-sparse-fair": ("sparse", LONGER, "entp"),
    "F7-sparse-slower": (AT_LOWER_RATE, "decoder", "entp"),
    "F7-hybrid": ("linear", "decoder", "hybrid"),
    "F10-network": ("network", "decoder", "entp"),
    "F10-tree": ("tree", "decoder", "entp"),
}
# The second measure of Figure 7, ``late_error``, beside each row of its own. Where they disagree, the first decides.
LATE = {f"{claim}-late": arms for claim, arms in CLAIMS.items() if claim.startswith("F7")}
LEARNED = 0.1  # below 1, which the predictor 0 scores: a model that has not come further has learned nothing


def gap(found: pd.DataFrame, function: str, first: str, second: str, metric: str = "error") -> pd.Series:
    """Differences of the error (or ``late_error``) between two arms, by seed, from a ``table``."""
    return paired(found[found["function"] == function], metric, first, second)


def measured_as(claim: str) -> tuple[str, str, str, str]:
    """What a claim compares: function class, first and second arm, and the column of ``table``."""
    return (*CLAIMS[claim], "error") if claim in CLAIMS else (*LATE[claim], "late_error")


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Figures 7 and 10 at equal steps and at equal compute; never at the paper's settings, which are unknown.

    Whether a comparison informs is asked of the error over all points, of ``LATE`` too.
    """
    if not records:
        return []
    found, measured = table(records), []
    for claim in (*CLAIMS, *LATE):
        function, *arms, metric = measured_as(claim)
        values = gap(found, function, *arms, metric)
        if len(values):
            ids = tuple(name_of(r) for r in select(records, function=function, arm=tuple(arms)))
            of_class = found[found["function"] == function]
            stand = levels(of_class, "error", arms, floor=1.0, ceiling=0.0, distance=LEARNED)
            measured.append(Measurement(claim, values.tolist(), records[0].config.tier, ids, levels=stand))
    return measured


def moving(records: Sequence[Record]) -> str:
    """What is said of arms whose training error still fell, by the rule of ``flat``."""
    if not records:
        return ""
    found = flatness(records)
    return after(found.loc[~found["flat"], "steps"])


IN_CONTEXT, IN_CONTEXT_SPARSE, IN_CONTEXT_SETTINGS, IN_CONTEXT_BASELINES = (
    Experiment(
        name,
        version=1,
        title=title,
        notebook="08_in_context_learning",
        plan=planner,
        measure=judged,
        moving=moving,
        changeable=name not in ("in_context_settings", "in_context_sparse"),
        seeded=name != "in_context_settings",  # a grid of one seed: more would cost more than all the rest
    )
    for name, title, planner, judged in (
        ("in_context", "Functions learned in context", plan, measure),
        ("in_context_sparse", "Sparse functions in context at a lower rate", plan_slower, measure),
        ("in_context_settings", "What pure ENTP needs to learn in context", plan_settings, no_claims),
        ("in_context_baselines", "Classical learners in context", plan_baselines, no_claims),
    )
)
