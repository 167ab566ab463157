"""Judge every claim by the records, and compare decoder and ENTP at equal steps and at equal compute."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from entp_lab import claims, paths
from entp_lab.claims import OPEN, UNINFORMATIVE
from entp_lab.configs import BEST_FIRST, RunConfig
from entp_lab.experiment import Experiment, PlannedRun
from entp_lab.frames import select
from entp_lab.measurements import Check, Measurement, Observation, strongest
from entp_lab.provenance import pairs_apart, processes
from entp_lab.registry import EXPERIMENTS, build_task, papers
from entp_lab.settings import differing_settings, stated_settings
from entp_lab.statistics import holm, p_value
from entp_lab.store import Record, Store
from entp_lab.tables import read_table
from entp_lib.files import write_atomically
from entp_lib.validation import require

Found = Measurement | Check | Observation
# Units of claims that compare last weights.
SCORES = ("accuracy", "accuracy per token", "error", "nats", "normalised squared error")
BUDGETS = {"equal_steps": "equal steps", "equal_multiply_adds": "equal multiply-adds"}
AHEAD = "ENTP ahead"
BEHIND = "decoder ahead"
UNDECIDED = {
    "not attempted": "not run yet",
    "inconclusive": OPEN,
    OPEN: OPEN,
    UNINFORMATIVE: UNINFORMATIVE,
}


def compute(store: Store | None = None) -> pd.DataFrame:
    """Judge every claim and question by the records; *not attempted* where none measures it.

    A row rests on the highest tier that has enough pairs to conclude and has begun to learn, else on the highest that
    has enough pairs, else on the highest that measures it. Columns added to those of ``claims.csv``: ``scale``, the
    distance from what guessing gets to the best there is in the unit of the row (1 for accuracies and errors without
    levels, NaN where it is not known). ``differs``: settings that are not those of the paper (``settings``);
    ``excludes_paper``: whether our interval excludes the paper's value; ``caveats``, the reservations about its
    verdict: code that no commit has, twins that were made apart, models that were still improving; ``part``, by
    ``part_of``. No row rests on seconds.
    """
    store = store or Store()
    measured: list[tuple[Found, tuple[Experiment, dict[str, Record]]]] = []
    for experiment in EXPERIMENTS.values():
        stored = {record.config.tier for record in store.all(experiment.name)}
        for tier in (tier for tier in BEST_FIRST if tier in stored):
            records = {record.name: record for record in experiment.stored(store, tier) or []}
            found = experiment.measure(list(records.values()))
            measured += [(measurement, (experiment, records)) for measurement in found]
    best = strongest(measured).values()
    table = claims.judge([measurement for measurement, _ in best])
    units = dict(zip(table["id"], table["unit"], strict=True))
    stated = stated_settings()
    differs = {}
    caveats = {}
    levels = {}
    for measurement, (experiment, records) in best:
        claim = measurement.claim
        names = set(measurement.records)
        used = [record for name, record in records.items() if name in names]
        caveats[claim] = caveats_of(experiment, used, measurement, units[claim])
        if not isinstance(measurement, Check):  # which compares no runs
            of_paper = runs_of_paper(experiment)
            differs[claim] = differing_settings(used, of_paper, stated.get(claim, {}))
        if isinstance(measurement, Measurement) and measurement.levels:
            levels[claim] = abs(measurement.levels[0].ceiling - measurement.levels[0].floor)
    main = set(main_rows())
    return table.assign(
        differs=table["id"].map(differs).fillna(""),
        excludes_paper=[claims.excludes_paper(row) for row in table.to_dict("records")],
        caveats=table["id"].map(caveats).fillna(""),
        part=[part_of(row.id, row.verdict, main) for row in table.itertuples()],
        scale=table["id"].map(levels).fillna(table["unit"].map({"accuracy": 1.0, "error": 1.0})),
    )


def runs_of_paper(experiment: Experiment) -> list[PlannedRun]:
    """Return the runs of the paper's tier that an experiment's settings are held against."""
    planned = experiment.plan("paper", 1)
    if not planned and experiment.paper_runs_of:
        return runs_of_paper(EXPERIMENTS[experiment.paper_runs_of])
    return select(planned, **experiment.figure_labels) or planned


def main_rows() -> list[str]:
    """Return the ids of the rows that matter, of ``results/reference/main_rows.csv``; all others are the annex."""
    return read_table(paths.reference() / "main_rows.csv", ["id"], needed=("id",))["id"].tolist()


def part_of(claim: str, verdict: str, main: Collection[str]) -> str:
    """Say whether a row is of the ledger's ``main`` part, of its ``annex``, or of what ``could not tell``."""
    if verdict == UNINFORMATIVE:
        return "could not tell"
    return "main" if claim in main else "annex"


