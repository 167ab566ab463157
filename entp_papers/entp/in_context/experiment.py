"""In-context learning (§7.2, appendix C.2, Figures 7 and 10): four function classes, what pure ENTP needs, baselines.

The paper's model size, schedule and curriculum are unknown. ``error`` is the squared error divided by E[y²], so that
the predictor 0 scores 1, as a mean over all numbers of examples from none on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pandas as pd

from entp_lib.config import ModelConfig, RunConfig, StudyConfig, TrainConfig
from entp_lib.experiments.changes import LONGER
from entp_lib.experiments.ends import after
from entp_lib.experiments.experiment import (
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
from entp_lib.experiments.frames import levels, paired, summary
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_lib.tasks import InContext
from entp_papers.entp.in_context.flat import flatness, task_of
from entp_papers.entp.in_context.tiers import BOTH, SLOWER, TIERS

AT_LOWER_RATE = "sparse, lower rate"  # the function class of the runs at a lower rate, in their labels


def base_run(experiment: str, tier: str, function: str, steps: int, evaluations: int) -> RunConfig:
    """The decoder of a tier on a function class, for so many steps."""
    setting = TIERS[tier]
    params = {"function": function, **setting.runs[function].task}
    task = InContext(**params)
    shape = dict(vocab_size=0, max_length=task.length, input_dim=task.dims, output_dim=1)
    train = TrainConfig(steps=steps, eval_every=max(1, steps // evaluations), **setting.train)
    return RunConfig(experiment, tier, "in_context", params, ModelConfig("decoder", **setting.model, **shape), train)


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every function class, architecture and seed of a tier, and decoders at ENTP's token-forwards (``longer``)."""
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
    "F7-sparse-fair": ("sparse", LONGER, "entp"),
    "F7-sparse-slower": (AT_LOWER_RATE, "decoder", "entp"),
    "F7-hybrid": ("linear", "decoder", "hybrid"),
    "F10-network": ("network", "decoder", "entp"),
    "F10-tree": ("tree", "decoder", "entp"),
}
LEARNED = 0.1  # below 1, which the predictor 0 scores: a model that has not come further has learned nothing


def gap(found: pd.DataFrame, function: str, first: str, second: str, metric: str = "error") -> pd.Series:
    """Differences of the error (or ``late_error``) between two arms, by seed, from a ``table``."""
    return paired(found[found["function"] == function], metric, first, second)


def too_early(records: Sequence[Record]) -> str:
    """Why arms on the way to where they end are not shown to be level: the words of a bar; empty if all are flat."""
    return "" if flatness(records)["flat"].all() else "too little trained to tell"


def measure(records: Sequence[Record]) -> list[Measurement]:
    """Figures 7 and 10 at equal steps, and sparse functions at equal token-forwards; never at the paper's settings.

    Those are unknown. Figure 10 says that ENTP is level, of which arms that still improve tell nothing.
    """
    if not records:
        return []
    found, measured = table(records), []
    for claim, (function, *arms) in CLAIMS.items():
        values = gap(found, function, *arms)
        if len(values):
            used = select(records, function=function, arm=tuple(arms))
            of_class, ids = found[found["function"] == function], tuple(map(name_of, used))
            stand = levels(of_class, "error", arms, floor=1.0, ceiling=0.0, distance=LEARNED)
            barred = too_early(used) if claim.startswith("F10") else ""
            measured.append(Measurement(claim, values.tolist(), used[0].config.tier, ids, False, stand, barred))
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
