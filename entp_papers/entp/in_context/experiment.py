"""In-context learning (§7.2, appendix C.2, Figures 7 and 10): four function classes, what pure ENTP needs, baselines.

The paper's model size, schedule and curriculum are unknown. ``error`` is the squared error divided by E[y²], so that
the predictor 0 scores 1, as a mean over all numbers of examples from none on.
"""

import math
from collections.abc import Sequence
from itertools import product

import pandas as pd

from entp_lib.config import RunConfig, StudyConfig, TrainConfig
from entp_lib.experiments.budgets import EQUAL_FORWARDS, equal_forwards, on_budget
from entp_lib.experiments.caveats import after
from entp_lib.experiments.comparisons import Comparisons, Paired
from entp_lib.experiments.experiment import Experiment, no_claims
from entp_lib.experiments.frames import paired, select, summary
from entp_lib.experiments.plans import PlannedRun, by_seed, planned_study, run_of, twins, with_model, with_train
from entp_lib.records.store import Record
from entp_lib.statistics import reaches
from entp_lib.tasks import InContext
from entp_papers.entp.in_context.tiers import BOTH, SLOWER, TIERS

AT_LOWER_RATE = "sparse, lower rate"  # the function class of the runs at a lower rate, in their labels
FLAT = 0.01  # of E[y²]: the most by which training error may fall from the fourth fifth of the steps to the last
LEARNED = 0.1  # below 1, which the predictor 0 scores: a model that has not come further has learned nothing


def base_run(experiment: str, tier: str, function: str, steps: int, evaluations: int) -> RunConfig:
    """The decoder of a tier on a function class, for so many steps."""
    setting = TIERS[tier]
    params = {"function": function, **setting.runs[function].task}
    train = TrainConfig(steps=steps, eval_every=max(1, steps // evaluations), **setting.train)
    return run_of(experiment, tier, "in_context", params, setting.model, train)


def plan(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Every function class, architecture and seed of a tier, and decoders at ENTP's token-forwards (``longer``)."""
    if tier not in TIERS:
        return []
    setting, runs = TIERS[tier], []
    for function, of_class in setting.runs.items():
        base = base_run("in_context", tier, function, of_class.steps, setting.evaluations)
        runs += twins(base, of_class.architectures, seeds or setting.seeds, function=function)
        if function in setting.equal_compute:
            longer = on_budget(equal_forwards, with_model(base, architecture="entp"), base)
            longer = with_train(longer, eval_every=max(1, longer.train.steps // setting.evaluations))
            runs += twins(longer, ("decoder",), seeds or setting.seeds, function=function, arm=EQUAL_FORWARDS)
    return by_seed(runs) if tier == "overnight" else runs


def plan_slower(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """Decoder and ENTP on sparse functions at a lower rate."""
    if tier not in SLOWER:
        return []
    setting, of_tier = SLOWER[tier], TIERS[tier]
    base = base_run("in_context_sparse", tier, "sparse", setting.steps, of_tier.evaluations)
    base = with_train(base, max_lr=setting.max_lr, min_lr=setting.max_lr / 10)
    return by_seed(twins(base, BOTH, seeds or of_tier.seeds, function=AT_LOWER_RATE))


def plan_settings(tier: str, seeds: int = 0) -> list[PlannedRun]:
    """ENTP and decoder on linear functions over a grid of rates and initial scales, one seed by default."""
    if tier not in TIERS or TIERS[tier].settings is None:
        return []
    grid, runs = TIERS[tier].settings, []
    base = base_run("in_context_settings", tier, "linear", grid.steps, 3)
    for rate, position_std, input_std in product(grid.max_lr, grid.position_std, grid.input_std):
        scales = dict(position_std=position_std, input_std=input_std)
        config = with_train(with_model(base, **scales), max_lr=rate, min_lr=rate / 10)
        runs += twins(config, BOTH, seeds or 1, function="linear", max_lr=rate, **scales)
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


def task_of(record: Record) -> InContext:
    """The task of a run or of a study of baselines."""
    config = record.config
    return InContext(**(config.params["task"] if isinstance(config, StudyConfig) else config.task_params))


def training_error(record: Record, start: float, end: float) -> float:
    """Mean training loss / E[y²] over the steps from the share ``start`` of a run's steps to the share ``end``.

    A point of the curve is the mean since the point before it; one that lies partly within counts with that part.
    """
    total, weights, previous = 0.0, 0.0, 0
    first, last = (share * record.curves["step"][-1] for share in (start, end))
    for step, loss in zip(record.curves["step"], record.curves["train_loss"], strict=True):
        weight = max(0.0, min(step, last) - max(previous, first))
        total, weights, previous = total + weight * loss, weights + weight, step
    return total / weights / task_of(record).normaliser


def flatness(records: Sequence[Record]) -> pd.DataFrame:
    """A row per run: training error over the ``fourth`` fifth of its steps and over the ``last``, and the ``fall``.

    ``flat`` where the mean fall over the seeds of an arm, of one tier and class, is at most ``FLAT``.
    """
    found = pd.DataFrame(
        {**r.labels, "steps": r.curves["step"][-1], "fourth": training_error(r, 0.6, 0.8)}
        | {"last": training_error(r, 0.8, 1.0)}
        for r in records
    )
    found["fall"] = found["fourth"] - found["last"]
    found["flat"] = reaches(FLAT, found.groupby(["tier", "function", "arm"])["fall"].transform("mean"))
    return found


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


def gap(found: pd.DataFrame, function: str, first: str, second: str, metric: str = "error") -> pd.Series:
    """Differences of the error (or ``late_error``) between two arms, by seed, from a ``table``."""
    return paired(found[found["function"] == function], metric, first, second)


def too_early(records: Sequence[Record], arms: Sequence[str]) -> str:
    """Why arms that still improve on the classes of Figure 10 say nothing: it has ENTP level with the decoder."""
    compared = select(records, function=("network", "tree"), arm=tuple(arms))
    return "" if not compared or flatness(compared)["flat"].all() else "too little trained to tell"


def moving(records: Sequence[Record]) -> str:
    """Remark on arms whose training error still fell, by the rule of ``flatness``; empty where none did."""
    if not records:
        return ""
    found = flatness(records)
    return after(found.loc[~found["flat"], "steps"])


CLAIMS = {  # differences first − second of the error on a function class
    "F7-linear": ("linear", "decoder", "entp"),
    "F7-sparse": ("sparse", "decoder", "entp"),
    "F7-sparse-fair": ("sparse", EQUAL_FORWARDS, "entp"),
    "F7-sparse-slower": (AT_LOWER_RATE, "decoder", "entp"),
    "F7-hybrid": ("linear", "decoder", "hybrid"),
    "F10-network": ("network", "decoder", "entp"),
    "F10-tree": ("tree", "decoder", "entp"),
}
measure = Comparisons(  # never at the paper's settings, which are unknown
    [Paired(claim, "error", *arms, dict(function=function)) for claim, (function, *arms) in CLAIMS.items()],
    floor=1.0,
    ceiling=0.0,
    near=LEARNED,
    frame=table,
    excluded=too_early,
)
IN_CONTEXT, IN_CONTEXT_SPARSE, IN_CONTEXT_SETTINGS, IN_CONTEXT_BASELINES = (
    Experiment(
        name,
        1,
        title,
        "08_in_context_learning",
        planner,
        judged,
        still_improving_note=moving,
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
