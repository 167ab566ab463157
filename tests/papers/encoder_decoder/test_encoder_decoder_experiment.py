"""Verdicts on three objectives follow the paired scores."""

import pytest

from entp_lab import claims
from entp_lab.store import Record
from entp_papers.encoder_decoder.experiment import ARMS, measure_objectives, plan_objectives

SCORES = dict(next_token_loss=2.5, middle_loss=2.5, middle_loss_few=2.4, accuracy=0.2, unigram=3.4)
BETTER = dict(next_token_loss=3.0, middle_loss=2.0, accuracy=0.3, middle_loss_few=1.5)
NOTHING = dict(next_token_loss=3.39, accuracy=0.03)


def trained(changes):
    """Return records of training as if made, with other scores by arm."""
    records = []
    for run in plan_objectives("quick", 5):
        arm = run.labels["arm"]
        noise = 0.001 * run.labels["seed"] * (1 + (arm == "masked"))
        scores = SCORES | changes.get(arm, {})
        metrics = {name: value + noise for name, value in scores.items()}
        metrics["candidate_loss"] = 1.0 if arm == "decoder" else None
        records.append(Record("objectives", 1, run.config, metrics, {}, {}, labels=run.labels))
    return records


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"masked": BETTER},
            {
                "ED-next-token": "same direction",
                "ED-classification": "same direction",
                "ED-bayes": "decoder ahead",
                "ED-entp-next": "equal within the margin",
            },
        ),
        (
            dict.fromkeys(ARMS, NOTHING),
            {"ED-next-token": "uninformative", "ED-classification": "uninformative"},
        ),
    ],
)
def test_verdicts_follow_the_paired_scores(changes, expected):
    judged = claims.judge(measure_objectives(trained(changes)), only_measured=True)
    verdicts = judged.set_index("id")["verdict"].to_dict()
    assert expected.items() <= verdicts.items()
