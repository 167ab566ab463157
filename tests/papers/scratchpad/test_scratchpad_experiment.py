"""Gaps between scratchpads are taken beyond the trained sizes."""

import pytest

from entp_lab.store import Record
from entp_papers.scratchpad.experiment import (
    SCRATCHPAD_TRAINING,
    plan_training,
    scores_beyond,
    scores_by_size,
)

BEYOND = {
    "inductive decoder": 0.9,
    "ordinary decoder": 0.4,
    "decoder without": 0.5,
    "inductive ENTP": 0.7,
}


@pytest.fixture
def records():
    """Make up records: all is right of trained sizes, and ``BEYOND`` of others."""
    made = []
    for run in plan_training("overnight", 5):
        labels = run.labels
        setting = run.config.params["setting"]
        sizes = setting["test_sizes"]
        score = BEYOND[labels["arm"]] + 0.001 * labels["seed"]
        longest = max(setting["train_sizes"])
        right = [score if size > longest else 1.0 for size in sizes]
        curves = {"size": sizes, "answers_right": right, "texts_right": right}
        curves["state_error"] = [1 - share for share in right]
        made.append(Record("scratchpad_training", 1, run.config, {}, curves, {}, labels=labels))
    return made


@pytest.mark.parametrize(
    ("claim", "gap"), [("IS-parity", 0.5), ("IS-shift", 0.5), ("IS-soft", 0.5), ("IS-entp", -0.2)]
)
def test_gaps_are_taken_beyond_the_trained_sizes(records, claim, gap):
    found = {m.claim: m for m in SCRATCHPAD_TRAINING.measure(records)}
    assert found[claim].values == pytest.approx([gap] * 5)
    assert len(found[claim].records) == 10


def test_scores_beyond_are_means_over_untrained_sizes(records):
    parity = scores_by_size(records).query("beyond and task == 'parity'")
    assert set(parity["size"]) == {10, 12, 14, 16}
    means = scores_beyond(records).groupby(["task", "arm"])["texts_right"].mean()
    assert means["parity", "ordinary decoder"] == pytest.approx(0.402)
