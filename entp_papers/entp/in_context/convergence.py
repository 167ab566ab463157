"""Convergence of the curves of notebook 08: which are flat, and errors at late points besides those at all.

The rules were written down before the runs of the ``overnight`` tier (docs/journal). A comparison whose arms are
flat is one of where they end; any other is one after so many steps, and is said to be.
"""

from collections.abc import Sequence

import pandas as pd

from entp_lib.experiments.budgets import EQUAL_FORWARDS
from entp_lib.experiments.compare_with_committed import committed
from entp_lib.experiments.experiment import Experiment
from entp_lib.experiments.frames import interval_text, select
from entp_lib.records.store import Record, Store
from entp_papers.entp.in_context.experiment import AT_LOWER_RATE, flatness, gap, table, task_of

REGRESSION = ("linear", "sparse", AT_LOWER_RATE)  # the classes of Figure 7
COMPARED = (("decoder", "entp"), (EQUAL_FORWARDS, "entp"), ("decoder", "hybrid"))  # first − second


def stage(records: Sequence[Record]) -> str:
    """Stage of a comparison of the arms in ``records``: "flat" where all are, else "after 10,000 steps"."""
    found = flatness(records)
    if found["flat"].all():
        return "flat"
    return f"after {' and '.join(f'{steps:,}' for steps in sorted(set(found['steps'])))} steps"


def ends(records: Sequence[Record]) -> pd.DataFrame:
    """A row per tier, class and arm, means over seeds: training error by fifth, whether flat, error, late error.

    ``errors of the seeds`` are those that ``error`` is the mean of, in ascending order.
    """
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
    below = committed(experiment, records, store=store)
    return [*records, *(r for r in below if task_of(r).function not in there)]
