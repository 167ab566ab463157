"""What stands beside a notebook's records: the committed, where it was changed, and quick where a tier lacks arms."""

from collections.abc import Sequence

import pandas as pd

from entp_lib.collection.changes import texts
from entp_lib.collection.experiment import Experiment
from entp_lib.collection.frames import mean_table, summary
from entp_lib.config import RunConfig
from entp_lib.runs.records import Record, Store

SCORES = ("loss", "token_accuracy", "sequence_accuracy")
COMMON = ("seed", "architecture", "tier", "changed")  # labels that tell no two lines of the table apart


def beside_committed(
    experiment: Experiment, records: Sequence[Record], store: Store | None = None
) -> pd.DataFrame | None:
    """Final scores of changed runs and of the committed ones of their tier, means over seeds with 95 % intervals.

    A line for each arm, and for whatever else the runs differ in; None where nothing was changed. ``runs`` says how
    many there are of each. There is no committed column where that tier has no whole records.
    """
    changed = [r for r in records if r.labels.get("changed") and isinstance(r.config, RunConfig)]
    if not changed:
        return None
    committed = experiment.stored(store or Store(), changed[0].config.tier) or []
    committed = [r for r in committed if isinstance(r.config, RunConfig)]
    by = telling_apart([*committed, *changed])
    parts = {"committed": committed, texts(changed)[0]: changed}
    tables = {name: scores_of(found, by) for name, found in parts.items() if found}
    table = pd.concat(tables, axis=1).swaplevel(axis=1)
    order = [(score, name) for score in (*SCORES, "runs") for name in tables if (score, name) in table]
    return table[order].fillna("")


def show_beside_committed(experiment: Experiment, records: Sequence[Record]) -> None:
    """Show that table in a notebook, nothing where nothing was changed."""
    from IPython.display import display

    table = beside_committed(experiment, records)
    if table is not None:
        display(table)


def by_tier(
    experiment: Experiment, records: Sequence[Record], labels: Sequence[str], store: Store | None = None
) -> dict[str, list[Record]]:
    """``records``, of one tier, under its name, and all of quick's under theirs if that tier lacks arms of quick.

    Arms are told apart by ``labels``. Quick stands beside no smoke run, which is shown as soon as it is made, and not
    where its records are not whole.
    """
    tier, shown = records[0].config.tier, {records[0].config.tier: list(records)}
    if tier in ("smoke", "quick"):
        return shown
    quick = experiment.stored(store or Store(), "quick") or []
    arms, of_quick = ({tuple(r.labels.get(n) for n in labels) for r in part} for part in (records, quick))
    return shown | ({"quick": quick} if of_quick - arms else {})


def telling_apart(records: Sequence[Record]) -> list[str]:
    """The labels that differ among records, whichever have them all; the arm in any case, last."""
    names = [n for n in records[0].labels if n not in (*COMMON, "arm") and all(n in r.labels for r in records)]
    return [*(n for n in names if len({r.labels[n] for r in records}) > 1), "arm"]


def scores_of(records: Sequence[Record], by: Sequence[str]) -> pd.DataFrame:
    """Means and intervals of ``SCORES`` and the number of runs, by labels."""
    table = summary(records)
    found = mean_table(table, [score for score in SCORES if score in table], by=by)
    return found.assign(runs=table.groupby(list(by), sort=False).size().to_numpy())
