"""Tables of notebook 08: errors by number of examples, shifts, compute, settings, and whether curves had ended.

Errors are divided by E[y²] throughout. Classical learners have their names in the place of arms. The rules of what is
flat were written down before the runs of the ``overnight`` tier (docs/journal): a comparison whose arms are flat is one
of where they end; any other is one after so many steps, and is said to be.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lab.experiment import Experiment
from entp_lab.frames import curves, interval_text, select
from entp_lab.plans import TWINS
from entp_lab.store import Record, Store
from entp_lib.tasks import InContext
from entp_papers.entp.in_context.experiment import ALL, AT_LOWER_RATE, IN_EIGHT, flatness, gap, table, task_of

PROMPTS = ("standard", "scaled", "orthogonal", "noisy")
LASSO = "Lasso, α = 0.01"
REGRESSION = ("linear", "sparse", AT_LOWER_RATE, *IN_EIGHT.values())  # the classes of Figure 7
COMPARED = (TWINS, ("decoder", "hybrid"))  # first − second
# What a class is held against; None: the learner with the lowest error. Least squares is no measure of functions that
# are not linear: with d examples it interpolates, and the expectation of its error is not finite.
REFERENCES = {"linear": ("least squares",), "sparse": ("least squares", LASSO), "network": None, "tree": None}


def by_examples(records: Sequence[Record], prompts: str = "standard") -> pd.DataFrame:
    """Long: error of each run by number of examples at a distribution of prompts."""
    parts = []
    for r in records:
        task, scores = task_of(r), r.metrics
        if prompts != "standard":
            if prompts not in scores:
                continue
            task, scores = task.reported_apart()[prompts], scores[prompts]
        part = {"function": task.function, "arm": r.labels["arm"], "seed": r.config.model_seed}
        examples = [(n - 1) // 2 for n in scores["position"]]
        errors = [e / task.normaliser for e in scores["loss_by_position"]]
        parts.append(pd.DataFrame({**part, "examples": examples, "error": errors}))
    return pd.concat(parts, ignore_index=True)


def learners_by_examples(studies: Sequence[Record], prompts: str = "standard") -> pd.DataFrame:
    """The same of the classical learners."""
    parts = []
    for r in studies:
        for name in r.metrics["prompts"]:
            if errors := r.curves.get(f"{prompts} | {name}"):
                part = {"function": task_of(r).function, "arm": name, "seed": r.config.data_seed}
                parts.append(pd.DataFrame({**part, "examples": r.curves["examples"], "error": errors}))
    return pd.concat(parts, ignore_index=True)


def least_squares(task: InContext) -> pd.DataFrame:
    """What least squares has in expectation on functions w·x, in place of a study: 1 - k/d with k < d examples, else 0.

    The shortest w that fits k random x's is the projection of the true one onto them.
    """
    examples = range(task.points)
    errors = [max(0.0, 1 - k / task.dims) for k in examples]
    return pd.DataFrame({"function": task.function, "arm": "least squares", "examples": examples, "error": errors})


def missing(studies: Sequence[Record]) -> list[str]:
    """The learners that were left out, each with why."""
    return list(dict.fromkeys(f"{name}: {why}" for r in studies for name, why in r.metrics["missing"].items()))


def references(studies: Sequence[Record], function: str) -> tuple[str, ...]:
    """The names in ``REFERENCES``, or that of the learner with the lowest mean error."""
    if REFERENCES[function]:
        return REFERENCES[function]
    found = learners_by_examples([r for r in studies if task_of(r).function == function])
    return (found.groupby("arm")["error"].mean().idxmin(),)


def excess(records: Sequence[Record], studies: Sequence[Record]) -> pd.DataFrame:
    """Error of each run minus that of its class' references on the prompts of the same seed, a row for each.

    On the same prompts if the run was scored on a CPU (a GPU draws others); costly learners on the first of them only.
    """
    learners = learners_by_examples(studies).groupby(["function", "arm", "seed"], sort=False)["error"].mean()
    rows = []
    for run in table(records).itertuples():
        for name in references(studies, run.function):
            other = learners.get((run.function, name, run.seed), float("nan"))
            rows.append((run.function, run.arm, run.seed, name, run.error - other))
    return pd.DataFrame(rows, columns=["function", "arm", "seed", "over", "excess"])


def shifted(records: Sequence[Record], studies: Sequence[Record]) -> pd.DataFrame:
    """Error with the most examples at each distribution of prompts, means over seeds; the best learner's beside it.

    Orthogonal prompts also with d - 1 examples: the query is then orthogonal to all that was shown, which tells nothing
    of it if the function is linear, and least squares predicts 0, an error of 1 in expectation. With the most the query
    may be in a later block, and need then be orthogonal to none of them.
    """
    dims, rows = {task_of(r).function: task_of(r).dims for r in records}, {}
    for prompts in PROMPTS:
        for frame in (by_examples(records, prompts), learners_by_examples(studies, prompts)):
            for (function, arm), part in frame.groupby(["function", "arm"], sort=False):
                errors = part.groupby("examples")["error"].mean()
                first = {dims[function] - 1} & set(errors.index) if prompts == "orthogonal" else set()
                for n in sorted(first | {errors.index.max()}):
                    if arm in ALL:
                        rows.setdefault((function, prompts, n), {})[arm] = errors[n]
                    elif errors[n] < rows[function, prompts, n].get("its error", float("inf")):
                        rows[function, prompts, n] |= {"reference": arm, "its error": errors[n]}
    out = pd.DataFrame(rows.values(), index=pd.MultiIndex.from_tuples(rows, names=["function", "prompts", "examples"]))
    return out.loc[[f for f in REFERENCES if f in out.index.get_level_values(0)]]


def tasks_table(records: Sequence[Record]) -> pd.DataFrame:
    """The task of each function class (columns), and steps and tier of ENTP's runs on it."""
    fields = ["points", "dims", "sparsity", "hidden", "depth", "output_scale", "curriculum_every"]
    tasks = {task.function: {f: getattr(task, f) for f in fields} for task in map(task_of, records)}
    for r in select(records, arm="entp"):
        tasks[r.labels["function"]] |= {"steps": r.config.train.steps, "tier": r.config.tier}
    return pd.DataFrame(tasks)


