"""What is said of models that had not come to rest where they are compared."""

import pytest

from entp_lib.experiments.convergence import FLAT, still_improving
from entp_lib.records.store import Record
from entp_papers.entp.count3 import COUNT3


def records(climb):
    """Count3's quick runs with a made-up curve each; ``climb``: how much higher the last fifth is, by arm."""
    runs = COUNT3.plan("quick", 2)
    curves = {arm: [0.5] * 16 + [0.5 + more] * 4 for arm, more in climb.items()}
    made = [
        Record("count3", 1, run.config, {}, {"token_accuracy": curves.get(run.labels["arm"], [0.5] * 20)}, {})
        for run in runs
    ]
    return COUNT3.labelled(made, runs)


@pytest.mark.parametrize(
    ("climb", "said"),
    [
        ({}, ""),
        ({"entp": FLAT * 0.99}, ""),
        ({"entp": FLAT * 1.01}, "still improving after 1,200 steps"),
        ({"entp": -0.1}, ""),
    ],
)
def test_an_arm_that_still_rises_is_said(climb, said):
    found = records(climb)
    assert {r.config.train.steps for r in found} == {1200}
    assert still_improving(found) == said
    assert still_improving([]) == "" and still_improving([r for r in found if r.labels["arm"] != "entp"]) == ""
