"""The ledger of all papers, derived from the records: claims of papers, and apart from them our own questions."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from entp_lab import paths
from entp_lab.claims import UNINFORMATIVE, excludes_paper, judge, multiplicity, readable
from entp_lab.configs import BEST_FIRST, RunConfig
from entp_lab.experiment import Experiment
from entp_lab.frames import select
from entp_lab.measurements import Check, Measurement, Observation, strongest
from entp_lab.provenance import pairs_apart, processes
from entp_lab.registry import EXPERIMENTS, build_task
from entp_lab.settings import differing_settings, stated_settings
from entp_lab.store import Record, Store
from entp_lab.tables import read_table
from entp_lib.files import write_atomically

# Units of claims that compare last weights.
SCORES = ("accuracy", "accuracy per token", "error", "nats", "normalised squared error")


def ledger(store: Store | None = None) -> pd.DataFrame:
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
    measured = []
    for experiment in EXPERIMENTS.values():
        for tier in BEST_FIRST:
            records = {record.name: record for record in experiment.stored(store, tier) or []}
            measured += [(m, (experiment, records)) for m in experiment.measure(list(records.values()))]
    best = strongest(measured).values()  # one seed at a higher tier cannot conclude: it must not hide five at a lower
    table, differs, caveats, levels = judge([m for m, _ in best]), {}, {}, {}
    stated, units = stated_settings(), dict(zip(table["id"], table["unit"], strict=True))
    for m, (experiment, records) in best:
        names = set(m.records)
        used = [record for name, record in records.items() if name in names]
        caveats[m.claim] = caveats_of(experiment, used, m, units[m.claim])
        if not isinstance(m, Check):  # which compares no runs
            runs = experiment.plan("paper", 1)
            runs = select(runs, **experiment.figure_labels) or runs
            differs[m.claim] = differing_settings(used, runs, stated.get(m.claim, {}))
        if isinstance(m, Measurement) and m.levels:
            levels[m.claim] = abs(m.levels[0].ceiling - m.levels[0].floor)
    usual = table["unit"].map({"accuracy": 1.0, "error": 1.0})
    differs, caveats = (table["id"].map(found).fillna("") for found in (differs, caveats))
    main = set(main_rows())
    excludes = [excludes_paper(row) for row in table.to_dict("records")]
    parts = [part_of(row.id, row.verdict, main) for row in table.itertuples()]
    table = table.assign(differs=differs, excludes_paper=excludes, caveats=caveats, part=parts)
    return table.assign(scale=table["id"].map(levels).fillna(usual))


def main_rows() -> list[str]:
    """Ids of the rows that matter, of ``results/reference/main_rows.csv``; all others are the annex."""
    return read_table(paths.reference() / "main_rows.csv", ["id"], needed=("id",))["id"].tolist()


def part_of(claim: str, verdict: str, main: Collection[str]) -> str:
    """Whether a row is of the ledger's ``main`` part, of its ``annex``, or of what ``could not tell``."""
    if verdict == UNINFORMATIVE:
        return "could not tell"
    return "main" if claim in main else "annex"


def caveats_of(
    experiment: Experiment, used: Sequence[Record], measurement: Measurement | Check | Observation, unit: str
) -> str:
    """Caveats of the verdict on a measurement, in ``unit``, that rests on the records ``used``.

    A check or an observation, which pair nothing, may rest on any machine. That models were not at rest is said where
    they are compared by a score, not by how soon they have one; a task's own caveat everywhere.
    """
    dirty = sum(any([process.get("dirty") for process in processes(record)]) for record in used)
    said = [f"{dirty} of {len(used)} records by code that no commit has"] if dirty else []
    if isinstance(measurement, Measurement):
        tasks = {str(r.config.task_params): r.config for r in used if isinstance(r.config, RunConfig)}
        said += dict.fromkeys(build_task(c.task, c.task_params).caveat for c in tasks.values())
        said += [pairs_apart(used), experiment.still_improving_note(used) if unit in SCORES else ""]
    return "; ".join(filter(None, said))


def write_ledger(store: Store | None = None, folder: Path | None = None) -> pd.DataFrame:
    """Recompute the ledger and write ``claims.csv`` and ``questions.csv`` to ``folder``, by default ``results/``."""
    store = store or Store()
    table = ledger(store)
    asked = table["kind"] == "question"
    for name, part in (("claims", table[~asked]), ("questions", table[asked])):
        text = part.drop(columns=["kind", "scale"]).to_csv(index=False, float_format="%.6g")
        write_atomically((folder or store.root) / f"{name}.csv", text.encode())
    return table


def claims_command(_: argparse.Namespace) -> int:
    """``claims``: recompute the ledger and print it; a damaged record is an error that names it."""
    table, columns = write_ledger(Store(read_only=True)), ["ours", "95 % interval", "tier", "seeds", "where"]
    asked = table["kind"] == "question"
    print(readable(table[~asked], ["paper", "paper excluded", *columns]).to_string())
    print(f"\nOur own questions\n{readable(table[asked], columns).to_string()}\n\n{multiplicity(table)}")
    return 0
