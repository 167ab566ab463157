"""The ledger of all papers: derived from the records, written to ``results/claims.csv``, shown as a table."""

from pathlib import Path

import pandas as pd

from entp_lib.collection.claims import MIN_PAIRS, Check, Measurement, judge
from entp_lib.files import write_atomically
from entp_lib.runs.records import Store


def ledger(store: Store | None = None) -> pd.DataFrame:
    """Every claim with its verdict, recomputed from the records; those that nothing measures: not attempted.

    A claim rests on the highest tier that has enough pairs to conclude, else on the highest that measures it.
    """
    from entp_lib.collection.experiment import BEST_FIRST
    from entp_lib.papers import EXPERIMENTS

    store = store or Store()
    found: dict[str, list[Measurement | Check]] = {}
    for experiment in EXPERIMENTS.values():
        for tier in BEST_FIRST:
            for m in experiment.measure(experiment.stored(store, tier) or []):
                found.setdefault(m.claim, []).append(m)
    # One seed at a higher tier cannot conclude: it must not hide five at a lower one.
    return judge([max(ms, key=lambda m: isinstance(m, Check) or len(m.values) >= MIN_PAIRS) for ms in found.values()])


def write_ledger(store: Store | None = None, path: Path | None = None) -> pd.DataFrame:
    """Recompute the ledger and write it to ``path``, by default ``results/claims.csv``."""
    store = store or Store()
    table = ledger(store)
    text = table.to_csv(index=False, float_format="%.6g")
    write_atomically(path or store.root / "claims.csv", text.encode())
    return table
