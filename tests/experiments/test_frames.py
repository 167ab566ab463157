"""Frames of records: whose seconds they count, which differences are pairs, what a table of costs says."""

import math

import pandas as pd
import pytest

from entp_lib.experiments.frames import (
    curves,
    gap_table,
    paired,
    seconds_name,
    summary,
)
from entp_lib.experiments.measurements import Measurement
from entp_lib.records.store import Record
from entp_papers.entp.count3 import COUNT3

CLOCK = dict(wall_seconds=400.0, train_seconds=300.0, steps=1200, device="cpu", peak_memory_bytes=3 * 2**20)


def records(tier, **changes):
    """A decoder's and ENTP's run of one seed, 100 of whose 400 seconds by the clock were the processor's."""
    runs = [run for run in COUNT3.plan(tier, 1) if run.labels["arm"] in ("decoder", "entp")][:2]
    course = {"step": [600, 1200], "seconds": [150.0, 300.0], "token_accuracy": [0.5, 0.9]}
    made = []
    for run, tokens in zip(runs, (1000, 3000), strict=True):
        provenance = {**CLOCK, "cpu_seconds": 100.0, "token_forwards": tokens, **changes}
        made.append(Record("count3", 1, run.config, {"baseline": {}}, dict(course), provenance))
    return COUNT3.labelled(made, runs)


@pytest.mark.parametrize(
    ("tier", "changes", "share", "name"),
    [
        ("quick", {}, 0.25, "seconds of the processor"),
        ("quick", {"cpu_seconds": 0.0}, 1.0, "seconds of the clock, cores shared"),
        ("gpu", {}, 1.0, "seconds of the clock"),
    ],
)
def test_seconds_are_the_processors_where_it_did_the_work(tier, changes, share, name):
    found = records(tier, **changes)
    assert seconds_name(found) == name
    assert list(summary(found)["train_seconds"]) == pytest.approx([300 * share] * 2)
    assert list(curves(found)["seconds"]) == pytest.approx([150 * share, 300 * share] * 2)


def test_a_run_without_its_twin_is_no_pair():
    found = gap_table({10: [0.1, math.nan, 0.3], 11: pd.Series([-0.1]), 12: []})
    assert list(found["pairs"]) == [2, 1, 0] and list(found["above zero"]) == ["2 of 2", "0 of 1", "0 of 0"]
    assert found["mean"].tolist() == pytest.approx([0.2, -0.1, math.nan], nan_ok=True)
    assert found.loc[10, "low"] < 0 < found.loc[10, "high"] and math.isnan(found.loc[11, "low"])


def test_a_run_without_a_score_decides_nothing_and_is_not_passed_over():
    """A seed that has no twin is none; one whose run has no finite score is, and says so."""
    rows = [(0, "decoder", 0.1), (0, "entp", 0.3), (1, "decoder", math.nan), (1, "entp", 0.3), (2, "entp", 0.2)]
    found = paired(pd.DataFrame(rows, columns=["seed", "arm", "loss"]), "loss", "decoder", "entp")
    assert list(found.index) == [0, 1] and found[0] == pytest.approx(-0.2) and math.isnan(found[1])
    nobody = pd.DataFrame([(*row[:2], math.nan) for row in rows], columns=["seed", "arm", "loss"])
    assert paired(nobody, "loss", "decoder", "entp").empty
    measured = Measurement("x", [0.1, 0.2, 0.1, math.nan, 0.2], "quick")
    assert measured.undecided == "1 of 5 pairs without a score"
    assert Measurement("x", [0.1, 0.2, 0.1, 0.3, 0.2], "quick").undecided == ""