def courses(records: Sequence[Record]) -> pd.DataFrame:
    """``curves`` with the error."""
    course = curves(records)
    normalisers = {r.labels["function"]: task_of(r).normaliser for r in records}
    return course.assign(error=course["loss"] / course["function"].map(normalisers))


def settings_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row per rate and initial scales, a column per architecture: error, mean over seeds."""
    keys = ["max_lr", "position_std", "input_std"]
    return table(records).pivot_table(index=keys, columns="architecture", values="error").rename_axis(columns=None)


def stage(records: Sequence[Record]) -> str:
    """Stage of a comparison of the arms in ``records``: "flat" where all are, else "after 10,000 steps"."""
    found = flatness(records)
    if found["flat"].all():
        return "flat"
    return f"after {' and '.join(f'{steps:,}' for steps in sorted(set(found['steps'])))} steps"


def ends(records: Sequence[Record]) -> pd.DataFrame:
    """A row per tier, class and arm, means over seeds: training error by fifth, whether flat, error, late error."""
    found = flatness(records).assign(**table(records)[["error", "late_error"]])
    rows = found.groupby(["tier", "function", "arm"], sort=False)
    means = rows[["steps", "fourth", "last", "fall", "error", "late_error"]].mean()
    means.insert(4, "flat", rows["flat"].all().map({True: "yes", False: "no"}))
    means["errors of the seeds"] = rows["error"].agg(lambda errors: " ".join(f"{e:.3f}" for e in sorted(errors)))
    names = {"fourth": "training error, 4th fifth", "last": "last fifth", "late_error": "error from d examples on"}
    return means.astype({"steps": int}).round(3).rename(columns=names)


def both_measures(records: Sequence[Record]) -> pd.DataFrame:
    """A row per comparison of Figure 7 that ``records``, of one tier, have: error over all points and over late ones.

    Mean difference with its 95 % interval, and whether both arms are flat.
    """
    found, rows = table(records), {}
    for function in dict.fromkeys(found["function"]):
        for first, second in COMPARED:
            errors, late = (gap(found, function, first, second, metric) for metric in ("error", "late_error"))
            if function in REGRESSION and len(errors):
                row = {"all points": interval_text(errors, "+"), "from d examples on": interval_text(late, "+")}
                row["curves"] = stage(select(records, function=function, arm=(first, second)))
                rows[records[0].config.tier, function, f"{first} − {second}"] = row
    names = ["tier", "function", "first − second"]
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index=names if rows else None)


def with_quick(experiment: Experiment, records: Sequence[Record], store: Store | None = None) -> list[Record]:
    """``records``, and of function classes that they lack those of quick, if they are stored."""
    there = {task_of(r).function for r in records}
    below = experiment.stored(store or Store(), "quick") or []
    return [*records, *(r for r in below if task_of(r).function not in there)]
