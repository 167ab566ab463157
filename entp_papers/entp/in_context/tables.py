"""Tables of notebook 08: errors by number of examples, shifts, compute, settings, and whether
curves had ended.

Errors are divided by E[y²] throughout. Classical learners have their names in the place of arms.
The rules of what is flat were written down before the runs of the ``overnight`` tier
(docs/journal): a comparison whose arms are flat is one of where they end; any other is one after so
many steps, and is said to be.
"""

import pandas as pd

from entp_lab.frames import curves
from entp_lab.store import Records
from entp_lib.tasks import InContext
from entp_papers.entp.in_context.experiment import task_of


def by_examples(records: Records) -> pd.DataFrame:
    """Return the error of each run by number of examples, in long form."""
    parts = []
    for r in records:
        task = task_of(r)
        errors = {
            "function": task.function,
            "arm": r.labels["arm"],
            "seed": r.config.model_seed,
            "examples": [(n - 1) // 2 for n in r.metrics["position"]],
            "error": [e / task.normaliser for e in r.metrics["loss_by_position"]],
        }
        parts.append(pd.DataFrame(errors))
    return pd.concat(parts, ignore_index=True)


def learners_by_examples(studies: Records) -> pd.DataFrame:
    """Return the same of the classical learners."""
    parts = []
    for r in studies:
        for name in r.metrics["prompts"]:
            errors = {
                "function": task_of(r).function,
                "arm": name,
                "seed": r.config.data_seed,
                "examples": r.curves["examples"],
                "error": r.curves[f"standard | {name}"],
            }
            parts.append(pd.DataFrame(errors))
    return pd.concat(parts, ignore_index=True)


def least_squares(task: InContext) -> pd.DataFrame:
    """Return what least squares has in expectation on functions w·x, in place of a study: 1 - k/d
    with k < d examples, else 0.

    The shortest w that fits k random x's is the projection of the true one onto them.
    """
    examples = range(task.points)
    errors = [max(0.0, 1 - k / task.dims) for k in examples]
    return pd.DataFrame(
        {"function": task.function, "arm": "least squares", "examples": examples, "error": errors}
    )


def courses(records: Records) -> pd.DataFrame:
    """Return ``curves`` with the error."""
    course = curves(records)
    normalisers = {r.labels["function"]: task_of(r).normaliser for r in records}
    return course.assign(error=course["loss"] / course["function"].map(normalisers))
