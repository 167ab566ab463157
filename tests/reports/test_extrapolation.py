"""Costs by counting: against a count by hand, and in proportion to what is counted."""

from dataclasses import replace

import pytest
from made_up import sound

from entp_lib.models import costs as complexity
from entp_lib.records.store import Record
from entp_lib.reports import costs as extrapolation
from entp_papers.entp.count3 import COUNT3


def test_operations_of_a_run_by_hand(small_run):
    """8 tokens; prefixes of 4 to 8 tokens are wanted; forward and backward are three forwards."""
    decoder, entp = small_run("decoder"), small_run("entp")
    sequences = decoder.train.steps * decoder.train.batch_size
    unread = 3 * complexity.head(decoder.model)  # of 8 tokens 5 are wanted, and go through the output layer
    once = complexity.decoder_pass(decoder.model, 8) - unread
    assert extrapolation.training_operations(decoder) == 3 * sequences * once
    assert extrapolation.training_operations(entp) == 3 * sequences * complexity.entp_fast(entp.model, range(4, 9), 8)
    longer = replace(decoder, train=replace(decoder.train, steps=24))
    assert extrapolation.training_operations(longer) == 2 * extrapolation.training_operations(decoder)


def test_rows_are_for_tiers_without_records(store):
    assert extrapolation.costs(store).empty  # no rate without quick runs
    cost = {"train_seconds": 100.0, "steps": 1}
    configs = COUNT3.configs("quick")
    for config in configs:
        store.save(sound(Record("count3", COUNT3.version, config, {}, {}, cost)))
    table = extrapolation.costs(store).set_index(["experiment", "tier"])
    assert set(table.index) == {("count3", "gpu"), ("count3", "paper")}
    hours = float(table.loc[("count3", "gpu"), "core-hours"].replace(",", ""))
    rate = extrapolation.tier_operations(COUNT3, "quick") / (100 * len(configs))
    assert hours == pytest.approx(extrapolation.tier_operations(COUNT3, "gpu") / rate / 3600, abs=0.6)