def caveats_of(
    experiment: Experiment, used: Sequence[Record], measurement: Found, unit: str
) -> str:
    """List the caveats of the verdict on a measurement, in ``unit``, that rests on the records ``used``.

    A check or an observation, which pair nothing, may rest on any machine. That models were not at rest is said where
    they are compared by a score, not by how soon they have one; a task's own caveat everywhere.
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


def write_ledger(store: Store | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Recompute the ledger and write ``claims.csv`` and ``questions.csv`` to ``folder``, by default ``results/``.

    ConfigError where the folder of a paper with claims is missing, whose rows would be those of nothing attempted.
    """
    for paper in claims.reference_claims()["paper"].unique():
        require(
            paper in papers(),
            f"entp_papers/{paper} is missing, and results/reference/{paper} has its claims: remove both or none",
        )
    store = store or Store()
    table = compute(store)
    is_question = table["kind"] == "question"
    for name, part in (("claims", table[~is_question]), ("questions", table[is_question])):
        text = part.drop(columns=["kind", "scale"]).to_csv(index=False, float_format="%.6g")
        write_atomically((folder or store.root) / f"{name}.csv", text.encode())
    return table


# What decoder and ENTP have at equal steps and at equal compute.


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a task and budget: value, low, high and margin in ``unit``, answer, tier, seeds, claim and records.

    ``results/reference/<paper>/comparisons.csv`` says which row of the ledger ``table`` answers for which task at which
    budget. ``unit`` is "share" of the way from guessing to a perfect score, positive where ENTP is ahead, or "nats" of
    text. The answer follows the rule of our own questions, whether a paper claims the row or not, and is open where its
    verdict is. KeyError for a claim that the ledger does not have.
    """
    files = sorted(
        paths.reference().glob("*/comparisons.csv"), key=lambda p: (p.parent.name != "entp", p)
    )
    columns = ["task", *BUDGETS, "drawn_as"]
    tasks = pd.concat([read_table(path, columns, needed=("task", "equal_steps")) for path in files])
    rows = table.set_index("id")
    margins = claims.reference_claims().set_index("id")["margin"]
    found = []
    for task in tasks.fillna("").to_dict("records"):
        for column, budget in BUDGETS.items():
            claim = task[column]
            if claim:
                about = {
                    "task": task["task"],
                    "drawn_as": task["drawn_as"],
                    "budget": budget,
                    "claim": claim,
                }
                found.append(about | compared(rows.loc[claim], margins[claim]))
    return pd.DataFrame(found)


def compared(row: pd.Series, margin: float) -> dict[str, Any]:
    """Return one row of the ledger as ``comparisons`` has it."""
    is_text = row.get("unit") == "nats"
    scale = 1.0 if is_text else row["scale"]
    pairs = int(row["seeds"])
    by_rule = claims.answer(
        row["low"], row["high"], pairs=pairs, margin=margin, positive=AHEAD, negative=BEHIND
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
    """Return the rows that stand after Holm's correction over all intervals that test a difference, and those rows."""
    measured = claims.tested(table)
    p_values = [
        p_value(row.our_value, row.low, row.high, int(row.seeds)) for row in measured.itertuples()
    ]
    return set(measured.loc[holm(p_values), "id"]), measured
