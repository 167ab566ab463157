"""Judge every claim by the records, and compare decoder and ENTP at equal steps and at equal compute."""

from pathlib import Path

import pandas as pd

from entp_lab import claims, paths
from entp_lab.claims import OPEN, UNINFORMATIVE
from entp_lab.configs import BEST_FIRST, RunConfig
from entp_lab.experiment import Experiment, PlannedRun
from entp_lab.frames import select
from entp_lab.measurements import Check, Finding, Measurement, strongest
from entp_lab.provenance import pairs_apart, processes
from entp_lab.registry import EXPERIMENTS, build_task, papers
from entp_lab.settings import differing_settings, stated_settings
from entp_lab.statistics import holm, p_value
from entp_lab.store import Records, Store
from entp_lab.tables import read_table
from entp_lib.files import write_atomically
from entp_lib.validation import Json, require

# Units of claims that compare final weights.
SCORES = (
    "accuracy",
    "accuracy per token",
    "error",
    "ln(ratio of errors)",
    "nats",
    "normalised squared error",
)
BUDGETS = {"equal_steps": "equal steps", "equal_multiply_adds": "equal multiply-adds"}
AHEAD = "ENTP ahead"
BEHIND = "decoder ahead"
UNDECIDED = {"not attempted": "not run yet", OPEN: OPEN, UNINFORMATIVE: UNINFORMATIVE}


def compute(store: Store | None = None) -> pd.DataFrame:
    """Judge every claim and question by the records; *not attempted* if none measures it.

    A row rests on the highest tier with enough pairs and some learning, else on the highest with enough pairs, else on
    the highest that measures it. Columns added to those of ``claims.csv``: ``scale``, the distance from guessing to the
    best possible score in the unit of the row (1 for accuracies and errors without levels, NaN if unknown);
    ``differs``, the settings that differ from the paper's (``settings``); ``excludes_paper``, whether our interval
    excludes the paper's value; ``caveats`` of the verdict, such as uncommitted code, pairs from different machines, or
    models that were still improving; ``part``: ``main``, ``annex`` or ``could not tell``. No row rests on seconds.
    """
    store = store or Store()
    measured: list[tuple[Finding, tuple[Experiment, Records]]] = []
    for experiment in EXPERIMENTS.values():
        stored = {record.config.tier for record in store.all(experiment.name)}
        for tier in BEST_FIRST:
            if tier not in stored:
                continue
            records = experiment.stored(store, tier)
            found = experiment.measure(records)
            measured += [(measurement, (experiment, records)) for measurement in found]
    measured.sort(key=lambda one: BEST_FIRST.index(one[0].tier))  # the highest tier first
    best = strongest(measured).values()
    table = claims.judge([measurement for measurement, _ in best])
    units = claims.reference_claims()["unit"]
    stated = stated_settings()
    differs = {}
    caveats = {}
    levels = {}
    for measurement, (experiment, records) in best:
        claim = measurement.claim
        used = [record for record in records if record.name in measurement.records]
        caveats[claim] = caveats_of(experiment, used, measurement, units[claim])
        if not isinstance(measurement, Check):  # a check compares no runs
            of_paper = runs_of_paper(experiment)
            differs[claim] = differing_settings(used, of_paper, stated[claim])
        if isinstance(measurement, Measurement) and measurement.levels:
            first = measurement.levels[0]
            levels[claim] = abs(first.ceiling - first.floor)
    part = table["id"].isin(main_rows()).map({True: "main", False: "annex"})
    return table.assign(
        differs=table["id"].map(differs).fillna(""),
        excludes_paper=claims.excludes_paper(table),
        caveats=table["id"].map(caveats).fillna(""),
        part=part.mask(table["verdict"] == UNINFORMATIVE, "could not tell"),
        scale=table["id"].map(levels).fillna(table["unit"].map({"accuracy": 1.0, "error": 1.0})),
    )


def runs_of_paper(experiment: Experiment) -> list[PlannedRun]:
    """Return the runs of the paper's tier that an experiment's settings are compared with."""
    planned = experiment.plan("paper", 1)
    if not planned and experiment.paper_runs_of:
        return runs_of_paper(EXPERIMENTS[experiment.paper_runs_of])
    return select(planned, **experiment.figure_labels) or planned


