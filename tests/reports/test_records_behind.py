"""What the ledger names as a row's records is what the row rests on: they alone give the same values again."""

import pytest

from entp_lib.config import TIERS
from entp_lib.experiments.measurements import Measurement, name_of
from entp_lib.records.store import Store
from entp_lib.registry import EXPERIMENTS

# Experiments that measure nothing where other arms are missing.
WHOLE = {
    "openwebtext",
    "compact_capacity",
    "compact_graph",
    "compact_activations",
    "compact_walk_activations",
    "compact_abstraction",
    "compact_lengths",
    "pretrained_prompts",
}


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - WHOLE))
def test_the_records_that_a_row_names_give_its_values(name):
    experiment, store = EXPERIMENTS[name], Store(read_only=True)
    for tier in TIERS:
        records = {name_of(r): r for r in experiment.stored(store, tier) or []}
        for found in experiment.measurements(list(records.values())) if records else []:
            if not isinstance(found, Measurement) or not set(found.records) <= set(records):
                continue  # a row may rest on another tier's runs
            again = experiment.measurements([r for n, r in records.items() if n in set(found.records)])
            (same,) = (m for m in again if m.claim == found.claim)
            assert list(same.values) == pytest.approx(list(found.values), abs=1e-12), (tier, found.claim)


def test_a_row_that_needs_all_its_experiments_records_names_some_of_them():
    store = Store(read_only=True)
    for name in sorted(WHOLE):
        records = EXPERIMENTS[name].stored(store, "quick") or EXPERIMENTS[name].stored(store, "overnight")
        names = {name_of(r) for r in records}
        measured = [m for m in EXPERIMENTS[name].measurements(records) if isinstance(m, Measurement)]
        assert measured and all(m.records and set(m.records) <= names for m in measured), name
