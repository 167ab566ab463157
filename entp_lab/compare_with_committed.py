"""Committed records for comparison with a notebook's: where it was changed, and quick's where a tier lacks arms."""

from collections.abc import Sequence

import pandas as pd

from entp_lab.changes import texts
from entp_lab.configs import RunConfig
from entp_lab.experiment import Experiment
from entp_lab.frames import SCORES, mean_table, summary
from entp_lab.store import Record, Store

COMMON = ("seed", "architecture", "tier", "changed")  # labels that tell no two lines of the table apart


def committed(
    experiment: Experiment, records: Sequence[Record], tier: str = "quick", store: Store | None = None
) -> list[Record]:
    """The records of a whole tier that may be shown with ``records``: none with those of changed runs."""
    return [] if texts(records) else experiment.stored(store or Store(), tier) or []


def committed_comparison(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame | None:
    """Final scores of changed runs, below the committed ones, means over seeds with 95 % intervals; a line an arm.

    Committed are those of the best tier, which the text tells of, and those that were changed. None without changes.
    """
    changed = [r for r in records if r.labels.get("changed") and isinstance(r.config, RunConfig)]
    if not changed:
        return None
    store, title = Store(), texts(changed)[0]
    tiers = dict.fromkeys(tier for tier in (experiment.best_tier(store), changed[0].config.tier) if tier)
    parts = {f"committed, {tier}": experiment.stored(store, tier) or [] for tier in tiers} | {title: changed}
    parts = {name: [r for r in found if isinstance(r.config, RunConfig)] for name, found in parts.items()}
    every = [r for found in parts.values() for r in found]
    names = [n for n in every[0].labels if n not in (*COMMON, "arm") and all(n in r.labels for r in every)]
    by, tables = [*(n for n in names if len({r.labels[n] for r in every}) > 1), "arm"], {}
    for name, found in parts.items():
        if found:
            table = summary(found)
            means = mean_table(table, [score for score in SCORES if score in table], by=by)
            tables[name] = means.assign(runs=table.groupby(by, sort=False).size().to_numpy())
    return pd.concat(tables).swaplevel().loc[list(tables[title].index)].fillna("")


def show_committed_comparison(experiment: Experiment, records: Sequence[Record]) -> None:
    """Show that table in a notebook, whose cells from here on say whose runs they show; nothing if unchanged."""
    from IPython import get_ipython
    from IPython.display import Markdown, display

    table, said, events = committed_comparison(experiment, records), "; ".join(texts(records)), get_ipython().events
    for hook in [hook for hook in events.callbacks["post_run_cell"] if getattr(hook, "__name__", "") == "mark_changed"]:
        events.unregister("post_run_cell", hook)

    def mark_changed(result) -> None:
        if result.success:
            words = f"With changes only your runs are shown ({said}); the text below tells of the committed ones."
            display(Markdown(f"*{words}*"))

    if table is not None:
        display(table)
    if said:
        events.register("post_run_cell", mark_changed)


def by_tier(experiment: Experiment, records: Sequence[Record], labels: Sequence[str]) -> dict[str, list[Record]]:
    """``records``, of one tier, under its name, and all of quick's under theirs if that tier lacks arms of quick.

    Arms are told apart by ``labels``. Quick stands beside no smoke run, which is shown as soon as it is made, and not
    where its records are not whole.
    """
    tier, shown = records[0].config.tier, {records[0].config.tier: list(records)}
    if tier in ("smoke", "quick"):
        return shown
    quick = committed(experiment, records)
    arms, of_quick = ({tuple(r.labels.get(n) for n in labels) for r in part} for part in (records, quick))
    return shown | ({"quick": quick} if of_quick - arms else {})