def main_rows() -> list[str]:
    """Return the ids of the main rows, from ``results/reference/main_rows.csv``; all others form the annex."""
    return read_table(paths.reference() / "main_rows.csv", ["id"], needed=("id",))["id"].tolist()


def caveats_of(experiment: Experiment, used: Records, measurement: Finding, unit: str) -> str:
    """List the caveats of the verdict on a measurement, in ``unit``, that rests on the records ``used``.

    Checks and observations pair no runs, so that they may rest on any machine. Models that had not converged are noted
    where final scores are compared, not where the time to reach a score is. A task's own caveat always counts.
    """
    found = []
    dirty = sum(any(process.get("dirty") for process in processes(record)) for record in used)
    if dirty:
        found.append(f"{dirty} of {len(used)} records by code that no commit has")
    if isinstance(measurement, Measurement):
        configs = {
            str(r.config.task_params): r.config for r in used if isinstance(r.config, RunConfig)
        }
        tasks = [build_task(config.task, config.task_params) for config in configs.values()]
        found += dict.fromkeys(task.caveat for task in tasks)
        found.append(pairs_apart(used))
        if unit in SCORES:
            found.append(experiment.still_improving_note(used))
    return "; ".join(filter(None, found))


def write_ledger(store: Store, folder: Path) -> pd.DataFrame:
    """Recompute the ledger and write ``claims.csv`` and ``questions.csv`` to ``folder``.

    Raises ConfigError if the package of a paper with claims is missing, since its rows would all be *not attempted*.
    """
    for paper in claims.reference_claims()["paper"].unique():
        require(
            paper in papers(),
            f"entp_papers/{paper} is missing, and results/reference/{paper} has its claims: remove both or none",
        )
    table = compute(store)
    is_question = table["kind"] == "question"
    for name, part in (("claims", table[~is_question]), ("questions", table[is_question])):
        text = part.drop(columns=["kind", "scale"]).to_csv(index=False, float_format="%.6g")
        write_atomically(folder / f"{name}.csv", text.encode())
    return table


# Decoder and ENTP compared at equal steps and at equal compute.


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task and budget: value, low, high, margin and ``unit``, answer, tier, seeds, claim and records.

    ``results/reference/<paper>/comparisons.csv`` names the row of the ledger ``table`` for each task and budget.
    ``unit`` is "share", of the distance from guessing to the best possible score (positive if ENTP leads), or "nats"
    for text. The answer follows the rule of our own questions even if a paper claims the row, and is open if the
    verdict is. Raises KeyError for a claim that the ledger lacks.
    """
    files = sorted(
        paths.reference().glob("*/comparisons.csv"), key=lambda p: (p.parent.name != "entp", p)
    )
    columns = ["task", *BUDGETS, "drawn_as"]
    tasks = pd.concat([read_table(path, columns, needed=("task", "equal_steps")) for path in files])
    rows = table.set_index("id")
    margins = claims.reference_claims()["margin"]
    found = []
    for task in tasks.fillna("").to_dict("records"):
        for column, budget in BUDGETS.items():
            if claim := task[column]:
                found.append(
                    {
                        "task": task["task"],
                        "drawn_as": task["drawn_as"],
                        "budget": budget,
                        "claim": claim,
                        **compared(rows.loc[claim], margins[claim]),
                    }
                )
    return pd.DataFrame(found)


def compared(row: pd.Series, margin: float) -> Json:
    """Return one row of the ledger in the form of ``comparisons``."""
    is_text = row.get("unit") == "nats"
    scale = 1.0 if is_text else row["scale"]
    by_rule = claims.answer(
        row["low"],
        row["high"],
        pairs=row["seeds"],
        margin=margin,
        positive=AHEAD,
        negative=BEHIND,
    )
    return {
        "unit": "nats" if is_text else "share",
        "value": row["our_value"] / scale,
        "low": row["low"] / scale,
        "high": row["high"] / scale,
        "margin": margin / scale,
        "answer": UNDECIDED.get(row["verdict"], by_rule),
        **row[["tier", "seeds", "records"]],
    }


def standing(table: pd.DataFrame) -> tuple[set[str], pd.DataFrame]:
    """Return the ids that stand after Holm's correction, and the rows of all intervals that test a difference."""
    measured = claims.tested(table)
    p_values = [
        p_value(row.our_value, row.low, row.high, int(row.seeds)) for row in measured.itertuples()
    ]
    return set(measured.loc[holm(p_values), "id"]), measured
