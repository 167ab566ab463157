"""Tables of notebook 08: errors by number of examples, shifts, compute, settings.

Errors are divided by E[y²] throughout. Classical learners have their names in the place of arms.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lib.experiments.budgets import EQUAL_FORWARDS
from entp_lib.experiments.frames import curves
from entp_lib.records.store import Record
from entp_papers.entp.in_context.experiment import table, task_of
from entp_papers.entp.in_context.tiers import ALL

PROMPTS = ("standard", "scaled", "orthogonal", "noisy")
LASSO = "Lasso, α = 0.01"
SMALL = 0.1  # of error: where a model comes below it, figures are logarithmic
# What a class is held against; None: the learner with the lowest error. Least squares is no measure of functions that
# are not linear: with d examples it interpolates, and the expectation of its error is not finite.
REFERENCES = {"linear": ("least squares",), "sparse": ("least squares", LASSO), "network": None, "tree": None}


def by_examples(records: Sequence[Record], prompts: str = "standard") -> pd.DataFrame:
    """Long: error of each run by number of examples at a distribution of prompts, with its standard error over them."""
    parts = []
    for r in records:
        task, scores = task_of(r), r.metrics
        if prompts != "standard":
            if prompts not in scores:
                continue
            task, scores = task.reported_apart()[prompts], scores[prompts]
        part = {"function": task.function, "arm": r.labels["arm"], "seed": r.config.model_seed}
        part["examples"] = [(n - 1) // 2 for n in scores["position"]]
        part["error"] = [e / task.normaliser for e in scores["loss_by_position"]]
        part["standard_error"] = [e / task.normaliser for e in scores["error_by_position"]]
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def learners_by_examples(studies: Sequence[Record], prompts: str = "standard") -> pd.DataFrame:
    """The same of the classical learners."""
    parts = []
    for r in studies:
        for name in r.metrics["prompts"]:
            if f"{prompts} | {name}" not in r.curves:
                continue
            part = {"function": task_of(r).function, "arm": name, "seed": r.config.data_seed}
            part["examples"] = r.curves["examples"]
            part["error"] = r.curves[f"{prompts} | {name}"]
            part["standard_error"] = r.curves[f"{prompts} | {name} | error"]
            parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def missing(studies: Sequence[Record], function: str) -> list[str]:
    """The learners of a class that were left out, each with why."""
    found = {n: why for r in studies if task_of(r).function == function for n, why in r.metrics["missing"].items()}
    return [f"{name}: {why}" for name, why in found.items()]


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
            row = {"function": run.function, "arm": run.arm, "seed": run.seed, "over": name}
            rows.append({**row, "excess": run.error - other})
    return pd.DataFrame(rows)


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
                    if arm in (*ALL, EQUAL_FORWARDS):
                        rows.setdefault((function, prompts, n), {})[arm] = errors[n]
                    elif errors[n] < rows[function, prompts, n].get("its error", float("inf")):
                        rows[function, prompts, n] |= {"reference": arm, "its error": errors[n]}
    out = pd.DataFrame(rows.values(), index=pd.MultiIndex.from_tuples(rows, names=["function", "prompts", "examples"]))
    return out.loc[[f for f in REFERENCES if f in out.index.get_level_values(0)]]


def courses(records: Sequence[Record]) -> pd.DataFrame:
    """``curves`` with the error."""
    course = curves(records)
    normalisers = {r.labels["function"]: task_of(r).normaliser for r in records}
    return course.assign(error=course["loss"] / course["function"].map(normalisers))


def settings_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row per rate and initial scales, a column per architecture: error, mean over seeds."""
    keys = ["max_lr", "position_std", "input_std"]
    return table(records).pivot_table(index=keys, columns="architecture", values="error").rename_axis(columns=None)


def above_best(settings: Sequence[Record], records: Sequence[Record]) -> pd.DataFrame:
    """How far the setting of ``records`` is from each architecture's best on the grid, by the errors on the grid.

    NaN where the grid has no run at that setting.
    """
    found, config = settings_table(settings), records[0].config
    shared = (config.train.max_lr, config.model.position_std, config.model.input_std)
    ours, best = found.reindex([shared]).iloc[0], found.min()
    return pd.DataFrame({"setting of the runs": ours, "best on the grid": best, "difference": ours - best})


def draw(ax, records: Sequence[Record], studies: Sequence[Record], function: str, prompts: str = "standard") -> None:
    """Error by number of examples of one class of functions, with its ``REFERENCES`` in grey.

    Line: mean over seeds; band: lowest to highest seed. The axis is logarithmic where a model comes below ``SMALL``, as
    small errors lie on each other otherwise; it ends a little beyond the models, and a learner may leave it.
    """
    from entp_lib.experiments import figures

    models, learners = (
        frame[frame["function"] == function]
        for frame in (by_examples(records, prompts), learners_by_examples(studies, prompts))
    )
    learners = learners[learners["arm"].isin(references(studies, function))]
    grey = {name: ("--", "x") if name == "least squares" else (":", "+") for name in learners["arm"]}
    looks = {name: figures.Look(figures.PALETTE["baseline"], name, *line, 1.1) for name, line in grey.items()}
    figures.lines(ax, models, "examples", "error")
    figures.lines(ax, learners, "examples", "error", looks=looks, errorbar=None)
    means = models.groupby(["arm", "examples"])["error"].mean()
    top = max(1.2, 1.1 * models["error"].max())
    ax.axhline(1, color="grey", lw=0.6)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="examples in context", ylabel="squared error / E[y²]", ylim=(0, top))
    if means.min() < SMALL:
        ax.set_yscale("log")
        ax.set_ylim(0.8 * max(models["error"].min(), SMALL / 100), top)
        figures.plain_ticks(ax.yaxis, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1))
